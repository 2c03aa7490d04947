// SPDX-License-Identifier: Apache-2.0
// A state machine over the events of nlohmann's SAX parser: whatever event a state does not expect is an
// error.
#include "io/safetensors_header.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "io/escaped.hpp"

namespace moetail::io {
namespace {

class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderReader(std::string_view file) : file_(file) {}

  Header take() { return std::move(header_); }

  bool null() override { return reject("null"); }
  bool boolean(bool value) override { return reject(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return reject(fmt::format("{}", value)); }
  bool number_float(number_float_t, const string_t& text) override { return reject(escaped(text)); }
  bool binary(binary_t&) override { return reject("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (state_ == State::shape_items) {
      if (entry_.shape.size() == kMaxDimensions) reject(fmt::format("dimension {}", kMaxDimensions + 1));
      entry_.shape.push_back(value);
    } else if (state_ == State::offset_items && num_offsets_ < 2) {
      (num_offsets_ == 0 ? entry_.begin : entry_.end) = value;
      ++num_offsets_;
    } else {
      reject(fmt::format("{}", value));
    }
    return true;
  }

  bool string(string_t& value) override {
    if (state_ == State::dtype) {
      const auto dtype = dtype_from_name(value);
      if (!dtype) reject(escaped(value));
      entry_.dtype = *dtype;
      state_ = State::tensor_fields;
    } else if (state_ == State::metadata_value) {
      header_.metadata.insert_or_assign(key_, std::move(value));
      state_ = State::metadata_fields;
    } else {
      reject(fmt::format("the string {}", escaped(value)));
    }
    return true;
  }

  bool start_object(std::size_t) override {
    switch (state_) {
      case State::start: state_ = State::tensors; return true;
      case State::tensor: state_ = State::tensor_fields; return true;
      case State::metadata: state_ = State::metadata_fields; return true;
      default: return reject("an object");
    }
  }

  bool key(string_t& key) override {
    if (state_ == State::tensors) {
      begin_member(std::move(key));
    } else if (state_ == State::tensor_fields) {
      begin_field(key);
    } else {  // State::metadata_fields: no other object is ever entered
      if (header_.metadata.contains(key)) {
        base::fail(Code::file, "{}: __metadata__: the key {} occurs twice: accepted is once", file_,
                   escaped(key));
      }
      key_ = std::move(key);
      state_ = State::metadata_value;
    }
    return true;
  }

  bool end_object() override {
    if (state_ == State::tensor_fields) {
      require_field(has_dtype_, "dtype");
      require_field(has_shape_, "shape");
      require_field(has_offsets_, "data_offsets");
      header_.entries.push_back(std::move(entry_));
      state_ = State::tensors;
    } else if (state_ == State::metadata_fields) {
      state_ = State::tensors;
    } else {
      state_ = State::end;
    }
    return true;
  }

  bool start_array(std::size_t) override {
    switch (state_) {
      case State::shape: state_ = State::shape_items; return true;
      case State::offsets: state_ = State::offset_items; return true;
      default: return reject("an array");
    }
  }

  bool end_array() override {
    if (state_ == State::offset_items && num_offsets_ != 2) {
      reject(fmt::format("{} number{}", num_offsets_, num_offsets_ == 1 ? "" : "s"));
    }
    state_ = State::tensor_fields;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception& error) override {
    base::fail(Code::file,
               "{}: the header is not JSON near its byte {} ({}): accepted is one JSON object in UTF-8",
               file_, position, escaped(error.what()));
  }

 private:
  enum class State {
    start,            // nothing read yet
    tensors,          // in the outer object, between members
    tensor,           // behind the name of a tensor
    tensor_fields,    // in a tensor's object, between fields
    dtype,            // behind "dtype"
    shape,            // behind "shape"
    shape_items,      // in the array of sizes
    offsets,          // behind "data_offsets"
    offset_items,     // in the array of offsets
    metadata,         // behind "__metadata__"
    metadata_fields,  // in that object, between members
    metadata_value,   // behind one of its keys
    end,              // the outer object is closed
  };

  void begin_member(std::string name) {
    if (name == "__metadata__") {
      if (std::exchange(has_metadata_, true)) {
        base::fail(Code::file, "{}: __metadata__ occurs twice: accepted is at most once", file_);
      }
      state_ = State::metadata;
      return;
    }
    entry_ = HeaderEntry{};
    entry_.name = std::move(name);
    num_offsets_ = 0;
    has_dtype_ = has_shape_ = has_offsets_ = false;
    state_ = State::tensor;
  }

  void begin_field(const std::string& field) {
    bool* seen = nullptr;
    if (field == "dtype") {
      seen = &has_dtype_;
      state_ = State::dtype;
    } else if (field == "shape") {
      seen = &has_shape_;
      state_ = State::shape;
    } else if (field == "data_offsets") {
      seen = &has_offsets_;
      state_ = State::offsets;
    } else {
      base::fail(Code::file, "{}: tensor {}: unknown field {}: accepted are dtype, shape and data_offsets",
                 file_, escaped(entry_.name), escaped(field));
    }
    if (std::exchange(*seen, true)) {
      base::fail(Code::file, "{}: tensor {}: the field {} occurs twice: accepted is once", file_,
                 escaped(entry_.name), field);
    }
  }

  void require_field(bool seen, const char* field) const {
    if (seen) return;
    base::fail(Code::file,
               "{}: tensor {}: the field {} is missing: accepted are dtype, shape and data_offsets together",
               file_, escaped(entry_.name), field);
  }

  /// Where the parser stands and what it would have taken.
  std::pair<std::string, std::string> place_and_accepted() const {
    const std::string tensor = fmt::format("tensor {}", escaped(entry_.name));
    switch (state_) {
      case State::tensor: return {tensor, "an object with dtype, shape and data_offsets"};
      case State::dtype: return {tensor + ": dtype", "one of " + all_dtype_names()};
      case State::shape: return {tensor + ": shape", "an array of integers"};
      case State::shape_items:
        return {tensor + ": shape", fmt::format("at most {} integers from 0 to 2^64-1", kMaxDimensions)};
      case State::offsets: return {tensor + ": data_offsets", "an array [begin, end]"};
      case State::offset_items:
        return {tensor + ": data_offsets", "[begin, end], two integers from 0 to 2^64-1"};
      case State::metadata: return {"__metadata__", "an object of strings"};
      case State::metadata_value: return {fmt::format("__metadata__: key {}", escaped(key_)), "a string"};
      default: return {"the header", "one JSON object"};
    }
  }

  [[noreturn]] bool reject(const std::string& found) const {
    const auto [place, accepted] = place_and_accepted();
    base::fail(Code::file, "{}: {}: found {}: accepted is {}", file_, place, found, accepted);
  }

  std::string_view file_;
  Header header_;
  State state_ = State::start;
  HeaderEntry entry_;  // the tensor being read
  std::string key_;    // the metadata key being read
  int num_offsets_ = 0;
  bool has_dtype_ = false;
  bool has_shape_ = false;
  bool has_offsets_ = false;
  bool has_metadata_ = false;
};

}  // namespace

Header parse_header(std::string_view text, std::string_view file) {
  if (text.empty() || text.front() != '{') {
    base::fail(Code::file, "{}: the header begins with {}: accepted is a JSON object, which begins with {{",
               file, escaped(text.substr(0, 8)));
  }
  // nlohmann takes a zero byte for the end of the text, so that anything could hide behind it.
  if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos) {
    base::fail(Code::file, "{}: the header has a zero byte at {}: accepted is JSON padded with spaces", file,
               zero);
  }
  HeaderReader reader(file);
  nlohmann::json::sax_parse(text.begin(), text.end(), &reader);
  return reader.take();
}

}  // namespace moetail::io
