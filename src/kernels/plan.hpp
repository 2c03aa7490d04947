// SPDX-License-Identifier: Apache-2.0
// Which kernel serves a call, and in what geometry: a pure function of shape, batch, mode and device facts. It can be printed and
// tested without a GPU; what it returns is what is compiled and launched.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/kernel_choice.hpp"
#include "kernels/geometry.hpp"
#include "protocol/mode.hpp"

namespace moetail::kernels {

enum class Kind { front, wave, push, publish, take, fill };
const char* kind_name(Kind kind);
/// The launches in which ranks wait for each other.
constexpr bool is_tail(Kind kind) {
  return kind == Kind::front || kind == Kind::wave;
}

/// What a plan asks of a device.
struct DeviceShape {
  std::string arch;  ///< "sm_90a"
  int num_sms = 0;
  int max_cluster = 16;       ///< blocks of the largest cluster
  int resident_clusters = 7;  ///< largest clusters that are resident together at one block an SM
  std::size_t shared_per_block = 0;
  std::size_t shared_per_sm = 0;
  std::size_t shared_reserved = 1024;  ///< the system's own, a block
};

/// The facts of an architecture as measured or documented, for plans without the device: sm_90a (H200), sm_100a (B200), sm_103a
/// (B300), sm_120a (RTX PRO 6000). Throws Error(invalid_argument) for others.
DeviceShape device_shape(const std::string& arch);

/// How a kernel hands on what every rank gets whole; the numbers are MOETAIL_PUT's.
enum class PutBy : int { peers = 0, multicast = 1, own = 2 };

struct PlanRequest {
  Shape shape;
  Kind kind = Kind::front;
  int batch = 1;
  Mode mode = Mode::front;
  Form form = Form::expanded;
  WeightType weights = WeightType::bf16;
  bool residual = false;
  bool shares_reduced = false;
  bool polls_shared = false;
  bool pushes = false;  ///< publish: sends the shared shards and the header as well
  bool early = false;   ///< wave: starts before its predecessor is complete
  bool traces = false;  ///< front and wave: each warp leaves a TraceSlot
  PutBy put = PutBy::peers;
  int launch_ranks = 1;  ///< T in loopback
  /// front and wave: in place of what measured best at this batch. In a launch of several ranks, which has its own geometry and no successor that
  /// starts early, only the trigger may be asked for, and is of no effect.
  KernelChoice choice;
};

/// One kernel and its launch.
struct KernelPlan {
  Kind kind = Kind::front;
  std::string entry;                 ///< extern "C" name
  std::string source;                ///< the unit's text: one include
  std::vector<std::string> defines;  ///< NAME=VALUE
  Geometry geometry;
  int max_batch = 1;  ///< the bucket: every batch up to it runs this kernel
  int grid = 1;       ///< blocks
  int cluster = 1;    ///< blocks a cluster
  int threads = threads_of(kFewWarps);
  std::size_t shared_bytes = 0;  ///< dynamic, a block
  int blocks_per_sm = 1;         ///< that have to fit: with a successor's beside it, 2
  bool cooperative = false;
  bool dependent = true;

  std::string text() const;  ///< one line for people
};

/// The bucket of a batch: 1, 2, 4, 8, 16, 32, 64, 128, and above that the capacity. A larger batch runs the same kernel in tiles.
int batch_bucket(const Shape& shape, int batch);

/// Throws Error(invalid_argument) that names what does not fit and what to change.
KernelPlan make_plan(const PlanRequest& request, const DeviceShape& device);

/// The kernels a K3 engine needs on one architecture at eight ranks: every bucket in its default mode, and what goes with it. At
/// most 60.
std::vector<PlanRequest> default_table(PutBy put);

}  // namespace moetail::kernels
