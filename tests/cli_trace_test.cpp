// SPDX-License-Identifier: Apache-2.0
// `moetail trace` as users run it, and the trace that it is made of.
#include <map>
#include <set>
#include <thread>

#include "base/trace.hpp"
#include "cli/phases.hpp"
#include "tests/cli_testing.hpp"

namespace moetail::cli_testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(Trace, ASpanLastsFromAMarkToTheNextOfItsThread) {
  Trace trace(16);
  trace.mark("first", 1, 7, 3);
  std::thread other([&] { trace.mark("open", 2, 0, 3); });
  other.join();
  trace.mark("second", 1, 7, 3);
  trace.mark(nullptr, 1, 7, 3);
  trace.mark("next", 1, 8, 4);
  trace.mark(nullptr, 1, 8, 4);
  const auto spans = trace.spans();
  ASSERT_THAT(spans, SizeIs(3)) << "what nothing ended is no span";
  EXPECT_STREQ(spans[0].name, "first");
  EXPECT_EQ(spans[0].end_us, spans[1].begin_us);
  EXPECT_STREQ(spans[2].name, "next");
  EXPECT_GE(spans[2].begin_us, spans[1].end_us);
  EXPECT_EQ(spans[2].layer, 8);
  EXPECT_EQ(spans[2].call, 4u);
  EXPECT_EQ(spans[0].rank, 1);
}

TEST(Trace, WhatFindsNoRoomIsCounted) {
  Trace trace(3);
  for (int i = 0; i < 5; ++i) trace.mark("site", 0, 0, 1);
  EXPECT_THAT(trace.spans(), SizeIs(2));
  EXPECT_EQ(trace.dropped(), 2u);
  trace.clear();
  EXPECT_THAT(trace.spans(), IsEmpty());
  EXPECT_EQ(trace.dropped(), 0u);
}

Trace::Span span_of(const char* name, int block, int warp, std::uint64_t call, double us) {
  Trace::Span span;
  span.name = name;
  span.thread = block * Trace::kBlockWarps + warp;
  span.call = call;
  span.begin_us = 100;
  span.end_us = 100 + us;
  return span;
}

TEST(Trace, PhasesAreTheMedianOverLayersOfTheMeanOverComputeWarps) {
  std::vector<Trace::Span> spans;
  const double polls_us[] = {2, 100, 4};  // a layer each
  for (std::uint64_t call = 1; call <= 3; ++call)
    for (const int block : {0, 5}) {
      for (const int warp : {0, 1}) {
        spans.push_back(span_of("polls", block, warp, call, polls_us[call - 1] + (warp == 0 ? -1 : 1)));
        if (block == 5 && warp == 0) spans.push_back(span_of("push", block, warp, call, 8));
        spans.push_back(span_of("prologue", block, warp, call, 3));
      }
      spans.push_back(span_of("polls", block, 2, call, 5000));  // the side warp's
      spans.push_back(span_of("output", block, 2, call, 7));
    }
  const auto phases = cli::phase_times(spans);
  ASSERT_EQ(phases.size(), 4u);
  EXPECT_EQ(phases[0].name, "prologue") << "as a warp comes by";
  EXPECT_EQ(phases[0].us, 3.0);
  EXPECT_EQ(phases[1].name, "push");
  EXPECT_EQ(phases[1].us, 2.0) << "one of four warps";
  EXPECT_EQ(phases[2].name, "polls");
  EXPECT_EQ(phases[2].us, 4.0) << "the middle layer, not the slow one's mean";
  EXPECT_EQ(phases[3].name, "output");
  EXPECT_EQ(phases[3].us, 7.0) << "what the side warp alone does";
  EXPECT_TRUE(cli::phase_times({}).empty());
}

TEST(CliTrace, EverySiteOfTheModeIsInTheFileOnEveryRankAndLayer) {
  const TempDir scratch;
  const std::string path = (scratch / "trace.json").string();
  struct Case {
    const char* mode;
    std::vector<std::string> only_here;
  };
  for (const Case& one :
       {Case{"front", {"latent_publish", "latent_poll"}},
        Case{"twoshot", {"twoshot_push", "twoshot_sum", "gather_publish", "gather_poll"}}}) {
    SCOPED_TRACE(one.mode);
    const Outcome trace =
        moetail("trace " + kSmallShape + "--layers 2 --steps 2 --tp 4 --batch 3 --quiet --mode " + one.mode +
                " --out '" + path + "'");
    ASSERT_EQ(trace.exit_code, 0) << trace.err;
    std::map<std::string, std::set<std::pair<int, int>>> places;  // (rank, layer) by name
    std::map<int, double> end_of_thread;
    std::set<std::string> processes;
    const auto file = nlohmann::json::parse(read_file(path));
    for (const auto& event : file.at("traceEvents")) {
      if (event.at("ph") == "M") {
        if (event.at("name") == "process_name") processes.insert(event.at("args").at("name"));
        continue;
      }
      places[event.at("name")].insert({event.at("pid").get<int>(), event.at("args").at("layer").get<int>()});
      // Spans of a thread follow each other.
      double& end = end_of_thread[event.at("tid").get<int>()];
      EXPECT_GE(event.at("ts").get<double>(), end - 1e-3);
      EXPECT_GE(event.at("dur").get<double>(), 0.0);
      end = event.at("ts").get<double>() + event.at("dur").get<double>();
    }
    EXPECT_THAT(processes, ElementsAre("rank 0", "rank 1", "rank 2", "rank 3"));
    auto names = one.only_here;
    for (const char* name : {"epoch", "header_publish", "header_poll", "shared_push", "dot", "shared_poll",
                             "out_publish", "rearm", "consume", "consume_rearm"})
      names.push_back(name);
    for (const std::string& name : names) EXPECT_THAT(places[name], SizeIs(4 * 2)) << name;
    EXPECT_THAT(places, SizeIs(names.size()));
    for (const auto& [name, where] : places) EXPECT_THAT(trace.out, HasSubstr(name));
  }
}

TEST(CliTrace, JsonHasThePhases) {
  const TempDir scratch;
  const Outcome trace =
      moetail("trace " + kSmallShape + "--layers 2 --tp 2 --batch 1 --quiet --json - --out '" +
              (scratch / "trace.json").string() + "'");
  ASSERT_EQ(trace.exit_code, 0) << trace.err;
  const auto report = trace.json();
  EXPECT_EQ(report.at("dropped"), 0);
  double spans = 0;
  for (const auto& phase : report.at("phases")) {
    spans += phase.at("passes").get<double>();
    EXPECT_LE(phase.at("median_us"), phase.at("p99_us"));
  }
  EXPECT_EQ(spans, report.at("spans").get<double>());
}

const std::string kOnEmulatedGpu =
    " MOETAIL_CUDA_DRIVER='" MOETAIL_EMULATOR "' MOETAIL_NVRTC='" MOETAIL_EMULATOR
    "' MOETAIL_CACHE_DIR='" MOETAIL_EMULATOR ".bench-cache' ";
const std::string kTinyGpuTrace =
    "trace --engine cuda --hidden 64 --latent 64 --top-k 5 --capacity 4 --tp 2 --deadline 60 --quiet ";

TEST(CliTrace, OnAGpuEachWarpOfEachLayerLeavesItsPhasesInARow) {
  if (kSanitized) GTEST_SKIP() << kNoEmulatedGpu;
  const TempDir scratch;
  for (const std::string mode : {"front", "publish"}) {
    SCOPED_TRACE(mode);
    const std::string path = (scratch / "gpu.json").string();
    const Outcome trace = moetail(
        kTinyGpuTrace + "--layers 2 --steps 2 --batch 3 --json - --mode " + mode + " --out '" + path + "'",
        kOnEmulatedGpu);
    ASSERT_EQ(trace.exit_code, 0) << trace.out << trace.err;
    const nlohmann::json report = trace.json(), file = nlohmann::json::parse(read_file(path));
    EXPECT_EQ(report.at("engine"), "cuda");
    std::map<std::pair<int, int>, std::vector<nlohmann::json>> warps;  // by call and thread
    std::set<int> layers, threads;
    for (const auto& event : file.at("traceEvents")) {
      if (event.at("ph") != "X") continue;
      warps[{event.at("args").at("call"), event.at("tid")}].push_back(event);
      layers.insert(event.at("args").at("layer").get<int>());
      threads.insert(event.at("tid").get<int>());
    }
    EXPECT_EQ(layers, (std::set<int>{1, 2}));
    EXPECT_EQ(warps.size(), 4 * threads.size()) << "2 steps of 2 layers, no warp missing";
    EXPECT_EQ(threads.size() % (16 * 9), 0u) << "clusters of 16 blocks of 9 warps";
    for (const auto& [where, spans] : warps) {
      EXPECT_EQ(spans.front().at("name"), "prologue");
      EXPECT_EQ(spans.back().at("name"), "output");
      for (std::size_t i = 1; i < spans.size(); ++i) {
        const double end = spans[i - 1].at("ts").get<double>() + spans[i - 1].at("dur").get<double>();
        EXPECT_NEAR(spans[i].at("ts").get<double>(), end, 1e-3) << "no time between two phases of a warp";
        EXPECT_GE(spans[i].at("dur"), 0.0);
      }
    }
    std::set<std::string> phases;
    for (const auto& phase : report.at("phases")) phases.insert(phase.at("name").get<std::string>());
    EXPECT_EQ(phases.count("publication"), mode == "front" ? 1u : 0u) << "a wave's latents are under way";
    EXPECT_EQ(phases.count("exchange"), 1u);
    for (const auto& phase : report.at("phases")) EXPECT_GT(phase.at("median_layer_us"), 0.0) << phase;
  }
}

TEST(CliTrace, OnAGpuRefusesWhatItCannotShow) {
  for (const auto& [flags, named] : {std::pair{"--layers 129", "at most 128"},
                                     {"--world virtual", "replay with --engine cuda"},
                                     {"--form published --mode publish", "rows, permuted or partial"}}) {
    const Outcome trace = moetail(kTinyGpuTrace + "--batch 1 --out t " + flags, kOnEmulatedGpu);
    EXPECT_EQ(trace.exit_code, 2) << flags;
    EXPECT_THAT(trace.err, HasSubstr(named));
  }
}

TEST(CliTrace, RefusesBadInput) {
  for (const char* flags :
       {"", "--out /nowhere/trace.json", "--out t --engine cuda", "--out t --batch 1,2", "--out t --tp 2,4",
        "--out t --layers 1-8", "--out t --steps 0", "--out t --world replay"}) {
    const Outcome trace = moetail("trace " + kSmallShape + "--quiet " + flags);
    EXPECT_EQ(trace.exit_code, 2) << flags;
    EXPECT_EQ(trace.out, "") << flags;
    EXPECT_NE(trace.err, "") << flags;
  }
}

}  // namespace
}  // namespace moetail::cli_testing
