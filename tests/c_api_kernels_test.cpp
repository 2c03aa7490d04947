// SPDX-License-Identifier: Apache-2.0
// What the C door gives to kernels of the caller's: their arguments as bytes, and the headers that they include.
#include <cstring>

#include "moetail/moetail.hpp"
#include "tests/c_api_testing.hpp"

namespace moetail::testing {
namespace {

/// The bytes that `give` fills in, as the struct they are.
template <class Argument, class Give>
Argument argument_of(const Give& give) {
  std::uint64_t size = 0;
  EXPECT_OK(give(nullptr, &size));
  EXPECT_EQ(size, sizeof(Argument));
  Argument argument;
  std::uint64_t room = size - 1;
  expect_refused(give(&argument, &room), MOETAIL_INVALID_ARGUMENT, {"size = ", "at least"});
  EXPECT_EQ(room, size);
  EXPECT_OK(give(&argument, &size));
  expect_refused(give(&argument, nullptr), MOETAIL_INVALID_ARGUMENT, {"size = null"});
  return argument;
}

TEST(CApiKernels, ArgumentsAreTheStructsOfTheCall) {
  CGroup group(2);
  auto calls = group.calls(2);
  moetail_tail* const tail = calls[1].tail;
  moetail_publish_targets targets = MOETAIL_PUBLISH_TARGETS_INIT;
  ASSERT_OK(moetail_tail_publish(tail, 2, MOETAIL_MODE_TWOSHOT, &targets));
  const auto published = argument_of<PublishTargets>(
      [&](void* to, std::uint64_t* size) { return moetail_publish_argument(&targets, to, size); });
  EXPECT_EQ(published.batch, 2);
  EXPECT_TRUE(published.twoshot);
  EXPECT_EQ(published.box.rank, 1);
  EXPECT_EQ(published.box.ranks(), 2);
  ASSERT_OK(moetail_world_recover(group.world, group.boxes.data(), 2));

  moetail_poll_slots slots = MOETAIL_POLL_SLOTS_INIT;
  ASSERT_OK(moetail_tail_poll_slots(tail, 1, MOETAIL_MODE_FRONT_POLL, &slots));
  const auto polled = argument_of<PollSlots>(
      [&](void* to, std::uint64_t* size) { return moetail_poll_argument(&slots, to, size); });
  EXPECT_EQ(polled.batch, 1);
  EXPECT_EQ(polled.box.peer[0], published.box.peer[0]);
  ASSERT_OK(moetail_world_recover(group.world, group.boxes.data(), 2));

  ASSERT_OK(group.run(calls));
  moetail_out_consumer consumer = MOETAIL_OUT_CONSUMER_INIT;
  ASSERT_OK(moetail_box_consumer(group.boxes[0], &group.views[0], nullptr, &consumer));
  const auto consumed = argument_of<OutConsumer>(
      [&](void* to, std::uint64_t* size) { return moetail_consumer_argument(&consumer, to, size); });
  EXPECT_EQ(consumed.batch, 2);
  EXPECT_EQ(consumed.call, 1u);
  ASSERT_OK(moetail_world_synchronize(group.world));
  ASSERT_OK(moetail_world_recover(group.world, group.boxes.data(), 2));
}

TEST(CApiKernels, HeadersAreThoseOfTheOtherDoor) {
  const auto expected = device_headers();
  const char* name = nullptr;
  const char* text = nullptr;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_OK(moetail_device_header(i, &name, &text));
    EXPECT_STREQ(name, expected[i].name);
    EXPECT_STREQ(text, expected[i].text);
  }
  ASSERT_OK(moetail_device_header(expected.size(), &name, &text));
  EXPECT_EQ(name, nullptr);
  EXPECT_EQ(text, nullptr);
  expect_refused(moetail_device_header(0, nullptr, &text), MOETAIL_INVALID_ARGUMENT, {"name = null"});
}

}  // namespace
}  // namespace moetail::testing
