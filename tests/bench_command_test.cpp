// SPDX-License-Identifier: Apache-2.0
// `moetail bench` as users run it, and what its reports say of rows whose check failed.
#include <cmath>
#include <filesystem>

#include "cli/bench_row.hpp"
#include "cli/html_report.hpp"
#include "cli/svg_plot.hpp"
#include "tests/cli_testing.hpp"

namespace moetail::cli_testing {
namespace {

using ::testing::StartsWith;

/// Runs a small benchmark. Beside other tests, an OpenMP thread that spins waits for one that does not run.
Outcome bench_with(const std::string& flags) {
  return moetail("bench --engine cpu " + kSmallShape + "--layers 2 --rounds 3 --quiet " + flags,
                 kGivenCeilings + " OMP_WAIT_POLICY=passive");
}

TEST(BenchCommand, TableHasEveryColumnAndTheMethod) {
  const Outcome bench = bench_with("--alone");
  EXPECT_EQ(bench.exit_code, 0) << bench.out << bench.err;
  for (const char* part :
       {"engine", "median us", "p99 us", "min us", "bytes", "floor us", "% of floor", "GB/s", "baseline us",
        "max us", "put", "ratio", "A/A", "check", "floor = max(", "pass", "step time interleaved over alone"})
    EXPECT_THAT(bench.out, HasSubstr(part));
}

TEST(BenchCommand, JsonHasARowForEachBatch) {
  const Outcome bench = bench_with("--tp 2 --json -");
  ASSERT_EQ(bench.exit_code, 0) << bench.err;
  const nlohmann::json report = bench.json();
  EXPECT_EQ(report.at("verdict"), "pass");
  const nlohmann::json& rows = report.at("results");
  ASSERT_EQ(rows.size(), 5u);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const nlohmann::json& row = rows[i];
    SCOPED_TRACE(row.dump());
    EXPECT_EQ(row.at("batch"), 1 << i);
    EXPECT_EQ(row.at("rounds"), 3);
    EXPECT_GT(row.at("median_us"), 0.0);
    EXPECT_LE(row.at("min_us"), row.at("median_us"));
    EXPECT_EQ(row.at("step_us").at("ours").size(), 3u);
    EXPECT_GT(row.at("noise").at("median"), 0.0);
    const nlohmann::json& baseline = row.at("baseline");
    if (baseline.contains("absence")) {
      EXPECT_TRUE(row.at("ratio").is_null());
      EXPECT_NE(baseline.at("absence"), "");
    } else {
      EXPECT_GT(row.at("ratio").at("median"), 0.0);
      EXPECT_EQ(baseline.at("verdict"), "pass");
      EXPECT_LE(baseline.at("worst_row_error"), baseline.at("worst_row_bound"));
      EXPECT_EQ(row.at("step_us").at("baseline").size(), 3u);
    }
  }
}

TEST(BenchCommand, CsvHasTheTitlesAndARowForEachConfiguration) {
  const TempDir scratch;
  const std::string path = (scratch / "rows.csv").string();
  const Outcome bench = bench_with("--batch 1,2 --mode front,twoshot --csv '" + path + "'");
  EXPECT_EQ(bench.exit_code, 0) << bench.err;
  const std::string csv = read_file(path);
  EXPECT_THAT(csv, StartsWith("engine,mode,ranks,batch,form,layers,rounds,median_us,"));
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 5);
  EXPECT_THAT(csv, HasSubstr("\ncpu,twoshot,8,2,rows,2,3,"));
  const auto commas_of_first_line = std::count(csv.begin(), csv.begin() + csv.find('\n'), ',');
  EXPECT_EQ(std::count(csv.begin(), csv.end(), ','), 5 * commas_of_first_line);
}

TEST(BenchCommand, HtmlIsOnePageWithEveryRowAndNeedsNothingElse) {
  const TempDir scratch;
  const std::string path = (scratch / "report.html").string();
  const Outcome bench = bench_with("--batch 1,2 --tp 2 --html '" + path + "' --json -");
  ASSERT_EQ(bench.exit_code, 0) << bench.err;
  const std::string page = read_file(path);
  EXPECT_THAT(page, StartsWith("<!DOCTYPE html>"));
  EXPECT_THAT(page, HasSubstr("</html>"));
  const nlohmann::json report = bench.json();
  for (const auto& row : report.at("results"))
    EXPECT_THAT(page, HasSubstr(fmt::format("<td>{:.1f}</td>", row.at("median_us").get<double>())));
  for (const char* part :
       {"Latency of a layer", "Percent of the floor", "Ratio to the baseline", "floor T=2 auto"})
    EXPECT_THAT(page, HasSubstr(part));
  // Nothing is fetched and nothing runs; the namespace of SVG is a name only.
  for (const char* outside : {"<script", "<link", "<img", "src=", "href=", "url("})
    EXPECT_THAT(page, Not(HasSubstr(outside)));
}

TEST(BenchCommand, EveryFormRuns) {
  for (const char* form : {"rows", "permuted", "partial", "published"}) {
    const Outcome bench = bench_with(std::string("--batch 3 --residual --json - --form ") + form);
    EXPECT_EQ(bench.exit_code, 0) << form << bench.err;
    EXPECT_EQ(only_result(bench).at("form"), form);
  }
}

TEST(BenchCommand, RowsWithoutABaselineSayWhy) {
  const Outcome bench = bench_with("--batch 3 --form permuted");
  EXPECT_EQ(bench.exit_code, 0) << bench.err;
  EXPECT_THAT(bench.out, HasSubstr("no ratio: "));
}

TEST(BenchCommand, RefusesBadInput) {
  for (const char* flags :
       {"--rounds 2", "--layers 0", "--layers 1-8", "--csv /nowhere/rows.csv", "--html /nowhere/report.html",
        "--world replay", "--engine cuda", "--batch 0", "extra"}) {
    const Outcome bench = bench_with(flags);
    EXPECT_EQ(bench.exit_code, 2) << flags;
    EXPECT_EQ(bench.out, "") << flags;
    EXPECT_NE(bench.err, "") << flags;
  }
}

cli::BenchRow row_of(bool ours_pass, bool theirs_pass) {
  cli::BenchRow row;
  row.result.configuration.plan.weight_bytes = 1000000;
  row.result.configuration.input.batch = 4;
  row.result.timing = {777.0, 888.0, 2};
  row.layer_us = {777.0, 888.0};
  row.rounds.first_us = row.rounds.second_us = {1554.0};
  row.rounds.theirs_us = {3108.0};
  row.other.description = "a pipeline";
  row.other.layer_us = {1554.0};
  row.result.checks.rows_checked = row.other.checks.rows_checked = 1;
  row.result.checks.within_bound = ours_pass;
  row.other.checks.within_bound = theirs_pass;
  return row;
}

nlohmann::json report_of(const cli::BenchRow& row) {
  return {{"version", "0"},
          {"date", "2026-11-30T00:00:00Z"},
          {"command_line", {"bench"}},
          {"machine", {{"cpu", "a chip"}, {"cores", 2}, {"dispatch_target", "scalar"}}},
          {"model", {{"hidden", 64}, {"latent", 32}, {"top_k", 2}, {"layers", {1, 2}}}},
          {"results", {cli::bench_json(row)}}};
}

std::ptrdiff_t count_of(const std::string& text, const std::string& part) {
  std::ptrdiff_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

std::string line_of(const cli::BenchRow& row) {
  return cli::table_line(cli::bench_columns(), cli::bench_cells(row));
}

TEST(BenchReport, ARowThatPassedShowsItsTimes) {
  const cli::BenchRow row = row_of(true, true);
  EXPECT_THAT(line_of(row),
              AllOf(HasSubstr("777.0"), HasSubstr("1554.0"), HasSubstr("0.500"), HasSubstr("pass")));
  EXPECT_EQ(cli::bench_json(row).at("ratio").at("median"), 0.5);
  EXPECT_THAT(cli::csv_line(row), AllOf(HasSubstr(",777,"), HasSubstr(",0.5,")));
  EXPECT_EQ(cli::bench_notes(row), "");
}

TEST(BenchReport, ARowWhoseCheckFailedShowsNoTime) {
  const cli::BenchRow row = row_of(false, true);
  for (const std::string& text : {line_of(row), cli::csv_line(row), cli::bench_json(row).dump()})
    for (const char* time : {"777", "888", "1554", "3108"}) EXPECT_THAT(text, Not(HasSubstr(time)));
  EXPECT_THAT(line_of(row), HasSubstr("FAIL"));
  EXPECT_FALSE(row.passed());
  EXPECT_THAT(cli::bench_notes(row), HasSubstr("FAIL"));
  const std::string page = cli::html_report(report_of(row), {row});
  for (const char* time : {"777", "888", "1554", "3108"}) EXPECT_THAT(page, Not(HasSubstr(time)));
  EXPECT_THAT(page, AllOf(HasSubstr("FAIL"), HasSubstr("nothing was measured")));
}

TEST(BenchReport, ThePageShowsARowThatPassedAndEscapesNames) {
  cli::BenchRow row = row_of(true, true);
  row.other.description = "<script>alert(\"1\")</script> & more";
  const std::string page = cli::html_report(report_of(row), {row});
  EXPECT_THAT(
      page, AllOf(HasSubstr("<td>777.0</td>"), HasSubstr("<td>0.500</td>"), HasSubstr("ours over oneDNN, ")));
  EXPECT_THAT(page, AllOf(HasSubstr("&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt; &amp; more"),
                          Not(HasSubstr("<script"))));
}

TEST(BenchReport, APlotLeavesOutWhatIsNoNumber) {
  const cli::PlotSpec spec{"title", "x", "y", cli::Scale::logarithmic, {}};
  const std::string plot = cli::svg_plot(
      spec, {{"one", {{1, 10}, {2, std::nan("")}, {4, 1000}}, false}, {"none", {{1, -1}}, false}});
  EXPECT_EQ(count_of(plot, "<circle"), 2);
  EXPECT_THAT(plot, AllOf(HasSubstr(">one<"), Not(HasSubstr(">none<")), Not(HasSubstr("nan"))));
  // A thousand is higher on the page than ten, by the whole of a logarithmic axis of 1.2 to each side.
  EXPECT_THAT(plot, AllOf(HasSubstr("<path d=\"M64.0 "), HasSubstr("L464.0 ")));
  EXPECT_THAT(cli::svg_plot(spec, {}), HasSubstr("nothing was measured"));
}

TEST(BenchReport, StackedBarsAreAsHighAsTheirPartsTogether) {
  const cli::PlotSpec spec{"title", "B", "us", cli::Scale::linear, {}};
  const std::string plot = cli::svg_stacked_bars(
      spec, {"1", "<8>"}, {{"polls", {1, 3}}, {"product", {1}}, {"none", {0, std::nan("")}}});
  EXPECT_THAT(
      plot,
      AllOf(HasSubstr("<title>polls: 1 at 1</title>"), HasSubstr("<title>polls: 3 at &lt;8&gt;</title>"),
            HasSubstr("<title>product: 1 at 1</title>"), Not(HasSubstr("none: ")), Not(HasSubstr("nan"))));
  EXPECT_THAT(plot, AllOf(HasSubstr(">2</text>"), HasSubstr(">3</text>"))) << "the sums above the bars";
  // Three of 3.15 on an axis of 276 to the bottom at 312; the parts of the first bar end where the next begins.
  EXPECT_THAT(plot, AllOf(HasSubstr("y=\"49.1\" width=\"140.0\" height=\"262.9\""),
                          HasSubstr("y=\"224.4\" width=\"140.0\" height=\"87.6\""),
                          HasSubstr("y=\"136.8\" width=\"140.0\" height=\"87.6\"")));
  for (const auto& nothing :
       {cli::svg_stacked_bars(spec, {}, {}), cli::svg_stacked_bars(spec, {"1"}, {{"a", {0}}})})
    EXPECT_THAT(nothing, AllOf(HasSubstr("nothing was measured"), Not(HasSubstr("<rect"))));
}

TEST(BenchReport, PhasesOfTheFirstConfigurationAreAPlotAndFields) {
  std::vector<cli::BenchRow> rows(3, row_of(true, true));
  rows[0].phases = {{"polls", 1.25}, {"product", 0.75}};
  rows[1].phases = {{"polls", 2.5}, {"product", 0.5}};
  rows[1].result.configuration.input.batch = 64;
  rows[2].phases = {{"polls", 7.125}};
  rows[2].result.configuration.put = Put::unicast;
  const std::string page = cli::html_report(report_of(rows[0]), rows);
  for (const char* part :
       {"Breakdown by phase, T=", "polls: 1.25 at ", "polls: 2.5 at 64", "product: 0.5 at 64"})
    EXPECT_THAT(page, HasSubstr(part));
  EXPECT_THAT(page, Not(HasSubstr("7.12"))) << "another put";
  EXPECT_EQ(cli::bench_json(rows[0]).at("phases").at("polls"), 1.25);
  rows[0].result.checks.within_bound = rows[1].result.checks.within_bound =
      rows[2].result.checks.within_bound = false;
  EXPECT_THAT(cli::html_report(report_of(rows[0]), rows), Not(HasSubstr("Breakdown")));
  EXPECT_FALSE(cli::bench_json(rows[0]).contains("phases"));
  EXPECT_FALSE(cli::bench_json(row_of(true, true)).contains("phases")) << "nothing was asked for";
}

TEST(BenchReport, ABaselineThatIsWrongGivesNoRatio) {
  const cli::BenchRow row = row_of(true, false);
  EXPECT_THAT(line_of(row), AllOf(HasSubstr("777.0"), Not(HasSubstr("1554")), Not(HasSubstr("0.500"))));
  EXPECT_TRUE(cli::bench_json(row).at("ratio").is_null());
  EXPECT_THAT(cli::csv_line(row), Not(HasSubstr("1554")));
  EXPECT_FALSE(row.passed());
}

TEST(BenchReport, ABusyMachineIsNamed) {
  cli::BenchRow row = row_of(true, true);
  row.load = bench::Load{0.01, 0.0};
  EXPECT_EQ(cli::bench_notes(row), "");
  row.load = bench::Load{0.5, 0.1};
  EXPECT_THAT(cli::bench_notes(row), AllOf(HasSubstr("50 %"), HasSubstr("10 %")));
}

}  // namespace
}  // namespace moetail::cli_testing
