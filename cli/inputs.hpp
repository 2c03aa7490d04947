// SPDX-License-Identifier: Apache-2.0
// The inputs of a run's calls: a pool of distinct sets, synthetic or captured, that layers and steps choose from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cli/progress.hpp"
#include "io/captured_step.hpp"
#include "moetail/moetail.hpp"
#include "verify/inputs.hpp"

namespace moetail::cli {

/// What one configuration calls with.
struct InputSpec {
  Shape shape;
  int batch = 0;
  Form form = Form::expanded;
  WeightType weights = WeightType::bf16;
  bool residual = false;
  std::uint64_t seed = 0;
  bool replay = false;  ///< rank 0 alone, its peers' part filled once: every call has one and the same set
};

/// Calls of one layer have other data than in the step before, and the data of the step before that.
///
/// Synthetic: set (2 * layer + step % 2) mod the number of sets, which is even; as many sets as layers need, but no more than
/// fit into kPoolBytes (two at least), so that a large batch does not fill the machine. Captured: one set a layer. Replay: one.
class Inputs {
 public:
  static constexpr std::size_t kPoolBytes = std::size_t{1} << 30;

  static Inputs synthetic(const InputSpec& spec, int num_layers, Progress& progress);
  /// `layers` of `step`, whose arrays are viewed and must outlive this. `spec.form` is the step's, or published.
  static Inputs captured(const InputSpec& spec, const io::CapturedStep& step, std::span<const int> layers);

  /// Bytes that `synthetic` allocates.
  static std::size_t synthetic_bytes(const InputSpec& spec, int num_layers);
  /// Of them, those of the partials that published input adds to `num_sets` sets.
  static std::size_t published_bytes(const InputSpec& spec, int num_sets);

  const InputSpec& spec() const { return spec_; }
  int num_sets() const { return static_cast<int>(sets_.size()); }
  /// The set of layer number `position` (0 for the first) in step number `step`.
  int set_of(int position, int step) const;
  /// Every rank's inputs, as the judges read them.
  std::span<const verify::RankInput> ranks(int set) const {
    return sets_[static_cast<std::size_t>(set)].ranks;
  }
  /// Every rank's finalized partial of a set, [T, B, L].
  std::vector<Bf16> partials_of(int set) const;
  /// Published input: the finalized partial [B, L] that rank's experts publish.
  std::span<const Bf16> published_partial(int set, int rank) const;

 private:
  struct Set {
    verify::CallInputs arrays;  ///< what `ranks` point into; empty where they are captured
    std::vector<verify::RankInput> ranks;
    std::vector<Bf16> partials;  ///< [T, B, L], published input only
  };

  explicit Inputs(const InputSpec& spec) : spec_(spec) {}
  void add_set(verify::CallInputs arrays, std::vector<verify::RankInput> ranks);

  InputSpec spec_;
  bool captured_ = false;
  std::vector<Set> sets_;
};

/// `input` as the door takes it.
Routed routed_of(const verify::RankInput& input, const InputSpec& spec);

}  // namespace moetail::cli
