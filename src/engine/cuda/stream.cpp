// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/stream.hpp"

#include <utility>

#include "base/error.hpp"

namespace moetail::cuda {
namespace {

/// Calls a function that gives something back to the driver. A context that is lost has given it back already.
template <typename Release>
void release(const ContextRef& context, const Release& give_back) noexcept {
  try {
    const ContextScope scope(*context);
    give_back(context->driver());
  } catch (...) {  // the context is lost
  }
}

bool is_ready(const Driver& driver, abi::Result result, const CallSite& site) {
  if (result == abi::Result::not_ready) return false;
  driver.check(result, site, "");
  return true;
}

abi::DevicePtr address_of(const void* pointer) {
  return reinterpret_cast<abi::DevicePtr>(pointer);
}

}  // namespace

Event::Event(ContextRef context, Timing timing) : context_(std::move(context)) {
  const ContextScope scope(*context_);
  const Driver& driver = context_->driver();
  driver.check(
      driver.event_create(&handle_, timing == Timing::on ? abi::kEventDefault : abi::kEventDisableTiming),
      "cuEventCreate", "device {}", context_->ordinal());
}
Event::~Event() {
  if (handle_ != nullptr) release(context_, [&](const Driver& driver) { driver.event_destroy(handle_); });
}
Event::Event(Event&& other) noexcept
    : context_(std::move(other.context_)), handle_(std::exchange(other.handle_, nullptr)) {}
Event& Event::operator=(Event&& other) noexcept {
  Event old(std::move(other));
  std::swap(context_, old.context_);
  std::swap(handle_, old.handle_);
  return *this;
}

void Event::synchronize() const {
  const ContextScope scope(*context_);
  context_->driver().check(context_->driver().event_synchronize(handle_), "cuEventSynchronize", "");
}
bool Event::is_done() const {
  const ContextScope scope(*context_);
  return is_ready(context_->driver(), context_->driver().event_query(handle_), "cuEventQuery");
}

double elapsed_us(const Event& begin, const Event& end, const Context& context) {
  const ContextScope scope(context);
  float ms = 0;
  context.driver().check(context.driver().event_elapsed_time(&ms, begin.handle(), end.handle()),
                         "cuEventElapsedTime", "two events, recorded, complete and with timing on");
  return 1e3 * static_cast<double>(ms);
}

Graph::Graph(ContextRef context, abi::Graph handle) : context_(std::move(context)), handle_(handle) {}
Graph::~Graph() {
  if (handle_ != nullptr) release(context_, [&](const Driver& driver) { driver.graph_destroy(handle_); });
}
Graph::Graph(Graph&& other) noexcept
    : context_(std::move(other.context_)), handle_(std::exchange(other.handle_, nullptr)) {}
Graph& Graph::operator=(Graph&& other) noexcept {
  Graph old(std::move(other));
  std::swap(context_, old.context_);
  std::swap(handle_, old.handle_);
  return *this;
}

std::size_t Graph::num_nodes() const {
  std::size_t count = 0;
  context_->driver().check(context_->driver().graph_get_nodes(handle_, nullptr, &count), "cuGraphGetNodes",
                           "");
  return count;
}

GraphExec::GraphExec(const Graph& graph) : context_(graph.context()) {
  const ContextScope scope(*context_);
  const Driver& driver = context_->driver();
  driver.check(driver.graph_instantiate(&handle_, graph.handle(), abi::kGraphInstantiateDefault),
               "cuGraphInstantiateWithFlags", "{} nodes", graph.num_nodes());
}
GraphExec::~GraphExec() {
  if (handle_ != nullptr)
    release(context_, [&](const Driver& driver) { driver.graph_exec_destroy(handle_); });
}
GraphExec::GraphExec(GraphExec&& other) noexcept
    : context_(std::move(other.context_)), handle_(std::exchange(other.handle_, nullptr)) {}
GraphExec& GraphExec::operator=(GraphExec&& other) noexcept {
  GraphExec old(std::move(other));
  std::swap(context_, old.context_);
  std::swap(handle_, old.handle_);
  return *this;
}

void GraphExec::upload(const Stream& stream) const {
  const ContextScope scope(*context_);
  context_->driver().check(context_->driver().graph_upload(handle_, stream.handle()), "cuGraphUpload", "");
}
void GraphExec::launch(const Stream& stream) const {
  const ContextScope scope(*context_);
  context_->driver().check(context_->driver().graph_launch(handle_, stream.handle()), "cuGraphLaunch", "");
}

Stream::Stream(ContextRef context, int priority) : context_(std::move(context)), owned_(true) {
  const ContextScope scope(*context_);
  const Driver& driver = context_->driver();
  driver.check(driver.stream_create(&handle_, abi::kStreamNonBlocking, priority),
               "cuStreamCreateWithPriority", "non-blocking, priority {}", priority);
}
Stream::Stream(ContextRef context, abi::Stream handle, bool owned)
    : context_(std::move(context)), handle_(handle), owned_(owned) {}
Stream Stream::borrow(ContextRef context, abi::Stream handle) {
  return {std::move(context), handle, false};
}
Stream::~Stream() {
  if (owned_ && handle_ != nullptr)
    release(context_, [&](const Driver& driver) { driver.stream_destroy(handle_); });
}
Stream::Stream(Stream&& other) noexcept
    : context_(std::move(other.context_)),
      handle_(std::exchange(other.handle_, nullptr)),
      owned_(std::exchange(other.owned_, false)) {}
Stream& Stream::operator=(Stream&& other) noexcept {
  Stream old(std::move(other));
  std::swap(context_, old.context_);
  std::swap(handle_, old.handle_);
  std::swap(owned_, old.owned_);
  return *this;
}

void Stream::synchronize() const {
  const ContextScope scope(*context_);
  context_->driver().check(context_->driver().stream_synchronize(handle_), "cuStreamSynchronize", "");
}
bool Stream::is_done() const {
  const ContextScope scope(*context_);
  return is_ready(context_->driver(), context_->driver().stream_query(handle_), "cuStreamQuery");
}
void Stream::record(const Event& event) const {
  const ContextScope scope(*context_);
  context_->driver().check(context_->driver().event_record(event.handle(), handle_), "cuEventRecord", "");
}
void Stream::wait(const Event& event) const {
  const ContextScope scope(*context_);
  context_->driver().check(
      context_->driver().stream_wait_event(handle_, event.handle(), abi::kEventWaitDefault),
      "cuStreamWaitEvent", "");
}
void Stream::join(const Stream& other) const {
  // The driver keeps what it needs of an event that is destroyed before its record has run.
  const Event reached(context_);
  other.record(reached);
  wait(reached);
}

void Stream::fill(abi::DevicePtr to, std::uint32_t word, std::size_t words) const {
  const ContextScope scope(*context_);
  context_->driver().check(context_->driver().memset_d32_async(to, word, words, handle_), "cuMemsetD32Async",
                           "{:#x}, word {:#010x}, {} words", to, word, words);
}
void Stream::copy(void* to, const void* from, std::size_t bytes) const {
  const ContextScope scope(*context_);
  context_->driver().check(context_->driver().memcpy_async(address_of(to), address_of(from), bytes, handle_),
                           "cuMemcpyAsync", "to {}, from {}, {} bytes", to, from, bytes);
}
void Stream::copy(abi::DevicePtr to, const void* from, std::size_t bytes) const {
  copy(reinterpret_cast<void*>(to), from, bytes);
}
void Stream::copy(void* to, abi::DevicePtr from, std::size_t bytes) const {
  copy(to, reinterpret_cast<const void*>(from), bytes);
}
void Stream::call(abi::HostFunction function, void* data) const {
  const ContextScope scope(*context_);
  context_->driver().check(context_->driver().launch_host_func(handle_, function, data), "cuLaunchHostFunc",
                           "");
}

bool Stream::is_capturing() const {
  const ContextScope scope(*context_);
  auto status = abi::CaptureStatus::none;
  context_->driver().check(context_->driver().stream_is_capturing(handle_, &status), "cuStreamIsCapturing",
                           "");
  return status != abi::CaptureStatus::none;
}
void Stream::begin_capture() const {
  const ContextScope scope(*context_);
  context_->driver().check(
      context_->driver().stream_begin_capture(handle_, abi::CaptureMode::thread_local_only),
      "cuStreamBeginCapture", "thread-local");
}
Graph Stream::end_capture() const {
  const ContextScope scope(*context_);
  abi::Graph graph = nullptr;
  const abi::Result result = context_->driver().stream_end_capture(handle_, &graph);
  Graph owned(context_, graph);
  context_->driver().check(result, "cuStreamEndCapture", "");
  return owned;
}

}  // namespace moetail::cuda
