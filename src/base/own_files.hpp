// SPDX-License-Identifier: Apache-2.0
// Files that this process believes because no other user can have written them: a cache, a rendezvous.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace moetail::base {

/// Permissions of what is made here: the user's alone, whatever the umask.
inline constexpr int kOwnFileMode = 0600;
inline constexpr int kOwnFolderMode = 0700;

/// Throws Error(Code::file), which names the part of the path that is at fault, unless `folder` is a folder of this user's that no other can
/// write to, and that no other can put something else in the place of: every folder above it belongs to this user or to root and is written
/// to by its owner alone, or is sticky as /tmp is. Links are followed on the way if they are this user's or root's; `folder` itself may be
/// none. What passes stays so until this user or root changes it, so that paths in it may be used by name.
void check_own_folder(const std::filesystem::path& folder);

/// Makes `folder` and what is missing above it, then checks it.
void make_own_folder(const std::filesystem::path& folder);

/// The bytes of a file in a folder that was checked, or nothing where there is no such name. Throws Error(Code::file) unless it is a regular
/// file of this user's that no other can write to, no link, and of at most `most` bytes. Never waits, as a pipe of that name would have it.
std::optional<std::vector<std::byte>> read_own_file(const std::filesystem::path& file, std::uint64_t most);

}  // namespace moetail::base
