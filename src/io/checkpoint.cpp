// SPDX-License-Identifier: Apache-2.0
// From a path to checked weights: list the tensors by name, open the shards they are in, compare the layers.
#include "io/checkpoint.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "io/escaped.hpp"
#include "io/layer_list.hpp"
#include "io/mapped_file.hpp"
#include "io/safetensors.hpp"
#include "io/weight_map.hpp"

namespace moetail::io {

namespace fs = std::filesystem;

struct Checkpoint::Layer {
  std::span<const std::uint16_t> up_proj;
  std::span<const std::uint16_t> norm;
};

struct Checkpoint::Contents {
  std::map<std::string, SafetensorsFile> shards;  // by path; they own what the spans point to
  std::vector<int> layers;
  std::map<int, Layer> weights;
  std::string prefix;
  int hidden = 0;
  int latent = 0;
};

namespace {

constexpr const char* kSingleName = "model.safetensors";

/// Where a tensor is said to be.
struct Place {
  std::string name;
  fs::path shard;
};

/// The two tensors of a layer, each once found.
struct Pair {
  std::optional<Place> up_proj;
  std::optional<Place> norm;
};

/// What a checkpoint says it holds, before any shard of an index is opened.
struct Listing {
  std::string source;  // the file that says so, for messages
  std::optional<std::string> prefix;
  std::string first_name;  // the name that showed the prefix
  std::map<int, Pair> layers;

  void add(const TailName& parts, Place place) {
    if (!prefix) {
      prefix = parts.prefix;
      first_name = place.name;
    } else if (*prefix != parts.prefix) {
      base::fail(Code::file, "{}: tensors {} and {} have the prefixes {} and {}: accepted is one prefix",
                 source, escaped(first_name), escaped(place.name), escaped(*prefix), escaped(parts.prefix));
    }
    Pair& pair = layers[parts.layer];
    (parts.tensor == TailTensor::up_proj ? pair.up_proj : pair.norm) = std::move(place);
  }
};

Listing list_index(const fs::path& path) {
  Listing listing;
  listing.source = path.string();
  const auto map = MappedFile::open(path);
  const auto bytes = map->bytes();
  if (bytes.size() > kMaxIndexBytes) {
    base::fail(Code::file, "{}: has {} bytes: accepted is at most {}", listing.source, bytes.size(),
               kMaxIndexBytes);
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (WeightMapEntry& entry : parse_weight_map(text, listing.source)) {
    listing.add(entry.parts, {std::move(entry.name), path.parent_path() / entry.shard});
  }
  return listing;
}

Listing list_single(const fs::path& path, std::map<std::string, SafetensorsFile>& shards) {
  Listing listing;
  listing.source = path.string();
  const auto& file = shards.emplace(path.string(), SafetensorsFile::open(path)).first->second;
  for (const Tensor& tensor : file.tensors()) {
    if (const auto parts = parse_tail_name(tensor.name)) listing.add(*parts, {tensor.name, path});
  }
  return listing;
}

Listing list_tensors(const fs::path& path, std::map<std::string, SafetensorsFile>& shards) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    return path.extension() == ".json" ? list_index(path) : list_single(path, shards);
  }
  if (fs::exists(path / kIndexName, error)) return list_index(path / kIndexName);
  if (fs::exists(path / kSingleName, error)) return list_single(path / kSingleName, shards);
  base::fail(Code::file, "{}: accepted is a directory that holds {} or {}, or a safetensors file",
             path.string(), kIndexName, kSingleName);
}

/// Drops the layers that are not asked for; checks that the others are there, with both tensors.
void select_layers(Listing& listing, std::span<const int> wanted) {
  std::vector<int> found;
  for (const auto& [layer, pair] : listing.layers) found.push_back(layer);
  if (found.empty()) {
    base::fail(Code::file,
               "{}: names no MoE layer: accepted are tensors named [PREFIX.]{} and [PREFIX.]{}, with any "
               "layer for 1",
               listing.source, tail_name("", 1, TailTensor::up_proj), tail_name("", 1, TailTensor::norm));
  }
  for (const int layer : wanted) {
    if (!listing.layers.contains(layer)) {
      base::fail(Code::file, "{}: has no MoE layer {}: accepted are {}", listing.source, layer,
                 escaped(layer_list_text(found)));
    }
  }
  if (!wanted.empty()) {
    const std::set<int> kept(wanted.begin(), wanted.end());
    std::erase_if(listing.layers, [&](const auto& item) { return !kept.contains(item.first); });
  }
  for (const auto& [layer, pair] : listing.layers) {
    if (pair.up_proj && pair.norm) continue;
    const TailTensor missing = pair.up_proj ? TailTensor::norm : TailTensor::up_proj;
    base::fail(Code::file, "{}: layer {} has {} but not {}: accepted is a layer with both", listing.source,
               layer, escaped(pair.up_proj ? pair.up_proj->name : pair.norm->name),
               escaped(tail_name(*listing.prefix, layer, missing)));
  }
}

const SafetensorsFile& open_shard(const Listing& listing, const Place& place,
                                  std::map<std::string, SafetensorsFile>& shards) {
  const auto known = shards.find(place.shard.string());
  if (known != shards.end()) return known->second;
  std::error_code error;
  if (!fs::exists(place.shard, error)) {
    base::fail(
        Code::file,
        "{}: the shard {} is missing: accepted is a directory with every shard of the layers asked for",
        listing.source, place.shard.string());
  }
  return shards.emplace(place.shard.string(), SafetensorsFile::open(place.shard)).first->second;
}

const Tensor& find_tensor(const Listing& listing, const Place& place, const SafetensorsFile& file) {
  const Tensor* tensor = file.find(place.name);
  if (tensor == nullptr) {
    base::fail(Code::file, "{}: the index {} says that it holds tensor {}, which it does not", file.name(),
               listing.source, escaped(place.name));
  }
  return *tensor;
}

/// The extents of a tensor that must have `rank` of them, each from 1 to the largest int.
std::array<int, 2> checked_extents(const SafetensorsFile& file, const Tensor& tensor, std::size_t rank,
                                   const char* accepted) {
  std::array<int, 2> extents{1, 1};
  const auto is_extent = [](std::uint64_t extent) {
    return extent >= 1 && extent <= std::numeric_limits<int>::max();
  };
  const bool fits =
      tensor.shape.size() == rank && std::all_of(tensor.shape.begin(), tensor.shape.end(), is_extent);
  if (!fits) {
    base::fail(Code::file, "{}: tensor {}: shape = {}: accepted is {}", file.name(), escaped(tensor.name),
               shape_text(tensor.shape), accepted);
  }
  for (std::size_t i = 0; i < rank; ++i) extents[i] = static_cast<int>(tensor.shape[i]);
  return extents;
}

}  // namespace

Checkpoint Checkpoint::open(const fs::path& path, std::span<const int> layers) {
  auto contents = std::make_shared<Contents>();
  Listing listing = list_tensors(path, contents->shards);
  select_layers(listing, layers);
  contents->prefix = *listing.prefix;
  for (const auto& [layer, pair] : listing.layers) {
    const SafetensorsFile& up_file = open_shard(listing, *pair.up_proj, contents->shards);
    const SafetensorsFile& norm_file = open_shard(listing, *pair.norm, contents->shards);
    const Tensor& up_proj = find_tensor(listing, *pair.up_proj, up_file);
    const Tensor& norm = find_tensor(listing, *pair.norm, norm_file);
    const Layer weights{up_file.elements<std::uint16_t>(up_proj, Dtype::bf16),
                        norm_file.elements<std::uint16_t>(norm, Dtype::bf16)};

    const auto [hidden, latent] = checked_extents(up_file, up_proj, 2, "[H, L], both from 1 to 2147483647");
    const auto [norm_latent, unused] = checked_extents(norm_file, norm, 1, "[L], from 1 to 2147483647");
    static_cast<void>(unused);
    if (norm_latent != latent) {
      base::fail(Code::file, "{}: tensor {}: shape = [{}]: accepted is [{}], as {} has that many columns",
                 norm_file.name(), escaped(norm.name), norm_latent, latent, escaped(up_proj.name));
    }
    if (contents->layers.empty()) {
      contents->hidden = hidden;
      contents->latent = latent;
    } else if (hidden != contents->hidden || latent != contents->latent) {
      base::fail(Code::file,
                 "{}: tensor {}: layer {} has shape [{}, {}], layer {} has [{}, {}]: accepted is one shape",
                 up_file.name(), escaped(up_proj.name), layer, hidden, latent, contents->layers.front(),
                 contents->hidden, contents->latent);
    }
    contents->layers.push_back(layer);
    contents->weights.emplace(layer, weights);
  }
  return Checkpoint(std::move(contents));
}

std::span<const int> Checkpoint::layers() const noexcept {
  return contents_->layers;
}

int Checkpoint::hidden() const noexcept {
  return contents_->hidden;
}

int Checkpoint::latent() const noexcept {
  return contents_->latent;
}

const std::string& Checkpoint::prefix() const noexcept {
  return contents_->prefix;
}

const Checkpoint::Layer& Checkpoint::at(int layer) const {
  const auto found = contents_->weights.find(layer);
  if (found == contents_->weights.end()) {
    base::bad_argument("layer", layer, "one of " + escaped(layer_list_text(contents_->layers)));
  }
  return found->second;
}

std::span<const std::uint16_t> Checkpoint::up_proj(int layer) const {
  return at(layer).up_proj;
}

std::span<const std::uint16_t> Checkpoint::norm(int layer) const {
  return at(layer).norm;
}

}  // namespace moetail::io
