// SPDX-License-Identifier: Apache-2.0
// The C door of sessions and of worlds whose ranks are processes; here each rank is a thread with a seat and mappings of its own.
#include <thread>

#include "tests/c_api_testing.hpp"

namespace moetail::testing {
namespace {

/// A seat of a session, and what a rank makes of it.
struct Seat {
  moetail_status join(const char* token, int rank, int ranks) {
    moetail_process_group group = MOETAIL_PROCESS_GROUP_INIT;
    group.rank = rank;
    group.ranks = ranks;
    group.token = token;
    group.setup_deadline_ms = 20'000;
    return moetail_world_create_process(&group, nullptr, &world);
  }
  ~Seat() {
    EXPECT_OK(moetail_tail_destroy(tail));
    EXPECT_OK(moetail_box_destroy(box));
    EXPECT_OK(moetail_world_destroy(world));
  }

  moetail_world* world = nullptr;
  moetail_box* box = nullptr;
  moetail_tail* tail = nullptr;
};

TEST(CApiProcesses, GivesTheBitsOfRanksInOneProcess) {
  constexpr int kRanks = 4, kRows = 3;
  CGroup group(kRanks);
  ASSERT_OK(group.run(group.calls(kRows)));
  group.take();
  ASSERT_OK(moetail_world_synchronize(group.world));
  const Rows expected = group.out[0];

  moetail_session* session = nullptr;
  ASSERT_OK(moetail_session_create(kRanks, &session));
  const char* token = nullptr;
  ASSERT_OK(moetail_session_token(session, &token));
  std::vector<Rows> rows(kRanks);
  std::vector<std::thread> ranks;
  const moetail_weights weights = group.weights();
  const moetail_call call_of_all = group.calls(kRows)[0];
  for (int rank = 0; rank < kRanks; ++rank)
    ranks.emplace_back([&, rank] {
      Seat seat;
      ASSERT_OK(seat.join(token, rank, kRanks));
      moetail_world_info info = MOETAIL_WORLD_INFO_INIT;
      EXPECT_OK(moetail_world_get_info(seat.world, &info));
      EXPECT_EQ(info.ranks, kRanks);
      EXPECT_EQ(info.local_ranks, 1);
      moetail_stream* stream = nullptr;
      EXPECT_OK(moetail_world_main_stream(seat.world, rank, &stream));
      const int other = (rank + 1) % kRanks;
      expect_refused(moetail_world_side_stream(seat.world, other, &stream), MOETAIL_INVALID_ARGUMENT,
                     {"rank = " + std::to_string(other), "accepted is " + std::to_string(rank)});
      ASSERT_OK(moetail_world_make_boxes(seat.world, &group.shape, &seat.box, 1));
      ASSERT_OK(moetail_tail_create(seat.box, &weights, 3, &seat.tail));
      for (int round = 0; round < 2; ++round) {
        moetail_call call = call_of_all;
        call.tail = seat.tail;
        moetail_out_view view = MOETAIL_OUT_VIEW_INIT;
        ASSERT_OK(moetail_world_run(seat.world, &call, &view, 1));
        Rows& out = rows[static_cast<std::size_t>(rank)];
        out.assign(expected.size(), 0);
        ASSERT_OK(moetail_box_take(seat.box, &view, out.data(), out.size(), nullptr));
        ASSERT_OK(moetail_world_synchronize(seat.world));
        EXPECT_EQ(out, expected);
        ASSERT_OK(moetail_world_recover(seat.world, &seat.box, 1));
      }
    });
  for (std::thread& rank : ranks) rank.join();
  EXPECT_OK(moetail_session_destroy(session));
}

TEST(CApiProcesses, RefusesWhatIsWrong) {
  moetail_session* session = nullptr;
  moetail_world* world = nullptr;
  const char* token = nullptr;
  const auto refused = [](moetail_status got, const std::vector<std::string>& parts) {
    expect_refused(got, MOETAIL_INVALID_ARGUMENT, parts);
  };
  refused(moetail_session_create(3, &session), {"ranks = 3", "1, 2, 4, 8 or 16"});
  EXPECT_EQ(session, nullptr);
  refused(moetail_session_create(2, nullptr), {"session = null"});
  refused(moetail_session_token(nullptr, &token), {"session = null"});
  refused(moetail_session_cancel(nullptr, "x"), {"session = null"});
  ASSERT_OK(moetail_session_create(2, &session));
  refused(moetail_session_token(session, nullptr), {"token = null"});
  refused(moetail_session_cancel(session, nullptr), {"reason = null"});
  ASSERT_OK(moetail_session_token(session, &token));

  const moetail_process_group right = {sizeof(moetail_process_group), 1, 0, 2, token, 1000};
  refused(moetail_world_create_process(&right, nullptr, nullptr), {"world = null"});
  refused(moetail_world_create_process(nullptr, nullptr, &world), {"group = null"});
  const auto spoilt = [&](auto spoil, const std::vector<std::string>& parts) {
    moetail_process_group group = right;
    spoil(group);
    refused(moetail_world_create_process(&group, nullptr, &world), parts);
    EXPECT_EQ(world, nullptr);
  };
  spoilt([](auto& group) { group.version = 2; }, {"group: version = 2"});
  spoilt([](auto& group) { group.size = 8; }, {"group: size = 8"});
  spoilt([](auto& group) { group.token = nullptr; }, {"token = null"});
  spoilt([](auto& group) { group.token = "no token"; }, {"segment name = no token"});
  spoilt([](auto& group) { group.rank = 2; }, {"rank = 2", "0 to 1"});
  spoilt([](auto& group) { group.rank = -1; }, {"rank = -1"});
  spoilt([](auto& group) { group.setup_deadline_ms = 0; }, {"setup_deadline (ms) = 0"});
  spoilt([](auto& group) { group.setup_deadline_ms = INT64_MAX; },
         {"setup_deadline (ms) = 9223372036854775807"});

  ASSERT_OK(moetail_session_cancel(session, "the launcher gave up"));
  expect_refused(moetail_world_create_process(&right, nullptr, &world), MOETAIL_FAULT,
                 {"the launcher gave up"});
  EXPECT_OK(moetail_session_destroy(session));
  refused(moetail_session_token(session, &token), {"released, or of another kind"});
  EXPECT_OK(moetail_session_destroy(nullptr));
}

}  // namespace
}  // namespace moetail::testing
