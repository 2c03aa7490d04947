// SPDX-License-Identifier: Apache-2.0
// Properties of the safetensors reader and writer over random tensors, and over random damage to valid files.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <set>

#include "io/captured_step.hpp"
#include "io/safetensors.hpp"
#include "io/safetensors_writer.hpp"
#include "tests/io_testing.hpp"
#include "tests/record.hpp"

namespace moetail::io {
namespace {

using io_testing::as_bytes;
using io_testing::read_file;
using io_testing::TempDir;

struct Content {
  TensorSpec spec;
  std::string bytes;
};

/// Random tensors with different names; the f4 and f6 types get a last dimension that fills bytes.
std::vector<Content> random_contents() {
  const auto names = *rc::gen::container<std::set<std::string>>(
      rc::gen::container<std::string>(rc::gen::inRange<char>(1, 127)));
  std::vector<Content> contents;
  for (const std::string& name : names) {
    if (name == "__metadata__") continue;
    Content content;
    content.spec.name = name;
    content.spec.dtype = static_cast<Dtype>(*rc::gen::inRange(0, static_cast<int>(Dtype::u64) + 1));
    content.spec.shape = *rc::gen::container<std::vector<std::uint64_t>>(
        *rc::gen::inRange(0, 4), rc::gen::inRange<std::uint64_t>(0, 5));
    if (dtype_bits(content.spec.dtype) < 8) content.spec.shape.push_back(4);
    const std::size_t size = tensor_size(content.spec.dtype, content.spec.shape).bytes;
    content.bytes = *rc::gen::container<std::string>(size, rc::gen::arbitrary<char>());
    contents.push_back(std::move(content));
  }
  return contents;
}

std::map<std::string, std::string> random_metadata() {
  const auto text = rc::gen::container<std::string>(rc::gen::inRange<char>(1, 127));
  return *rc::gen::container<std::map<std::string, std::string>>(text, text);
}

void write(const std::filesystem::path& path, const std::vector<Content>& contents,
           const std::map<std::string, std::string>& metadata) {
  std::vector<TensorSpec> specs;
  for (const Content& content : contents) specs.push_back(content.spec);
  SafetensorsWriter writer(path, specs, metadata);
  for (const Content& content : contents) {
    const std::size_t cut = *rc::gen::inRange<std::size_t>(0, content.bytes.size() + 1);
    writer.append(content.spec.name, as_bytes(content.bytes).first(cut));
    writer.append(content.spec.name, as_bytes(content.bytes).subspan(cut));
  }
  writer.finish();
}

/// What must hold for every file that was accepted: its tensors fit their shapes and tile the bytes behind
/// the header.
void check_views(const SafetensorsFile& file, std::string_view bytes) {
  std::map<std::size_t, std::size_t> extents;  // begin and end of the tensors that have bytes
  for (const Tensor& tensor : file.tensors()) {
    const TensorSize size = tensor_size(tensor.dtype, tensor.shape);
    RC_ASSERT(size.problem == nullptr);
    RC_ASSERT(size.bytes == tensor.bytes.size());
    RC_ASSERT(size.elements == tensor.num_elements);
    RC_ASSERT(file.find(tensor.name) == &tensor);
    if (tensor.bytes.empty()) continue;
    const auto begin = static_cast<std::size_t>(tensor.bytes.data() - as_bytes(bytes).data());
    RC_ASSERT(extents.emplace(begin, begin + tensor.bytes.size()).second);
  }
  std::uint64_t header_length = 0;
  std::memcpy(&header_length, bytes.data(), sizeof header_length);
  std::size_t covered = sizeof header_length + header_length;
  for (const auto& [begin, end] : extents) {
    RC_ASSERT(begin == covered);
    covered = end;
  }
  RC_ASSERT(covered == bytes.size());
}

RC_GTEST_PROP(SafetensorsProperty, WhatIsWrittenIsReadBack, ()) {
  const std::vector<Content> contents = random_contents();
  const auto metadata = random_metadata();
  const TempDir dir;
  write(dir / "file", contents, metadata);
  const SafetensorsFile file = SafetensorsFile::open(dir / "file");
  RC_ASSERT(file.metadata() == metadata);
  RC_ASSERT(file.tensors().size() == contents.size());
  for (const Content& content : contents) {
    const Tensor& tensor = file.at(content.spec.name);
    RC_ASSERT(tensor.dtype == content.spec.dtype);
    RC_ASSERT(tensor.shape == content.spec.shape);
    const std::string_view read(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
    RC_ASSERT(read == content.bytes);
    const std::size_t width = std::max(1u, dtype_bits(tensor.dtype) / 8);
    const auto place = reinterpret_cast<std::uintptr_t>(tensor.bytes.data());
    RC_ASSERT(tensor.bytes.empty() || place % width == 0);
    RC_ASSERT(tensor.bytes.empty() || tensor.bytes.size() % 16 != 0 || place % 16 == 0);
  }
}

RC_GTEST_PROP(SafetensorsProperty, DamageIsAnErrorOrGivesConsistentViews, ()) {
  const TempDir dir;
  write(dir / "file", random_contents(), random_metadata());
  std::string bytes = read_file(dir / "file");
  const int num_changes = *rc::gen::inRange(1, 4);
  for (int i = 0; i < num_changes && !bytes.empty(); ++i) {
    const std::size_t place = *rc::gen::inRange<std::size_t>(0, bytes.size());
    switch (*rc::gen::inRange(0, 5)) {
      case 0: bytes[place] = *rc::gen::arbitrary<char>(); break;
      case 1: bytes.erase(place, 1); break;
      case 2: bytes.insert(place, 1, *rc::gen::element('0', '9', '"', '[', '{', ',', ' ', '\\')); break;
      case 3: bytes.resize(place); break;
      default: bytes.insert(place, bytes.substr(place / 2, 40)); break;
    }
  }
  bytes.shrink_to_fit();
  try {
    const SafetensorsFile file = parse_safetensors(as_bytes(bytes), "damaged");
    RC_TAG("accepted");
    check_views(file, bytes);
  } catch (const Error& error) {
    RC_TAG("refused");
    RC_ASSERT(error.code() == Code::file);
    RC_ASSERT(std::string_view(error.what()).starts_with("damaged: "));
  }
  static std::uint64_t tries = 0;
  moetail::testing::record_fault("safetensors: damaged files (RapidCheck)", moetail::testing::kHost, ++tries,
                                 "refused by file, or consistent views");
}

RC_GTEST_PROP(CapturedStepProperty, DamageIsAnErrorOrGivesSpansOfTheRightSize, ()) {
  StepSpec spec;
  spec.form = RoutedForm::permuted;
  spec.layers = {1};
  spec.ranks = 2;
  spec.batch = 2;
  spec.top_k = 2;
  spec.latent = spec.hidden = 8;
  const std::vector<std::uint16_t> values(16, 1);
  const std::vector<std::int32_t> map{0, 1, -1, 1};
  const std::vector<float> weights(4, 1.0f);
  const TempDir dir;
  write_captured_step(dir / "step", spec,
                      [&](int, int) { return RankInputs{values, map, weights, {}, {}, values, {}}; });
  std::string bytes = read_file(dir / "step");
  const int num_changes = *rc::gen::inRange(1, 4);
  for (int i = 0; i < num_changes; ++i) {
    bytes[*rc::gen::inRange<std::size_t>(0, bytes.size())] =
        *rc::gen::oneOf(rc::gen::arbitrary<char>(), rc::gen::inRange('0', '9'));
  }
  try {
    const CapturedStep step(parse_safetensors(as_bytes(bytes), "damaged"));
    RC_TAG("accepted");
    for (const int layer : step.spec().layers) {
      for (int rank = 0; rank < step.spec().ranks; ++rank) {
        const RankInputs& inputs = step.inputs(layer, rank);
        RC_ASSERT(inputs.shared.size() == static_cast<std::size_t>(step.spec().batch * step.spec().hidden));
        for (const std::int32_t row : inputs.map) {
          RC_ASSERT(row < 0 ||
                    static_cast<std::size_t>(row + 1) * static_cast<std::size_t>(step.spec().latent) <=
                        inputs.rows.size());
        }
      }
    }
  } catch (const Error& error) {
    RC_TAG("refused");
    RC_ASSERT(error.code() == Code::file);
  }
  static std::uint64_t tries = 0;
  moetail::testing::record_fault("captured step: damaged files (RapidCheck)", moetail::testing::kHost,
                                 ++tries, "refused by file, or spans of the right size");
}

}  // namespace
}  // namespace moetail::io
