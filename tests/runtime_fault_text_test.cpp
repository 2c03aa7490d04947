// SPDX-License-Identifier: Apache-2.0
// What a fault says to people: who waited, in which call and slot, for whom, where.
#include <gtest/gtest.h>

#include <string>

#include "moetail/moetail.hpp"

namespace moetail {
namespace {

using protocol::FaultKind;
using protocol::FaultRecord;
using protocol::HeaderField;
using protocol::Site;

FaultRecord record_of(FaultKind kind, Site site) {
  FaultRecord record;
  record.kind = kind;
  record.site = site;
  record.rank = 3;
  record.peer = 5;
  record.layer = 17;
  record.slot = 1;
  record.epoch = 40;
  return record;
}

TEST(RuntimeFaultText, Deadline) {
  FaultRecord record = record_of(FaultKind::deadline, Site::latent_poll);
  record.token = 2;
  record.elapsed_ns = 10'012'000'000;
  EXPECT_EQ(
      FaultReport{record}.text(),
      "fault at latent_poll: rank 3, layer 17, call 41 (slot 1): waited for rank 5, token 2 and nothing came "
      "within 10.012 s");
  record.site = Site::rows_poll;
  record.k = 7;
  EXPECT_NE(FaultReport{record}.text().find("waited for rank 5, token 2, route 7 and"), std::string::npos);
  record.peer = record.token = record.k = -1;
  record.layer = 0;
  EXPECT_NE(FaultReport{record}.text().find("rank 3, call 41 (slot 1): waited and nothing came"),
            std::string::npos);
}

TEST(RuntimeFaultText, OtherKinds) {
  EXPECT_EQ(FaultReport{record_of(FaultKind::poisoned, Site::consume)}.text(),
            "fault at consume: rank 3, layer 17, call 41 (slot 1): rank 5 faulted first");
  EXPECT_EQ(FaultReport{record_of(FaultKind::aborted, Site::gather_poll)}.text(),
            "fault at gather_poll: rank 3, layer 17, call 41 (slot 1): aborted by the host");
  FaultRecord record = record_of(FaultKind::header_mismatch, Site::header_poll);
  record.field = HeaderField::batch;
  record.expected = 4;
  record.seen = 6;
  EXPECT_EQ(FaultReport{record}.text(),
            "fault at header_poll: rank 3, layer 17, call 41 (slot 1): ranks 3 and 5 disagree: batch is 4 "
            "here and 6 "
            "there");
  record.field = HeaderField::mode;
  record.expected = static_cast<int>(Mode::front);
  record.seen = static_cast<int>(Mode::publish);
  EXPECT_NE(FaultReport{record}.text().find("mode is front here and publish there"), std::string::npos);
  record.seen = 99;  // a mailbox holds what a peer wrote
  EXPECT_NE(FaultReport{record}.text().find("mode is front here and 99 there"), std::string::npos);
  record = record_of(FaultKind::map_index, Site::latent_publish);
  record.token = 1;
  record.k = 9;
  record.seen = 70;
  record.expected = 64;
  const std::string text = FaultReport{record}.text();
  EXPECT_NE(text.find("map[token 1, k 9] = 70: accepted is below P = 64"), std::string::npos) << text;
  EXPECT_EQ(FaultReport{record_of(FaultKind::no_memory, Site::latent_publish)}.text(),
            "fault at latent_publish: rank 3, layer 17, call 41 (slot 1): the machine has no more memory for "
            "this rank's launch");
  EXPECT_EQ(FaultReport{FaultRecord{}}.text(), "no fault");
  EXPECT_EQ(FaultReport{record_of(static_cast<FaultKind>(99), Site::none)}.text(), "unknown fault");
}

}  // namespace
}  // namespace moetail
