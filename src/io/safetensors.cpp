// SPDX-License-Identifier: Apache-2.0
// The rules between a safetensors header and the bytes behind it.
#include "io/safetensors.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "io/escaped.hpp"
#include "io/mapped_file.hpp"
#include "io/safetensors_header.hpp"

namespace moetail::io {

static_assert(std::endian::native == std::endian::little,
              "tensors are used in place, and the format is little-endian");

struct SafetensorsFile::Contents {
  std::string name;
  std::shared_ptr<const void> owner;
  std::vector<Tensor> tensors;  // sorted by name
  std::map<std::string, std::string> metadata;
};

namespace {

constexpr std::size_t kLengthBytes = 8;

/// The header's text. The length before it is checked against the limit and the file.
std::string_view header_text(std::span<const std::byte> bytes, const std::string& file) {
  if (bytes.size() < kLengthBytes) {
    base::fail(Code::file, "{}: has {} bytes: accepted is at least the {} bytes of the header length", file,
               bytes.size(), kLengthBytes);
  }
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  if (length > kMaxHeaderBytes) {
    base::fail(Code::file, "{}: header length = {}: accepted is at most {}", file, length, kMaxHeaderBytes);
  }
  if (length > bytes.size() - kLengthBytes) {
    base::fail(Code::file, "{}: header length = {}: accepted is at most the {} bytes that follow it", file,
               length, bytes.size() - kLengthBytes);
  }
  return {reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, static_cast<std::size_t>(length)};
}

/// Rules of one tensor: its offsets lie in the data and hold exactly its elements.
void check_extent(const HeaderEntry& entry, std::uint64_t data_bytes, const std::string& file) {
  if (entry.begin > entry.end) {
    base::fail(Code::file, "{}: tensor {}: data_offsets = [{}, {}]: accepted is begin <= end", file,
               escaped(entry.name), entry.begin, entry.end);
  }
  if (entry.end > data_bytes) {
    base::fail(Code::file,
               "{}: tensor {}: data_offsets = [{}, {}]: accepted is an end within the {} bytes of data", file,
               escaped(entry.name), entry.begin, entry.end, data_bytes);
  }
  const TensorSize size = tensor_size(entry.dtype, entry.shape);
  if (size.problem != nullptr) {
    base::fail(Code::file, "{}: tensor {}: shape = {} of {} {}", file, escaped(entry.name),
               shape_text(entry.shape), dtype_name(entry.dtype), size.problem);
  }
  if (size.bytes != entry.end - entry.begin) {
    base::fail(Code::file,
               "{}: tensor {}: data_offsets = [{}, {}] hold {} bytes: accepted is {}, for shape {} of {}",
               file, escaped(entry.name), entry.begin, entry.end, entry.end - entry.begin, size.bytes,
               shape_text(entry.shape), dtype_name(entry.dtype));
  }
}

/// Rules between tensors: in the order of their offsets they cover the data with no overlap and no hole.
void check_cover(const std::vector<HeaderEntry>& entries, std::uint64_t data_bytes, const std::string& file) {
  std::vector<const HeaderEntry*> order;
  order.reserve(entries.size());
  for (const HeaderEntry& entry : entries) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](const HeaderEntry* a, const HeaderEntry* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  std::uint64_t covered = 0;
  const HeaderEntry* previous = nullptr;
  for (const HeaderEntry* entry : order) {
    if (entry->begin < covered) {  // never the first one, for which nothing is covered yet
      base::fail(Code::file, "{}: tensors {} and {} overlap: data_offsets = [{}, {}] and [{}, {}]", file,
                 escaped(previous->name), escaped(entry->name), previous->begin, previous->end, entry->begin,
                 entry->end);
    }
    if (entry->begin > covered) {
      base::fail(Code::file, "{}: tensor {}: data_offsets = [{}, {}] leave a hole: accepted is a begin of {}",
                 file, escaped(entry->name), entry->begin, entry->end, covered);
    }
    covered = entry->end;
    previous = entry;
  }
  if (covered != data_bytes) {
    base::fail(Code::file, "{}: has {} bytes of data: accepted is {}, where the last tensor ends", file,
               data_bytes, covered);
  }
}

}  // namespace

SafetensorsFile parse_safetensors(std::span<const std::byte> bytes, std::string name,
                                  std::shared_ptr<const void> owner) {
  const std::string_view text = header_text(bytes, name);
  Header header = parse_header(text, name);
  const auto data = bytes.subspan(kLengthBytes + text.size());

  auto contents = std::make_shared<SafetensorsFile::Contents>();
  std::sort(header.entries.begin(), header.entries.end(),
            [](const HeaderEntry& a, const HeaderEntry& b) { return a.name < b.name; });
  const auto twin =
      std::adjacent_find(header.entries.begin(), header.entries.end(),
                         [](const HeaderEntry& a, const HeaderEntry& b) { return a.name == b.name; });
  if (twin != header.entries.end()) {
    base::fail(Code::file, "{}: tensor {} occurs twice: accepted is one entry a name", name,
               escaped(twin->name));
  }
  for (const HeaderEntry& entry : header.entries) check_extent(entry, data.size(), name);
  check_cover(header.entries, data.size(), name);

  contents->tensors.reserve(header.entries.size());
  for (HeaderEntry& entry : header.entries) {
    Tensor tensor;
    tensor.num_elements = tensor_size(entry.dtype, entry.shape).elements;
    tensor.name = std::move(entry.name);
    tensor.dtype = entry.dtype;
    tensor.shape = std::move(entry.shape);
    tensor.bytes = data.subspan(entry.begin, entry.end - entry.begin);
    contents->tensors.push_back(std::move(tensor));
  }
  contents->metadata = std::move(header.metadata);
  contents->name = std::move(name);
  contents->owner = std::move(owner);
  return SafetensorsFile(std::move(contents));
}

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path) {
  auto map = MappedFile::open(path);
  const auto bytes = map->bytes();
  return parse_safetensors(bytes, path.string(), std::move(map));
}

const std::string& SafetensorsFile::name() const noexcept {
  return contents_->name;
}

std::span<const Tensor> SafetensorsFile::tensors() const noexcept {
  return contents_->tensors;
}

const std::map<std::string, std::string>& SafetensorsFile::metadata() const noexcept {
  return contents_->metadata;
}

const Tensor* SafetensorsFile::find(std::string_view name) const noexcept {
  const auto found =
      std::lower_bound(contents_->tensors.begin(), contents_->tensors.end(), name,
                       [](const Tensor& tensor, std::string_view key) { return tensor.name < key; });
  return found != contents_->tensors.end() && found->name == name ? &*found : nullptr;
}

const Tensor& SafetensorsFile::at(std::string_view name) const {
  const Tensor* tensor = find(name);
  if (tensor == nullptr) base::fail(Code::file, "{}: has no tensor {}", contents_->name, escaped(name));
  return *tensor;
}

void SafetensorsFile::check_elements(const Tensor& tensor, Dtype dtype, std::size_t size,
                                     std::size_t alignment) const {
  if (dtype_bits(dtype) != 8 * size) {
    base::fail(Code::internal, "elements of {} bytes asked for {}, which has {} bits", size,
               dtype_name(dtype), dtype_bits(dtype));
  }
  if (tensor.dtype != dtype) {
    base::fail(Code::file, "{}: tensor {}: dtype = {}: accepted is {}", contents_->name, escaped(tensor.name),
               dtype_name(tensor.dtype), dtype_name(dtype));
  }
  const std::size_t excess = reinterpret_cast<std::uintptr_t>(tensor.bytes.data()) % alignment;
  if (excess != 0 && !tensor.bytes.empty()) {
    base::fail(Code::file,
               "{}: tensor {}: its data starts {} byte(s) behind a multiple of {}: accepted is none",
               contents_->name, escaped(tensor.name), excess, alignment);
  }
}

}  // namespace moetail::io
