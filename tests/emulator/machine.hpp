// SPDX-License-Identifier: Apache-2.0
// A GPU that is a loop on one thread of this process: what an emulated kernel asks of it. Every GPU thread is a fiber, and gives way to
// the others where it waits, polls, or at random; which of them goes on is drawn from a seed. docs/emulator.md says what this shows of a kernel and what
// it cannot.
#pragma once

namespace moetail::emulator {

struct Dim {
  unsigned x, y, z;
};

/// The GPU thread that runs.
struct Here {
  Dim thread, block, block_dim, grid_dim;
  unsigned block_in_cluster;
  unsigned lane;
};
extern const Here* here;

/// Lets others run.
void pause();
/// The same, now and then.
void pause_at_random();
/// Ends the launch with an error that every later call of the driver returns; what was wrong goes to stderr.
[[noreturn]] void fail(const char* what);

void sync_block();
void arrive_cluster();
/// Until all threads of the cluster have arrived as often as this one, or have exited.
void wait_cluster();

/// What a lane gives to the others of its warp.
struct Deposit {
  unsigned word[8];
};
/// The deposits of all lanes, once all that live have come to the same `instruction`. Valid until this lane's next exchange but one.
const Deposit* exchange(const Deposit& mine, const char* instruction);
/// A bit a lane that has not exited.
unsigned live_lanes();

/// Shared memory by the 32-bit addresses of device/shared.hpp: own ones, or one of another block of the cluster.
unsigned char* shared_at(unsigned address, unsigned bytes);
/// The address of the one static object of a kernel, or of its dynamic shared memory, which follows it.
unsigned address_of_static();
unsigned address_of_dynamic();
unsigned address_in_block(unsigned address, unsigned block);

// Barriers that count arrivals and bytes: PTX's mbarrier.
void init_barrier(unsigned barrier, unsigned arrivals);
void expect_bytes(unsigned barrier, unsigned bytes);
void arrive_barrier(unsigned barrier);
bool has_ended(unsigned barrier, unsigned parity);
/// Brings bytes into shared memory at some later time, and counts them on the barrier.
void copy_later(unsigned to, const void* from, unsigned bytes, unsigned barrier);
void store_later(unsigned to, const Deposit& words, unsigned bytes, unsigned barrier);

void trigger_dependents();
void wait_for_predecessor();
unsigned long time_ns();

/// How the driver calls a kernel: each of `parameters` points to one parameter.
struct Entry {
  unsigned num_parameters;
  const unsigned* sizes;
  void (*run)(void* const* parameters);
};

}  // namespace moetail::emulator
