// SPDX-License-Identifier: Apache-2.0
// A group of ranks behind the C door, for its tests.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "moetail/moetail.h"

namespace moetail::testing {

/// Fails unless `call` gives `status` and leaves a text that holds each of the given parts.
inline void expect_refused(moetail_status got, moetail_status status, const std::vector<std::string>& parts) {
  EXPECT_EQ(got, status) << moetail_status_name(got) << ": " << moetail_last_error();
  const std::string text = moetail_last_error();
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
}

#define EXPECT_OK(call) EXPECT_EQ(call, MOETAIL_OK) << moetail_last_error()
#define ASSERT_OK(call) ASSERT_EQ(call, MOETAIL_OK) << moetail_last_error()

inline moetail_shape small_c_shape(int ranks) {
  moetail_shape shape = MOETAIL_SHAPE_INIT;
  shape.hidden = 256;
  shape.latent = 128;
  shape.ranks = ranks;
  shape.top_k = 4;
  shape.capacity = shape.poll_capacity = 8;
  return shape;
}

/// A vector that starts 16-byte aligned, as every array of this door wants it.
using Rows = std::vector<moetail_bf16>;

/// World, boxes and one tail a rank, with weights of its own; what is still there at the end is released.
struct CGroup {
  explicit CGroup(int ranks, const moetail_world_options* options = nullptr)
      : shape(small_c_shape(ranks)),
        boxes(static_cast<std::size_t>(ranks)),
        tails(static_cast<std::size_t>(ranks)),
        up_proj(static_cast<std::size_t>(shape.hidden * shape.latent), 0x3C00),
        norm(static_cast<std::size_t>(shape.latent), 0x3F80) {
    EXPECT_OK(moetail_world_create_virtual(ranks, options, &world));
    EXPECT_OK(moetail_world_make_boxes(world, &shape, boxes.data(), boxes.size()));
    for (std::size_t rank = 0; rank < tails.size(); ++rank) {
      const moetail_weights view = weights();
      EXPECT_OK(moetail_tail_create(boxes[rank], &view, 3, &tails[rank]));
    }
  }
  ~CGroup() {
    for (moetail_tail* tail : tails) EXPECT_OK(moetail_tail_destroy(tail));
    for (moetail_box* box : boxes) EXPECT_OK(moetail_box_destroy(box));
    EXPECT_OK(moetail_world_destroy(world));
  }
  CGroup(const CGroup&) = delete;
  CGroup& operator=(const CGroup&) = delete;

  moetail_weights weights() const {
    moetail_weights view = MOETAIL_WEIGHTS_INIT;
    view.up_proj = up_proj.data();
    view.up_proj_count = up_proj.size();
    view.norm = norm.data();
    view.norm_count = norm.size();
    return view;
  }
  moetail_stream* main_stream(int rank) const {
    moetail_stream* stream = nullptr;
    EXPECT_OK(moetail_world_main_stream(world, rank, &stream));
    return stream;
  }
  /// A valid front call of `batch` tokens on every rank: finalized partials and shared partials of ones.
  std::vector<moetail_call> calls(int batch) {
    const auto rows = static_cast<std::size_t>(batch);
    partial.assign(rows * static_cast<std::size_t>(shape.latent), 0x3F80);
    shared.assign(rows * static_cast<std::size_t>(shape.hidden), 0x3F80);
    std::vector<moetail_call> all(tails.size(), moetail_call MOETAIL_CALL_INIT);
    for (std::size_t rank = 0; rank < tails.size(); ++rank) {
      all[rank].tail = tails[rank];
      all[rank].batch = batch;
      all[rank].mode = MOETAIL_MODE_FRONT;
      all[rank].form = MOETAIL_FORM_PARTIAL;
      all[rank].partial = partial.data();
      all[rank].partial_count = partial.size();
      all[rank].shared = shared.data();
      all[rank].shared_count = shared.size();
    }
    return all;
  }
  moetail_status run(const std::vector<moetail_call>& all) {
    views.assign(all.size(), moetail_out_view MOETAIL_OUT_VIEW_INIT);
    return moetail_world_run(world, all.data(), views.data(), all.size());
  }
  /// Takes every rank's rows of the latest call into `out`.
  void take() {
    out.resize(views.size());
    for (std::size_t rank = 0; rank < views.size(); ++rank) {
      out[rank].assign(static_cast<std::size_t>(views[rank].batch * views[rank].hidden), 0);
      EXPECT_OK(moetail_box_take(boxes[rank], &views[rank], out[rank].data(), out[rank].size(), nullptr));
    }
  }

  moetail_shape shape;
  moetail_world* world = nullptr;
  std::vector<moetail_box*> boxes;
  std::vector<moetail_tail*> tails;
  std::vector<moetail_out_view> views;
  Rows up_proj, norm, partial, shared;
  std::vector<Rows> out;  // [rank]
};

}  // namespace moetail::testing
