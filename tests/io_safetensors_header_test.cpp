// SPDX-License-Identifier: Apache-2.0
// Every rule of a safetensors header, broken once each.
#include <ostream>

#include "io/safetensors.hpp"
#include "tests/io_testing.hpp"
#include "tests/record.hpp"

namespace moetail::io {
namespace {

using io_testing::as_bytes;
using io_testing::error_of;
using io_testing::expect_parts;
using io_testing::safetensors_bytes;

struct BadHeader {
  const char* label;
  std::string header;
  std::size_t num_data_bytes;
  std::vector<std::string> parts;  // of the message
};

void PrintTo(const BadHeader& bad, std::ostream* out) {
  *out << bad.label;
}

std::string label_of(const ::testing::TestParamInfo<BadHeader>& info) {
  return info.param.label;
}

class BadHeaders : public ::testing::TestWithParam<BadHeader> {};

TEST_P(BadHeaders, AreRefusedWithTheReason) {
  const std::string bytes = safetensors_bytes(GetParam().header, GetParam().num_data_bytes);
  const std::string message = error_of(Code::file, [&] { parse_safetensors(as_bytes(bytes), "case"); });
  expect_parts(message, {"case: "});
  expect_parts(message, GetParam().parts);
  moetail::testing::record_fault("safetensors: ill-formed headers, by hand", moetail::testing::kHost, 1,
                                 "refused by file and reason");
}

std::string one(std::string_view fields) {
  return R"({"a":{)" + std::string(fields) + "}}";
}

std::string repeated(std::string_view text, std::size_t count) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) out += text;
  return out;
}

const std::string kShape = R"("dtype":"U8","shape":[4],)";

INSTANTIATE_TEST_SUITE_P(
    Json, BadHeaders,
    ::testing::Values(
        BadHeader{"Empty", "", 0, {"header begins with \"\"", "accepted is a JSON object"}},
        BadHeader{"LeadingSpace", " {}", 0, {"header begins with \" {}\""}},
        BadHeader{"Array", "[]", 0, {"header begins with \"[]\""}},
        BadHeader{"Truncated", R"({"a":)", 0, {"not JSON near its byte"}},
        BadHeader{"TwoObjects", "{}{}", 0, {"not JSON near its byte"}},
        BadHeader{"TrailingText", "{}   x", 0, {"not JSON near its byte"}},
        BadHeader{
            "TrailingComma", R"({"a":{"dtype":"U8","shape":[4,],"data_offsets":[0,4]}})", 4, {"not JSON"}},
        BadHeader{"Comment", "{/* */}", 0, {"not JSON"}},
        BadHeader{"ZeroPadding", std::string("{}\0\0", 4), 0, {"a zero byte at 2", "padded with spaces"}},
        BadHeader{"BadUtf8", "{\"\xff\":{}}", 0, {"not JSON near its byte"}},
        BadHeader{"HugeNumber", one(R"("dtype":"U8","shape":[1e999],"data_offsets":[0,4])"), 4, {"not JSON"}},
        BadHeader{"DeepObjects", "{" + repeated(R"("a":{)", 1'000'000), 0, {"unknown field \"a\""}},
        BadHeader{"DeepArrays", R"({"a":)" + repeated("[", 1'000'000), 0, {"tensor \"a\": found an array"}},
        BadHeader{"DeepShape", one(R"("shape":)" + repeated("[", 1'000'000)), 0, {"shape: found an array"}}),
    label_of);

INSTANTIATE_TEST_SUITE_P(
    Fields, BadHeaders,
    ::testing::Values(
        BadHeader{"TensorIsNumber", R"({"a":1})", 0, {"tensor \"a\": found 1", "accepted is an object"}},
        BadHeader{"TensorIsString", R"({"a":"x"})", 0, {"tensor \"a\": found the string \"x\""}},
        BadHeader{"TensorIsTrue", R"({"a":true})", 0, {"tensor \"a\": found true"}},
        BadHeader{"TensorIsNull", R"({"a":null})", 0, {"tensor \"a\": found null"}},
        BadHeader{"UnknownField",
                  one(kShape + R"("data_offsets":[0,4],"device":0)"),
                  4,
                  {"tensor \"a\"", "unknown field \"device\"", "dtype, shape and data_offsets"}},
        BadHeader{
            "TwoDtypes", one(kShape + R"("data_offsets":[0,4],"dtype":"U8")"), 4, {"dtype occurs twice"}},
        BadHeader{"NoDtype", one(R"("shape":[4],"data_offsets":[0,4])"), 4, {"the field dtype is missing"}},
        BadHeader{"NoShape", one(R"("dtype":"U8","data_offsets":[0,4])"), 4, {"the field shape is missing"}},
        BadHeader{"NoOffsets", one(R"("dtype":"U8","shape":[4])"), 4, {"the field data_offsets is missing"}},
        BadHeader{"EmptyTensor", R"({"a":{}})", 0, {"the field dtype is missing"}},
        BadHeader{"UnknownDtype",
                  one(R"("dtype":"BF17","shape":[4],"data_offsets":[0,4])"),
                  4,
                  {"dtype: found \"BF17\"", "BOOL, F4,", "U64"}},
        BadHeader{
            "LowerCaseDtype", one(R"("dtype":"bf16","shape":[2],"data_offsets":[0,4])"), 4, {"\"bf16\""}},
        BadHeader{
            "NumericDtype", one(R"("dtype":3,"shape":[4],"data_offsets":[0,4])"), 4, {"dtype: found 3"}},
        BadHeader{"ShapeIsNumber",
                  one(R"("dtype":"U8","shape":4,"data_offsets":[0,4])"),
                  4,
                  {"shape: found 4", "an array of integers"}},
        BadHeader{
            "NegativeSize", one(R"("dtype":"U8","shape":[-4],"data_offsets":[0,4])"), 4, {"shape: found -4"}},
        BadHeader{"FractionalSize",
                  one(R"("dtype":"U8","shape":[4.0],"data_offsets":[0,4])"),
                  4,
                  {"shape: found \"4.0\"", "integers from 0"}},
        BadHeader{"SizeAbove64Bits",
                  one(R"("dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,4])"),
                  4,
                  {"shape: found \"18446744073709551616\""}},
        BadHeader{"TextSize",
                  one(R"("dtype":"U8","shape":["4"],"data_offsets":[0,4])"),
                  4,
                  {"shape: found the string"}},
        BadHeader{"TooManyDimensions",
                  one(R"("dtype":"U8","shape":[)" + repeated("1,", 64) + R"(1],"data_offsets":[0,1])"),
                  1,
                  {"shape: found dimension 65", "at most 64"}},
        BadHeader{"OneOffset", one(kShape + R"("data_offsets":[4])"), 4, {"data_offsets: found 1 number:"}},
        BadHeader{"NoOffset", one(kShape + R"("data_offsets":[])"), 4, {"data_offsets: found 0 numbers:"}},
        BadHeader{"ThreeOffsets", one(kShape + R"("data_offsets":[0,4,8])"), 4, {"data_offsets: found 8"}},
        BadHeader{"NegativeOffset", one(kShape + R"("data_offsets":[-1,3])"), 4, {"data_offsets: found -1"}},
        BadHeader{"OffsetAbove64Bits",
                  one(kShape + R"("data_offsets":[0,18446744073709551620])"),
                  4,
                  {"data_offsets: found \"18446744073709551620\""}},
        BadHeader{"OffsetsObject",
                  one(kShape + R"("data_offsets":{"begin":0})"),
                  4,
                  {"data_offsets: found an object"}},
        BadHeader{"MetadataIsText", R"({"__metadata__":"x"})", 0, {"__metadata__: found the string"}},
        BadHeader{"MetadataNumber",
                  R"({"__metadata__":{"k":1}})",
                  0,
                  {"__metadata__: key \"k\": found 1", "a string"}},
        BadHeader{"MetadataNested", R"({"__metadata__":{"k":{}}})", 0, {"key \"k\": found an object"}},
        BadHeader{
            "MetadataKeyTwice", R"({"__metadata__":{"k":"1","k":"2"}})", 0, {"the key \"k\" occurs twice"}},
        BadHeader{
            "MetadataTwice", R"({"__metadata__":{},"__metadata__":{}})", 0, {"__metadata__ occurs twice"}},
        BadHeader{
            "NameTwice",
            R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
            8,
            {"tensor \"a\" occurs twice"}},
        BadHeader{
            "EscapedNameTwice",
            R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"\u0061":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
            8,
            {"tensor \"a\" occurs twice"}}),
    label_of);

std::string two(std::string_view a, std::string_view b) {
  return R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + std::string(a) +
         R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + std::string(b) + "}}";
}

INSTANTIATE_TEST_SUITE_P(
    Extents, BadHeaders,
    ::testing::Values(
        BadHeader{"BeginBehindEnd",
                  one(kShape + R"("data_offsets":[4,0])"),
                  4,
                  {"tensor \"a\"", "[4, 0]", "begin <= end"}},
        BadHeader{"PastTheEnd",
                  one(kShape + R"("data_offsets":[0,4])"),
                  3,
                  {"[0, 4]", "within the 3 bytes of data"}},
        BadHeader{
            "FarPastTheEnd",
            one(R"("dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,18446744073709551615])"),
            3,
            {"within the 3 bytes of data"}},
        BadHeader{"Short",
                  one(R"("dtype":"BF16","shape":[2,3],"data_offsets":[0,10])"),
                  10,
                  {"hold 10 bytes", "accepted is 12", "[2, 3] of BF16"}},
        BadHeader{"Long",
                  one(R"("dtype":"BF16","shape":[2,3],"data_offsets":[0,14])"),
                  14,
                  {"hold 14 bytes", "accepted is 12"}},
        BadHeader{"ShapeOverflows",
                  one(R"("dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0])"),
                  0,
                  {"shape = [4294967296, 4294967296]", "does not fit in 64 bits"}},
        BadHeader{"BytesOverflow",
                  one(R"("dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0])"),
                  0,
                  {"does not fit in 64 bits"}},
        BadHeader{"ZeroHidesNoOverflow",
                  one(R"("dtype":"U8","shape":[0,4294967296,4294967296],"data_offsets":[0,0])"),
                  0,
                  {"does not fit in 64 bits"}},
        BadHeader{"HalfByte",
                  one(R"("dtype":"F4","shape":[3],"data_offsets":[0,2])"),
                  2,
                  {"whole number of bytes"}},
        BadHeader{
            "Overlap", two("[0,4]", "[2,6]"), 6, {"tensors \"a\" and \"b\" overlap", "[0, 4] and [2, 6]"}},
        BadHeader{"SamePlace", two("[0,4]", "[0,4]"), 4, {"tensors \"a\" and \"b\" overlap"}},
        BadHeader{"Hole", two("[0,4]", "[5,9]"), 9, {"tensor \"b\"", "leave a hole", "a begin of 4"}},
        BadHeader{
            "HoleAtStart", one(kShape + R"("data_offsets":[1,5])"), 5, {"leave a hole", "a begin of 0"}},
        BadHeader{"HoleAtEnd",
                  one(kShape + R"("data_offsets":[0,4])"),
                  5,
                  {"has 5 bytes of data", "accepted is 4"}},
        BadHeader{"DataWithoutTensor", "{}", 1, {"has 1 bytes of data", "accepted is 0"}}),
    label_of);

}  // namespace
}  // namespace moetail::io
