// SPDX-License-Identifier: Apache-2.0
// Fuzz target: any bytes as a safetensors file, and as a captured step if they are one. Either an
// Error(Code::file) or views that hold what the reader promises; docs/checkpoints.md says how to run it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "io/captured_step.hpp"
#include "io/safetensors.hpp"

namespace {

using moetail::Code;
using moetail::Error;
using moetail::io::CapturedStep;
using moetail::io::Dtype;
using moetail::io::parse_safetensors;
using moetail::io::RankInputs;
using moetail::io::SafetensorsFile;
using moetail::io::StepSpec;
using moetail::io::Tensor;

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

/// Reads every byte, so that the address sanitizer sees a span that leaves the input.
template <typename T>
void touch(std::span<const T> values) {
  unsigned sum = 0;
  for (const std::byte value : std::as_bytes(values)) sum += static_cast<unsigned>(value);
  volatile unsigned sink = sum;
  static_cast<void>(sink);
}

/// Runs `action`; the only exception that may leave it is an Error about the file.
template <typename Action>
bool succeeds(Action&& action) {
  try {
    action();
    return true;
  } catch (const Error& error) {
    require(error.code() == Code::file, "errors about a file have Code::file");
    require(std::string_view(error.what()).starts_with("input: "), "errors begin with the file's name");
    require(std::strlen(error.what()) < 4096, "errors are short");
    return false;
  }
}

void check_tensor(const SafetensorsFile& file, const Tensor& tensor) {
  touch(tensor.bytes);
  const auto size = moetail::io::tensor_size(tensor.dtype, tensor.shape);
  require(
      size.problem == nullptr && size.bytes == tensor.bytes.size() && size.elements == tensor.num_elements,
      "a tensor has the bytes that its shape and dtype ask for");
  require(file.find(tensor.name) == &tensor, "a tensor is found by its name");
  succeeds([&] {
    const auto values = file.elements<std::uint16_t>(tensor, Dtype::bf16);
    require(values.size() == tensor.num_elements, "a typed view has all elements");
    touch(values);
  });
  succeeds([&] { touch(file.elements<float>(tensor, Dtype::f32)); });
  succeeds([&] { touch(file.elements<std::int64_t>(tensor, Dtype::i64)); });
}

void check_step(const CapturedStep& step) {
  const StepSpec& spec = step.spec();
  for (const int layer : spec.layers) {
    for (int rank = 0; rank < spec.ranks; ++rank) {
      const RankInputs& inputs = step.inputs(layer, rank);
      touch(inputs.rows);
      touch(inputs.map);
      touch(inputs.weights_f32);
      touch(inputs.weights_bf16);
      touch(inputs.partial);
      touch(inputs.shared);
      touch(inputs.residual);
      const std::size_t num_rows = inputs.rows.size() / static_cast<std::size_t>(spec.latent);
      for (const std::int32_t row : inputs.map) {
        require(row < 0 || static_cast<std::size_t>(row) < num_rows, "a map entry is a row");
      }
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  succeeds([&] {
    const SafetensorsFile file = parse_safetensors(bytes, "input");
    for (const Tensor& tensor : file.tensors()) check_tensor(file, tensor);
    succeeds([&] { check_step(CapturedStep(file)); });
  });
  return 0;
}

// Absent where the target is linked without libFuzzer, which then never calls the mutator either.
extern "C" __attribute__((weak)) std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size,
                                                              std::size_t max_size);

/// Three times out of four only the header's text is mutated and its length kept right; plain mutations alone
/// would nearly always end at a length that does not fit.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned seed) {
  constexpr std::size_t kLengthBytes = 8;
  std::uint64_t length = 0;
  if (size >= kLengthBytes) std::memcpy(&length, data, kLengthBytes);
  if (seed % 4 == 0 || size < kLengthBytes || length > size - kLengthBytes)
    return LLVMFuzzerMutate(data, size, max_size);

  const std::vector<std::uint8_t> tail(data + kLengthBytes + length, data + size);
  const std::size_t room = max_size - kLengthBytes - std::min(tail.size(), max_size - kLengthBytes);
  length = LLVMFuzzerMutate(data + kLengthBytes, std::min<std::size_t>(length, room), room);
  std::memcpy(data, &length, kLengthBytes);
  std::copy(tail.begin(), tail.end(), data + kLengthBytes + length);
  return kLengthBytes + length + tail.size();
}
