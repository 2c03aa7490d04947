// SPDX-License-Identifier: Apache-2.0
// Names of the tail's tensors and of a captured step's, and lists of layers.
#include "io/layer_list.hpp"
#include "io/step_names.hpp"
#include "io/tail_name.hpp"
#include "tests/io_testing.hpp"

namespace moetail::io {
namespace {

using io_testing::error_of;
using io_testing::expect_parts;

TEST(TailName, NamesThatOnlyResembleAreNotTaken) {
  for (const char* name : {"model.layers.01.block_sparse_moe.routed_expert_norm.weight",
                           "model.layers..block_sparse_moe.routed_expert_norm.weight",
                           "model.layers.-1.block_sparse_moe.routed_expert_norm.weight",
                           "model.layers.100000.block_sparse_moe.routed_expert_norm.weight",
                           "supermodel.layers.1.block_sparse_moe.routed_expert_norm.weight",
                           "model.layers.1.block_sparse_moe.routed_expert_norm.weight_scale",
                           ".block_sparse_moe.routed_expert_norm.weight", "routed_expert_norm.weight", ""}) {
    EXPECT_FALSE(parse_tail_name(name)) << name;
  }
  const auto parts = parse_tail_name("a.b.model.layers.12.block_sparse_moe.routed_expert_up_proj.weight");
  ASSERT_TRUE(parts);
  EXPECT_EQ(parts->prefix, "a.b.");
  EXPECT_EQ(parts->layer, 12);
  EXPECT_EQ(parts->tensor, TailTensor::up_proj);
}

TEST(StepName, NamesThatOnlyResembleAreNotTaken) {
  for (const char* name :
       {"", "layer", "layer.", "layer.1", "layer.1.rank", "layer.1.rank.", "layer.1.rank.2",
        "layer.1.rank.2.", "layer.1.rank.2.row", "layer.1.rank.2.rows.", "layer.01.rank.2.rows",
        "layer.1.rank.-2.rows", "layer..rank.2.rows", " layer.1.rank.2.rows", "layer.1.rank.2..rows"}) {
    EXPECT_FALSE(parse_step_name(name)) << name;
  }
  for (const StepField field : {StepField::rows, StepField::map, StepField::weights, StepField::partial,
                                StepField::shared, StepField::residual}) {
    const auto parts = parse_step_name(step_name(12, 3, field));
    ASSERT_TRUE(parts);
    EXPECT_EQ(parts->layer, 12);
    EXPECT_EQ(parts->rank, 3);
    EXPECT_EQ(parts->field, field);
  }
  EXPECT_EQ(step_name(12, 3, StepField::residual), "layer.12.rank.3.residual");
}

TEST(LayerList, ReadsIndicesAndRanges) {
  EXPECT_THAT(parse_layer_list("1-8"), ::testing::ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_THAT(parse_layer_list("1,3,5-7"), ::testing::ElementsAre(1, 3, 5, 6, 7));
  EXPECT_THAT(parse_layer_list("9,0-1,4-4"), ::testing::ElementsAre(9, 0, 1, 4));
  EXPECT_EQ(parse_layer_list("0-99999").size(), 100000u);
  for (const char* text : {"1-8", "1,3,5-7", "9,0-1,4"})
    EXPECT_EQ(layer_list_text(parse_layer_list(text)), text);
}

TEST(LayerList, NamesTheTextAndThePartThatIsWrong) {
  const auto refuse = [](std::string_view text, std::string_view reason) {
    expect_parts(error_of(Code::invalid_argument, [&] { parse_layer_list(text); }),
                 {"layers = \"" + std::string(text), std::string(reason), "such as 1-8 or 1,3,5-7"});
  };
  for (const char* text : {"", ",", "1,", ",1", "a", "1-", "-1", "1-2-3", " 1", "1 ", "01", "1.5", "+1",
                           "100000", "1--2", "0x1", "99999999999999999999"}) {
    refuse(text, "is neither a layer nor a range");
  }
  refuse("1,8-2", "\"8-2\" runs backwards");
  refuse("1-4,3", "\"3\" repeats layer 3");
}

}  // namespace
}  // namespace moetail::io
