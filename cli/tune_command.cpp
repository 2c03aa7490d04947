// SPDX-License-Identifier: Apache-2.0
// moetail tune: measures the ways a call can run on this machine and writes the policy file that takes the fastest. What measures them is a Tuner.
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <optional>
#include <span>
#include <vector>

#include "base/atomic_file.hpp"
#include "cli/commands.hpp"
#include "cli/exit_code.hpp"
#include "cli/table.hpp"
#include "cli/tuner.hpp"

namespace moetail::cli {
namespace {

TuneOptions settled(TuneOptions options) {
  RunOptions& run = options.run;
  run.session.choose_engine();
  const bool is_gpu = run.session.engine == Engine::cuda;
  if (run.call.form == Form::published)
    base::bad_argument("--form", "published", "rows, permuted or partial, which all of the modes take");
  if (!is_gpu && run.call.puts.front() != Put::automatic)
    base::bad_argument("--put", "given", "nothing with --engine cpu, or --engine cuda");
  if (!is_gpu && options.knobs_given)
    base::bad_argument("--knobs", "given", "nothing with --engine cpu, or --engine cuda");
  if (run.call.puts.size() != 1)
    base::bad_argument("--put", fmt::format("{} of them", run.call.puts.size()),
                       "one: a policy file is of one machine");
  if (is_gpu) {
    choose_replay(run.session, run.call);
    if (run.call.puts.front() == Put::automatic) run.call.puts = {Put::multicast};
    if (!run.call.batches) run.call.batches.emplace(kBatchBuckets.begin(), kBatchBuckets.end());
    if (run.layers.empty()) run.layers = kGpuLayers;
  }
  if (!run.call.batches) run.call.batches = {1, 2, 4, 8, 16, 32};
  if (options.rounds == 0) options.rounds = is_gpu ? 40 : 12;
  run.session.check_supported();
  return options;
}

std::string us_text(double us, int digits) {
  return std::isfinite(us) ? fmt::format("{:.{}f}", us, digits) : "-";
}

void print_times(const std::vector<Tuned>& tuned, const Policy& policy, bool is_gpu) {
  std::vector<Column> columns = {{"T", 0},          {"B", 0},          {"front us", 0},
                                 {"publish us", 0}, {"sharing us", 0}, {"chosen", 0, Align::left}};
  if (is_gpu) columns.insert(columns.end(), {{"own us", 0}, {"us", 0}, {"kernel", 0, Align::left}});
  std::vector<std::vector<std::string>> rows;
  rows.reserve(tuned.size());
  for (const auto& [times, way, found] : tuned) {
    const int digits = is_gpu ? 2 : 1;
    const Mode mode = times.batch <= policy.front_limit(times.ranks) ? Mode::front : Mode::publish;
    const bool shares = policy.shares(mode, times.batch);
    rows.push_back({fmt::format("{}", times.ranks), fmt::format("{}", times.batch),
                    us_text(times.front_us, digits), us_text(times.publish_us, digits),
                    us_text(times.sharing_us, digits),
                    mode == Mode::front ? "front"
                    : shares            ? "sharing"
                                        : "publish"});
    if (!is_gpu) continue;
    const KernelChoice kernel = policy.kernel_for(times.ranks, times.batch, mode, shares);
    const auto found_us = [&](const std::optional<double>& us) {
      return us && kernel != KernelChoice{} ? us_text(*us, digits) : "";
    };
    rows.back().insert(rows.back().end(), {found_us(found.own_us), found_us(found.us), choice_text(kernel)});
  }
  fmt::print("\n{}\n", table_text(columns, rows));
}

std::string method_text(const TuneOptions& options, bool is_gpu) {
  if (!is_gpu) return fmt::format("Median of {} steps a layer, the three in turn.", options.rounds);
  return fmt::format(
      "Rank 0 of T, its peers' mailboxes filled beforehand, {} put; {} layers in one graph, median of {} "
      "replays a "
      "layer, variants in turn. A setting counts from {:.1f} % on; own us, us: the plan's own kernel and the "
      "one "
      "that was found, side by side.",
      put_name(options.run.call.puts.front()), options.run.layers, options.rounds, 100 * kLeastGain);
}

}  // namespace

int tune_command(const TuneOptions& given) {
  const TuneOptions options = settled(given);
  const Engine engine = options.run.session.engine;
  const bool is_gpu = engine == Engine::cuda;
  const RunSetup setup = make_setup(options.run);
  base::AtomicFile out(options.out_file);  // a table that is there stays until the new one is measured

  Progress progress(options.run.session.quiet);
  const std::unique_ptr<Tuner> tuner =
      is_gpu ? make_gpu_tuner(options, setup, progress) : make_cpu_tuner(options, setup, progress);
  std::vector<Tuned> tuned;
  std::vector<ModeTimes> times;
  std::vector<WayKernel> kernels;
  for (const Configuration& one : setup.configurations) {
    const std::optional<Tuned> measured = tuner->tune(one);
    if (!measured) return kCheckFailed;
    tuned.push_back(*measured);
    times.push_back(measured->times);
    kernels.push_back({measured->times.ranks, measured->times.batch, measured->way, measured->kernel.choice});
  }
  const Policy built_in = Policy::of(engine);
  Policy chosen = choose_policy(times, built_in);
  if (is_gpu) chosen = with_kernels(chosen, kernels);
  const std::string text = policy_text(chosen);
  out.write_at(0, std::as_bytes(std::span(text)));
  out.commit();
  print_times(tuned, chosen, is_gpu);
  fmt::print(
      "{} Time lost against the fastest way, in the mean, {}: {:.1f} % with this table, {:.1f} % with the "
      "built-in one.\nIt is in {}, for --policy and WorldOptions::policy_file.\n",
      method_text(options, is_gpu), is_gpu ? "with the plan's own kernels" : "of the three",
      100 * loss_of(chosen, times), 100 * loss_of(built_in, times), options.out_file);
  return tuner->passed() ? kAllPassed : kCheckFailed;
}

}  // namespace moetail::cli
