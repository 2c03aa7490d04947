// SPDX-License-Identifier: Apache-2.0
// The kernels of the default table, compiled for every architecture without a GPU: no spills, budgets held, and the PTX that each
// access to shared memory between ranks must become.
#include <gtest/gtest.h>

#include <map>

#include "base/error.hpp"
#include "engine/cuda/budget.hpp"
#include "engine/cuda/nvrtc.hpp"
#include "engine/cuda/sources.hpp"
#include "kernels/plan.hpp"
#include "kernels/stage.hpp"

namespace moetail::kernels {
namespace {

/// The machine's NVRTC, else the toolkit's that this test was configured with: a failure where that one does not load. Null with the
/// reason where there is neither.
std::shared_ptr<const cuda::Nvrtc> compiler_or_skip(std::string& reason) {
  try {
    return cuda::Nvrtc::of_machine();
  } catch (const Error& error) {
    reason = error.what();
  }
#ifdef MOETAIL_TOOLKIT_LIBRARIES
  return cuda::Nvrtc::load(MOETAIL_TOOLKIT_LIBRARIES "/libnvrtc.so.13");
#else
  return nullptr;
#endif
}

cuda::CompileResult compile(const cuda::Nvrtc& nvrtc, const KernelPlan& plan, const std::string& arch,
                            bool wants_ptx = false) {
  cuda::CompileRequest request;
  request.name = plan.entry;
  request.source = plan.source;
  request.headers = cuda::embedded_headers();
  request.arch = arch;
  request.defines = plan.defines;
  request.wants_ptx = wants_ptx;
  return nvrtc.compile(request);
}

/// What a kernel of this plan breaks of its budget, as the engine has it but for the spills.
std::string violations_of(const cuda::KernelUsage& usage, const KernelPlan& plan, const std::string& arch,
                          std::size_t spill_bytes) {
  cuda::Launch launch;
  launch.grid = static_cast<unsigned>(plan.grid);
  launch.cluster = static_cast<unsigned>(plan.cluster);
  launch.threads = static_cast<unsigned>(plan.threads);
  launch.shared_bytes = plan.shared_bytes;
  cuda::Budget budget;
  budget.max_spill_bytes = spill_bytes;
  const auto limits = cuda::limits_of(arch);
  if (plan.blocks_per_sm >= 2) budget.max_registers = cuda::registers_beside_successor(limits, plan.threads);
  return cuda::joined_violations(cuda::budget_violations(usage, launch, budget, limits));
}

// AtFullSize keeps the minutes of compiling out of the sanitizer builds.
class KernelCompile : public testing::TestWithParam<const char*> {};

TEST_P(KernelCompile, DefaultTableKeepsItsBudgetsAtFullSize) {
  std::string reason;
  const auto nvrtc = compiler_or_skip(reason);
  if (!nvrtc) GTEST_SKIP() << reason;
  const std::string arch = GetParam();
  const auto table = default_table(PutBy::peers);
  for (const auto& request : table) {
    const auto plan = make_plan(request, device_shape(arch));
    const auto result = compile(*nvrtc, plan, arch);
    ASSERT_EQ(result.usage.size(), 1u) << plan.text() << result.log;
    EXPECT_EQ(violations_of(result.usage.front(), plan, arch, 0), "") << plan.text();
  }
  fmt::print("{} kernels compiled for {}\n", table.size(), arch);
}

// Beside the default table: sixteen ranks' lines are twice what a thread has in flight at eight, and one or two ranks' row blocks follow each other.
TEST(KernelBudget, OtherRankCountsKeepItAtFullSize) {
  std::string reason;
  const auto nvrtc = compiler_or_skip(reason);
  if (!nvrtc) GTEST_SKIP() << reason;
  const std::string arch = "sm_90a";
  std::vector<PlanRequest> requests;
  const auto add = [&](int ranks, Kind kind, Mode mode, int batch, Form form) {
    PlanRequest request;
    request.shape.ranks = ranks;
    request.kind = kind;
    request.mode = mode;
    request.batch = batch;
    request.form = form;
    request.pushes = kind == Kind::front && mode == Mode::twoshot;
    requests.push_back(request);
  };
  for (const int batch : {1, 8, 16, 32, 128}) {
    for (const Form form : {Form::expanded, Form::permuted, Form::partial})
      add(16, Kind::front, Mode::twoshot, batch, form);
    add(16, Kind::wave, Mode::twoshot, batch, Form::published);
    add(16, Kind::front, Mode::front, batch, Form::partial);
  }
  for (const int ranks : {1, 2})
    for (const int batch : {64, 128}) add(ranks, Kind::front, Mode::front, batch, Form::permuted);
  for (const int batch : {1, 2, 16}) {
    add(1, Kind::front, Mode::front, batch, Form::permuted);
    requests.back().shape.hidden = 1024;
    requests.back().shape.latent = 512;
  }
  for (const auto& request : requests) {
    const auto plan = make_plan(request, device_shape(arch));
    const auto result = compile(*nvrtc, plan, arch);
    ASSERT_EQ(result.usage.size(), 1u) << plan.text() << result.log;
    EXPECT_EQ(violations_of(result.usage.front(), plan, arch, cuda::kMostSpillBytes), "")
        << plan.text() << ", " << protocol::mode_name(request.mode) << ", T = " << request.shape.ranks
        << ", form " << static_cast<int>(request.form);
  }
}

TEST_P(KernelCompile, RowsOfAnyShapeArePublishedByOneKernel) {
  std::string reason;
  const auto nvrtc = compiler_or_skip(reason);
  if (!nvrtc) GTEST_SKIP() << reason;
  cuda::CompileRequest request;
  request.name = "moetail_publish_rows";
  request.source = "#include \"kernels/publish_rows.cuh\"\n";
  request.headers = cuda::embedded_headers();
  request.arch = GetParam();
  const auto result = nvrtc->compile(request);
  ASSERT_EQ(result.usage.size(), 1u) << result.log;
  EXPECT_EQ(result.usage.front().spill_store_bytes, 0u);
  EXPECT_LE(result.usage.front().num_registers, 64);
}

INSTANTIATE_TEST_SUITE_P(Architectures, KernelCompile,
                         testing::Values("sm_90a", "sm_100a", "sm_103a", "sm_120a"),
                         [](const auto& test) { return std::string(test.param); });

// What tune tries: each of them has to compile, whatever it costs. A kernel that spills or has too many registers is the budget's to refuse.
TEST(KernelChoices, EachCompilesToAKernelOfItsOwnAtFullSize) {
  std::string reason;
  const auto nvrtc = compiler_or_skip(reason);
  if (!nvrtc) GTEST_SKIP() << reason;
  const struct {
    int ranks, batch;
    KernelChoice choice;
  } cases[] = {{8, 1, {.trigger = 0}},      {8, 1, {.trigger = 3}},
               {8, 1, {.trigger = 5}},      {8, 1, {.row_block = 64}},
               {8, 1, {.row_block = 32}},   {8, 1, {.warps = 16}},
               {8, 16, {.tile = 8}},        {8, 16, {.row_block = 64}},
               {8, 16, {.warps = 16}},      {8, 128, {.tile = 8}},
               {8, 128, {.tile = 32}},      {8, 128, {.warps = 8}},
               {8, 128, {.row_block = 32}}, {4, 1, {.row_block = 32, .stages = 2}},
               {1, 4, {.stages = 2}}};
  std::string last;
  for (const Kind kind : {Kind::front, Kind::wave})
    for (const auto& [ranks, batch, choice] : cases) {
      if (kind == Kind::wave && choice.trigger == 3) continue;
      PlanRequest request;
      request.kind = kind;
      request.mode = kind == Kind::wave ? Mode::publish : Mode::front;
      if (kind == Kind::wave) request.form = Form::published;
      request.shape.ranks = ranks;
      request.batch = batch;
      request.choice = choice;
      const auto plan = make_plan(request, device_shape("sm_90a"));
      const auto result = compile(*nvrtc, plan, "sm_90a", true);
      ASSERT_EQ(result.usage.size(), 1u) << plan.text() << choice_text(choice) << result.log;
      EXPECT_NE(result.ptx, last) << plan.text() << choice_text(choice);
      last = result.ptx;
      fmt::print("{}, {}: {} registers, {} bytes spilled\n", plan.text(), choice_text(choice),
                 result.usage.front().num_registers, result.usage.front().spill_store_bytes);
    }
}

/// Of a shape whose kernels compile fast, on two ranks.
PlanRequest small_request() {
  PlanRequest request;
  request.shape.hidden = 1024;
  request.shape.latent = 512;
  request.shape.ranks = 2;
  request.shape.capacity = 16;
  return request;
}

// An early wave's polls come before its dependency wait in the program, another's behind it.
TEST(KernelPtx, AnEarlyWaveWaitsBehindItsPolls) {
  std::string reason;
  const auto nvrtc = compiler_or_skip(reason);
  if (!nvrtc) GTEST_SKIP() << reason;
  PlanRequest request = small_request();
  request.kind = Kind::wave;
  request.mode = Mode::publish;
  request.form = Form::published;
  for (const bool is_early : {false, true}) {
    request.early = is_early;
    const std::string ptx = compile(*nvrtc, make_plan(request, device_shape("sm_90a")), "sm_90a", true).ptx;
    const auto entry = ptx.find(".visible .entry moetail_wave");
    const auto wait = ptx.find("griddepcontrol.wait", entry),
               poll = ptx.find("ld.relaxed.sys.global.v4.u32", entry);
    ASSERT_NE(wait, std::string::npos);
    ASSERT_NE(poll, std::string::npos);
    EXPECT_EQ(poll < wait, is_early);
  }
}

// The switches that only the GPU program sets: safeguards left out, stalls, the late re-arm.
TEST(KernelSwitches, EveryOneCompilesAndChangesTheKernel) {
  std::string reason;
  const auto nvrtc = compiler_or_skip(reason);
  if (!nvrtc) GTEST_SKIP() << reason;
  PlanRequest request = small_request();
  request.launch_ranks = request.shape.ranks;
  const auto ptx_of = [&](Kind kind, Mode mode, const char* define) {
    auto other = request;
    other.kind = kind;
    other.mode = mode;
    other.batch = 2;
    const bool reads_rows = kind == Kind::publish || kind == Kind::fill || mode == Mode::front;
    other.form = reads_rows ? Form::partial : Form::published;
    if (kind == Kind::fill) other.form = Form::expanded;
    auto plan = make_plan(other, device_shape("sm_90a"));
    if (define != nullptr) plan.defines.push_back(std::string("MOETAIL_") + define);
    return compile(*nvrtc, plan, "sm_90a", true).ptx;
  };
  const std::string front = ptx_of(Kind::front, Mode::front, nullptr);
  for (const char* define :
       {"WITHOUT_THIRD_SLOT=1", "WITHOUT_REARM_SIZE=1", "WITHOUT_SENTINEL_CLEANUP=1",
        "WITHOUT_DEPENDENCY_WAIT=1", "WITHOUT_LAST_ARRIVAL=1", "LATE_REARM=1", "STALL_NS=1000"})
    EXPECT_NE(ptx_of(Kind::front, Mode::front, define), front) << define;
  for (const auto& [kind, mode] :
       {std::pair{Kind::front, Mode::front_poll}, std::pair{Kind::fill, Mode::front_poll},
        std::pair{Kind::publish, Mode::twoshot}, std::pair{Kind::wave, Mode::twoshot},
        std::pair{Kind::push, Mode::publish}, std::pair{Kind::take, Mode::front}})
    EXPECT_NE(ptx_of(kind, mode, "STALL_NS=1000"), ptx_of(kind, mode, nullptr)) << kind_name(kind);
}

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// What an ablation times: without a stage its instructions are gone, twice they are there twice, and a whole kernel has nothing of either.
TEST(KernelSwitches, AStageIsLeftOutOrDoneTwice) {
  std::string reason;
  const auto nvrtc = compiler_or_skip(reason);
  if (!nvrtc) GTEST_SKIP() << reason;
  PlanRequest request = small_request();
  request.batch = 2;
  request.mode = Mode::twoshot;
  request.pushes = true;
  request.put = PutBy::own;
  const auto ptx_of = [&](const std::string& define) {
    auto plan = make_plan(request, device_shape("sm_90a"));
    plan.defines.push_back("MOETAIL_KEEPS_MAILBOXES=1");
    if (!define.empty()) plan.defines.push_back("MOETAIL_" + define);
    return compile(*nvrtc, plan, "sm_90a", true).ptx;
  };
  const std::string whole = ptx_of("");
  using kernels::Stage;
  const std::map<Stage, std::string> instructions = {{Stage::weights, "bytes.L2::cache_hint [%"},
                                                     {Stage::product, "mma.sync.aligned"},
                                                     {Stage::exchange, "st.async."},
                                                     {Stage::epoch, "atom.relaxed.gpu.global.add.u64"},
                                                     {Stage::output, "rsqrt.approx"}};
  for (int i = 0; i < kernels::kStages; ++i) {
    const auto stage = static_cast<Stage>(i);
    const char* const name = kernels::kStageNames[i];
    const std::string bit = std::to_string(kernels::stage_bit(stage));
    const std::string without = ptx_of("LEFT_OUT=" + bit);
    EXPECT_LT(without.size(), whole.size()) << name;
    const bool is_of_waits = stage == Stage::epoch || stage == Stage::deadlines || stage == Stage::faults;
    const std::string twice = is_of_waits ? "" : ptx_of("TWICE=" + bit);
    if (!is_of_waits) {
      EXPECT_GT(twice.size(), whole.size()) << name;
    }
    const auto known = instructions.find(stage);
    if (known == instructions.end()) continue;
    EXPECT_EQ(count_of(without, known->second), 0) << name;
    EXPECT_GT(count_of(whole, known->second), 0) << name;
    if (!is_of_waits) {
      EXPECT_EQ(count_of(twice, known->second), 2 * count_of(whole, known->second)) << name;
    }
  }
}

struct Expected {
  Kind kind;
  Mode mode;
  PutBy put;
  const char* text;
};

TEST(KernelPtx, AccessesBetweenRanksAreWhatTheProtocolNamesAtFullSize) {
  std::string reason;
  const auto nvrtc = compiler_or_skip(reason);
  if (!nvrtc) GTEST_SKIP() << reason;
  const Expected table[] = {
      {Kind::front, Mode::front, PutBy::peers, "ld.relaxed.sys.global.v4.u32"},
      {Kind::front, Mode::front, PutBy::peers, "st.relaxed.sys.global.v4.u32"},
      {Kind::front, Mode::front, PutBy::peers, "st.relaxed.sys.global.u32"},
      {Kind::front, Mode::front, PutBy::peers, "ld.relaxed.sys.global.u64"},
      {Kind::front, Mode::front, PutBy::peers, "atom.relaxed.gpu.global.add.u64"},
      {Kind::front, Mode::front, PutBy::peers, "atom.acq_rel.sys.global.cas.b64"},
      {Kind::front, Mode::front, PutBy::peers, "st.release.sys.global.u32"},
      {Kind::front, Mode::front, PutBy::peers, "st.async.shared::cluster.mbarrier::complete_tx::bytes"},
      {Kind::front, Mode::front, PutBy::peers,
       "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"},
      {Kind::front, Mode::front, PutBy::peers, "barrier.cluster.wait.acquire.aligned"},
      {Kind::front, Mode::front, PutBy::peers, "fence.mbarrier_init.release.cluster"},
      {Kind::front, Mode::front, PutBy::peers, "griddepcontrol.wait"},
      {Kind::front, Mode::front, PutBy::multicast, "multimem.st.relaxed.sys.global.b32"},
      {Kind::wave, Mode::twoshot, PutBy::multicast, "multimem.st.relaxed.sys.global.v4.f32"},
      {Kind::wave, Mode::publish, PutBy::peers, "griddepcontrol.wait"},
      {Kind::push, Mode::publish, PutBy::peers, "griddepcontrol.wait"},
      {Kind::take, Mode::front, PutBy::peers, "griddepcontrol.wait"},
      {Kind::fill, Mode::front_poll, PutBy::peers, "griddepcontrol.wait"},
      {Kind::publish, Mode::publish, PutBy::peers, "griddepcontrol.wait"},
  };
  for (const auto& expected : table) {
    PlanRequest request;
    request.kind = expected.kind;
    request.mode = expected.mode;
    request.put = expected.put;
    if (expected.kind != Kind::front && expected.kind != Kind::publish && expected.kind != Kind::fill)
      request.form = Form::published;
    const auto result = compile(*nvrtc, make_plan(request, device_shape("sm_90a")), "sm_90a", true);
    EXPECT_NE(result.ptx.find(expected.text), std::string::npos)
        << kind_name(expected.kind) << " lacks " << expected.text;
    // A plain store to a multicast address corrupts silently: with multicast the latents leave by multimem alone.
    if (expected.kind == Kind::front && expected.put == PutBy::peers) {
      EXPECT_EQ(result.ptx.find("multimem"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace moetail::kernels
