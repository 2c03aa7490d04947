// SPDX-License-Identifier: Apache-2.0
// `moetail tune --engine cuda`: the search for a kernel over times that are made up, the settings of a knob, the rows that variants have to leave, and
// the command on the emulated GPU, whose times mean nothing.
#include <fstream>
#include <map>

#include "cli/exit_code.hpp"
#include "cli/knob_search.hpp"
#include "cli/reference_rows.hpp"
#include "cli/step_driver.hpp"
#include "moetail/policy.hpp"
#include "tests/cli_testing.hpp"

namespace moetail::cli_testing {
namespace {

using bench::Knob;
using cli::VariantTimes;

TEST(GpuTune, OnlyWhatIsClearlyFasterReplacesTheFirst) {
  EXPECT_EQ(cli::fastest({10.0, 9.9, 9.86}), 0u) << "1.4 % is noise";
  EXPECT_EQ(cli::fastest({10.0, 9.84, 9.9}), 1u);
  EXPECT_EQ(cli::fastest({10.0, 9.5, 9.1, 9.3}), 2u);
  EXPECT_EQ(cli::fastest({10.0, std::nullopt, 9.3}), 2u) << "what failed has no time";
  EXPECT_EQ(cli::fastest({10.0, std::nullopt}), 0u);
  EXPECT_EQ(cli::fastest({std::nullopt, 1.0}), 0u) << "nothing to compare with";
  EXPECT_EQ(cli::fastest({}), 0u);
  EXPECT_EQ(cli::fastest({10.0, 9.9}, 0.001), 1u);
}

/// A machine whose times are a sum over the knobs, so that each knob has one best setting.
class GpuTuneSearch : public ::testing::Test {
 protected:
  GpuTuneSearch() {
    search.settings = [](Knob knob, KernelChoice from) {
      std::vector<KernelChoice> choices;
      for (const int value : {8, 16}) {
        (knob == Knob::warps ? from.warps : from.tile) = value;
        choices.push_back(from);
      }
      return choices;
    };
    search.measure = [this](const char* what, std::span<const KernelChoice> choices) {
      VariantTimes us;
      for (const KernelChoice& choice : choices) {
        measured.push_back(std::string(what) + ": " + choice_text(choice));
        us.push_back(time_of(choice));
      }
      return us;
    };
  }

  std::optional<double> time_of(const KernelChoice& choice) {
    if (choice.warps == wrong_warps) return std::nullopt;
    double us = 10 + warps_us[choice.warps] + tile_us[choice.tile];
    if (choice != KernelChoice{} && ++num_times > 4) us += late_us;
    return us;
  }

  std::map<int, double> warps_us, tile_us;  // by setting; 0: the plan's own
  int wrong_warps = -1;
  double late_us = 0;  // what variants take more once they have been measured a few times
  int num_times = 0;
  cli::KnobSearch search;
  std::vector<std::string> measured;
  const std::array<Knob, 2> knobs = {Knob::warps, Knob::tile};
};

TEST_F(GpuTuneSearch, EachKnobGoesOnFromTheBestBeforeIt) {
  warps_us[16] = -2;
  tile_us[8] = -1;
  const cli::FoundKernel found = cli::search_knobs(search, knobs);
  EXPECT_EQ(found.choice, (KernelChoice{.tile = 8, .warps = 16}));
  EXPECT_EQ(found.own_us, 10.0);
  EXPECT_EQ(found.us, 7.0);
  EXPECT_THAT(measured, ::testing::ElementsAre("warps: as planned", "warps: warps = 8", "warps: warps = 16",
                                               "tile: warps = 16", "tile: tile = 8, warps = 16",
                                               "tile: tile = 16, warps = 16", "all together: as planned",
                                               "all together: tile = 8, warps = 16"));
}

TEST_F(GpuTuneSearch, WhereNothingIsFasterThePlanStays) {
  warps_us[16] = tile_us[8] = -0.14;
  const cli::FoundKernel found = cli::search_knobs(search, knobs);
  EXPECT_EQ(found.choice, KernelChoice{});
  EXPECT_FALSE(found.us);
}

TEST_F(GpuTuneSearch, AWrongVariantIsNotChosenHoweverFast) {
  warps_us[16] = -9;
  wrong_warps = 16;
  EXPECT_EQ(cli::search_knobs(search, knobs).choice, KernelChoice{});
  wrong_warps = -1;
  EXPECT_EQ(cli::search_knobs(search, knobs).choice.warps, 16) << "it was the mistake that kept it out";
}

TEST_F(GpuTuneSearch, AGainThatDoesNotLastIsNone) {
  warps_us[16] = -1;
  late_us = 0.95;
  const cli::FoundKernel found = cli::search_knobs(search, knobs);
  EXPECT_EQ(measured.back(), "all together: warps = 16");
  EXPECT_EQ(found.choice, KernelChoice{});
  num_times = 0, late_us = 0;
  EXPECT_EQ(cli::search_knobs(search, knobs).choice.warps, 16);
}

TEST_F(GpuTuneSearch, WithoutKnobsNothingIsMeasured) {
  warps_us[16] = -5;
  EXPECT_EQ(cli::search_knobs(search, {}).choice, KernelChoice{});
  EXPECT_TRUE(measured.empty());
}

std::vector<std::string> settings_of(const bench::TailKnobs& knobs, const bench::TailSpec& spec, Knob knob,
                                     const KernelChoice& from = {}) {
  std::vector<std::string> texts;
  const auto settings = knobs.settings(spec, knob, from);
  for (const KernelChoice& choice : settings.choices) texts.push_back(choice_text(choice));
  for (const std::string& obstacle : settings.obstacles) texts.push_back("no " + obstacle);
  return texts;
}

TEST(GpuTuneKnobs, SettingsAreThoseThatMakeAnotherKernel) {
  using ::testing::ElementsAre;
  const bench::TailKnobs knobs(kernels::device_shape("sm_90a"));
  bench::TailSpec k3;
  const auto of = [&](int ranks, int batch, Knob knob, const KernelChoice& from = {},
                      Mode mode = Mode::front) {
    k3.shape.ranks = ranks;
    k3.batch = batch;
    k3.mode = mode;
    return settings_of(knobs, k3, knob, from);
  };
  EXPECT_THAT(of(8, 1, Knob::trigger), ElementsAre("trigger = at_entry", "trigger = after_publication",
                                                   "trigger = after_errands", "trigger = after_polls"));
  EXPECT_THAT(of(8, 16, Knob::trigger, {}, Mode::publish),
              ElementsAre("trigger = at_entry", "trigger = after_wait", "trigger = after_errands"));
  EXPECT_THAT(of(8, 16, Knob::warps), ElementsAre("warps = 16"));
  EXPECT_THAT(of(8, 64, Knob::warps), ElementsAre("warps = 8"));
  EXPECT_THAT(of(8, 8, Knob::tile), ElementsAre());
  EXPECT_THAT(of(8, 64, Knob::tile, {.warps = 8}),
              ElementsAre("tile = 8, warps = 8", "tile = 16, warps = 8", "tile = 32, warps = 8"));
  EXPECT_THAT(of(8, 1, Knob::row_block), ElementsAre("row_block = 64", "row_block = 32"));
  EXPECT_THAT(of(8, 1, Knob::stages), ElementsAre()) << "one row block a cluster";
  const auto deep = of(1, 1, Knob::stages);
  ASSERT_GE(deep.size(), 2u);
  EXPECT_EQ(deep.front(), "stages = 2") << "the plan has 3";
  EXPECT_THAT(deep.back(), AllOf(HasSubstr("no stages = "), HasSubstr("accepted is what fits")));
}

/// Rows of a step on the CPU, [layers, B, H].
struct CpuRows {
  explicit CpuRows(Mode mode) {
    cli::StepDriver driver(WorldOptions{}, weights, inputs, mode, mode);
    driver.run_step(0);
    for (int layer = 0; layer < 2; ++layer) {
      const std::span<const Bf16> part = driver.output(layer, 0);
      rows.insert(rows.end(), part.begin(), part.end());
    }
  }
  static cli::InputSpec spec() {
    cli::InputSpec spec;
    spec.shape = {256, 128, 2, 4, 8, 4};
    spec.batch = 3;
    return spec;
  }

  cli::Progress progress{true};
  std::vector<cli::LayerWeights> weights =
      cli::synthetic_weights(1, std::array{1, 2}, spec().shape.hidden, spec().shape.latent, progress);
  cli::Inputs inputs = cli::Inputs::synthetic(spec(), 2, progress);
  std::vector<Bf16> rows;
};

TEST(GpuTuneRows, OneBitOfOneLayerIsAMismatch) {
  const CpuRows front(Mode::front), publish(Mode::publish);
  cli::ReferenceRows reference(front.weights, front.inputs);
  EXPECT_EQ(reference.mismatch(front.rows, Mode::front), "");
  EXPECT_EQ(reference.mismatch(publish.rows, Mode::publish), "");
  const std::size_t size = front.rows.size() / 2;
  const std::span<const Bf16> last = std::span(front.rows).last(size);
  EXPECT_EQ(reference.mismatch_of_last(last, Mode::front), "");
  for (const std::size_t at : {std::size_t{5}, size + 7}) {
    std::vector<Bf16> other = front.rows;
    other[at] ^= 1;
    EXPECT_THAT(reference.mismatch(other, Mode::front),
                AllOf(HasSubstr(at < size ? "layer 1" : "layer 2"), HasSubstr("the oracle passed")));
    EXPECT_EQ(reference.mismatch_of_last(std::span(other).last(size), Mode::front) == "", at < size);
  }
}

TEST(GpuTuneRows, WrongRowsAreNobodysReference) {
  const CpuRows front(Mode::front);
  cli::ReferenceRows reference(front.weights, front.inputs);
  std::vector<Bf16> wrong = front.rows;
  for (std::size_t i = 0; i < 256; ++i) wrong[i] = 0;
  EXPECT_NE(reference.mismatch(wrong, Mode::front), "");
  EXPECT_EQ(reference.mismatch(front.rows, Mode::front), "");
  EXPECT_NE(reference.mismatch(wrong, Mode::front), "");
}

const std::string kEmulatedTuner =
    " MOETAIL_CUDA_DRIVER='" MOETAIL_EMULATOR "' MOETAIL_NVRTC='" MOETAIL_EMULATOR
    "' MOETAIL_CACHE_DIR='" MOETAIL_EMULATOR ".tune-cache' ";
const std::string kTinyShape = "--hidden 64 --latent 64 --top-k 5 --capacity 16 --tp 2 --layers 2 ";
const std::string kTinyTune = "tune --engine cuda " + kTinyShape + "--rounds 3 --deadline 60 --quiet ";

TEST(CliGpuTune, WritesAPolicyThatWorldsLaunch) {
  if (kSanitized) GTEST_SKIP() << kNoEmulatedGpu;
  const TempDir scratch;
  const std::string path = (scratch / "policy.json").string();
  const Outcome tune = moetail(
      kTinyTune + "--batch 1,16 --residual --put unicast --knobs trigger,tile,warps --out '" + path + "'",
      kEmulatedTuner);
  ASSERT_EQ(tune.exit_code, 0) << tune.out << tune.err;
  for (const char* part : {"T=2 B=1 front ", "T=2 B=16 front ", "; publish ", "; sharing ",
                           "trigger: as planned ", "trigger = at_entry ", "tile = 8", "warps = 16", " us -> ",
                           "own us", "unicast put", "2 layers in one graph"})
    EXPECT_THAT(tune.out, HasSubstr(part)) << part;
  EXPECT_THAT(tune.out, Not(HasSubstr("FAIL")));
  EXPECT_THAT(tune.out, Not(HasSubstr("left out")));
  const Policy policy = Policy::load(path, Engine::cuda);
  EXPECT_EQ(policy.front_limit(8), Policy::of(Engine::cuda).front_limit(8)) << "not measured";
  const Outcome run =
      moetail("run --engine cuda --world replay " + kTinyShape +
                  "--steps 3 --deadline 60 --quiet --batch 1,16 --json - --policy '" + path + "'",
              kEmulatedTuner);
  ASSERT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_EQ(run.json().at("verdict"), "pass");
}

// The plan refuses these stages, so whoever launches or makes the kernel has to have been told.
TEST(CliGpuTune, AFilesKernelIsWhatIsMadeAndLaunched) {
  if (kSanitized) GTEST_SKIP() << kNoEmulatedGpu;
  const TempDir scratch;
  const std::string path = (scratch / "policy.json").string();
  std::ofstream(path) << R"({"front_up_to": {"2": 8}, "cuda_kernels": {"2": {"1": {"stages": 9}}}})";
  const std::string shape = "--hidden 64 --latent 64 --top-k 5 --capacity 16 --tp 2 --policy '" + path + "' ";
  for (const char* command : {"run --steps 3 --layers 1 --quiet --world replay", "warmup --world replay",
                              "bench --layers 1 --rounds 3 --quiet --put unicast"}) {
    const std::string line = std::string(command) + " --engine cuda --deadline 60 " + shape + "--batch 1 ";
    const Outcome asked = moetail(line, kEmulatedTuner);
    EXPECT_NE(asked.exit_code, 0) << command;
    EXPECT_THAT(asked.out + asked.err, HasSubstr("stages = 9: accepted is 1 to 1")) << command;
  }
  const Outcome other =
      moetail("warmup --world replay " + shape + "--batch 1 --mode publish", kEmulatedTuner);
  EXPECT_EQ(other.exit_code, 0) << other.err << "a mode that the table does not take at that batch";
  const Outcome loopback = moetail("warmup " + shape + "--batch 1", kEmulatedTuner);
  EXPECT_EQ(loopback.exit_code, 0) << loopback.err << "ranks that share a device";
}

// The fake driver launches nothing: without rows there is no time, and no table.
TEST(CliGpuTune, WrongAnswersLeaveATableThatIsThere) {
  const TempDir scratch;
  const std::string path = (scratch / "policy.json").string();
  std::ofstream(path) << "{}";
  const Outcome tune = moetail(kTinyTune + "--batch 1 --out '" + path + "'",
                               " MOETAIL_CUDA_DRIVER='" MOETAIL_FAKE_CUDA "' MOETAIL_NVRTC='" MOETAIL_EMULATOR
                               "' MOETAIL_CACHE_DIR= ");
  EXPECT_EQ(tune.exit_code, cli::kCheckFailed) << tune.out << tune.err;
  EXPECT_THAT(tune.out, AllOf(HasSubstr("FAIL T=2 B=1 front: "), HasSubstr("FAIL T=2 B=1 sharing: ")));
  EXPECT_EQ(read_file(path), "{}");
}

TEST(CliGpuTune, RefusesWhatItCannotMeasure) {
  const struct {
    const char *flags, *flag;
  } cases[] = {{"--engine cuda --put multicast,unicast", "--put = 2 of them"},
               {"--engine cuda --put broadcast", "--put = \"broadcast\""},
               {"--engine cuda --knobs slices", "--knobs = \"slices\""},
               {"--engine cuda --world virtual", "--world = virtual"},
               {"--engine cuda --form published", "--form = published"},
               {"--engine cpu --put unicast", "--put = given"},
               {"--engine cpu --knobs none", "--knobs = given"}};
  for (const auto& [flags, flag] : cases) {
    const Outcome tune = moetail(std::string("tune --out /dev/null ") + flags);
    EXPECT_EQ(tune.exit_code, cli::kBadInput) << flags;
    EXPECT_EQ(tune.out, "") << flags;
    EXPECT_THAT(tune.err, AllOf(HasSubstr(flag), HasSubstr("accepted is"))) << flags;
  }
}

}  // namespace
}  // namespace moetail::cli_testing
