// SPDX-License-Identifier: Apache-2.0
// A whole group on CPU ranks for tests: weights and inputs from a seed, one call of all ranks, every rank's
// output row.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/cpu/group.hpp"
#include "moetail/moetail.hpp"
#include "moetail/policy.hpp"
#include "runtime/impl.hpp"
#include "verify/compare.hpp"
#include "verify/inputs.hpp"
#include "verify/oracle.hpp"

namespace moetail::testing {

using Outputs = std::vector<std::vector<Bf16>>;  ///< [rank][B * H]

inline constexpr Form kForms[] = {Form::expanded, Form::permuted, Form::partial, Form::published};

/// What a fault leaves in rows that nobody computed.
inline bool all_nan(const std::vector<Bf16>& rows) {
  for (Bf16 value : rows)
    if (value != protocol::kBf16Nan) return false;
  return true;
}

struct HarnessOptions {
  int layers = 1;
  WorldOptions world;
  std::uint64_t seed = 1;
  std::string policy = {};  ///< text of a policy file; empty: none
  bool own_copies = false;  ///< every rank has its own copy of the latents, as without multicast
};

/// How one call is made; the defaults are a plain call of the expanded form.
struct CallOptions {
  Mode mode = Mode::front;
  verify::InputOptions inputs;
  std::uint64_t seed = 1;
  int layer = 0;  ///< index into the harness's layers
  bool side_push = false;
  bool consume_in_place = false;  ///< consumer() and consume_row instead of take
};

class Harness {
 public:
  explicit Harness(const Shape& shape, const HarnessOptions& options = {});
  /// On a world that others use too, or one whose other ranks are processes; `options.world` and `options.policy` are not read.
  Harness(const World& world, const Shape& shape, const HarnessOptions& options = {});
  ~Harness();  ///< waits until nothing runs any more: launches read what the harness owns
  Harness(const Harness&) = delete;
  Harness& operator=(const Harness&) = delete;

  const Shape& shape() const { return shape_; }
  const World& world() const { return world_; }
  std::vector<TailBox>& boxes() { return boxes_; }
  PreparedTail& tail(int rank, int layer = 0) {
    return tails_[static_cast<std::size_t>(layer)][static_cast<std::size_t>(rank - world_.first_rank())];
  }
  verify::LayerWeights& weights(int layer = 0) { return weights_[static_cast<std::size_t>(layer)]; }
  const verify::LayerWeights& weights(int layer = 0) const {
    return weights_[static_cast<std::size_t>(layer)];
  }

  /// Inputs of a call, which may be edited before it; they live as long as the harness, because launches read
  /// them later.
  verify::CallInputs& make_inputs(int batch, const CallOptions& options);
  /// Enqueues one call of all ranks on `inputs`; the outputs are complete after world().synchronize().
  Outputs& enqueue(int batch, const verify::CallInputs& inputs, const CallOptions& options);
  /// The three parts of enqueue: pushes and producers; the door's run; the consumers.
  std::vector<RankCall> prepare(int batch, const verify::CallInputs& inputs, const CallOptions& options);
  RankCall prepare_rank(int rank, int batch, const verify::CallInputs& inputs, const CallOptions& options);
  Outputs& consume(const std::vector<OutView>& views, const CallOptions& options);
  /// make_inputs, enqueue, synchronize.
  Outputs run(int batch, const CallOptions& options);

  /// What the oracle says of the call.
  verify::Expectation expect(int batch, const verify::CallInputs& inputs, const CallOptions& options) const;
  /// Every check of a call's outputs: the oracle on rank 0's rows and equal bits on all ranks. Empty where
  /// they pass.
  std::string judge(int batch, const verify::CallInputs& inputs, const CallOptions& options,
                    const Outputs& outputs) const;
  /// run and judge. Reports through GoogleTest. Returns rank 0's rows.
  std::vector<Bf16> check(int batch, const CallOptions& options);

  /// Installs test hooks in every rank's engine state; null takes them out. Only while nothing runs.
  void set_hooks(cpu::Hooks* hooks);
  cpu::BoxState& state(int rank) {
    return cpu::state_of(*boxes_[static_cast<std::size_t>(rank - world_.first_rank())].impl()->box);
  }

 private:
  Routed routed_of(const verify::RankInput& input, int batch) const;
  void feed(int rank, int batch, const verify::CallInputs& inputs, const CallOptions& options);

  int end_rank() const { return world_.first_rank() + world_.local_ranks(); }

  Shape shape_;
  World world_;
  std::vector<TailBox> boxes_;
  std::vector<verify::LayerWeights> weights_;
  std::vector<std::vector<PreparedTail>> tails_;  // [layer][rank]
  std::vector<std::unique_ptr<verify::CallInputs>> inputs_;
  std::vector<std::unique_ptr<Outputs>> outputs_;
  std::vector<std::unique_ptr<std::vector<Bf16>>> partials_;
};

}  // namespace moetail::testing
