// SPDX-License-Identifier: Apache-2.0
// Joining flags and files.
#include "cli/setup.hpp"

#include <algorithm>
#include <array>
#include <numeric>

#include "cli/format.hpp"
#include "io/layer_list.hpp"
#include "protocol/layout.hpp"

namespace moetail::cli {
namespace {

// `option` becomes the file's value, or must already be that.
template <typename T>
void adopt(const char* flag, std::optional<T>& option, T from_file, const std::string& file) {
  if (option && *option != from_file)
    base::bad_argument(flag, *option, fmt::format("{}, as in {}", from_file, file));
  option = from_file;
}

void adopt_list(const char* flag, std::optional<std::vector<int>>& option, int from_file,
                const std::string& file) {
  if (option && *option != std::vector<int>{from_file})
    base::bad_argument(flag, fmt::format("{}", fmt::join(*option, ",")),
                       fmt::format("{}, as in {}", from_file, file));
  option = std::vector<int>{from_file};
}

Form form_of(io::RoutedForm form) {
  switch (form) {
    case io::RoutedForm::expanded: return Form::expanded;
    case io::RoutedForm::permuted: return Form::permuted;
    case io::RoutedForm::partial: break;
  }
  return Form::partial;
}

void adopt_step(const io::StepSpec& spec, const std::string& file, ShapeOptions& shape, CallOptions& call) {
  adopt("--hidden", shape.hidden, spec.hidden, file);
  adopt("--latent", shape.latent, spec.latent, file);
  if (spec.top_k > 0) adopt("--top-k", shape.top_k, spec.top_k, file);
  if (spec.eps) adopt("--eps", shape.eps, static_cast<float>(*spec.eps), file);
  adopt_list("--tp", call.ranks, spec.ranks, file);
  adopt_list("--batch", call.batches, spec.batch, file);
  const Form form = form_of(spec.form);
  if (call.form && *call.form != form && *call.form != Form::published)
    base::bad_argument("--form", protocol::form_name(*call.form),
                       fmt::format("{}, as in {}, or published", protocol::form_name(form), file));
  if (!call.form) call.form = form;
  const WeightType weights = spec.weights == io::Dtype::bf16 ? WeightType::bf16 : WeightType::fp32;
  if (form != Form::partial && call.weights && *call.weights != weights)
    base::bad_argument("--weights-dtype", *call.weights == WeightType::bf16 ? "bf16" : "fp32",
                       fmt::format("{}, as in {}", weights == WeightType::bf16 ? "bf16" : "fp32", file));
  call.weights = weights;
  if (call.residual && !spec.has_residual)
    base::bad_argument("--residual", "yes", fmt::format("no: {} has no residual", file));
  call.residual = spec.has_residual;
}

// The residual is one row for the whole group; each rank adds its own columns of it.
void check_residual(const io::CapturedStep& step, int layer, const std::string& file) {
  const std::span<const Bf16> first = step.inputs(layer, 0).residual;
  for (int rank = 1; rank < step.spec().ranks; ++rank)
    if (!std::ranges::equal(step.inputs(layer, rank).residual, first))
      base::fail(Code::file,
                 "{}: layer.{}.rank.{}.residual differs from rank 0's: accepted is the same on all ranks",
                 file, layer, rank);
}

// Checkpoint: the selection, or the step's layers, or all. Synthetic weights: as many as asked for, labelled by the step.
std::vector<int> choose_layers(const RunOptions& options, RunSetup& setup) {
  std::vector<int> layers;
  if (!options.checkpoint.empty()) {
    if (!options.layers.empty())
      layers = io::parse_layer_list(options.layers);
    else if (setup.step)
      layers = setup.step->spec().layers;
    setup.checkpoint = io::Checkpoint::open(options.checkpoint, layers);
    if (layers.empty()) layers.assign(setup.checkpoint->layers().begin(), setup.checkpoint->layers().end());
    return layers;
  }
  if (setup.step) {
    layers = setup.step->spec().layers;
    if (options.layers.empty()) return layers;
    const std::size_t count = static_cast<std::size_t>(synthetic_layer_count(options.layers));
    if (count > layers.size())
      base::bad_argument("--layers", count,
                         fmt::format("1 to {}, the layers of {}", layers.size(), options.inputs));
    layers.resize(count);
    return layers;
  }
  layers.resize(static_cast<std::size_t>(synthetic_layer_count(options.layers)));
  std::iota(layers.begin(), layers.end(), 1);  // layer 0 of K3 is dense
  return layers;
}

std::uint64_t mailbox_bytes(const Shape& shape) {
  return protocol::make_layout(shape).total_bytes * static_cast<std::uint64_t>(shape.ranks);
}

std::uint64_t input_bytes(const RunSetup& setup, const InputSpec& spec) {
  const int num_layers = static_cast<int>(setup.layers.size());
  return setup.step ? Inputs::published_bytes(spec, num_layers) : Inputs::synthetic_bytes(spec, num_layers);
}

// Output rows of every rank, and two older copies of one rank's to compare with.
std::uint64_t output_bytes(const RunSetup& setup, const InputSpec& spec) {
  return 2 * setup.layers.size() * (static_cast<std::uint64_t>(spec.shape.ranks) + 2) *
         static_cast<std::uint64_t>(spec.batch) * static_cast<std::uint64_t>(spec.shape.hidden);
}

}  // namespace

Configuration make_configuration(const InputSpec& input, Mode mode, const Policy& policy) {
  PlanRequest request;
  request.shape = input.shape;
  request.batch = input.batch;
  request.mode = mode;
  request.form = input.form;
  request.weights = input.weights;
  request.residual = input.residual;
  const Plan plan = make_plan(request, policy);
  if (input.form != Form::published || plan.mode != Mode::front) return {input, mode, plan, Put::automatic};
  if (mode == Mode::front)
    base::bad_argument("--form", "published",
                       "rows, permuted or partial in front mode, whose experts publish nothing");
  // A producer that publishes is served by publish mode, whatever the policy says of the batch.
  request.mode = Mode::publish;
  return {input, Mode::publish, make_plan(request, policy), Put::automatic};
}

std::vector<Configuration> make_configurations(const ShapeOptions& shape, const CallOptions& call,
                                               std::uint64_t seed, Engine engine) {
  const Policy policy =
      call.policy_file.empty() ? Policy::of(engine) : Policy::load(call.policy_file, engine);
  std::vector<Configuration> configurations;
  for (const int ranks : call.ranks.value_or(std::vector<int>{kDefaultRanks})) {
    for (const int batch : call.batches.value_or(std::vector<int>{kDefaultBatch})) {
      for (const Mode mode : call.modes) {
        const InputSpec input = {shape.shape(ranks),
                                 batch,
                                 call.form.value_or(Form::expanded),
                                 call.weights.value_or(WeightType::bf16),
                                 call.residual,
                                 seed,
                                 false};
        for (const Put put : call.puts) {
          configurations.push_back(make_configuration(input, mode, policy));
          configurations.back().put = put;
        }
      }
    }
  }
  return configurations;
}

RunSetup make_setup(const RunOptions& options) {
  ShapeOptions shape = options.shape;
  CallOptions call = options.call;
  RunSetup setup;
  if (!options.inputs.empty()) {
    setup.step = io::CapturedStep::open(options.inputs);
    adopt_step(setup.step->spec(), options.inputs, shape, call);
  }
  setup.layers = choose_layers(options, setup);
  if (setup.checkpoint) {
    adopt("--hidden", shape.hidden, setup.checkpoint->hidden(), options.checkpoint);
    adopt("--latent", shape.latent, setup.checkpoint->latent(), options.checkpoint);
  }
  if (setup.step)
    for (const int layer : setup.layers) check_residual(*setup.step, layer, options.inputs);
  setup.configurations = make_configurations(shape, call, options.session.seed, options.session.engine);
  const bool is_replay = options.session.world == WorldKind::replay;
  if (is_replay && setup.step)
    base::bad_argument("--world", "replay",
                       "virtual with --inputs: a replayed rank's peers send the same in every layer");
  for (Configuration& one : setup.configurations) one.input.replay = is_replay;
  setup.hidden = setup.configurations.front().input.shape.hidden;
  setup.latent = setup.configurations.front().input.shape.latent;
  return setup;
}

void check_memory(const RunSetup& setup, std::uint64_t available_bytes) {
  if (available_bytes == 0) return;
  // The judges' float64 rows, thread stacks and the like.
  constexpr std::uint64_t kMargin = std::uint64_t{256} << 20;
  const std::uint64_t weights = 2 * setup.layers.size() * static_cast<std::uint64_t>(setup.hidden + 1) *
                                static_cast<std::uint64_t>(setup.latent);
  for (const Configuration& one : setup.configurations) {
    const InputSpec& input = one.input;
    const std::array parts = {weights, mailbox_bytes(input.shape), input_bytes(setup, input),
                              output_bytes(setup, input), kMargin};
    const std::uint64_t needed = std::accumulate(parts.begin(), parts.end(), std::uint64_t{0});
    if (needed <= available_bytes) continue;
    base::fail(
        Code::unsupported,
        "T = {}, B = {}, {} layers need {} of memory (weights {}, mailboxes {}, inputs {}, outputs {}): "
        "accepted is what "
        "this machine has available, {}; fewer --layers or a smaller --capacity, --tp or --batch need less",
        input.shape.ranks, input.batch, setup.layers.size(), bytes_text(needed), bytes_text(parts[0]),
        bytes_text(parts[1]), bytes_text(parts[2]), bytes_text(parts[3]), bytes_text(available_bytes));
  }
}

std::string setup_text(const RunSetup& setup) {
  const InputSpec& input = setup.configurations.front().input;
  const bool routed = input.form != Form::partial;
  return fmt::format(
      "hidden {}, latent {}, top-k {}, capacity {}, {} layers ({}), {} input{}{}, seed {}", setup.hidden,
      setup.latent, input.shape.top_k, input.shape.capacity, setup.layers.size(),
      io::layer_list_text(setup.layers), protocol::form_name(input.form),
      routed ? (input.weights == WeightType::bf16 ? ", bf16 routing weights" : ", fp32 routing weights") : "",
      input.residual ? ", residual" : "", input.seed);
}

}  // namespace moetail::cli
