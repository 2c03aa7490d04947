// SPDX-License-Identifier: Apache-2.0
// The index of a sharded checkpoint: what it may hold, and an error for everything else.
#include "io/checkpoint.hpp"
#include "io/checkpoint_writer.hpp"
#include "io/weight_map.hpp"
#include "tests/io_testing.hpp"

namespace moetail::io {
namespace {

using io_testing::error_of;
using io_testing::expect_parts;
using io_testing::TempDir;
using io_testing::write_file;
using io_testing::write_tensors;

constexpr const char* kIndexFile = "model.safetensors.index.json";

TensorSpec plain_up_proj(int layer) {
  return {tail_name("", layer, TailTensor::up_proj), Dtype::bf16, {24, 16}};
}

TensorSpec plain_norm(int layer) {
  return {tail_name("", layer, TailTensor::norm), Dtype::bf16, {16}};
}

class CheckpointIndex : public ::testing::Test {
 protected:
  /// The message of opening the directory with `text` as its index.
  std::string refuse(std::string_view text) {
    write_file(dir_ / kIndexFile, text);
    return error_of(Code::file, [&] { Checkpoint::open(dir_.path()); });
  }

  static std::string map_to(std::string_view value) {
    return R"({"weight_map":{")" + plain_up_proj(1).name + R"(":)" + std::string(value) + "}}";
  }

  TempDir dir_;
};

TEST_F(CheckpointIndex, RefusesWhatIsNoWeightMap) {
  expect_parts(refuse("{"), {kIndexFile, "is not JSON near its byte"});
  expect_parts(refuse("[]"), {"is an array", "a JSON object"});
  expect_parts(refuse("\"x\""), {"is a string", "a JSON object"});
  expect_parts(refuse("7"), {"is 7", "a JSON object"});
  expect_parts(refuse("{}"), {"has no weight_map"});
  expect_parts(refuse(R"({"a":{"weight_map":{}}})"), {"has no weight_map"});
  expect_parts(refuse(R"({"weight_map":[]})"), {"weight_map: found an array"});
  expect_parts(refuse(R"({"weight_map":"x"})"), {"weight_map: found a string"});
  expect_parts(refuse(R"({"weight_map":{},"weight_map":{}})"), {"weight_map occurs twice"});
  expect_parts(refuse(map_to("1")), {"routed_expert_up_proj", "found 1", "the path of a shard"});
  expect_parts(refuse(map_to("{}")), {"found an object"});
  expect_parts(refuse(map_to("[\"a\"]")), {"found an array"});
  expect_parts(refuse(std::string("{\"weight_map\":{}}\0x", 18)), {"a zero byte at 17"});
  expect_parts(refuse(R"({"weight_map":{}})"), {"names no MoE layer"});
  std::string deep = "{\"a\":";
  for (int i = 0; i < 1'000'000; ++i) deep += '[';
  expect_parts(refuse(deep), {"nests deeper than 64"});
}

TEST_F(CheckpointIndex, RefusesAnIndexAboveTheLimit) {
  write_file(dir_ / kIndexFile, "{}");
  std::filesystem::resize_file(dir_ / kIndexFile, kMaxIndexBytes + 1);  // sparse: takes no room
  expect_parts(error_of(Code::file, [&] { Checkpoint::open(dir_.path()); }),
               {"has 1000000001 bytes", "at most 1000000000"});
}

TEST_F(CheckpointIndex, RefusesShardsOutsideOfItsDirectory) {
  expect_parts(refuse(map_to("\"../a.safetensors\"")),
               {"the shard \"../a.safetensors\"", "leaves the directory"});
  expect_parts(refuse(map_to("\"a/../../b\"")), {"leaves the directory"});
  expect_parts(refuse(map_to("\"/etc/passwd\"")), {"\"/etc/passwd\"", "is absolute"});
  expect_parts(refuse(map_to("\"\"")), {"is empty"});
  expect_parts(refuse(map_to("\"a\\u0000b\"")), {"has a control character"});
  expect_parts(refuse(R"({"weight_map":{"lm_head.weight":"../a"}})"),
               {"tensor \"lm_head.weight\" leaves the directory"});
}

TEST_F(CheckpointIndex, RefusesTheSameTensorTwice) {
  const std::string entry = "\"" + plain_up_proj(1).name + "\":\"a\"";
  expect_parts(refuse(R"({"weight_map":{)" + entry + "," + entry + "}}"),
               {"routed_expert_up_proj", "occurs twice"});
}

TEST_F(CheckpointIndex, RefusesATensorThatItsShardLacks) {
  write_tensors(dir_ / "a.safetensors", {plain_up_proj(1)});
  const std::string text = R"({"weight_map":{")" + plain_up_proj(1).name + R"(":"a.safetensors",")" +
                           plain_norm(1).name + R"(":"a.safetensors"}})";
  expect_parts(refuse(text),
               {"a.safetensors: the index", kIndexFile, plain_norm(1).name, "which it does not"});
}

TEST_F(CheckpointIndex, RefusesAShardThatIsTruncated) {
  CheckpointSpec spec;
  spec.layers = 2;
  spec.hidden = spec.latent = 8;
  spec.shards = 3;
  write_checkpoint(dir_ / "k3", spec, [](int, TailTensor, std::span<std::uint16_t>) {});
  const auto shard = dir_ / "k3" / "model-00002-of-00003.safetensors";
  std::filesystem::resize_file(shard, std::filesystem::file_size(shard) - 1);
  expect_parts(error_of(Code::file, [&] { Checkpoint::open(dir_ / "k3"); }),
               {shard.string(), "data_offsets", "within the"});
}

TEST_F(CheckpointIndex, AllowsAnythingElseInTheIndexAndShardsInFolders) {
  std::filesystem::create_directory(dir_ / "parts");
  write_tensors(dir_ / "parts/a.safetensors", {plain_up_proj(1), plain_norm(1)});
  write_file(
      dir_ / kIndexFile,
      R"({"metadata":{"weight_map":[1,{"x":null}],"total_size":2.5},"weight_map":{"other":"not-here",")" +
          plain_up_proj(1).name + R"(":"parts/a.safetensors",")" + plain_norm(1).name +
          R"(":"./parts/a.safetensors"},"more":[[true]]})");
  EXPECT_THAT(Checkpoint::open(dir_.path()).layers(), ::testing::ElementsAre(1));
}

}  // namespace
}  // namespace moetail::io
