// SPDX-License-Identifier: Apache-2.0
// Whether this build has a sanitizer that slows every access down, or that has to follow each jump from stack to stack.
#pragma once

namespace moetail::build {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace moetail::build
