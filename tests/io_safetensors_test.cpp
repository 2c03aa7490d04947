// SPDX-License-Identifier: Apache-2.0
// What the safetensors reader allows, and its rules about whole files. io_safetensors_header_test.cpp has the
// others.
#include "io/safetensors.hpp"

#include <sys/stat.h>

#include <optional>

#include "io/safetensors_header.hpp"
#include "tests/io_testing.hpp"
#include "tests/record.hpp"

namespace moetail::io {
namespace {

using io_testing::as_bytes;
using io_testing::error_of;
using io_testing::expect_parts;
using io_testing::safetensors_bytes;
using io_testing::TempDir;
using io_testing::write_file;

SafetensorsFile parse(std::string_view bytes) {
  return parse_safetensors(as_bytes(bytes), "case");
}

const std::string kFourBytes = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})";

TEST(Safetensors, ReadsTensorsInAnyOrderOfHeaderAndData) {
  const std::string bytes =
      safetensors_bytes(R"({"z":{"dtype":"U8","shape":[2,1],"data_offsets":[4,6]},)"
                        R"("__metadata__":{"who":"me","":""},)"
                        R"("a":{"shape":[2],"data_offsets":[0,4],"dtype":"BF16"},)"
                        R"("empty":{"dtype":"F32","shape":[3,0],"data_offsets":[6,6]},)"
                        R"("scalar":{"dtype":"I8","shape":[],"data_offsets":[6,7]},)"
                        R"("packed":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[7,10]}}     )",
                        10);
  const SafetensorsFile file = parse(bytes);
  ASSERT_EQ(file.tensors().size(), 5u);
  EXPECT_EQ(file.tensors()[0].name, "a");
  EXPECT_EQ(file.tensors()[4].name, "z");
  EXPECT_EQ(file.at("z").shape, (std::vector<std::uint64_t>{2, 1}));
  EXPECT_EQ(file.at("z").bytes[1], std::byte{5});
  EXPECT_EQ(file.at("scalar").num_elements, 1u);
  EXPECT_EQ(file.at("packed").num_elements, 4u);
  EXPECT_EQ(file.at("packed").bytes.size(), 3u);
  EXPECT_EQ(file.at("empty").num_elements, 0u);
  EXPECT_TRUE(file.elements<float>(file.at("empty"), Dtype::f32).empty());
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"who", "me"}, {"", ""}}));
  EXPECT_EQ(file.find("b"), nullptr);
  expect_parts(error_of(Code::file, [&] { file.at("b"); }), {"case", "no tensor \"b\""});
}

TEST(Safetensors, ReadsAFileWithoutTensors) {
  EXPECT_TRUE(parse(safetensors_bytes("{}", 0)).tensors().empty());
}

TEST(Safetensors, RefusesLengthsThatTheBytesCannotHold) {
  expect_parts(error_of(Code::file, [] { parse(""); }), {"has 0 bytes", "at least the 8 bytes"});
  expect_parts(error_of(Code::file, [] { parse("1234567"); }), {"has 7 bytes"});
  std::string bytes = safetensors_bytes("{}", 0);
  bytes[0] = 3;
  expect_parts(error_of(Code::file, [&] { parse(bytes); }), {"header length = 3", "at most the 2 bytes"});
  for (int i = 0; i < 8; ++i) bytes[i] = '\xff';
  expect_parts(error_of(Code::file, [&] { parse(bytes); }),
               {"header length = 18446744073709551615", "at most 100000000"});
}

TEST(Safetensors, RefusesAHeaderAboveTheLimitThatIsThereAtFullSize) {
  const std::string message =
      error_of(Code::file, [] { parse(safetensors_bytes("{}" + std::string(kMaxHeaderBytes - 1, ' '), 0)); });
  expect_parts(message, {"header length = 100000001", "at most 100000000"});
}

TEST(Safetensors, ElementsChecksDtypeSizeAndPlace) {
  // The header's length is even, so the tensor starts at an odd byte behind the U8 one.
  const std::string header =
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"BF16","shape":[1],"data_offsets":[1,3]}})";
  const std::string bytes = safetensors_bytes(header + std::string(header.size() % 2, ' '), 3);
  const std::vector<std::uint64_t> aligned((bytes.size() + 7) / 8);
  std::memcpy(const_cast<std::uint64_t*>(aligned.data()), bytes.data(), bytes.size());
  const SafetensorsFile file =
      parse_safetensors(std::as_bytes(std::span(aligned)).first(bytes.size()), "case");
  expect_parts(error_of(Code::file, [&] { file.elements<std::uint16_t>(file.at("b"), Dtype::bf16); }),
               {"case", "tensor \"b\"", "1 byte(s) behind a multiple of 2"});
  expect_parts(error_of(Code::file, [&] { file.elements<std::uint16_t>(file.at("a"), Dtype::bf16); }),
               {"tensor \"a\"", "dtype = U8", "accepted is BF16"});
  error_of(Code::internal, [&] { file.elements<std::uint32_t>(file.at("b"), Dtype::bf16); });
  EXPECT_EQ(file.elements<std::uint8_t>(file.at("a"), Dtype::u8)[0], 0);
}

TEST(Safetensors, OpenRefusesWhatIsNoRegularFile) {
  const TempDir dir;
  expect_parts(error_of(Code::file, [&] { SafetensorsFile::open(dir / "none"); }),
               {"/none", "cannot be opened", "No such file"});
  expect_parts(error_of(Code::file, [&] { SafetensorsFile::open(dir.path()); }),
               {"is a directory", "a regular file"});
  expect_parts(error_of(Code::file, [&] { SafetensorsFile::open("/dev/null"); }),
               {"/dev/null", "is a device"});
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  expect_parts(error_of(Code::file, [&] { SafetensorsFile::open(dir / "pipe"); }), {"is a pipe"});
  write_file(dir / "empty", "");
  expect_parts(error_of(Code::file, [&] { SafetensorsFile::open(dir / "empty"); }), {"/empty", "is empty"});
  std::filesystem::create_symlink("loop", dir / "loop");
  expect_parts(error_of(Code::file, [&] { SafetensorsFile::open(dir / "loop"); }), {"cannot be opened"});
}

TEST(Safetensors, EveryTruncationOfAFileIsAnError) {
  const TempDir dir;
  const std::string bytes = safetensors_bytes(kFourBytes, 4);
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    write_file(dir / "cut", std::string_view(bytes).substr(0, length));
    expect_parts(error_of(Code::file, [&] { SafetensorsFile::open(dir / "cut"); }),
                 {(dir / "cut").string() + ": "});
  }
  moetail::testing::record_fault("safetensors: every truncation of a file", moetail::testing::kHost,
                                 bytes.size(), "refused by file and reason");
}

TEST(Safetensors, BytesLiveAsLongAsAnyCopyEvenIfTheFileIsGone) {
  const TempDir dir;
  write_file(dir / "file", safetensors_bytes(kFourBytes, 4));
  std::optional<SafetensorsFile> first = SafetensorsFile::open(dir / "file");
  const SafetensorsFile second = *first;
  const Tensor& tensor = second.at("a");
  first.reset();
  write_file(dir / "new", safetensors_bytes("{}", 0));
  std::filesystem::rename(dir / "new", dir / "file");
  EXPECT_EQ(tensor.bytes[3], std::byte{3});
  EXPECT_EQ(second.name(), (dir / "file").string());
}

TEST(Safetensors, HostileNamesAreEscapedAndCutInMessages) {
  const std::string name = "\\u001b[2J" + std::string(1000, 'x');
  const std::string message =
      error_of(Code::file, [&] { parse(safetensors_bytes("{\"" + name + "\":1}", 0)); });
  EXPECT_LT(message.size(), 400u);
  expect_parts(message, {"\\x1b[2J", "... (1004 bytes)"});
  EXPECT_EQ(message.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace moetail::io
