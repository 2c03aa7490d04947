// SPDX-License-Identifier: Apache-2.0
// The C door: sessions, and worlds whose ranks are processes.
#include "runtime/c_api_convert.hpp"
#include "runtime/c_api_handles.hpp"

namespace c_api = moetail::c_api;
namespace base = moetail::base;

moetail_status moetail_session_create(int32_t ranks, moetail_session** session) noexcept {
  return c_api::guarded([&] {
    c_api::check_out("session", session);
    *session = nullptr;
    *session = c_api::Pool<moetail_session>::instance().add(moetail::ProcessSession::create(ranks));
  });
}

moetail_status moetail_session_destroy(moetail_session* session) noexcept {
  return c_api::destroy("moetail_session_destroy", "session", session);
}

moetail_status moetail_session_token(moetail_session* session, const char** token) noexcept {
  return c_api::guarded([&] {
    const auto& body = c_api::body_of("session", session);
    c_api::check_out("token", token);
    *token = body.token().c_str();
  });
}

moetail_status moetail_session_cancel(moetail_session* session, const char* reason) noexcept {
  return c_api::guarded([&] {
    const auto& body = c_api::body_of("session", session);
    if (reason == nullptr) base::bad_argument("reason", "null", "a text");
    body.cancel(reason);
  });
}

moetail_status moetail_world_create_process(const moetail_process_group* given,
                                            const moetail_world_options* options,
                                            moetail_world** world) noexcept {
  return c_api::guarded([&] {
    c_api::check_out("world", world);
    *world = nullptr;
    c_api::checked("group", given);
    if (given->token == nullptr) base::bad_argument("token", "null", "a session's token");
    moetail::ProcessGroup group;
    group.rank = given->rank;
    group.ranks = given->ranks;
    group.token = given->token;
    group.setup_deadline = std::chrono::milliseconds(given->setup_deadline_ms);
    *world = c_api::add_world(moetail::World::processes(group, c_api::options_of(options)));
  });
}
