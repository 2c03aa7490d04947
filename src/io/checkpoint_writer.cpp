// SPDX-License-Identifier: Apache-2.0
// Shards first, the index last: a directory without the index is no checkpoint yet.
#include "io/checkpoint_writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>
#include <vector>

#include "base/atomic_file.hpp"
#include "base/error.hpp"
#include "io/escaped.hpp"
#include "io/layer_list.hpp"
#include "io/safetensors_writer.hpp"
#include "io/weight_map.hpp"

namespace moetail::io {

namespace fs = std::filesystem;

namespace {

std::string shard_name(std::size_t number, std::size_t count) {
  return fmt::format("model-{:05}-of-{:05}.safetensors", number, count);
}

void check_range(const char* name, int value, int low, int high) {
  if (value < low || value > high) base::bad_argument(name, value, fmt::format("{} to {}", low, high));
}

void check_spec(const CheckpointSpec& spec) {
  constexpr int kMaxExtent = 1 << 20;
  check_range("first_layer", spec.first_layer, 0, kMaxIndex);
  check_range("layers", spec.layers, 1, kMaxIndex - spec.first_layer + 1);
  check_range("hidden", spec.hidden, 1, kMaxExtent);
  check_range("latent", spec.latent, 1, kMaxExtent);
  check_range("shards", spec.shards, 1, std::min(2 * spec.layers, kMaxIndex));
  const std::string name = tail_name(spec.prefix, spec.first_layer, TailTensor::norm);
  const auto parts = parse_tail_name(name);
  if (!parts || parts->prefix != spec.prefix) {
    base::bad_argument("prefix", escaped(spec.prefix), "an empty text or one that ends with a dot");
  }
}

void refuse_existing_checkpoint(const fs::path& directory) {
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name == kIndexName || name.ends_with(".safetensors")) {
      base::fail(Code::file, "{}: already holds {}: accepted is a new directory or one without a checkpoint",
                 directory.string(), escaped(name));
    }
  }
  if (error) base::fail(Code::file, "{}: cannot be listed ({})", directory.string(), error.message());
}

/// Removes what was written unless the whole checkpoint was.
class Rollback {
 public:
  explicit Rollback(fs::path directory) : directory_(std::move(directory)) {
    std::error_code error;
    is_new_ = fs::create_directory(directory_, error);
    if (error || !fs::is_directory(directory_, error)) {
      base::fail(Code::file,
                 "{}: is no directory and cannot be made one ({}): accepted is a directory, or a name in one",
                 directory_.string(), error ? error.message() : "a file is in the way");
    }
  }
  ~Rollback() {
    if (is_kept_) return;
    std::error_code ignored;  // nobody is left to be told
    for (const fs::path& file : files_) fs::remove(file, ignored);
    if (is_new_) fs::remove(directory_, ignored);
  }
  Rollback(const Rollback&) = delete;
  Rollback& operator=(const Rollback&) = delete;

  void add(fs::path file) { files_.push_back(std::move(file)); }
  void keep() { is_kept_ = true; }

 private:
  fs::path directory_;
  std::vector<fs::path> files_;
  bool is_new_ = false;
  bool is_kept_ = false;
};

struct Item {
  int layer;
  TailTensor tensor;
  TensorSpec spec;
};

std::vector<Item> list_items(const CheckpointSpec& spec) {
  const auto hidden = static_cast<std::uint64_t>(spec.hidden);
  const auto latent = static_cast<std::uint64_t>(spec.latent);
  std::vector<Item> items;
  for (int layer = spec.first_layer; layer < spec.first_layer + spec.layers; ++layer) {
    const auto add = [&](TailTensor tensor, std::vector<std::uint64_t> shape) {
      items.push_back(
          {layer, tensor, {tail_name(spec.prefix, layer, tensor), Dtype::bf16, std::move(shape)}});
    };
    add(TailTensor::up_proj, {hidden, latent});
    add(TailTensor::norm, {latent});
  }
  return items;
}

void write_shard(const fs::path& path, std::span<const Item> items, const FillTensor& fill) {
  std::vector<TensorSpec> specs;
  for (const Item& item : items) specs.push_back(item.spec);
  SafetensorsWriter writer(path, specs, {{"format", "pt"}});  // some loaders insist on that entry
  std::vector<std::uint16_t> bits;
  for (const Item& item : items) {
    bits.assign(tensor_size(item.spec.dtype, item.spec.shape).elements, 0);
    fill(item.layer, item.tensor, bits);
    writer.append_elements(item.spec.name, std::span<const std::uint16_t>(bits));
  }
  writer.finish();
}

}  // namespace

void write_checkpoint(const fs::path& directory, const CheckpointSpec& spec, const FillTensor& fill) {
  check_spec(spec);
  Rollback rollback(directory);
  refuse_existing_checkpoint(directory);

  const std::vector<Item> items = list_items(spec);
  const auto num_shards = static_cast<std::size_t>(spec.shards);
  nlohmann::json weight_map = nlohmann::json::object();
  std::uint64_t total_bytes = 0;
  for (std::size_t shard = 0; shard < num_shards; ++shard) {
    const std::size_t begin = shard * items.size() / num_shards;
    const std::size_t end = (shard + 1) * items.size() / num_shards;
    const std::span<const Item> part = std::span(items).subspan(begin, end - begin);
    const std::string name = shard_name(shard + 1, num_shards);
    for (const Item& item : part) {
      weight_map[item.spec.name] = name;
      total_bytes += tensor_size(item.spec.dtype, item.spec.shape).bytes;
    }
    write_shard(directory / name, part, fill);
    rollback.add(directory / name);
  }

  const nlohmann::json index = {{"metadata", {{"total_size", total_bytes}}},
                                {"weight_map", std::move(weight_map)}};
  const std::string text = index.dump(2) + '\n';
  base::AtomicFile file(directory / kIndexName);
  file.write_at(0, std::as_bytes(std::span(text)));
  file.commit();
  rollback.keep();
}

bool is_checkpoint_file(std::string_view name) {
  if (name == kIndexName) return true;
  std::string digits(name);
  for (char& c : digits)
    if (c >= '0' && c <= '9') c = '0';
  return digits == shard_name(0, 0);
}

}  // namespace moetail::io
