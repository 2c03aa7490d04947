// SPDX-License-Identifier: Apache-2.0
#include "tests/emulator/grid.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace moetail::emulator {
namespace {

constexpr std::size_t kStackBytes = std::size_t{96} << 10;
// A block's window: more than any block may have. The bits above name a block of the cluster, 0 the own one.
constexpr unsigned kWindowBits = 20;
// Of the one static object that a kernel may have; dynamic memory follows.
constexpr unsigned kStaticBytes = 1024;
// Copies land within so many steps.
constexpr unsigned kLandingSteps = 4096;

/// mbarrier, in the 8 bytes that it has.
struct Barrier {
  std::int32_t missing_bytes;
  std::uint16_t arrivals_due;
  std::uint16_t arrivals : 15;  ///< of each phase
  std::uint16_t phase : 1;
};
static_assert(sizeof(Barrier) == 8);

void end_phase_if_complete(Barrier& barrier) {
  if (barrier.arrivals_due != 0 || barrier.missing_bytes != 0) return;
  barrier.arrivals_due = barrier.arrivals;
  barrier.phase ^= 1;
}

/// The block of the cluster whose shared memory `address` is in.
Block& block_of(unsigned address);

Barrier& barrier_at(unsigned address) {
  if (address % 8 != 0) fail("a barrier that is not 8-byte aligned");
  return *reinterpret_cast<Barrier*>(shared_at(address, sizeof(Barrier)));
}

}  // namespace

const Here* here = nullptr;

Loop the_loop([] {
  const char* seed = std::getenv("MOETAIL_EMULATOR_SEED");
  return seed != nullptr ? std::strtoul(seed, nullptr, 10) : 1ul;
}());

Grid::Grid(const Entry& entry, std::string name, const LaunchShape& shape,
           std::vector<std::vector<std::byte>> parameters)
    : entry_(entry), name_(std::move(name)), shape_(shape), parameters_(std::move(parameters)) {
  for (auto& parameter : parameters_) pointers_.push_back(parameter.data());
  live_blocks_ = untriggered_ = shape.grid;
  clusters_.resize(shape.grid / shape.cluster);
  blocks_.resize(shape.grid);
  for (unsigned b = 0; b < shape.grid; ++b) {
    Block& block = blocks_[b];
    block.cluster = &clusters_[b / shape.cluster];
    block.cluster->blocks.push_back(&block);
    block.cluster->live += shape.threads;
    block.live = block.sync.expected = shape.threads;
    block.shared.assign(kStaticBytes + shape.dynamic_bytes, 0xA5);  // as it happens to be
    block.warps.resize((shape.threads + 31) / 32);
    for (unsigned t = 0; t < shape.threads; ++t) {
      Warp& warp = block.warps[t / 32];
      warp.live |= 1u << t % 32;
      ++warp.exchange.expected;
      Fiber& fiber = fibers_.emplace_back();
      fiber.here = {{t, 0, 0},          {b, 0, 0},         {shape.threads, 1, 1},
                    {shape.grid, 1, 1}, b % shape.cluster, t % 32};
      fiber.grid = this;
      fiber.block = &block;
      fiber.warp = &warp;
    }
  }
}

// --- the loop ----------------------------------------------------------------------------------------------

unsigned char* Loop::stack_of(std::size_t index) {
  while (stacks_.size() <= index)
    stacks_.push_back(std::unique_ptr<unsigned char[]>(new unsigned char[kStackBytes]));
  return stacks_[index].get();
}

void Loop::enter() {
  Loop& loop = the_loop;
  loop.current_->grid->entry_.run(loop.current_->grid->pointers_.data());
  loop.exited_ = true;
  std::longjmp(loop.loop_, 1);
}

// A context makes a fiber's first frame; from then on jumps change stacks, which unlike contexts need no system call.
void Loop::switch_to(Fiber& fiber) {
  if (setjmp(loop_) != 0) return;
  if (fiber.has_begun) std::longjmp(fiber.place, 1);
  fiber.has_begun = true;
  ucontext_t context{};
  getcontext(&context);
  context.uc_stack.ss_sp = stack_of(fiber.stack);
  context.uc_stack.ss_size = kStackBytes;
  makecontext(&context, &Loop::enter, 0);
  setcontext(&context);
}

void Loop::leave_fiber() {
  if (setjmp(current_->place) == 0) std::longjmp(loop_, 1);
}

void Loop::start(Grid& grid) {
  for (Fiber& fiber : grid.fibers_) {
    if (free_stacks_.empty()) {
      free_stacks_.push_back(stacks_.size());
      stack_of(stacks_.size());
    }
    fiber.stack = free_stacks_.back();
    free_stacks_.pop_back();
  }
  // Blocks begin in any order, their threads about together.
  const std::size_t threads = grid.shape_.threads;
  std::vector<std::size_t> order(grid.shape_.grid);
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), random_);
  for (const std::size_t block : order)
    for (std::size_t t = 0; t < threads; ++t) ready_.push_back(&grid.fibers_[block * threads + t]);
}

void Loop::complete_predecessor_of(Grid& grid) {
  grid.predecessor_is_complete_ = true;
  wake(grid.wait_for_predecessor_);
}

void Loop::run(int steps) {
  for (int step = 0; step < steps; ++step) {
    ++now_;
    while (!landings_.empty() && (landings_.top().due <= now_ || ready_.empty())) {
      land(landings_.top());
      landings_.pop();
    }
    if (!error_.empty()) throw std::runtime_error(error_);
    if (ready_.empty()) return;
    // Mostly in turns, so that everybody gets on; at random often enough that no two runs meet in the same order.
    if (random_() % 16 == 0) std::swap(ready_.front(), ready_[random_() % ready_.size()]);
    current_ = ready_.front();
    ready_.pop_front();
    here = &current_->here;
    switch_to(*current_);
    if (!error_.empty()) throw std::runtime_error(error_);
    if (std::exchange(exited_, false)) exit_thread(*current_);
  }
}

void Loop::drop() {
  ready_.clear();
  landings_ = {};
  error_.clear();
}

void Loop::make_ready(Fiber* fiber) {
  ready_.push_back(fiber);
}
void Loop::wake(std::vector<Fiber*>& fibers) {
  std::shuffle(fibers.begin(), fibers.end(), random_);
  for (Fiber* fiber : fibers) make_ready(fiber);
  fibers.clear();
}

void Loop::let_go_if_all(Rendezvous& meeting) {
  if (meeting.arrived < meeting.expected || meeting.arrived == 0) return;
  meeting.arrived = 0;
  ++meeting.generation;
  wake(meeting.waiting);
}

// The last one goes on at once.
void Loop::meet(Rendezvous& meeting) {
  if (++meeting.arrived == meeting.expected) return let_go_if_all(meeting);
  meeting.waiting.push_back(current_);
  leave_fiber();
}

void Loop::let_cluster_go_if_all(Cluster& cluster) {
  if (cluster.live == 0 || cluster.arrivals < cluster.live) return;
  cluster.arrivals = 0;
  ++cluster.generation;
  wake(cluster.waiting);
}

void Loop::exit_thread(Fiber& fiber) {
  free_stacks_.push_back(fiber.stack);
  Warp& warp = *fiber.warp;
  Block& block = *fiber.block;
  Cluster& cluster = *block.cluster;
  warp.live &= ~(1u << fiber.here.lane);
  --warp.exchange.expected;
  let_go_if_all(warp.exchange);
  --block.sync.expected;
  let_go_if_all(block.sync);
  --cluster.live;
  let_cluster_go_if_all(cluster);
  if (--block.live > 0) return;
  --fiber.grid->live_blocks_;
  if (!std::exchange(block.triggered, true)) --fiber.grid->untriggered_;
}

void Loop::land(const Landing& landing) {
  if (landing.block->live == 0)
    error_ = "kernel " + landing.grid->name() + ": bytes arrive in a block that has exited";
  std::memcpy(landing.to, landing.from != nullptr ? landing.from : landing.words.word, landing.bytes);
  auto& barrier = *static_cast<Barrier*>(landing.barrier);
  barrier.missing_bytes -= static_cast<std::int32_t>(landing.bytes);
  end_phase_if_complete(barrier);
  --landing.grid->in_flight_;
}

// --- what kernels call -------------------------------------------------------------------------------------

struct Api {
  static Loop& loop() { return the_loop; }
  static Fiber& me() { return *loop().current_; }
  static std::mt19937_64& random() { return loop().random_; }
  static void leave() { loop().leave_fiber(); }
  static void meet(Rendezvous& meeting) { loop().meet(meeting); }
  static void let_cluster_go_if_all(Cluster& cluster) { loop().let_cluster_go_if_all(cluster); }
  static void ready() { loop().make_ready(loop().current_); }
  static void set_error(const std::string& text) { loop().error_ = text; }
  static void await_predecessor() {
    Grid& grid = *me().grid;
    if (grid.predecessor_is_complete_) return;
    grid.wait_for_predecessor_.push_back(&me());
    leave();
  }
  static void trigger() {
    if (!std::exchange(me().block->triggered, true)) --me().grid->untriggered_;
  }
  static void add_landing(unsigned to, const void* from, const Deposit& words, unsigned bytes,
                          unsigned barrier) {
    Loop& all = loop();
    ++me().grid->in_flight_;
    all.landings_.push({all.now_ + random()() % kLandingSteps, me().grid, &block_of(to), shared_at(to, bytes),
                        from, words, bytes, &barrier_at(barrier)});
  }
};

void fail(const char* what) {
  const Here& at = *here;
  Api::set_error(std::string("kernel ") + Api::me().grid->name() + ", block " + std::to_string(at.block.x) +
                 ", thread " + std::to_string(at.thread.x) + ": " + what);
  while (true) Api::leave();
}

void pause() {
  Api::ready();
  Api::leave();
}
void pause_at_random() {
  if (Api::random()() % 64 == 0) pause();
}

void sync_block() {
  Api::meet(Api::me().block->sync);
}

void arrive_cluster() {
  Fiber& me = Api::me();
  Cluster& cluster = *me.block->cluster;
  if (me.clusters_arrived > cluster.generation) fail("barrier.cluster.arrive twice without a wait");
  me.clusters_arrived = cluster.generation + 1;
  ++cluster.arrivals;
  Api::let_cluster_go_if_all(cluster);
}

void wait_cluster() {
  Fiber& me = Api::me();
  Cluster& cluster = *me.block->cluster;
  if (cluster.generation >= me.clusters_arrived) return;
  cluster.waiting.push_back(&me);
  Api::leave();
}

const Deposit* exchange(const Deposit& mine, const char* instruction) {
  Fiber& me = Api::me();
  Warp& warp = *me.warp;
  if (warp.exchange.arrived == 0)
    warp.instruction = instruction;
  else if (std::strcmp(warp.instruction, instruction) != 0)
    fail("lanes of one warp are at different instructions");
  Deposit* const all = warp.deposits[warp.exchange.generation % 2];
  all[me.here.lane] = mine;
  Api::meet(warp.exchange);
  return all;
}

unsigned live_lanes() {
  return Api::me().warp->live;
}

namespace {
Block& block_of(unsigned address) {
  Block& mine = *Api::me().block;
  const unsigned which = address >> kWindowBits;
  if (which == 0) return mine;
  if (which > mine.cluster->blocks.size()) fail("an address in a block that the cluster has not");
  return *mine.cluster->blocks[which - 1];
}
}  // namespace

unsigned char* shared_at(unsigned address, unsigned bytes) {
  Block& block = block_of(address);
  const unsigned at = address & ((1u << kWindowBits) - 1);
  if (block.live == 0) fail("an address in a block that has exited");
  if (at + bytes > block.shared.size()) fail("an address beyond the block's shared memory");
  if (bytes <= 16 && at % bytes != 0) fail("a shared address that is not aligned");
  return block.shared.data() + at;
}

unsigned address_of_static() {
  return 0;
}
unsigned address_of_dynamic() {
  return kStaticBytes;
}
unsigned address_in_block(unsigned address, unsigned block) {
  return (address & ((1u << kWindowBits) - 1)) | (block + 1) << kWindowBits;
}

void init_barrier(unsigned barrier, unsigned arrivals) {
  const auto count = static_cast<std::uint16_t>(arrivals & 0x7FFF);
  barrier_at(barrier) = {0, count, count, 0};
}
void expect_bytes(unsigned barrier, unsigned bytes) {
  Barrier& it = barrier_at(barrier);
  it.missing_bytes += static_cast<std::int32_t>(bytes);
  arrive_barrier(barrier);
}
void arrive_barrier(unsigned barrier) {
  Barrier& it = barrier_at(barrier);
  if (it.arrivals_due == 0) fail("mbarrier.arrive: the phase has had its arrivals");
  --it.arrivals_due;
  end_phase_if_complete(it);
}
bool has_ended(unsigned barrier, unsigned parity) {
  return barrier_at(barrier).phase != parity;
}
void copy_later(unsigned to, const void* from, unsigned bytes, unsigned barrier) {
  Api::add_landing(to, from, {}, bytes, barrier);
}
void store_later(unsigned to, const Deposit& words, unsigned bytes, unsigned barrier) {
  Api::add_landing(to, nullptr, words, bytes, barrier);
}

void trigger_dependents() {
  Api::trigger();
}
void wait_for_predecessor() {
  Api::await_predecessor();
}

unsigned long time_ns() {
  return static_cast<unsigned long>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

}  // namespace moetail::emulator
