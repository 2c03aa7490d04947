// SPDX-License-Identifier: Apache-2.0
// The safetensors writer: layout, order of calls, misuse, and that a failure leaves nothing behind.
#include "io/safetensors_writer.hpp"

#include <signal.h>
#include <sys/resource.h>

#include <cstdint>

#include "io/safetensors.hpp"
#include "tests/io_testing.hpp"

namespace moetail::io {
namespace {

using io_testing::as_bytes;
using io_testing::error_of;
using io_testing::expect_parts;
using io_testing::read_file;
using io_testing::TempDir;
using io_testing::write_file;

const std::vector<TensorSpec> kSpecs{{"odd", Dtype::u8, {3}},
                                     {"wide", Dtype::bf16, {2, 8}},
                                     {"four", Dtype::i32, {1}},
                                     {"none", Dtype::f64, {0}}};

void append_all(SafetensorsWriter& writer) {
  writer.append("four", as_bytes("4444"));
  writer.append("wide", as_bytes("abcdefghijklmnop"));
  writer.append("odd", as_bytes("012"));
  writer.append("wide", as_bytes("ABCDEFGHIJKLMNOP"));
}

TEST(SafetensorsWriter, WritesTheLayoutThatItPromises) {
  const TempDir dir;
  SafetensorsWriter writer(dir / "file", kSpecs, {{"b", "2"}, {"a", "\"1\""}});
  append_all(writer);
  writer.finish();
  const std::string bytes = read_file(dir / "file");
  const std::string header =
      R"({"__metadata__":{"a":"\"1\"","b":"2"},"none":{"dtype":"F64","shape":[0],"data_offsets":[0,0]},)"
      R"("wide":{"dtype":"BF16","shape":[2,8],"data_offsets":[0,32]},)"
      R"("four":{"dtype":"I32","shape":[1],"data_offsets":[32,36]},)"
      R"("odd":{"dtype":"U8","shape":[3],"data_offsets":[36,39]}})";
  const std::size_t data = (8 + header.size() + 63) / 64 * 64;
  ASSERT_EQ(bytes.size(), data + 39);
  EXPECT_EQ(bytes.substr(8, header.size()), header);
  EXPECT_EQ(bytes.substr(8 + header.size(), data - 8 - header.size()),
            std::string(data - 8 - header.size(), ' '));
  EXPECT_EQ(bytes.substr(data), "abcdefghijklmnopABCDEFGHIJKLMNOP4444012");

  const SafetensorsFile file = SafetensorsFile::open(dir / "file");
  EXPECT_EQ(file.metadata().at("a"), "\"1\"");
  EXPECT_EQ(file.elements<std::uint16_t>(file.at("wide"), Dtype::bf16).size(), 16u);
}

TEST(SafetensorsWriter, GivesTheSameBytesWhateverTheOrderOfTheTensors) {
  const TempDir dir;
  const std::vector<TensorSpec> reversed(kSpecs.rbegin(), kSpecs.rend());
  for (const auto& [name, specs] : {std::pair("one", kSpecs), std::pair("two", reversed)}) {
    SafetensorsWriter writer(dir / name, specs);
    append_all(writer);
    writer.finish();
  }
  EXPECT_EQ(read_file(dir / "one"), read_file(dir / "two"));
}

TEST(SafetensorsWriter, WritesAFileWithoutTensors) {
  const TempDir dir;
  SafetensorsWriter(dir / "bare", {}).finish();
  SafetensorsWriter(dir / "told", {}, {{"k", "v"}}).finish();
  EXPECT_TRUE(SafetensorsFile::open(dir / "bare").tensors().empty());
  EXPECT_EQ(SafetensorsFile::open(dir / "told").metadata().at("k"), "v");
}

TEST(SafetensorsWriter, RefusesWrongSpecs) {
  const TempDir dir;
  const auto refuse = [&](const TensorSpec& spec, const std::vector<std::string>& parts) {
    const std::vector<TensorSpec> specs{{"a", Dtype::u8, {1}}, spec};
    expect_parts(error_of(Code::invalid_argument, [&] { SafetensorsWriter(dir / "file", specs); }), parts);
  };
  refuse({"a", Dtype::u8, {2}}, {"tensor name = \"a\"", "each name once"});
  refuse({"__metadata__", Dtype::u8, {2}}, {"__metadata__", "any other name"});
  refuse({"\xff", Dtype::u8, {2}}, {"\"\\xff\"", "valid UTF-8"});
  refuse({"b", Dtype::f4, {3}}, {"tensor \"b\"", "whole number of bytes"});
  refuse({"b", Dtype::u8, {1ull << 40, 1ull << 40}}, {"does not fit in 64 bits"});
  refuse({"b", Dtype::u8, std::vector<std::uint64_t>(65, 1)},
         {"dimensions of tensor \"b\" = 65", "at most 64"});
  const std::uint64_t huge = (1ull << 61) - 1;
  const std::vector<TensorSpec> many{
      {"a", Dtype::u8, {huge}}, {"b", Dtype::u8, {huge}}, {"c", Dtype::u8, {huge}}};
  expect_parts(error_of(Code::invalid_argument, [&] { SafetensorsWriter(dir / "file", many); }),
               {"size of all tensors"});
  EXPECT_TRUE(dir.list().empty());
}

TEST(SafetensorsWriter, RefusesAHeaderAboveTheLimitAtFullSize) {
  const TempDir dir;
  const std::map<std::string, std::string> metadata{{"k", std::string(100'000'000, 'v')}};
  expect_parts(error_of(Code::invalid_argument, [&] { SafetensorsWriter(dir / "file", {}, metadata); }),
               {"header length = ", "at most 100000000 bytes"});
  EXPECT_TRUE(dir.list().empty());
}

TEST(SafetensorsWriter, RefusesWrongBytes) {
  const TempDir dir;
  SafetensorsWriter writer(dir / "file", kSpecs);
  expect_parts(error_of(Code::invalid_argument, [&] { writer.append("other", as_bytes("1")); }),
               {"\"other\"", "announced at construction"});
  writer.append("odd", as_bytes("01"));
  expect_parts(error_of(Code::invalid_argument, [&] { writer.append("odd", as_bytes("23")); }),
               {"tensor \"odd\" = 4", "the 3 that its shape announces"});
  const std::vector<float> floats(1);
  expect_parts(error_of(Code::invalid_argument, [&] { writer.append_elements("wide", std::span(floats)); }),
               {"element size for tensor \"wide\" = 4", "that of BF16"});
  expect_parts(error_of(Code::invalid_argument, [&] { writer.finish(); }),
               {"bytes for tensor \"wide\" = 0", "the 32"});
  EXPECT_FALSE(std::filesystem::exists(dir / "file"));
}

TEST(SafetensorsWriter, LeavesNothingWithoutFinish) {
  const TempDir dir;
  write_file(dir / "old", "old");
  {
    SafetensorsWriter writer(dir / "old", kSpecs);
    append_all(writer);
    EXPECT_EQ(dir.list().size(), 2u);  // the old file and the temporary
  }
  EXPECT_EQ(dir.list(), std::vector<std::string>{"old"});
  EXPECT_EQ(read_file(dir / "old"), "old");
}

TEST(SafetensorsWriter, ReplacesAFileThatIsMapped) {
  const TempDir dir;
  const std::vector<TensorSpec> specs{{"a", Dtype::u8, {4}}};
  const auto write = [&](std::string_view bytes) {
    SafetensorsWriter writer(dir / "file", specs);
    writer.append("a", as_bytes(bytes));
    writer.finish();
  };
  write("1111");
  const SafetensorsFile before = SafetensorsFile::open(dir / "file");
  write("2222");
  EXPECT_EQ(before.at("a").bytes[0], std::byte{'1'});
  EXPECT_EQ(SafetensorsFile::open(dir / "file").at("a").bytes[0], std::byte{'2'});
}

TEST(SafetensorsWriter, RefusesPlacesWhereNoFileCanBe) {
  const TempDir dir;
  expect_parts(error_of(Code::file, [&] { SafetensorsWriter(dir.path(), kSpecs); }), {"is no regular file"});
  expect_parts(error_of(Code::file, [&] { SafetensorsWriter(dir / "no/file", kSpecs); }),
               {"/no/file: cannot be created", "No such file"});
  write_file(dir / "file", "");
  expect_parts(error_of(Code::file, [&] { SafetensorsWriter(dir / "file/file", kSpecs); }),
               {"cannot be created"});
  EXPECT_EQ(dir.list(), std::vector<std::string>{"file"});
}

/// Lets no file of this process grow beyond a size; a write past it then fails instead of raising a signal.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : old_handler_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limit{bytes, old_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    ::signal(SIGXFSZ, old_handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit old_{};
  void (*old_handler_)(int);
};

TEST(SafetensorsWriter, AFailedWriteIsAnErrorAndLeavesNothing) {
  const TempDir dir;
  const std::vector<TensorSpec> specs{{"a", Dtype::u8, {1 << 20}}};
  const std::string bytes(1 << 20, 'x');
  const FileSizeLimit limit(1 << 16);
  const std::string message = error_of(Code::file, [&] {
    SafetensorsWriter writer(dir / "file", specs);
    writer.append("a", as_bytes(bytes));
    writer.finish();
  });
  expect_parts(message, {"/file: cannot be written", "File too large"});
  EXPECT_TRUE(dir.list().empty());
}

}  // namespace
}  // namespace moetail::io
