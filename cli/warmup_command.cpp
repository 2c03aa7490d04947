// SPDX-License-Identifier: Apache-2.0
// moetail warmup: makes the kernels of every configuration, so that neither a run nor a capture compiles any. Runs no tail.
#include <fmt/format.h>

#include <chrono>
#include <map>

#include "cli/commands.hpp"
#include "cli/exit_code.hpp"
#include "cli/setup.hpp"
#include "cli/step_driver.hpp"

namespace moetail::cli {

int warmup_command(const WarmupOptions& given) {
  WarmupOptions options = given;
  if (options.session.engine == Engine::automatic) options.session.engine = Engine::cuda;
  if (options.session.engine == Engine::cpu)
    base::bad_argument("--engine", "cpu", "cuda: the CPU engine has nothing to compile");
  options.session.check_supported();
  const bool is_replay = options.session.world == WorldKind::replay;
  const std::vector<Configuration> configurations =
      make_configurations(options.shape, options.call, options.session.seed, options.session.engine);

  std::map<int, std::vector<TailBox>> boxes;  // by T
  int num_kernels = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (const Configuration& one : configurations) {
    InputSpec input = one.input;
    input.replay = is_replay;
    auto& of_ranks = boxes[input.shape.ranks];
    if (of_ranks.empty())
      of_ranks =
          make_world(input, options.session.world_options(options.call.policy_file)).make_boxes(input.shape);
    const auto row_begin = std::chrono::steady_clock::now();
    const int kernels =
        of_ranks.front().warm_up(input.batch, one.plan.mode, input.form, input.weights, input.residual);
    num_kernels += kernels;
    fmt::print("{:10} T = {:2}  B = {:3}  {} kernels ready in {:.2f} s\n", protocol::mode_name(one.plan.mode),
               input.shape.ranks, input.batch, kernels,
               std::chrono::duration<double>(std::chrono::steady_clock::now() - row_begin).count());
    std::fflush(stdout);
  }
  fmt::print("{} configurations, {} kernels, {:.1f} s\n", configurations.size(), num_kernels,
             std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  return kAllPassed;
}

}  // namespace moetail::cli
