// SPDX-License-Identifier: Apache-2.0
// The headers that kernels are compiled from, carried in the library: src/protocol, src/device and src/kernels without
// the plan, which is host code. Made by cmake/EmbedHeaders.cmake, again whenever one of them changes.
#pragma once

#include <span>

#include "engine/cuda/nvrtc.hpp"

namespace moetail::cuda {

/// All of them and those of include/moetail/device, by the names that include lines use ("protocol/ring.hpp"), sorted.
std::span<const Header> embedded_headers();

/// A hash of all names and texts, 16 hexadecimal digits: part of every cached kernel's key.
const char* embedded_headers_hash();

}  // namespace moetail::cuda
