// SPDX-License-Identifier: Apache-2.0
// What the C door's opaque handles are: words in memory that is never given back, so that a released handle, or one of
// another kind, can be told by its magic word without touching freed memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "moetail/moetail.h"
#include "moetail/moetail.hpp"
#include "runtime/c_api_guard.hpp"

namespace moetail::c_api {

/// Eight letters as a word.
constexpr std::uint64_t magic_word(const char (&text)[9]) {
  std::uint64_t word = 0;
  for (int i = 0; i < 8; ++i)
    word |= static_cast<std::uint64_t>(static_cast<unsigned char>(text[i])) << (8 * i);
  return word;
}

/// A place for one object behind the door. The address of a Handle is what the caller holds.
template <class BodyType, std::uint64_t kMagicWord>
struct Handle {
  using Body = BodyType;
  static constexpr std::uint64_t kMagic = kMagicWord;

  std::atomic<std::uint64_t> magic = 0;  ///< kMagic while the handle is live
  std::optional<Body> body;
  Handle* next_free = nullptr;
};

/// All handles of one kind. Released places are used again in the order of their release, so that a stale handle stays
/// recognizable for as long as possible.
template <class H>
class Pool {
 public:
  using Place = Handle<typename H::Body, H::kMagic>;

  /// Never destroyed: handles that a program leaves behind must not be torn down under threads that still run.
  static Pool& instance() {
    static Pool& pool = *new Pool;
    return pool;
  }

  H* add(typename H::Body body) {
    std::unique_lock lock(mutex_);
    Place* place = first_free_;
    if (place == nullptr) {
      places_.push_back(std::make_unique<H>());
      place = places_.back().get();
    } else {
      first_free_ = place->next_free;
      if (first_free_ == nullptr) last_free_ = nullptr;
    }
    lock.unlock();
    place->body.emplace(std::move(body));
    place->magic.store(H::kMagic, std::memory_order_release);
    return static_cast<H*>(place);
  }

  /// False when the handle is not live. Of several releases at once, one succeeds. Runs the body's destructor.
  bool release(H* handle) {
    std::uint64_t live = H::kMagic;
    if (!handle->magic.compare_exchange_strong(live, 0, std::memory_order_acq_rel)) return false;
    handle->body.reset();
    handle->next_free = nullptr;
    std::lock_guard lock(mutex_);
    if (last_free_ != nullptr)
      last_free_->next_free = handle;
    else
      first_free_ = handle;
    last_free_ = handle;
    return true;
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<H>> places_;
  Place* first_free_ = nullptr;
  Place* last_free_ = nullptr;
};

/// Shared by all handles of one world. The last of them to go ends here, on the caller's thread: functions that are
/// still on a stream find all stream handles live, because these are released when the streams are idle.
class WorldKeeper {
 public:
  explicit WorldKeeper(World world);
  ~WorldKeeper();
  WorldKeeper(const WorldKeeper&) = delete;
  WorldKeeper& operator=(const WorldKeeper&) = delete;

  const World& world() const { return world_; }
  /// Of ranks of this process.
  moetail_stream* main_stream(int rank) const { return stream(rank, 0); }
  moetail_stream* side_stream(int rank) const { return stream(rank, 1); }

 private:
  moetail_stream* stream(int rank, std::size_t which) const;
  void release_streams();

  World world_;
  std::vector<moetail_stream*> streams_;  // [rank][main, side]
};

struct WorldBody {
  std::shared_ptr<WorldKeeper> keeper;
};
struct StreamBody {
  Stream stream;
};
struct BoxBody {
  TailBox box;
  std::shared_ptr<WorldKeeper> keeper;
};
struct TailBody {
  PreparedTail tail;
  std::shared_ptr<WorldKeeper> keeper;
};

}  // namespace moetail::c_api

struct moetail_world
    : moetail::c_api::Handle<moetail::c_api::WorldBody, moetail::c_api::magic_word("mtworld1")> {
  static constexpr const char* kAccepted = "a live moetail_world";
};
struct moetail_stream
    : moetail::c_api::Handle<moetail::c_api::StreamBody, moetail::c_api::magic_word("mtstrea1")> {
  static constexpr const char* kAccepted = "a live moetail_stream";
};
struct moetail_session
    : moetail::c_api::Handle<moetail::ProcessSession, moetail::c_api::magic_word("mtsessi1")> {
  static constexpr const char* kAccepted = "a live moetail_session";
};
struct moetail_box : moetail::c_api::Handle<moetail::c_api::BoxBody, moetail::c_api::magic_word("mtbox001")> {
  static constexpr const char* kAccepted = "a live moetail_box";
};
struct moetail_tail
    : moetail::c_api::Handle<moetail::c_api::TailBody, moetail::c_api::magic_word("mttail01")> {
  static constexpr const char* kAccepted = "a live moetail_tail";
};

namespace moetail::c_api {

/// What is behind a handle that a caller passed as `name`. Throws Code::invalid_argument for null and for what is not a
/// live handle of this kind.
template <class H>
typename H::Body& body_of(const char* name, H* handle) {
  if (handle == nullptr) base::bad_argument(name, "null", H::kAccepted);
  const bool aligned = reinterpret_cast<std::uintptr_t>(handle) % alignof(H) == 0;
  if (!aligned || handle->magic.load(std::memory_order_acquire) != H::kMagic)
    base::bad_argument(name, static_cast<const void*>(handle),
                       fmt::format("{} (this one is released, or of another kind)", H::kAccepted));
  return *handle->body;
}

/// A handle for a new world.
moetail_world* add_world(World world);

/// The stream that a call named, or the empty one, which stands for the rank's main stream.
inline Stream stream_of(moetail_stream* stream) {
  return stream == nullptr ? Stream() : body_of("stream", stream).stream;
}

/// Throws Code::invalid_argument unless `count` is the number of local ranks.
inline void check_count(const char* name, std::uint64_t count, const World& world) {
  if (count != static_cast<std::uint64_t>(world.local_ranks()))
    base::bad_argument(name, count, fmt::format("{}, the number of local ranks", world.local_ranks()));
}

/// The body of every ..._destroy function, whose name is `what`.
template <class H>
moetail_status destroy(const char* what, const char* name, H* handle) noexcept {
  return guarded([&] {
    if (handle == nullptr) return;
    check_outside_of_streams(what);
    body_of(name, handle);
    if (!Pool<H>::instance().release(handle))
      base::bad_argument(name, static_cast<const void*>(handle), H::kAccepted);
  });
}

}  // namespace moetail::c_api
