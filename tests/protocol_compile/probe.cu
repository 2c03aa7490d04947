// SPDX-License-Identifier: Apache-2.0
// One kernel that calls into the protocol room, so that the CUDA compilers have to generate code for its templates and
// do not merely parse them. Compiled behind all headers of src/protocol; the entry's name is looked for in the PTX.

namespace moetail::protocol {

/// A memory policy with the right signatures and no ordering at all: it is compiled, never run.
struct ProbeMemory {
  MOETAIL_FN u32 load(const u32* from) { return *const_cast<const volatile u32*>(from); }
  MOETAIL_FN u64 load(const u64* from) { return *const_cast<const volatile u64*>(from); }
  MOETAIL_FN Line load(const Line* from) { return *from; }
  MOETAIL_FN void store(u32* to, u32 word) { *to = word; }
  MOETAIL_FN void store(u64* to, u64 word) { *to = word; }
  MOETAIL_FN void store(Line* to, const Line& line) { *to = line; }
  MOETAIL_FN void arm(u32* to) { *to = kEmptyWord; }
  MOETAIL_FN void arm(Line* to) { *to = Line{{kEmptyWord, kEmptyWord, kEmptyWord, kEmptyWord}}; }
  MOETAIL_FN u64 add(u64* to, u64 value) {
    const u64 old = *to;
    *to = old + value;
    return old;
  }
  MOETAIL_FN u32 ticket() { return 0; }
  MOETAIL_FN WaitVerdict pause(u32 spins, u32 ticket, int missing, const Spot&) {
    return spins + ticket > static_cast<u32>(missing) ? WaitVerdict::expired : WaitVerdict::go_on;
  }
  MOETAIL_FN void raise(FaultKind, const Spot& spot) { last = spot; }
  Spot last;
};

}  // namespace moetail::protocol

extern "C" __global__ void moetail_protocol_probe(moetail::protocol::BoxView view,
                                                  moetail::protocol::Line* row, moetail::protocol::Runs runs,
                                                  moetail::protocol::u16* out) {
  namespace p = moetail::protocol;
  p::ProbeMemory memory;
  const p::u64 epoch = memory.load(view.control(p::Control::epoch));
  const int slot = p::slot_of(epoch);
  const p::Record present{1, p::dirtied_regions(moetail::Mode::front, false, false, false)};
  if (p::first_broken_rule(view.layout.shape) != p::ShapeRule::ok) return;
  p::rearm_previous(memory, view, epoch, p::record_to_rearm(memory, view, epoch, present), 0, 1);
  constexpr int kLines = 3;
  runs.want(kLines);
  p::clean_run(row, row, kLines);
  p::put_run(memory, view, p::Region::latent, slot, view.rank, 0, 0, row, kLines);
  p::Spot spot{p::Site::latent_poll};
  if (!p::wait_runs(memory, spot, runs)) return;
  const float sum = p::finalize_join(p::f32_from_bf16(out[0]), 1.0f, 2.0f, static_cast<float>(row->word[0]));
  out[p::finalize_group_begin(1, view.layout.shape.top_k)] = p::bf16_from_f32(sum);
  p::finish_call(memory, view, epoch, present, 1);
}
