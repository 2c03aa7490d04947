// SPDX-License-Identifier: Apache-2.0
// One call of each mode and form at a small shape: the first test to look at when the engine is broken.
#include <gtest/gtest.h>

#include "tests/harness.hpp"

namespace moetail::testing {
namespace {

Shape smoke_shape(int ranks) {
  Shape shape;
  shape.hidden = 256;
  shape.latent = 128;
  shape.ranks = ranks;
  shape.top_k = 6;
  shape.capacity = 8;
  shape.poll_capacity = 8;
  return shape;
}

TEST(EngineSmoke, EveryModeAndFormAgreesWithTheOracle) {
  for (int ranks : {1, 2, 4, 8, 16}) {
    Harness harness(smoke_shape(ranks));
    for (Mode mode : {Mode::front, Mode::front_poll, Mode::publish, Mode::twoshot}) {
      for (Form form : {Form::expanded, Form::permuted, Form::partial, Form::published}) {
        if (form == Form::published && mode == Mode::front) continue;
        SCOPED_TRACE(fmt::format("T={} {} {}", ranks, protocol::mode_name(mode), protocol::form_name(form)));
        CallOptions options;
        options.mode = mode;
        options.inputs.form = form;
        options.inputs.residual = form == Form::permuted;
        harness.check(3, options);
      }
    }
  }
}

}  // namespace
}  // namespace moetail::testing
