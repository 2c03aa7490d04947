// SPDX-License-Identifier: Apache-2.0
// The ways a call can run on the CPU engine, each with the sites that it passes: what stalls, deaths and
// sequences go over.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "protocol/mode.hpp"
#include "protocol/shape.hpp"
#include "protocol/site.hpp"

namespace moetail::testing {

/// Publish mode shares reduced rows from 4 tokens on, so that a variant is a mode and a batch.
inline constexpr const char* kSharePolicy = R"({"policy_version": 1, "share_from": 4})";

struct Variant {
  const char* name;
  Mode mode;
  int batch;
  std::vector<protocol::Site> sites;  ///< that a call with its take passes, in no order
};

inline void PrintTo(const Variant& variant, std::ostream* out) {
  *out << variant.name;
}

inline std::vector<Variant> variants() {
  using protocol::Site;
  const auto with = [](std::vector<Site> sites) {
    for (Site site : {Site::epoch, Site::header_publish, Site::header_poll, Site::shared_push,
                      Site::shared_poll, Site::out_publish, Site::rearm, Site::consume, Site::consume_rearm})
      sites.push_back(site);
    return sites;
  };
  return {
      {"front", Mode::front, 3, with({Site::latent_publish, Site::latent_poll})},
      {"front_poll", Mode::front_poll, 3, with({Site::rows_fill, Site::latent_publish, Site::latent_poll})},
      {"publish", Mode::publish, 3, with({Site::latent_publish, Site::latent_poll})},
      {"sharing", Mode::publish, 5, with({Site::latent_publish, Site::reduced_publish, Site::reduced_poll})},
      {"twoshot", Mode::twoshot, 3,
       with({Site::twoshot_push, Site::twoshot_sum, Site::gather_publish, Site::gather_poll})},
  };
}

inline std::string variant_name(const ::testing::TestParamInfo<Variant>& info) {
  return info.param.name;
}

inline std::string rank_name(const ::testing::TestParamInfo<int>& info) {
  return "T" + std::to_string(info.param);
}

/// A small shape that every mode and batch up to 8 can run: H = 24 T, L = 40 T, odd multiples of what the
/// rules ask for.
inline protocol::Shape small_shape(int ranks) {
  protocol::Shape shape;
  shape.ranks = ranks;
  shape.hidden = 24 * ranks;
  shape.latent = 40 * ranks;
  shape.top_k = 5;
  shape.capacity = 8;
  shape.poll_capacity = 8;
  return shape;
}

}  // namespace moetail::testing
