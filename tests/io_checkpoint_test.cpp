// SPDX-License-Identifier: Apache-2.0
// Checkpoints by Kimi K3's names: what is written is read back, and every defect has its error.
#include "io/checkpoint.hpp"

#include <nlohmann/json.hpp>

#include "io/checkpoint_writer.hpp"
#include "io/layer_list.hpp"
#include "tests/io_testing.hpp"

namespace moetail::io {
namespace {

using io_testing::error_of;
using io_testing::expect_parts;
using io_testing::read_file;
using io_testing::TempDir;
using io_testing::write_file;
using io_testing::write_tensors;

constexpr const char* kIndex = "model.safetensors.index.json";

std::uint16_t bits_at(int layer, TailTensor tensor, std::size_t index) {
  return static_cast<std::uint16_t>(layer * 10007 + (tensor == TailTensor::norm ? 5003 : 0) +
                                    static_cast<int>(index));
}

void fill(int layer, TailTensor tensor, std::span<std::uint16_t> bits) {
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = bits_at(layer, tensor, i);
}

void expect_contents(const Checkpoint& checkpoint) {
  for (const int layer : checkpoint.layers()) {
    ASSERT_EQ(checkpoint.up_proj(layer).size(),
              static_cast<std::size_t>(checkpoint.hidden() * checkpoint.latent()));
    ASSERT_EQ(checkpoint.norm(layer).size(), static_cast<std::size_t>(checkpoint.latent()));
    for (std::size_t i = 0; i < checkpoint.up_proj(layer).size(); ++i) {
      ASSERT_EQ(checkpoint.up_proj(layer)[i], bits_at(layer, TailTensor::up_proj, i)) << layer << ' ' << i;
    }
    for (std::size_t i = 0; i < checkpoint.norm(layer).size(); ++i) {
      ASSERT_EQ(checkpoint.norm(layer)[i], bits_at(layer, TailTensor::norm, i)) << layer << ' ' << i;
    }
  }
}

CheckpointSpec small_spec(int shards, std::string prefix = {}) {
  CheckpointSpec spec;
  spec.layers = 4;
  spec.hidden = 24;
  spec.latent = 16;
  spec.shards = shards;
  spec.prefix = std::move(prefix);
  return spec;
}

TensorSpec up_proj(int layer, std::vector<std::uint64_t> shape = {24, 16}, std::string_view prefix = "") {
  return {tail_name(prefix, layer, TailTensor::up_proj), Dtype::bf16, std::move(shape)};
}

TensorSpec norm(int layer, std::vector<std::uint64_t> shape = {16}, std::string_view prefix = "") {
  return {tail_name(prefix, layer, TailTensor::norm), Dtype::bf16, std::move(shape)};
}

TEST(Checkpoint, ReadsBackWhatIsWrittenInAnyNumberOfShards) {
  for (const int shards : {1, 3, 8}) {
    for (const char* prefix : {"", "language_model."}) {
      const TempDir dir;
      write_checkpoint(dir / "k3", small_spec(shards, prefix), fill);
      const Checkpoint checkpoint = Checkpoint::open(dir / "k3");
      EXPECT_THAT(checkpoint.layers(), ::testing::ElementsAre(1, 2, 3, 4));
      EXPECT_EQ(checkpoint.hidden(), 24);
      EXPECT_EQ(checkpoint.latent(), 16);
      EXPECT_EQ(checkpoint.prefix(), prefix);
      expect_contents(checkpoint);
      expect_contents(Checkpoint::open(dir / "k3" / kIndex));
      expect_parts(error_of(Code::invalid_argument, [&] { checkpoint.up_proj(5); }),
                   {"layer = 5", "one of \"1-4\""});
    }
  }
}

TEST(Checkpoint, UsesTheNamesOfKimiK3) {
  const TempDir dir;
  write_checkpoint(dir / "k3", small_spec(2, "language_model."), fill);
  const auto index = nlohmann::json::parse(read_file(dir / "k3" / kIndex));
  EXPECT_EQ(index.at("metadata").at("total_size"), 4 * (24 * 16 + 16) * 2);
  const auto& map = index.at("weight_map");
  EXPECT_EQ(map.size(), 8u);
  EXPECT_EQ(map.at("language_model.model.layers.1.block_sparse_moe.routed_expert_up_proj.weight"),
            "model-00001-of-00002.safetensors");
  EXPECT_EQ(map.at("language_model.model.layers.4.block_sparse_moe.routed_expert_norm.weight"),
            "model-00002-of-00002.safetensors");
}

TEST(Checkpoint, OpensSingleFiles) {
  const TempDir dir;
  write_tensors(dir / "model.safetensors", {up_proj(7), norm(7), {"lm_head.weight", Dtype::f16, {3}}});
  for (const auto& path : {dir.path(), dir / "model.safetensors"}) {
    const Checkpoint checkpoint = Checkpoint::open(path);
    EXPECT_THAT(checkpoint.layers(), ::testing::ElementsAre(7));
    EXPECT_EQ(checkpoint.up_proj(7).size(), 24u * 16u);
  }
}

TEST(Checkpoint, SpansOutliveTheFirstOwner) {
  const TempDir dir;
  write_checkpoint(dir / "k3", small_spec(3), fill);
  std::optional<Checkpoint> first = Checkpoint::open(dir / "k3");
  const Checkpoint second = *first;
  first.reset();
  std::filesystem::remove_all(dir / "k3");
  expect_contents(second);
}

TEST(Checkpoint, OnlyTheShardsOfTheLayersAskedForAreNeeded) {
  const TempDir dir;
  write_checkpoint(dir / "k3", small_spec(4), fill);
  std::filesystem::remove(dir / "k3" / "model-00003-of-00004.safetensors");
  expect_parts(error_of(Code::file, [&] { Checkpoint::open(dir / "k3"); }),
               {kIndex, "the shard", "model-00003-of-00004.safetensors is missing"});
  const Checkpoint checkpoint = Checkpoint::open(dir / "k3", parse_layer_list("4,1-2"));
  EXPECT_THAT(checkpoint.layers(), ::testing::ElementsAre(1, 2, 4));
  expect_contents(checkpoint);
  expect_parts(error_of(Code::file, [&] { Checkpoint::open(dir / "k3", parse_layer_list("0-2")); }),
               {"no MoE layer 0", "accepted are \"1-4\""});
}

TEST(Checkpoint, RefusesPathsThatHoldNone) {
  const TempDir dir;
  expect_parts(error_of(Code::file, [&] { Checkpoint::open(dir / "none"); }), {"/none: cannot be opened"});
  expect_parts(error_of(Code::file, [&] { Checkpoint::open(dir.path()); }), {kIndex, "or model.safetensors"});
  write_tensors(dir / "other.safetensors", {{"a", Dtype::u8, {1}}});
  expect_parts(
      error_of(Code::file, [&] { Checkpoint::open(dir / "other.safetensors"); }),
      {"names no MoE layer", "[PREFIX.]model.layers.1.block_sparse_moe.routed_expert_up_proj.weight"});
}

TEST(Checkpoint, RefusesTensorsThatDoNotFit) {
  const TempDir dir;
  const auto refuse = [&](const std::vector<TensorSpec>& specs, const std::vector<std::string>& parts) {
    write_tensors(dir / "file", specs);
    expect_parts(error_of(Code::file, [&] { Checkpoint::open(dir / "file"); }), parts);
  };
  refuse({up_proj(1), norm(1), up_proj(2)},
         {"layer 2 has", "layers.2", "but not", "layers.2.block_sparse_moe.routed_expert_norm"});
  refuse({norm(3)},
         {"layer 3 has", "but not \"model.layers.3.block_sparse_moe.routed_expert_up_proj.weight\""});
  refuse({up_proj(1), norm(1), up_proj(2, {24, 16}, "lm."), norm(2, {16}, "lm.")},
         {"the prefixes", "\"\"", "\"lm.\"", "one prefix"});
  refuse({up_proj(1, {24, 16}, "a."), norm(1, {16}, "b.")}, {"the prefixes \"a.\" and \"b.\""});
  refuse({up_proj(1), norm(1), up_proj(4, {32, 16}), norm(4)},
         {"layer 4 has shape [32, 16]", "layer 1 has [24, 16]"});
  refuse({up_proj(1), norm(1), up_proj(4, {24, 8}), norm(4, {8})},
         {"layer 4 has shape [24, 8]", "layer 1 has [24, 16]"});
  refuse({up_proj(1), norm(1, {24})}, {"routed_expert_norm", "shape = [24]", "accepted is [16]"});
  refuse({up_proj(1), norm(1, {1, 16})}, {"shape = [1, 16]", "accepted is [L]"});
  refuse({up_proj(1, {384}), norm(1)}, {"shape = [384]", "accepted is [H, L]"});
  refuse({up_proj(1, {0, 16}), norm(1)}, {"shape = [0, 16]", "from 1 to"});
  refuse({{up_proj(1).name, Dtype::f16, {24, 16}}, norm(1)},
         {"routed_expert_up_proj", "dtype = F16", "accepted is BF16"});
  refuse({up_proj(1), {norm(1).name, Dtype::f32, {16}}},
         {"routed_expert_norm", "dtype = F32", "accepted is BF16"});
}

TEST(CheckpointWriter, RefusesWrongSpecs) {
  const TempDir dir;
  const auto refuse = [&](auto change, const std::vector<std::string>& parts) {
    CheckpointSpec spec = small_spec(1);
    change(spec);
    expect_parts(error_of(Code::invalid_argument, [&] { write_checkpoint(dir / "k3", spec, fill); }), parts);
  };
  refuse([](auto& spec) { spec.layers = 0; }, {"layers = 0", "1 to"});
  refuse([](auto& spec) { spec.first_layer = -1; }, {"first_layer = -1", "0 to"});
  refuse([](auto& spec) { spec.first_layer = kMaxIndex; }, {"layers = 4", "1 to 1"});
  refuse([](auto& spec) { spec.hidden = 0; }, {"hidden = 0", "1 to 1048576"});
  refuse([](auto& spec) { spec.latent = (1 << 20) + 1; }, {"latent = 1048577"});
  refuse([](auto& spec) { spec.shards = 9; }, {"shards = 9", "1 to 8"});
  refuse([](auto& spec) { spec.prefix = "language_model"; },
         {"prefix = \"language_model\"", "ends with a dot"});
  refuse([](auto& spec) { spec.prefix = "\xff."; }, {"valid UTF-8"});
  EXPECT_TRUE(dir.list().empty());
}

TEST(CheckpointWriter, RefusesADirectoryThatHoldsACheckpoint) {
  const TempDir dir;
  write_checkpoint(dir / "k3", small_spec(1), fill);
  const std::string before = read_file(dir / "k3" / kIndex);
  expect_parts(error_of(Code::file, [&] { write_checkpoint(dir / "k3", small_spec(2), fill); }),
               {"already holds"});
  EXPECT_EQ(read_file(dir / "k3" / kIndex), before);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir / "k3"), {}), 2);
  write_file(dir / "file", "");
  expect_parts(error_of(Code::file, [&] { write_checkpoint(dir / "file", small_spec(2), fill); }),
               {"/file: is no directory"});
  error_of(Code::file, [&] { write_checkpoint(dir / "no/k3", small_spec(2), fill); });
}

TEST(CheckpointWriter, RemovesWhatItWroteWhenTheCallerFails) {
  const TempDir dir;
  const auto failing = [](int layer, TailTensor tensor, std::span<std::uint16_t> bits) {
    if (layer == 4) throw std::runtime_error("no more");
    fill(layer, tensor, bits);
  };
  EXPECT_THROW(write_checkpoint(dir / "k3", small_spec(4), failing), std::runtime_error);
  EXPECT_TRUE(dir.list().empty());
  std::filesystem::create_directory(dir / "k3");
  write_file(dir / "k3" / "config.json", "{}");
  EXPECT_THROW(write_checkpoint(dir / "k3", small_spec(4), failing), std::runtime_error);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir / "k3"), {}), 1);
}

TEST(CheckpointWriter, KnowsItsOwnFilesByName) {
  for (const char* name : {"model.safetensors.index.json", "model-00001-of-00003.safetensors"})
    EXPECT_TRUE(is_checkpoint_file(name)) << name;
  for (const char* name :
       {"", "model.safetensors", "model-1-of-3.safetensors", "model-00001-of-00003.safetensors.bak",
        "my-model-00001-of-00003.safetensors", "model-0000x-of-00003.safetensors", "notes.txt"})
    EXPECT_FALSE(is_checkpoint_file(name)) << name;
}

}  // namespace
}  // namespace moetail::io
