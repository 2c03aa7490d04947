// SPDX-License-Identifier: Apache-2.0
// The oneDNN baseline of a build that has no oneDNN.
#include "base/error.hpp"
#include "bench/baseline.hpp"

namespace moetail::bench {

std::unique_ptr<Baseline> make_onednn_baseline(const BaselineSpec&) {
  base::fail(Code::unsupported, "this build has no oneDNN: {}", MOETAIL_NO_ONEDNN);
}

std::uint64_t onednn_baseline_bytes(const BaselineSpec&) {
  return 0;
}

}  // namespace moetail::bench
