// SPDX-License-Identifier: Apache-2.0
// From options and files to a list of configurations that can run: everything that can be refused is refused here, before
// weights are made and threads start.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/inputs.hpp"
#include "cli/options.hpp"
#include "io/captured_step.hpp"
#include "io/checkpoint.hpp"
#include "moetail/policy.hpp"

namespace moetail::cli {

/// One row of the table.
struct Configuration {
  InputSpec input;
  Mode mode = Mode::automatic;  ///< as asked for
  Plan plan;                    ///< plan.mode: what runs
  Put put = Put::automatic;     ///< of a replayed rank
};

struct RunSetup {
  int hidden = 0;
  int latent = 0;
  std::vector<int> layers;  ///< indices in the model
  std::optional<io::Checkpoint> checkpoint;
  std::optional<io::CapturedStep> step;
  std::vector<Configuration> configurations;
};

/// `input` called in `mode`, with what `policy` then plans. Published input is no front mode's: left to the policy it is served by publish mode, and
/// Mode::front is Code::invalid_argument. Throws what make_plan throws.
Configuration make_configuration(const InputSpec& input, Mode mode, const Policy& policy);

/// Every (T, B, mode, put) of `call` with its plan. Throws what make_plan throws, and Code::invalid_argument for published input in a
/// configuration that front mode serves.
/// `engine`: whose built-in policy serves what no file decides.
std::vector<Configuration> make_configurations(const ShapeOptions& shape, const CallOptions& call,
                                               std::uint64_t seed, Engine engine);

/// Opens the files that `options` name and joins what they say with the flags. Throws Code::file for a bad file, and
/// Code::invalid_argument where a flag and a file differ.
RunSetup make_setup(const RunOptions& options);

/// Throws Code::unsupported with the sizes where a configuration of `setup` needs more than `available_bytes` (0: not known).
void check_memory(const RunSetup& setup, std::uint64_t available_bytes);

/// "hidden 7168, latent 3584, ...": what all rows of a table have in common.
std::string setup_text(const RunSetup& setup);

}  // namespace moetail::cli
