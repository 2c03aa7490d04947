// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/box_memory.hpp"

#include <atomic>
#include <new>
#include <utility>

#include "base/error.hpp"
#include "protocol/sentinel.hpp"

namespace moetail::cuda {
namespace {

using kernels::FaultCell;
using protocol::Region;
using protocol::u32;

// The device writes these words through the bus; the host side of the same access is an atomic one.
u32 load(u32& word) {
  return std::atomic_ref(word).load(std::memory_order_acquire);
}
void store(u32& word, u32 value) {
  std::atomic_ref(word).store(value, std::memory_order_release);
}

}  // namespace

BoxMemory::BoxMemory(ContextRef context, const protocol::Layout& layout)
    : layout_(layout), memory_(context, layout.total_bytes), cell_(std::move(context), sizeof(FaultCell)) {
  new (cell_.host<void>()) FaultCell;
}

void BoxMemory::arm(const Stream& stream) {
  // The control words are the last region (protocol/layout.hpp), so that two fills do it all, padding included.
  const protocol::u64 control = layout_.offset[static_cast<int>(Region::control)];
  stream.fill(memory_.address(), protocol::kEmptyWord, control / sizeof(u32));
  stream.fill(memory_.address() + control, 0, (layout_.total_bytes - control) / sizeof(u32));
  auto& cell = *cell_.host<FaultCell>();
  store(cell.stop, 0);
  store(cell.state, FaultCell::kEmpty);
}

protocol::BoxView BoxMemory::view(std::span<const BoxMemory* const> boxes, int rank) {
  if (rank < 0 || rank >= static_cast<int>(boxes.size()))
    base::bad_argument("rank", rank, fmt::format("0 to {}", static_cast<int>(boxes.size()) - 1));
  protocol::BoxView view;
  view.layout = boxes[0]->layout();
  if (view.layout.shape.ranks != static_cast<int>(boxes.size()))
    base::bad_argument("boxes: size", boxes.size(),
                       fmt::format("{}, the shape's ranks", view.layout.shape.ranks));
  view.rank = rank;
  for (std::size_t peer = 0; peer < boxes.size(); ++peer) view.peer[peer] = boxes[peer]->device();
  return view;
}

std::optional<protocol::FaultRecord> BoxMemory::fault() const {
  auto& cell = *cell_.host<FaultCell>();
  if (load(cell.state) != FaultCell::kWritten) return std::nullopt;
  return cell.record;
}

void BoxMemory::stop() {
  store(cell_.host<FaultCell>()->stop, 1);
}
bool BoxMemory::is_stopped() const {
  return load(cell_.host<FaultCell>()->stop) != 0;
}

}  // namespace moetail::cuda
