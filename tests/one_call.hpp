// SPDX-License-Identifier: Apache-2.0
// One call of two ranks in its single steps, for tests that put something wrong between them.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "tests/harness.hpp"
#include "tests/variants.hpp"

namespace moetail::testing {

inline constexpr int kBatch = 2;

class OneCall : public ::testing::Test {
 protected:
  OneCall() : harness_(small_shape(2), two_layers()) { begin(Mode::publish); }

  static HarnessOptions two_layers() {
    HarnessOptions options;
    options.layers = 2;
    return options;
  }

  /// Inputs for a call of `mode`, and the call itself without its push.
  void begin(Mode mode, Form form = Form::expanded) {
    options_ = CallOptions{};
    options_.mode = mode;
    options_.inputs.form = form;
    inputs_ = &harness_.make_inputs(kBatch, options_);
    calls_.clear();
    for (int rank = 0; rank < 2; ++rank) {
      Call call;
      call.batch = kBatch;
      call.mode = mode;
      const auto& arrays = inputs_->arrays[static_cast<std::size_t>(rank)];
      if (form == Form::expanded)
        call.routed = Routed::expanded(arrays.rows, std::span<const float>(arrays.weights_fp32));
      if (form == Form::partial) call.routed = Routed::finalized(arrays.partial);
      calls_.push_back({&harness_.tail(rank), call});
    }
  }
  std::span<const Bf16> shared(int rank) const {
    return inputs_->arrays[static_cast<std::size_t>(rank)].shared;
  }
  void push(int rank) { harness_.tail(rank).push(shared(rank), kBatch, options_.mode); }
  std::vector<OutView> run() { return harness_.world().run(calls_); }
  void take_and_judge(const std::vector<OutView>& views) {
    const Outputs& outputs = harness_.consume(views, options_);
    harness_.world().synchronize();
    EXPECT_EQ(harness_.judge(kBatch, *inputs_, options_, outputs), "");
  }
  /// The call that was begun, from wherever it stands: what an error must not have spoiled.
  void finish() { take_and_judge(run()); }

  Harness harness_;
  CallOptions options_;
  verify::CallInputs* inputs_ = nullptr;
  std::vector<RankCall> calls_;
};

}  // namespace moetail::testing
