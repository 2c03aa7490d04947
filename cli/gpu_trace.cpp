// SPDX-License-Identifier: Apache-2.0
#include "cli/replay_rank.hpp"
#include "cli/traced_steps.hpp"

namespace moetail::cli {

TracedSteps trace_on_gpu(const RunOptions& options, const RunSetup& setup, Progress& progress) {
  const Configuration& one = setup.configurations.front();
  const int layers = static_cast<int>(setup.layers.size());
  check_traceable("--engine cuda", layers);
  const bench::Gpu gpu;
  WorldOptions world = options.session.world_options(options.call.policy_file);
  world.cuda_stream = gpu.native_stream();
  world.trace = std::make_shared<Trace>(0);
  const std::vector<LayerWeights> weights =
      synthetic_weights(options.session.seed, setup.layers, one.input.shape.shard(), setup.latent, progress);
  const Inputs inputs = Inputs::synthetic(one.input, layers, progress);
  const GpuWeights gpu_weights(gpu, weights);
  const GpuInputs gpu_inputs(gpu, inputs, GpuInputs::warm_copies(gpu, one.input));
  ReplayRank rank(gpu, WarmBox::make(one, world), one, gpu_weights, weights, inputs, gpu_inputs, false);

  Judge judge(weights, inputs, one.plan.mode, 1);
  const std::vector<Bf16> rows = rank.run_each();
  judge_first_run(judge, rows, layers, one.input.batch);
  const std::vector<Bf16> last = trace_replays(rank, *world.trace, options.steps, progress);
  judge.compare_with_earlier(last, std::span(rows).last(last.size()), options.steps, layers - 1,
                             "after all replays from the first run with the same inputs");
  return {judge.checks(), world.trace->spans(), world.trace->dropped(), layers};
}

}  // namespace moetail::cli
