// SPDX-License-Identifier: Apache-2.0
// Captured steps with one defect each: the error names the tensor and what is accepted.
#include <limits>
#include <map>

#include "io/captured_step.hpp"
#include "io/safetensors_writer.hpp"
#include "io/step_names.hpp"
#include "tests/io_testing.hpp"

namespace moetail::io {
namespace {

using io_testing::error_of;
using io_testing::expect_parts;
using io_testing::TempDir;

/// A file of zeros (map entries too) that a test changes tensor by tensor.
class StepFile : public ::testing::Test {
 protected:
  using Shape = std::vector<std::uint64_t>;

  void put(int layer, int rank, StepField field, Dtype dtype, Shape shape) {
    tensors_[step_name(layer, rank, field)] = {dtype, std::move(shape)};
  }

  void put_rank(int layer, int rank) {
    put(layer, rank, StepField::rows, Dtype::bf16, {5, 8});
    put(layer, rank, StepField::map, Dtype::i32, {2, 3});
    put(layer, rank, StepField::weights, Dtype::f32, {2, 3});
    put(layer, rank, StepField::shared, Dtype::bf16, {2, 16});
  }

  void SetUp() override {
    for (const int layer : {1, 2}) {
      for (const int rank : {0, 1}) put_rank(layer, rank);
    }
  }

  void erase(int layer, int rank, StepField field) { tensors_.erase(step_name(layer, rank, field)); }

  std::filesystem::path write() {
    std::vector<TensorSpec> specs;
    for (const auto& [name, tensor] : tensors_) specs.push_back({name, tensor.first, tensor.second});
    SafetensorsWriter writer(dir_ / "step", specs, metadata_);
    for (const TensorSpec& spec : specs) {
      std::vector<std::byte> bytes(tensor_size(spec.dtype, spec.shape).bytes);
      if (spec.name == patched_name_) std::memcpy(bytes.data() + 4 * patched_index_, &patched_value_, 4);
      writer.append(spec.name, bytes);
    }
    writer.finish();
    return dir_ / "step";
  }

  void refuse(const std::vector<std::string>& parts) {
    const std::string message = error_of(Code::file, [&] { CapturedStep::open(write()); });
    expect_parts(message, {(dir_ / "step").string() + ": "});
    expect_parts(message, parts);
  }

  std::map<std::string, std::pair<Dtype, Shape>> tensors_;
  std::map<std::string, std::string> metadata_;
  std::string patched_name_;  // the int32 tensor with one element that is not 0
  std::size_t patched_index_ = 0;
  std::int32_t patched_value_ = 0;
  TempDir dir_;
};

TEST_F(StepFile, TakesWhatAnEngineWouldWrite) {
  metadata_ = {{"format", "pt"}, {"engine", "any text"}, {"top_k", "3"}, {"tp", "2"}, {"eps", "1e-06"}};
  const CapturedStep step = CapturedStep::open(write());
  EXPECT_EQ(step.spec().form, RoutedForm::permuted);
  EXPECT_EQ(step.spec().eps, 1e-6);
  EXPECT_EQ(step.inputs(2, 1).rows.size(), 40u);
}

TEST_F(StepFile, NamesTheRankThatIsMissing) {
  for (const StepField field : {StepField::rows, StepField::map, StepField::weights, StepField::shared})
    erase(2, 0, field);
  refuse({"layer 2 has no tensors of rank 0", "every rank from 0 to 1"});
  for (const StepField field : {StepField::rows, StepField::map, StepField::weights, StepField::shared})
    erase(2, 1, field);
  put_rank(1, 3);
  refuse({"layer 1 has no tensors of rank 2", "every rank from 0 to 3"});
  tensors_.clear();
  put_rank(5, 1);
  refuse({"layer 5 has no tensors of rank 0"});
  tensors_.clear();
  refuse({"has no tensor"});
}

TEST_F(StepFile, MetadataMustAgreeWithTheTensors) {
  metadata_ = {{"tp", "4"}};
  refuse({"layer 1 has no tensors of rank 2", "every rank from 0 to 3"});
  metadata_ = {{"tp", "1"}};
  refuse({"tp = 1", "at least 2"});
  metadata_ = {{"tp", "two"}};
  refuse({"tp = \"two\"", "1 to 99999"});
  metadata_ = {{"top_k", "4"}};
  refuse({"top_k = 4", "accepted is 3"});
  metadata_ = {{"top_k", "0"}};
  refuse({"top_k = \"0\""});
  metadata_ = {{"moetail_step", "2"}};
  refuse({"moetail_step = \"2\"", "accepted is 1"});
  for (const char* eps : {"", "x", "-1", "nan", "inf", "2", "1e-5 "}) {
    metadata_ = {{"eps", eps}};
    refuse({"eps = \"" + std::string(eps) + "\"", "from 0 to 1"});
  }
}

TEST_F(StepFile, NamesTheTensorThatIsMissingOrTooMany) {
  erase(2, 1, StepField::weights);
  refuse({"layer.2.rank.1.weights is missing"});
  put_rank(2, 1);
  erase(1, 0, StepField::shared);
  refuse({"layer.1.rank.0.shared is missing"});
  put_rank(1, 0);
  erase(2, 0, StepField::rows);
  refuse({"layer.2.rank.0.rows is missing", "layer.2.rank.0.partial"});
  put_rank(2, 0);
  erase(2, 0, StepField::map);
  refuse({"layer 2 rank 0 has rows without a map", "rows with a map, as layer 1 rank 0"});
  put_rank(2, 0);
  put(2, 0, StepField::partial, Dtype::bf16, {2, 8});
  refuse({"\"layer.2.rank.0.partial\" and \"layer.2.rank.0.rows\"", "not both"});
  erase(2, 0, StepField::partial);
  put(2, 1, StepField::residual, Dtype::bf16, {2, 16});
  refuse({"layer 2 rank 1 has a residual", "or none"});
  erase(2, 1, StepField::residual);
  tensors_["layer.1.rank.0.row"] = {Dtype::bf16, {1}};
  refuse({"tensor \"layer.1.rank.0.row\"", "layer.LAYER.rank.RANK.FIELD",
          "rows, map, weights, partial, shared, residual"});
}

TEST_F(StepFile, NamesTheTensorWhoseTypeOrShapeDiffers) {
  const auto refuse_with = [&](int layer, StepField field, Dtype dtype, Shape shape,
                               std::vector<std::string> parts) {
    const auto before = tensors_;
    put(layer, 0, field, dtype, std::move(shape));
    parts.push_back(step_name(layer, 0, field));
    refuse(parts);
    tensors_ = before;
  };
  refuse_with(1, StepField::rows, Dtype::f16, {5, 8}, {"dtype = F16", "BF16"});
  refuse_with(1, StepField::map, Dtype::i64, {2, 3}, {"dtype = I64", "I32"});
  refuse_with(1, StepField::weights, Dtype::f64, {2, 3}, {"dtype = F64", "F32 or BF16"});
  refuse_with(2, StepField::weights, Dtype::bf16, {2, 3}, {"dtype = BF16", "F32"});
  refuse_with(2, StepField::shared, Dtype::f32, {2, 16}, {"dtype = F32", "BF16"});
  refuse_with(1, StepField::shared, Dtype::bf16, {32}, {"shape = [32]", "[B, H]"});
  refuse_with(1, StepField::shared, Dtype::bf16, {0, 16}, {"shape = [0, 16]", "from 1"});
  refuse_with(1, StepField::rows, Dtype::bf16, {5, 0}, {"shape = [5, 0]", "[rows, L]"});
  refuse_with(1, StepField::rows, Dtype::bf16, {40}, {"shape = [40]", "[rows, L]"});
  refuse_with(1, StepField::weights, Dtype::f32, {3, 2}, {"shape = [3, 2]", "[B, K] = [2, 2]"});
  refuse_with(2, StepField::weights, Dtype::f32, {2, 4}, {"shape = [2, 4]", "[B, K] = [2, 3]"});
  refuse_with(2, StepField::map, Dtype::i32, {6}, {"shape = [6]", "[B, K] = [2, 3]"});
  refuse_with(2, StepField::rows, Dtype::bf16, {5, 16}, {"shape = [5, 16]", "[P, L] = [5, 8]"});
  refuse_with(2, StepField::rows, Dtype::bf16, {5, 2, 4}, {"shape = [5, 2, 4]", "[P, L]"});
  refuse_with(2, StepField::shared, Dtype::bf16, {3, 16}, {"shape = [3, 16]", "[B, H] = [2, 16]"});
  for (const int layer : {1, 2}) {
    for (const int rank : {0, 1}) erase(layer, rank, StepField::map);
  }
  refuse_with(1, StepField::rows, Dtype::bf16, {5, 8}, {"shape = [5, 8]", "[B*K, L] = [6, 8]"});
}

TEST_F(StepFile, NamesTheMapEntryThatIsNoRow) {
  patched_name_ = step_name(2, 1, StepField::map);
  patched_index_ = 5;
  patched_value_ = 5;
  refuse({"layer.2.rank.1.map", "token 1, k 2: 5", "P = 5"});
  patched_value_ = std::numeric_limits<std::int32_t>::max();
  refuse({"token 1, k 2: 2147483647"});
  for (const std::int32_t right : {4, -1, std::numeric_limits<std::int32_t>::min()}) {
    patched_value_ = right;
    EXPECT_EQ(CapturedStep::open(write()).inputs(2, 1).map[5], right);
  }
  put(2, 0, StepField::rows, Dtype::bf16, {0, 8});
  refuse({"layer.2.rank.0.map", "token 0, k 0: 0", "P = 0"});
}

}  // namespace
}  // namespace moetail::io
