// SPDX-License-Identifier: Apache-2.0
// Whatever a user may get wrong: exit code 2 and a message that names the thing, its value and what is accepted. And a fault at
// run time: exit code 3.
#include "io/captured_step.hpp"
#include "tests/cli_testing.hpp"

namespace moetail::cli_testing {
namespace {

void expect_refused(const std::string& arguments, const std::vector<std::string>& parts,
                    const std::string& environment = kGivenCeilings) {
  const Outcome outcome = moetail(arguments, environment);
  EXPECT_EQ(outcome.exit_code, 2) << arguments << "\n" << outcome.err;
  EXPECT_EQ(outcome.out, "") << arguments;
  for (const std::string& part : parts) EXPECT_THAT(outcome.err, HasSubstr(part)) << arguments;
}

TEST(CliBadUsage, OfTheCommandLine) {
  expect_refused("", {"a subcommand is missing"});
  expect_refused("fly", {"fly"});
  expect_refused("run --altitude 3", {"--altitude"});
  expect_refused("run --batch", {"--batch"});
  expect_refused("make-checkpoint", {"directory"});
}

TEST(CliBadUsage, OfAFlag) {
  const std::pair<const char*, std::vector<std::string>> cases[] = {
      {"--hidden x", {"--hidden = \"x\"", "1 to 1048576"}},
      {"--hidden 100", {"hidden = 100", "a multiple of 8 * ranks"}},
      {"--latent 100", {"latent = 100", "a multiple of 8"}},
      {"--latent 3592 --mode twoshot", {"latent = 3592", "in twoshot mode"}},
      {"--top-k 65", {"top_k = 65", "1 to 64"}},
      {"--batch 129", {"batch = 129", "128"}},
      {"--capacity 8 --batch 9", {"batch = 9", "8"}},
      {"--batch 0", {"--batch = \"0\"", "1 to 65535"}},
      {"--batch 17 --mode front_poll", {"batch = 17", "poll_capacity = 16"}},
      {"--tp 3", {"--tp = 3", "1, 2, 4, 8 or 16"}},
      {"--tp 32", {"--tp = \"32\"", "1 to 16"}},
      {"--mode sideways", {"--mode = \"sideways\"", "front_poll"}},
      {"--form square", {"--form = \"square\"", "permuted"}},
      {"--form published --mode front", {"--form = published", "front mode"}},
      {"--weights-dtype fp8", {"--weights-dtype = \"fp8\"", "bf16, fp32"}},
      {"--eps -1", {"--eps = \"-1\"", "0 to 1"}},
      {"--deadline -1", {"--deadline = \"-1\"", "0.001"}},
      {"--deadline soon", {"--deadline = \"soon\""}},
      {"--seed -1", {"--seed = \"-1\""}},
      {"--steps 2", {"--steps = \"2\"", "from 3"}},
      {"--layers 0", {"--layers = \"0\"", "1 to 1000"}},
      {"--layers 1-8", {"--layers = \"1-8\"", "--checkpoint"}},
      {"--engine abacus", {"--engine = \"abacus\"", "auto, cpu, cuda"}},
      {"--engine cuda", {"engine = cuda", "no CUDA driver"}},
      {"--world replay", {"--world = replay", "--engine cuda"}},
      {"--json /no/such/directory/x.json", {"/no/such/directory/x.json", "cannot be written"}},
  };
  for (const auto& [flags, parts] : cases) expect_refused(std::string("run --quiet ") + flags, parts);
}

TEST(CliBadUsage, OfTheOtherSubcommands) {
  expect_refused("plan --batch 1-200", {"batch = 129", "128"});
  expect_refused("plan --tp 5", {"--tp = 5"});
  expect_refused("info --tp 16 --hidden 200", {"hidden = 200"});
  const TempDir scratch;
  const std::string make = "make-checkpoint " + (scratch / "k3").string() + " --hidden 64 --latent 32 ";
  expect_refused(make + "--layers 1 --shards 3", {"shards = 3", "1 to 2"});
  expect_refused(make + "--prefix no_dot", {"prefix = \"no_dot\"", "ends with a dot"});
  expect_refused("make-checkpoint /no/such/parent/k3 --hidden 64 --latent 32", {"/no/such/parent/k3"});
  EXPECT_FALSE(std::filesystem::exists(scratch / "k3"));
}

TEST(CliBadUsage, OfMoreMemoryThanThereIs) {
  expect_refused("run --hidden 1048576 --latent 524288 --layers 1000 --quiet",
                 {"need", "weights 1100 TB", "available"});
}

TEST(CliBadUsage, OfTheEnvironment) {
  for (const char* value : {"fast", "20", "20,", "20,x", "20,0", "-20,1000", "20,1000,3", "inf,1000"})
    expect_refused("run --layers 1 --quiet",
                   {"MOETAIL_CEILINGS = \"" + std::string(value) + "\"", "two numbers"},
                   "MOETAIL_CEILINGS=" + std::string(value));
  expect_refused("run --layers 1 --quiet", {"abacus", "scalar"}, "MOETAIL_CPU_TARGET=abacus");
}

TEST(CliBadFile, Policy) {
  const TempDir scratch;
  const std::string file = (scratch / "policy.json").string();
  const std::string run = "run --quiet --policy " + file;
  expect_refused(run, {file, "cannot be read"});
  io_testing::write_file(file, "{");
  expect_refused(run, {file, "JSON"});
  io_testing::write_file(file, R"({"front_upto": {"8": 4}})");
  expect_refused(run, {file, "front_upto", "front_up_to"});
  io_testing::write_file(file, R"({"front_up_to": {"8": -4}})");
  expect_refused(run, {file, "-4"});
}

TEST(CliBadFile, Checkpoint) {
  const TempDir scratch;
  const std::string directory = (scratch / "k3").string();
  expect_refused("run --quiet --checkpoint " + directory, {directory});
  ASSERT_EQ(
      moetail("make-checkpoint " + directory + " --layers 2 --hidden 256 --latent 128 --shards 2 --quiet")
          .exit_code,
      0);
  const std::string run = "run --quiet --steps 3 --top-k 4 --capacity 32 --checkpoint " + directory + " ";
  expect_refused(run + "--layers 1-3", {"3"});
  expect_refused(run + "--layers one", {"layers = \"one\""});
  expect_refused(run + "--hidden 512", {"--hidden = 512", "256", directory});
  expect_refused(run + "--latent 64", {"--latent = 64", "128"});

  const auto shard = scratch / "k3" / "model-00002-of-00002.safetensors";
  std::filesystem::resize_file(shard, std::filesystem::file_size(shard) - 2);
  expect_refused(run, {"model-00002-of-00002.safetensors"});
  std::filesystem::remove(shard);
  expect_refused(run, {"model-00002-of-00002.safetensors"});

  const std::string single = (scratch / "wrong.safetensors").string();
  io_testing::write_tensors(
      single, {{"model.layers.1.block_sparse_moe.routed_expert_up_proj.weight", io::Dtype::f32, {256, 128}},
               {"model.layers.1.block_sparse_moe.routed_expert_norm.weight", io::Dtype::bf16, {128}}});
  expect_refused("run --quiet --checkpoint " + single, {single, "routed_expert_up_proj", "F32", "BF16"});
}

class CliInputsTest : public ::testing::Test {
 protected:
  static constexpr int kLatent = 128, kHidden = 256, kTopK = 4, kBatch = 3, kNumRows = 12;

  // A step of layers 2 and 5 with two ranks; `change` may spoil the tensors before they are written.
  void write(io::RoutedForm form, bool residual = false) {
    io::StepSpec spec;
    spec.form = form;
    spec.weights = io::Dtype::f32;
    spec.layers = {2, 5};
    spec.ranks = 2;
    spec.batch = kBatch;
    spec.top_k = kTopK;
    spec.latent = kLatent;
    spec.hidden = kHidden;
    spec.has_residual = residual;
    io::write_captured_step(file_, spec, [&](int layer, int rank) {
      io::RankInputs inputs;
      const auto at = [&](const std::vector<std::uint16_t>& array, std::size_t size) {
        return std::span(array).subspan(static_cast<std::size_t>(8 * (layer + rank)), size);
      };
      inputs.shared = at(numbers_, kBatch * kHidden);
      if (residual)
        inputs.residual = std::span(numbers_).subspan(8 * (same_residual_ ? 0 : rank), kBatch * kHidden);
      if (form == io::RoutedForm::partial) {
        inputs.partial = at(numbers_, kBatch * kLatent);
        return inputs;
      }
      inputs.rows = at(numbers_, kNumRows * kLatent);
      inputs.weights_f32 = weights_;
      if (form == io::RoutedForm::permuted) inputs.map = map_;
      return inputs;
    });
  }

  static std::vector<std::uint16_t> bf16_numbers(std::size_t count) {
    std::vector<std::uint16_t> numbers(count);
    for (std::size_t i = 0; i < count; ++i)  // 0.5 to 2, both signs
      numbers[i] =
          static_cast<std::uint16_t>(0x3F00u + (i * 2654435761u >> 12) % 0x100u + (i % 3 == 0 ? 0x8000u : 0));
    return numbers;
  }

  bool same_residual_ = true;
  const TempDir scratch_;
  const std::string file_ = (scratch_ / "step.safetensors").string();
  std::vector<std::uint16_t> numbers_ = bf16_numbers(kNumRows * kLatent + 4096);
  std::vector<float> weights_ = std::vector<float>(kBatch * kTopK, 0.25f);
  std::vector<std::int32_t> map_ = {11, 3, -1, 0, 7, 8, -5, 2, 1, 4, 5, 6};
  const std::string run_ = "run --quiet --steps 3 --capacity 32 --json - --inputs " + file_ + " ";
};

TEST_F(CliInputsTest, CapturedStepsOfEveryFormRun) {
  for (const auto form : {io::RoutedForm::expanded, io::RoutedForm::permuted, io::RoutedForm::partial}) {
    write(form, form == io::RoutedForm::permuted);
    for (const char* flags :
         {"--mode front,front_poll,publish,twoshot", "--form published --mode publish,twoshot"}) {
      const Outcome run = moetail(run_ + flags + (form == io::RoutedForm::partial ? " --top-k 4" : ""));
      ASSERT_EQ(run.exit_code, 0) << run.err << run.out;
      EXPECT_EQ(run.json().at("model").at("layers"), (std::vector<int>{2, 5}));
      EXPECT_EQ(run.json().at("results").at(0).at("tp"), 2);
      EXPECT_EQ(run.json().at("results").at(0).at("residual"), form == io::RoutedForm::permuted);
    }
  }
}

TEST_F(CliInputsTest, WeightsMayComeFromACheckpoint) {
  write(io::RoutedForm::expanded);
  const std::string directory = (scratch_ / "k3").string();
  const std::string make =
      "make-checkpoint " + directory + " --hidden 256 --latent 128 --quiet --force --layers ";
  ASSERT_EQ(moetail(make + "5").exit_code, 0);
  const Outcome run = moetail(run_ + "--checkpoint " + directory);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.json().at("model").at("layers"), (std::vector<int>{2, 5}));
  expect_refused(run_ + "--checkpoint " + directory + " --layers 2-3", {"layer", "3"});
  ASSERT_EQ(moetail(make + "4").exit_code, 0);
  expect_refused(run_ + "--checkpoint " + directory, {"5"});
}

TEST_F(CliInputsTest, FlagsThatContradictTheFileAreRefused) {
  write(io::RoutedForm::expanded);
  expect_refused(run_ + "--top-k 8", {"--top-k = 8", "4", file_});
  expect_refused(run_ + "--hidden 512", {"--hidden = 512", "256"});
  expect_refused(run_ + "--batch 4", {"--batch = 4", "3"});
  expect_refused(run_ + "--tp 4", {"--tp = 4", "2"});
  expect_refused(run_ + "--form permuted", {"--form = permuted", "rows"});
  expect_refused(run_ + "--weights-dtype bf16", {"--weights-dtype = bf16", "fp32"});
  expect_refused(run_ + "--residual", {"--residual", "has no residual"});
  expect_refused(run_ + "--layers 3", {"--layers = 3", "1 to 2"});
  expect_refused("run --quiet --capacity 2 --inputs " + file_, {"batch = 3", "2"});
}

TEST_F(CliInputsTest, AResidualThatDiffersBetweenRanksIsRefused) {
  same_residual_ = false;
  write(io::RoutedForm::permuted, true);
  expect_refused(run_, {file_, "layer.2.rank.1.residual", "rank 0"});
}

TEST_F(CliInputsTest, BrokenFilesAreRefused) {
  expect_refused(run_, {file_});
  write(io::RoutedForm::permuted);
  std::string bytes = read_file(file_);
  const std::string good_map(reinterpret_cast<const char*>(map_.data()), map_.size() * sizeof(std::int32_t));
  map_[4] = kNumRows;  // one beyond the rows
  const std::string bad_map(reinterpret_cast<const char*>(map_.data()), map_.size() * sizeof(std::int32_t));
  std::string spoiled = bytes;
  ASSERT_NE(spoiled.find(good_map), std::string::npos);
  spoiled.replace(spoiled.find(good_map), good_map.size(), bad_map);
  io_testing::write_file(file_, spoiled);
  expect_refused(run_, {file_, "map", "12"});

  io_testing::write_file(file_, bytes.substr(0, bytes.size() - 1));
  expect_refused(run_, {file_});
  io_testing::write_file(file_, bytes.substr(0, 5));
  expect_refused(run_, {file_});
  spoiled = bytes;
  spoiled.replace(spoiled.find("\"I32\""), 5, "\"U32\"");
  io_testing::write_file(file_, spoiled);
  expect_refused(run_, {file_, "map", "U32", "I32"});
}

TEST(CliFault, AnUnreachableDeadlineIsAFaultAtRunTime) {
  // 64 expert rows a token and rank take far longer than a millisecond, and the rank waits for them.
  const Outcome run = moetail(
      "run --quiet --hidden 512 --latent 7168 --top-k 64 --layers 1 --steps 3 --batch 16 --form published "
      "--mode front_poll --deadline 0.001 --json -");
  EXPECT_EQ(run.exit_code, 3) << run.err;
  EXPECT_THAT(run.err, AllOf(HasSubstr("fault at "), HasSubstr("rank "), HasSubstr("slot "),
                             HasSubstr("nothing came within")));
  EXPECT_EQ(run.json().at("verdict"), "error");
  EXPECT_EQ(run.json().at("error").at("code"), "fault");
}

}  // namespace
}  // namespace moetail::cli_testing
