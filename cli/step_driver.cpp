// SPDX-License-Identifier: Apache-2.0
// The calls of a decode step.
#include "cli/step_driver.hpp"

#include <algorithm>
#include <future>

namespace moetail::cli {
namespace {

// Holds streams back until it is opened, at the latest by its destructor.
class Gate {
 public:
  ~Gate() { open(); }
  void hold(const Stream& stream) const {
    stream.launch([opened = opened_] { opened.wait(); });
  }
  void open() {
    if (is_open_) return;
    is_open_ = true;
    promise_.set_value();
  }

 private:
  std::promise<void> promise_;
  std::shared_future<void> opened_ = promise_.get_future().share();
  bool is_open_ = false;
};

}  // namespace

World make_world(const InputSpec& spec, const WorldOptions& options) {
  if (spec.replay) return World::replay(0, spec.shape.ranks, options);
  return spec.shape.ranks == 1 ? World::single(options) : World::virtual_ranks(spec.shape.ranks, options);
}

void fill_peers_of(const TailBox& box, const Inputs& inputs, Mode running) {
  const InputSpec& spec = inputs.spec();
  const auto batch = static_cast<std::size_t>(spec.batch);
  const std::size_t latent = batch * static_cast<std::size_t>(spec.shape.latent);
  const std::size_t hidden = batch * static_cast<std::size_t>(spec.shape.hidden);
  const std::vector<Bf16> partials = inputs.partials_of(0);
  std::vector<SentRows> ranks;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(spec.shape.ranks); ++rank)
    ranks.push_back(
        {std::span(partials).subspan(rank * latent, latent), {inputs.ranks(0)[rank].shared, hidden}});
  box.fill_peers(spec.batch, running, ranks);
}

std::size_t output_size(const InputSpec& spec, std::size_t num_layers, int num_ranks) {
  return num_layers * static_cast<std::size_t>(num_ranks) * static_cast<std::size_t>(spec.batch) *
         static_cast<std::size_t>(spec.shape.hidden);
}

StepDriver::StepDriver(const WorldOptions& options, std::span<const LayerWeights> weights,
                       const Inputs& inputs, Mode asked, Mode running)
    : StepDriver(make_world(inputs.spec(), options), {},
                 Buffer<Bf16>(output_size(inputs.spec(), weights.size(),
                                          inputs.spec().replay ? 1 : inputs.spec().shape.ranks)),
                 weights, inputs, asked, running) {}

StepDriver::StepDriver(const World& world, std::span<Bf16> outputs, std::span<const LayerWeights> weights,
                       const Inputs& inputs, Mode asked, Mode running)
    : StepDriver(world, outputs, {}, weights, inputs, asked, running) {}

StepDriver::StepDriver(const World& world, std::span<Bf16> outputs, Buffer<Bf16> own,
                       std::span<const LayerWeights> weights, const Inputs& inputs, Mode asked, Mode running)
    : weights_(weights),
      inputs_(inputs),
      asked_(asked),
      running_(running),
      own_outputs_(std::move(own)),
      outputs_(own_outputs_.size() > 0 ? own_outputs_.span() : outputs),
      stamps_(weights.size() + 1),
      layer_us_(weights.size()),
      world_(world),
      residence_(world_),
      boxes_(world_.make_boxes(inputs.spec().shape)) {
  const Shape& shape = inputs.spec().shape;
  for (const LayerWeights& layer : weights)
    for (const TailBox& box : boxes_)
      tails_.emplace_back(
          box,
          TailWeights::from_full(shape, box.rank(), residence_.of(layer.up_proj.span(), box.rank()),
                                 residence_.of(layer.norm.span(), box.rank())),
          layer.layer);
  if (inputs.spec().replay) fill_peers_of(boxes_.front(), inputs, running);
}

PreparedTail& StepDriver::tail(int position, int rank) {
  return tails_[static_cast<std::size_t>(position) * boxes_.size() + index_of(rank)];
}

std::span<Bf16> StepDriver::output_rows(int position, int rank) const {
  const std::size_t size = outputs_.size() / tails_.size();
  return outputs_.subspan((static_cast<std::size_t>(position) * boxes_.size() + index_of(rank)) * size, size);
}

std::span<const Bf16> StepDriver::output(int position, int rank) const {
  return output_rows(position, rank);
}

void StepDriver::run_step(int step) {
  if (world_.engine() == Engine::cuda) {
    // Enqueued while it runs: a stream that is held back could keep the first step's kernels from being loaded.
    const Clock::time_point start = Clock::now();
    for (int position = 0; position < num_layers(); ++position) enqueue_layer(position, step);
    world_.synchronize();
    step_us_ = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
    std::fill(layer_us_.begin(), layer_us_.end(), step_us_ / num_layers());
    residence_.fetch();
    return;
  }
  Clock::time_point begin;
  {
    Gate gate;
    for (int rank = world_.first_rank(); rank < end_rank(); ++rank) gate.hold(world_.main_stream(rank));
    const Stream timed = world_.main_stream(world_.first_rank());
    timed.launch([this] { stamps_[0] = Clock::now(); });
    for (int position = 0; position < num_layers(); ++position) {
      enqueue_layer(position, step);
      timed.launch([this, position] { stamps_[static_cast<std::size_t>(position) + 1] = Clock::now(); });
    }
    if (before_release_) before_release_();
    begin = Clock::now();
  }
  world_.synchronize();
  step_us_ = std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
  for (std::size_t i = 0; i < layer_us_.size(); ++i)
    layer_us_[i] = std::chrono::duration<double, std::micro>(stamps_[i + 1] - stamps_[i]).count();
}

bool StepDriver::is_poisoned_by_another() const {
  return std::all_of(boxes_.begin(), boxes_.end(), [](const TailBox& box) {
    const auto report = box.status();
    return report && report->record.kind == protocol::FaultKind::poisoned;
  });
}

void StepDriver::enqueue_layer(int position, int step) {
  const InputSpec& spec = inputs_.spec();
  const std::size_t row_elements =
      static_cast<std::size_t>(spec.batch) * static_cast<std::size_t>(spec.shape.hidden);
  const int set = inputs_.set_of(position, step);
  const bool polls_slots = spec.form == Form::published && running_ == Mode::front_poll;
  std::vector<RankCall> calls;
  for (int rank = world_.first_rank(); rank < end_rank(); ++rank) {
    const verify::RankInput& input = inputs_.ranks(set)[static_cast<std::size_t>(rank)];
    PreparedTail& rank_tail = tail(position, rank);
    Call call;
    call.batch = spec.batch;
    call.mode = asked_;
    call.routed = residence_.of(routed_of(input, spec), rank);
    if (!polls_slots) call.shared = residence_.of(std::span(input.shared, row_elements), rank);
    if (input.residual != nullptr)
      call.residual = residence_.of(std::span(input.residual, row_elements), rank);
    // From the main stream: on a CPU a side stream is one more thread to switch to, and overlaps nothing. A two-shot tail that has rows pushes
    // by itself.
    if (running_ == Mode::publish || (running_ == Mode::twoshot && spec.form == Form::published))
      rank_tail.push(call.shared, spec.batch, asked_);
    if (spec.form == Form::published) produce(rank_tail, set, rank);
    calls.push_back({&rank_tail, call});
  }
  const std::vector<OutView> views = world_.run(calls);
  for (int rank = world_.first_rank(); rank < end_rank(); ++rank) {
    // The experts' stream joins late: front_poll reads their rows while they are being written.
    if (polls_slots) world_.main_stream(rank).join(world_.side_stream(rank));
    boxes_[index_of(rank)].take(views[index_of(rank)], residence_.output(output_rows(position, rank), rank));
  }
}

// Plays the experts of one rank: what a user's own kernels would do in published form. On the CPU row by row, as they would; on a GPU with
// the library's ready kernels, which use the device functions that a user's kernels have.
void StepDriver::produce(const PreparedTail& tail, int set, int rank) {
  const InputSpec& spec = inputs_.spec();
  const std::size_t latent = static_cast<std::size_t>(spec.shape.latent);
  const std::size_t hidden = static_cast<std::size_t>(spec.shape.hidden);
  if (running_ != Mode::front_poll) {
    const PublishTargets targets = tail.publish(spec.batch, asked_);
    const std::span<const Bf16> partial = inputs_.published_partial(set, rank);
    if (world_.engine() == Engine::cuda)
      return publish_rows(targets, world_.main_stream(rank), residence_.of(partial, rank));
    world_.main_stream(rank).launch([=] {
      for (int token = 0; token < targets.batch; ++token)
        publish_partial(targets, token, partial.subspan(static_cast<std::size_t>(token) * latent, latent));
    });
    return;
  }
  const std::optional<PollSlots> slots = tail.poll_slots(spec.batch, asked_);
  if (!slots)
    base::fail(Code::internal, "poll_slots({}) says front where the plan says front_poll", spec.batch);
  const Stream side = world_.side_stream(rank);
  side.join(world_.main_stream(rank));  // after the consumer of the call before
  if (world_.engine() == Engine::cuda) {
    verify::RankInput input = inputs_.ranks(set)[static_cast<std::size_t>(rank)];
    input.form = input.map == nullptr ? Form::expanded : Form::permuted;
    const std::span shared(input.shared, static_cast<std::size_t>(spec.batch) * hidden);
    return fill_rows(*slots, side, residence_.of(routed_of(input, spec), rank), residence_.of(shared, rank));
  }
  side.launch([slots = *slots, input = inputs_.ranks(set)[static_cast<std::size_t>(rank)], shape = spec.shape,
               latent, hidden] {
    for (int token = 0; token < slots.batch; ++token) {
      for (int k = 0; k < shape.top_k; ++k) {
        const Bf16* row = verify::route_row(input, shape, token, k);
        if (row == nullptr)
          fill_dropped_route(slots, token, k);
        else
          fill_route(slots, token, k, {row, latent}, verify::route_weight(input, token, k));
      }
      fill_shared(slots, token, {input.shared + static_cast<std::size_t>(token) * hidden, hidden});
    }
  });
}

}  // namespace moetail::cli
