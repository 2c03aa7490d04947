// SPDX-License-Identifier: Apache-2.0
// Order, header and positions of the tensors of a new safetensors file.
#include "io/safetensors_writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "io/escaped.hpp"
#include "io/safetensors_header.hpp"

namespace moetail::io {
namespace {

constexpr std::size_t kDataAlignment = 64;

// Leaves room for the header below the largest offset of a file, 2^63 - 1.
constexpr std::uint64_t kMaxDataBytes = std::uint64_t{1} << 62;

/// `text` as a JSON string.
std::string json_string(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::type_error&) {
    base::bad_argument("name or metadata text", escaped(text), "valid UTF-8");
  }
}

std::uint64_t checked_bytes(const TensorSpec& spec) {
  if (spec.name == "__metadata__") base::bad_argument("tensor name", spec.name, "any other name");
  if (spec.shape.size() > kMaxDimensions) {
    base::bad_argument(fmt::format("dimensions of tensor {}", escaped(spec.name)), spec.shape.size(),
                       fmt::format("at most {}", kMaxDimensions));
  }
  const TensorSize size = tensor_size(spec.dtype, spec.shape);
  if (size.problem != nullptr) {
    base::fail(Code::invalid_argument, "tensor {}: shape = {} of {} {}", escaped(spec.name),
               shape_text(spec.shape), dtype_name(spec.dtype), size.problem);
  }
  return size.bytes;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, std::span<const TensorSpec> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : file_(path) {
  for (const TensorSpec& spec : tensors) slots_.push_back({spec, 0, checked_bytes(spec), 0});
  std::sort(slots_.begin(), slots_.end(), [](const Slot& a, const Slot& b) {
    const auto key = [](const Slot& s) {
      return std::tuple(s.size % 16 != 0, 64 - dtype_bits(s.spec.dtype));
    };
    return std::tuple(key(a), std::string_view(a.spec.name)) <
           std::tuple(key(b), std::string_view(b.spec.name));
  });

  std::string header = "{";
  if (!metadata.empty()) {
    header += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) header += json_string(key) + ':' + json_string(value) + ',';
    header.back() = '}';
    header += ',';
  }
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    slot.begin = end;
    if (slot.size > kMaxDataBytes - end) {
      base::bad_argument("size of all tensors", "more than 2^62 bytes", "at most that");
    }
    end += slot.size;
    header += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}},",
                          json_string(slot.spec.name), dtype_name(slot.spec.dtype),
                          fmt::join(slot.spec.shape, ","), slot.begin, end);
    if (!by_name_.emplace(slot.spec.name, i).second) {
      base::bad_argument("tensor name", escaped(slot.spec.name), "each name once");
    }
  }
  if (header.back() == ',') header.pop_back();
  header += '}';

  constexpr std::size_t kLengthBytes = 8;
  const std::size_t unpadded = kLengthBytes + header.size();
  header.append((kDataAlignment - unpadded % kDataAlignment) % kDataAlignment, ' ');
  if (header.size() > kMaxHeaderBytes) {
    base::bad_argument("header length", header.size(), fmt::format("at most {} bytes", kMaxHeaderBytes));
  }
  const std::uint64_t length = header.size();
  header.insert(0, reinterpret_cast<const char*>(&length), kLengthBytes);
  file_.write_at(0, std::as_bytes(std::span(header)));
  for (Slot& slot : slots_) slot.begin += header.size();
}

SafetensorsWriter::Slot& SafetensorsWriter::slot(std::string_view name) {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) {
    base::bad_argument(fmt::format("tensor of {}", file_.target().string()), escaped(name),
                       "a name announced at construction");
  }
  return slots_[found->second];
}

void SafetensorsWriter::check_element_size(std::string_view name, std::size_t size) {
  const Slot& target = slot(name);
  if (8 * size != dtype_bits(target.spec.dtype)) {
    base::bad_argument(fmt::format("element size for tensor {}", escaped(name)), size,
                       fmt::format("that of {}", dtype_name(target.spec.dtype)));
  }
}

void SafetensorsWriter::append(std::string_view name, std::span<const std::byte> bytes) {
  Slot& target = slot(name);
  if (bytes.size() > target.size - target.written) {
    base::bad_argument(fmt::format("bytes for tensor {}", escaped(name)), target.written + bytes.size(),
                       fmt::format("the {} that its shape announces", target.size));
  }
  file_.write_at(target.begin + target.written, bytes);
  target.written += bytes.size();
}

void SafetensorsWriter::finish() {
  for (const Slot& slot : slots_) {
    if (slot.written != slot.size) {
      base::bad_argument(fmt::format("bytes for tensor {}", escaped(slot.spec.name)), slot.written,
                         fmt::format("the {} that its shape announces", slot.size));
    }
  }
  file_.commit();
}

}  // namespace moetail::io
