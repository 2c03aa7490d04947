// SPDX-License-Identifier: Apache-2.0
// Reading model.safetensors.index.json event by event: of a million names only the tail's few are kept.
#include "io/weight_map.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "base/error.hpp"
#include "io/escaped.hpp"

namespace moetail::io {
namespace {

constexpr int kMaxDepth = 64;

/// Why `shard` cannot be a file of the index's directory, or null.
const char* shard_problem(std::string_view shard) {
  if (shard.empty()) return "is empty";
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (std::any_of(shard.begin(), shard.end(), is_control)) return "has a control character";
  const std::filesystem::path path(shard);
  if (path.is_absolute()) return "is absolute";
  if (std::any_of(path.begin(), path.end(), [](const auto& part) { return part == ".."; })) {
    return "leaves the directory of the index";
  }
  return nullptr;
}

class WeightMapReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit WeightMapReader(std::string_view file) : file_(file) {}

  std::vector<WeightMapEntry> take() {
    if (!has_map_) base::fail(Code::file, "{}: has no weight_map: accepted is an object that has one", file_);
    return std::move(entries_);
  }

  bool null() override { return value("null"); }
  bool boolean(bool is_true) override { return value(is_true ? "true" : "false"); }
  bool number_integer(number_integer_t number) override { return value(fmt::format("{}", number)); }
  bool number_unsigned(number_unsigned_t number) override { return value(fmt::format("{}", number)); }
  bool number_float(number_float_t, const string_t& text) override { return value(text); }
  bool binary(binary_t&) override { return value("binary data"); }

  bool string(string_t& text) override {
    if (depth_ != kMapDepth || !in_map_) return value("a string");
    if (const char* problem = shard_problem(text)) {
      base::fail(
          Code::file,
          "{}: weight_map: the shard {} of tensor {} {}: accepted is a path below the index's directory",
          file_, escaped(text), escaped(key_), problem);
    }
    if (auto parts = parse_tail_name(key_)) {
      if (!names_.insert(key_).second) {
        base::fail(Code::file, "{}: weight_map: tensor {} occurs twice: accepted is one entry a name", file_,
                   escaped(key_));
      }
      entries_.push_back({key_, std::move(*parts), std::move(text)});
    }
    return true;
  }

  bool start_object(std::size_t) override {
    // An object is right in three places: as the whole, as the map, and anywhere in what nobody reads.
    if (depth_ == 1 && key_ == "weight_map") {
      if (std::exchange(has_map_, true))
        base::fail(Code::file, "{}: weight_map occurs twice: accepted is once", file_);
      in_map_ = true;
    } else if (depth_ > 0) {
      value("an object");
    }
    return enter();
  }

  bool key(string_t& key) override {
    if (depth_ <= kMapDepth) key_ = std::move(key);
    return true;
  }

  bool end_object() override { return leave(); }

  bool start_array(std::size_t) override {
    value("an array");
    return enter();
  }

  bool end_array() override { return leave(); }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception& error) override {
    base::fail(Code::file, "{}: is not JSON near its byte {} ({}): accepted is one JSON object in UTF-8",
               file_, position, escaped(error.what()));
  }

 private:
  static constexpr int kMapDepth = 2;  // inside of the outer object and of the map

  bool enter() {
    if (++depth_ > kMaxDepth)
      base::fail(Code::file, "{}: nests deeper than {}: accepted is less", file_, kMaxDepth);
    return true;
  }

  bool leave() {
    if (--depth_ < kMapDepth) in_map_ = false;
    return true;
  }

  /// A value of any kind but a shard's path; right only where nobody reads it.
  bool value(std::string_view found) const {
    if (depth_ == 0) base::fail(Code::file, "{}: is {}: accepted is a JSON object", file_, found);
    if (depth_ == 1 && key_ == "weight_map") {
      base::fail(Code::file, "{}: weight_map: found {}: accepted is an object of texts", file_, found);
    }
    if (in_map_) {
      base::fail(Code::file, "{}: weight_map: tensor {}: found {}: accepted is the path of a shard", file_,
                 escaped(key_), found);
    }
    return true;
  }

  std::string_view file_;
  std::vector<WeightMapEntry> entries_;
  std::unordered_set<std::string> names_;
  std::string key_;  // the last key of the outer object or of the map
  int depth_ = 0;    // objects and arrays that are open
  bool in_map_ = false;
  bool has_map_ = false;
};

}  // namespace

std::vector<WeightMapEntry> parse_weight_map(std::string_view text, std::string_view file) {
  // nlohmann takes a zero byte for the end of the text, so that anything could hide behind it.
  if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos) {
    base::fail(Code::file, "{}: has a zero byte at {}: accepted is JSON", file, zero);
  }
  WeightMapReader reader(file);
  nlohmann::json::sax_parse(text.begin(), text.end(), &reader);
  return reader.take();
}

}  // namespace moetail::io
