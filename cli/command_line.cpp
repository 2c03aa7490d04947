// SPDX-License-Identifier: Apache-2.0
// Which flags each subcommand has, and how every error becomes a message and an exit code.
#include "cli/command_line.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <new>

#include "cli/commands.hpp"
#include "cli/exit_code.hpp"

namespace moetail::cli {
namespace {

using Command = std::function<int()>;

CLI::App* add_run(CLI::App& app, RunOptions& options) {
  CLI::App* run = app.add_subcommand("run", "Run decode steps, check every one of them and time the layers");
  add_shape_flags(*run, options.shape);
  add_call_flags(*run, options.call);
  add_session_flags(*run, options.session);
  run->add_flag("--processes", options.session.processes,
                "each rank a process of its own, over shared memory (CPU engine)");
  run->add_option(
         "--layers", options.layers,
         "number of synthetic layers, or layers of the checkpoint such as 1-8 [16, or all of the checkpoint]")
      ->type_name("N|LIST");
  run->add_option("--checkpoint", options.checkpoint,
                  "weights from safetensors: a directory, an index or one file")
      ->type_name("PATH");
  run->add_option("--inputs", options.inputs, "inputs from a captured step, one safetensors file")
      ->type_name("FILE");
  add_number_flag(*run, "--steps", "decode steps, the first to warm up [12]", kLeastSteps, 100000,
                  options.steps);
  return run;
}

CLI::App* add_bench(CLI::App& app, BenchOptions& options) {
  CLI::App* bench = app.add_subcommand("bench",
                                       "Time layers against their floor and a baseline, in turn: all ranks "
                                       "against oneDNN on the CPU; on a GPU one rank, its peers "
                                       "replayed, against finalize, RMSNorm, cuBLASLt and add. --batch "
                                       "defaults to 1,2,4,8,16, on a GPU up to 128");
  add_shape_flags(*bench, options.shape);
  add_call_flags(*bench, options.call);
  add_put_flag(*bench, options.call);
  add_session_flags(*bench, options.session);
  bench
      ->add_option("--layers", options.layers,
                   "synthetic layers, each with its own weights [16; 93 on a GPU]")
      ->type_name("N");
  bench->add_flag("--cold-rows", options.cold_rows, "GPU: expert rows out of memory, not out of L2");
  bench->add_flag("--take", options.take, "GPU: the take behind each tail, in the same graph");
  bench->add_flag("--phases", options.phases,
                  "GPU: after each row's rounds, its phases from traced kernels; a plot of them in --html");
  add_number_flag(*bench, "--rounds", "rounds of our step, the baseline's and ours again [20]", kLeastSteps,
                  10000, options.rounds);
  bench->add_flag("--alone", options.alone, "also time each program with no other in between");
  bench->add_option("--csv", options.csv_file, "write the rows as CSV")->type_name("FILE");
  bench->add_option("--html", options.html_file, "write the report as one HTML page with plots")
      ->type_name("FILE");
  return bench;
}

CLI::App* add_make_checkpoint(CLI::App& app, MakeCheckpointOptions& options) {
  CLI::App* make =
      app.add_subcommand("make-checkpoint", "Write synthetic weights under Kimi K3's tensor names");
  make->add_option("directory", options.directory, "where to; made if need be")->required()->type_name("DIR");
  make->add_option("--layers", options.layers, "MoE layers, from layer 1 on")
      ->type_name("N")
      ->capture_default_str();
  add_size_flags(*make, options.shape);
  add_number_flag(*make, "--shards", "files to spread the tensors over [1]", 1, 99999, options.shards);
  make->add_option("--prefix", options.prefix, "before every tensor name, such as language_model.")
      ->type_name("TEXT");
  add_seed_flag(*make, options.seed);
  make->add_flag("--force", options.force, "replace a checkpoint that this command wrote there");
  make->add_flag("--quiet", options.quiet, "no progress on stderr");
  return make;
}

CLI::App* add_plan(CLI::App& app, PlanOptions& options) {
  CLI::App* plan =
      app.add_subcommand("plan", "Say what would run for each T and B, and what it costs; runs nothing");
  add_shape_flags(*plan, options.shape);
  add_call_flags(*plan, options.call);
  plan->add_flag("--measure", options.measure,
                 "measure this machine's ceilings and print the floor of each row");
  return plan;
}

CLI::App* add_warmup(CLI::App& app, WarmupOptions& options) {
  CLI::App* warmup =
      app.add_subcommand("warmup", "Compile the CUDA kernels that calls need and keep them; runs nothing");
  add_shape_flags(*warmup, options.shape);
  add_call_flags(*warmup, options.call);
  add_session_flags(*warmup, options.session);
  return warmup;
}

CLI::App* add_trace(CLI::App& app, TraceOptions& options) {
  CLI::App* trace =
      app.add_subcommand("trace", "Record what every rank's threads do in decode steps, as a Perfetto trace");
  RunOptions& run = options.run;
  trace
      ->add_option("--out", options.out_file,
                   "the trace, in the format of chrome://tracing and ui.perfetto.dev")
      ->type_name("FILE")
      ->required();
  trace->add_option("--layers", run.layers, "number of synthetic MoE layers [16]")->type_name("N");
  run.steps = 0;
  add_number_flag(*trace, "--steps", "decode steps that are traced, after some that warm up [3; 1 on a GPU]",
                  1, 1000, run.steps);
  add_shape_flags(*trace, run.shape);
  add_call_flags(*trace, run.call);
  add_session_flags(*trace, run.session);
  return trace;
}

CLI::App* add_tune(CLI::App& app, TuneOptions& options) {
  CLI::App* tune = app.add_subcommand("tune",
                                      "Measure the modes on this machine, on a GPU also the fastest one's "
                                      "kernel with other triggers, tiles, row blocks, stages and "
                                      "warps, and write the policy file that takes the fastest. --batch "
                                      "defaults to 1,2,4,8,16,32, on a GPU up to 128");
  tune->add_option("--out", options.out_file, "the policy file")->type_name("FILE")->required();
  RunOptions& run = options.run;
  tune->add_option("--layers", run.layers, "number of synthetic MoE layers [16; 93 on a GPU]")
      ->type_name("N");
  add_number_flag(*tune, "--rounds",
                  "measured steps of each mode [12], on a GPU replays of each variant [40]", 3, 10000,
                  options.rounds);
  add_shape_flags(*tune, run.shape);
  add_input_flags(*tune, run.call);
  add_put_flag(*tune, run.call);
  add_knobs_flag(*tune, options);
  add_engine_flags(*tune, run.session);
  return tune;
}

CLI::App* add_info(CLI::App& app, InfoOptions& options) {
  CLI::App* info =
      app.add_subcommand("info", "Describe the machine, the engines, the mailboxes and the environment");
  add_shape_flags(*info, options.shape);
  add_rank_flag(*info, options.ranks);
  return info;
}

int report(int exit_code, const std::string& message) {
  std::fflush(stdout);
  fmt::print(stderr, "moetail: {}\n", message);
  return exit_code;
}

}  // namespace

int run_main(int argc, char** argv) {
  CLI::App app(
      "The routed MoE tail of latent mixture-of-experts models.\n"
      "Exit codes: 0 all passed, 1 a check failed, 2 bad usage or input, 3 a fault at run time.",
      "moetail");
  app.set_version_flag("--version", MOETAIL_VERSION);

  RunOptions run;
  BenchOptions bench;
  MakeCheckpointOptions make_checkpoint;
  PlanOptions plan;
  TraceOptions trace;
  TuneOptions tune;
  WarmupOptions warmup;
  InfoOptions info;
  run.session.command_line.assign(argv, argv + argc);
  bench.session.command_line = trace.run.session.command_line = run.session.command_line;
  const std::pair<CLI::App*, Command> commands[] = {
      {add_run(app, run), [&] { return run_command(run); }},
      {add_bench(app, bench), [&] { return bench_command(bench); }},
      {add_make_checkpoint(app, make_checkpoint), [&] { return make_checkpoint_command(make_checkpoint); }},
      {add_plan(app, plan), [&] { return plan_command(plan); }},
      {add_trace(app, trace), [&] { return trace_command(trace); }},
      {add_tune(app, tune), [&] { return tune_command(tune); }},
      {add_warmup(app, warmup), [&] { return warmup_command(warmup); }},
      {add_info(app, info), [&] { return info_command(info); }},
  };
  try {
    app.parse(argc, argv);
    for (const auto& [subcommand, command] : commands)
      if (subcommand->parsed()) return command();
    return report(kBadInput, "a subcommand is missing\n\n" + app.help());
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help and --version
    return report(kBadInput, std::string(error.what()) + "; --help lists what is accepted");
  } catch (const Error& error) {
    return report(exit_code_of(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    return report(kFault, "out of memory");
  } catch (const std::exception& error) {
    return report(kFault, error.what());
  }
}

}  // namespace moetail::cli
