// SPDX-License-Identifier: Apache-2.0
// One launch on the emulated GPU, and the loop that runs the fibers of all launches. Used by one thread.
#pragma once

#include <ucontext.h>
#include <csetjmp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "tests/emulator/machine.hpp"

namespace moetail::emulator {

class Grid;
struct Block;
struct Warp;

struct Fiber {
  Here here{};
  Grid* grid = nullptr;
  Block* block = nullptr;
  Warp* warp = nullptr;
  std::size_t stack = 0;               ///< index in the pool
  unsigned long clusters_arrived = 0;  ///< how often it has arrived at the cluster barrier
  bool has_begun = false;
  std::jmp_buf place{};  ///< where it goes on
};

/// Those that wait for each other: the last one lets all go on.
struct Rendezvous {
  unsigned expected = 0, arrived = 0;
  unsigned long generation = 0;
  std::vector<Fiber*> waiting;
};

struct Warp {
  Rendezvous exchange;
  unsigned live = 0;  ///< a bit a lane
  Deposit deposits[2][32];
  const char* instruction = nullptr;
};

struct Cluster {
  std::vector<Block*> blocks;
  unsigned live = 0;  ///< threads
  unsigned long arrivals = 0, generation = 0;
  std::vector<Fiber*> waiting;
};

struct Block {
  Rendezvous sync;
  Cluster* cluster = nullptr;
  std::vector<Warp> warps;
  std::vector<unsigned char> shared;
  unsigned live = 0;
  bool triggered = false;
};

struct LaunchShape {
  unsigned grid = 1, threads = 1, cluster = 1;
  std::size_t dynamic_bytes = 0;
};

/// A kernel's threads, from launch to last exit.
class Grid {
 public:
  Grid(const Entry& entry, std::string name, const LaunchShape& shape,
       std::vector<std::vector<std::byte>> parameters);

  const std::string& name() const { return name_; }
  /// Every thread has exited and every byte under way has arrived.
  bool has_ended() const { return live_blocks_ == 0 && in_flight_ == 0; }
  bool lets_successor_start() const { return untriggered_ == 0; }

 private:
  friend class Loop;
  friend struct Api;
  const Entry& entry_;
  std::string name_;
  LaunchShape shape_;
  std::vector<std::vector<std::byte>> parameters_;
  std::vector<void*> pointers_;
  std::deque<Cluster> clusters_;
  std::deque<Block> blocks_;
  std::deque<Fiber> fibers_;
  unsigned live_blocks_ = 0, untriggered_ = 0;
  std::size_t in_flight_ = 0;  ///< copies that have not landed
  bool predecessor_is_complete_ = false;
  std::vector<Fiber*> wait_for_predecessor_;
};

/// Fibers of all grids, one at a time.
class Loop {
 public:
  explicit Loop(unsigned long seed) : random_(seed) {}

  void start(Grid& grid);
  /// What came before it in its stream has ended.
  void complete_predecessor_of(Grid& grid);
  /// Some steps. Throws std::runtime_error where a kernel did what no GPU allows, or nobody can go on.
  void run(int steps);
  bool is_idle() const { return ready_.empty() && landings_.empty(); }
  /// Forgets every fiber: after an error.
  void drop();

 private:
  friend struct Api;
  struct Landing {
    unsigned long due;
    Grid* grid;
    const Block* block;  ///< whose shared memory it is
    unsigned char* to;
    const void* from;  ///< null: `words`
    Deposit words;
    unsigned bytes;
    void* barrier;

    bool operator<(const Landing& other) const {
      return due > other.due;
    }  // the first due is the queue's top
  };
  [[noreturn]] static void enter();
  void switch_to(Fiber& fiber);
  void leave_fiber();
  void exit_thread(Fiber& fiber);
  void wake(std::vector<Fiber*>& fibers);
  void make_ready(Fiber* fiber);
  void meet(Rendezvous& meeting);
  void let_go_if_all(Rendezvous& meeting);
  void let_cluster_go_if_all(Cluster& cluster);
  void land(const Landing& landing);
  unsigned char* stack_of(std::size_t index);

  std::mt19937_64 random_;
  std::deque<Fiber*> ready_;
  std::priority_queue<Landing> landings_;
  std::vector<std::unique_ptr<unsigned char[]>> stacks_;
  std::vector<std::size_t> free_stacks_;
  std::jmp_buf loop_{};
  Fiber* current_ = nullptr;
  bool exited_ = false;
  unsigned long now_ = 0;
  std::string error_;
};

/// The one of this process.
extern Loop the_loop;

}  // namespace moetail::emulator
