// SPDX-License-Identifier: Apache-2.0
// Stream: the door's calls on one rank's stream.
#include <utility>

#include "base/error.hpp"
#include "runtime/impl.hpp"

namespace moetail {

void runtime::wait_for_stream(Stream::Impl& stream) {
  try {
    stream.stream->synchronize();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    base::fail(Code::fault, "stream {}: a launch threw: {}", stream.stream->name(), error.what());
  } catch (...) {
    base::fail(Code::fault, "stream {}: a launch threw what is no std::exception", stream.stream->name());
  }
}

void Stream::launch(std::function<void()> work) const {
  if (!impl_) base::bad_argument("stream", "empty", "a stream of a world");
  impl_->stream->call(std::move(work));
}

void Stream::synchronize() const {
  if (!impl_) base::bad_argument("stream", "empty", "a stream of a world");
  runtime::check_not_capturing(*impl_->stream, "synchronize");
  runtime::wait_for_stream(*impl_);
}

void Stream::join(const Stream& other) const {
  if (!impl_ || !other.impl_) base::bad_argument("stream", "empty", "a stream of a world");
  impl_->stream->join(*other.impl_->stream);
}

void Stream::copy(void* to, const void* from, std::size_t bytes) const {
  if (!impl_) base::bad_argument("stream", "empty", "a stream of a world");
  if (bytes > 0 && (to == nullptr || from == nullptr))
    base::bad_argument(to == nullptr ? "to" : "from", "null", "a pointer to the data");
  impl_->stream->copy(to, from, bytes);
}

void* Stream::native() const {
  if (!impl_) base::bad_argument("stream", "empty", "a stream of a world");
  return impl_->stream->native();
}

}  // namespace moetail
