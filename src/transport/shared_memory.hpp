// SPDX-License-Identifier: Apache-2.0
// POSIX shared memory that only processes of one user can open, by a name that nobody can guess. docs/processes.md.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace moetail::transport {

/// "moetail-NAMESPACE-PID-START-RANDOM": who made the segment, so that what a killed process left can be told from what a running one
/// needs, and 128 random bits in 32 hexadecimal digits.
std::string make_segment_name();
bool is_segment_name(std::string_view name);

/// Removes the names that processes of this user left when they were killed between making a segment and the moment when all had mapped
/// it. Names of others, of living processes and of other kinds stay. Returns how many went.
int sweep_segments() noexcept;

/// A segment, mapped. Whoever made it removes its name at the latest with the object.
class SharedSegment {
 public:
  /// Bytes [begin, end) of a segment.
  struct Range {
    std::size_t begin, end;
  };

  /// A new one, zeroed, mode 0600. The pages of `used` are allocated, so that no later access can fail; the rest of it may not be touched.
  /// Throws Code::resource where memory, or the file system that holds it, has no room.
  static SharedSegment create(std::size_t bytes, std::span<const Range> used);
  static SharedSegment create(std::size_t bytes);
  /// One that another process of this user made. Throws Code::fault unless it is a regular file of this user, mode 0600, of exactly
  /// `bytes`, with one name at most; Code::invalid_argument for a name that is none; Code::resource where it cannot be mapped.
  static SharedSegment open(const std::string& name, std::size_t bytes);

  ~SharedSegment();
  SharedSegment(SharedSegment&& other) noexcept;
  SharedSegment& operator=(SharedSegment&&) = delete;

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  const std::string& name() const { return name_; }
  /// Takes the name away; whoever has mapped the segment keeps it. Not an error where another one was faster.
  void remove_name() noexcept;

 private:
  SharedSegment(std::string name, bool owns_name);
  void map(int file, std::size_t bytes);

  std::string name_;
  std::string path_;  // the name as shm_unlink takes it, made where memory may still run out
  int maker_;         // the process that made this object
  bool owns_name_;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace moetail::transport
