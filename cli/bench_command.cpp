// SPDX-License-Identifier: Apache-2.0
// moetail bench: what is refused, the rows in order, and their reports. What times them is a Bencher.
#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <set>

#include "cli/bencher.hpp"
#include "cli/commands.hpp"
#include "cli/exit_code.hpp"
#include "cli/html_report.hpp"
#include "cli/json_report.hpp"
#include "cli/replay_rank.hpp"

namespace moetail::cli {
namespace {

/// Created before the run, so that a path that cannot be written is refused at once. Closed where `path` is empty.
std::ofstream open_text(const char* flag, const std::string& path) {
  std::ofstream file;
  if (path.empty()) return file;
  file.open(path);
  if (!file) base::fail(Code::file, "{} = {}: cannot be written", flag, path);
  return file;
}

void check_written(const char* flag, const std::string& path, const std::ofstream& file) {
  if (file.is_open() && !file) base::fail(Code::file, "{} = {}: could not be written whole", flag, path);
}

void print_end(const std::vector<BenchRow>& rows, const Bencher& bencher, const Machine& machine) {
  fmt::print("\n");
  std::set<std::string> absences, descriptions;
  for (const BenchRow& row : rows) {
    fmt::print("{}", bench_notes(row));
    if (row.other.ran())
      descriptions.insert(fmt::format("{} at B={}: {}", row.other.name, row.result.configuration.input.batch,
                                      row.other.description));
    else if (!row.other.absence.empty())
      absences.insert(row.other.absence);
  }
  fmt::print(
      "{}ratio: median over the rounds of our step times over the baseline's, below 1 ours is faster. A/A: "
      "our "
      "second step over our first, median and half the distance of the quartiles.\n",
      bencher.method(rows));
  for (const std::string& text : descriptions) fmt::print("{}\n", text);
  for (const std::string& text : absences) fmt::print("no ratio: {}\n", text);
  fmt::print("{}, {} cores\n", machine.cpu, machine.cores);
}

/// Flags that only one of the engines knows.
void check_flags(const BenchOptions& options) {
  const bool is_gpu = options.session.engine == Engine::cuda;
  const auto refuse = [&](bool given, const char* flag, const char* accepted) {
    if (given) base::bad_argument(flag, "given", accepted);
  };
  refuse(!is_gpu && options.cold_rows, "--cold-rows", "nothing with --engine cpu, or --engine cuda");
  refuse(!is_gpu && options.take, "--take",
         "nothing with --engine cpu, whose layers always end in a take, or --engine cuda");
  refuse(!is_gpu && options.call.puts.front() != Put::automatic, "--put",
         "nothing with --engine cpu, or --engine cuda");
  refuse(!is_gpu && options.phases, "--phases",
         "nothing with --engine cpu, whose phases moetail trace shows, or --engine cuda");
  refuse(is_gpu && options.alone, "--alone",
         "nothing with --engine cuda, whose two programs share no thread");
}

BenchOptions settled(BenchOptions options) {
  options.session.choose_engine();
  check_flags(options);
  if (options.session.engine == Engine::cuda) {
    choose_replay(options.session, options.call);
    if (options.call.puts.front() == Put::automatic) options.call.puts = {Put::multicast, Put::unicast};
    if (!options.call.batches) options.call.batches.emplace(kBatchBuckets.begin(), kBatchBuckets.end());
    if (options.layers.empty()) options.layers = kGpuLayers;
  }
  if (!options.call.batches) options.call.batches = {1, 2, 4, 8, 16};
  options.session.check_supported();
  return options;
}

RunOptions run_options(const BenchOptions& options) {
  RunOptions run;
  run.shape = options.shape;
  run.call = options.call;
  run.session = options.session;
  run.layers = options.layers;
  return run;
}

}  // namespace

int bench_command(const BenchOptions& given) {
  const BenchOptions options = settled(given);
  const RunOptions run = run_options(options);
  const RunSetup setup = make_setup(run);
  const Machine machine = this_machine();
  const bool is_gpu = options.session.engine == Engine::cuda;
  if (options.phases) check_traceable("--phases", static_cast<int>(setup.layers.size()));
  if (!is_gpu) check_memory(setup, machine.available_bytes);
  ReportFile report_file(options.session.json_file);
  std::ofstream csv = open_text("--csv", options.csv_file), html = open_text("--html", options.html_file);
  if (csv.is_open()) csv << csv_titles() << std::flush;

  Progress progress(options.session.quiet);
  const std::unique_ptr<Bencher> bencher =
      is_gpu ? make_gpu_bencher(options, setup, progress) : make_cpu_bencher(options, setup, progress);
  nlohmann::json report = report_head(options.session, machine, bencher->ceilings());
  bencher->describe(report);
  report["model"] = model_json(run, setup);
  report["results"] = nlohmann::json::array();

  if (!report_file.is_stdout()) fmt::print("{}\n\n{}\n", setup_text(setup), table_titles(bench_columns()));
  std::fflush(stdout);
  std::vector<BenchRow> rows;
  bool passed = true;
  for (const Configuration& one : setup.configurations) {
    rows.push_back(bencher->run(one));
    const BenchRow& row = rows.back();
    passed = passed && row.passed();
    report["results"].push_back(bench_json(row));
    if (csv.is_open()) csv << csv_line(row) << std::flush;
    if (!report_file.is_stdout()) fmt::print("{}\n", table_line(bench_columns(), bench_cells(row)));
    std::fflush(stdout);
  }
  report["method"] = bencher->method(rows);
  if (!report_file.is_stdout()) print_end(rows, *bencher, machine);
  report["verdict"] = passed ? "pass" : "fail";
  report_file.write(report);
  if (html.is_open()) html << html_report(report, rows) << std::flush;
  check_written("--csv", options.csv_file, csv);
  check_written("--html", options.html_file, html);
  return passed ? kAllPassed : kCheckFailed;
}

}  // namespace moetail::cli
