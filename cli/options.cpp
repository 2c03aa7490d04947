// SPDX-License-Identifier: Apache-2.0
// The flags that several subcommands share, and how their texts become values.
#include "cli/options.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "cli/number_list.hpp"
#include "io/escaped.hpp"
#include "io/layer_list.hpp"

namespace moetail::cli {
namespace {

template <typename T>
struct Choice {
  const char* name;
  T value;
};

constexpr Choice<Mode> kModes[] = {{"auto", Mode::automatic},
                                   {"front", Mode::front},
                                   {"front_poll", Mode::front_poll},
                                   {"publish", Mode::publish},
                                   {"twoshot", Mode::twoshot}};
constexpr Choice<Form> kForms[] = {{"rows", Form::expanded},
                                   {"permuted", Form::permuted},
                                   {"partial", Form::partial},
                                   {"published", Form::published}};
constexpr Choice<WeightType> kWeightTypes[] = {{"bf16", WeightType::bf16}, {"fp32", WeightType::fp32}};
constexpr Choice<Engine> kEngines[] = {
    {"auto", Engine::automatic}, {"cpu", Engine::cpu}, {"cuda", Engine::cuda}};
constexpr Choice<WorldKind> kWorlds[] = {{"virtual", WorldKind::virtual_ranks},
                                         {"replay", WorldKind::replay}};

constexpr Choice<bench::Knob> kKnobChoices[] = {
    {bench::knob_name(bench::Knob::trigger), bench::Knob::trigger},
    {bench::knob_name(bench::Knob::warps), bench::Knob::warps},
    {bench::knob_name(bench::Knob::tile), bench::Knob::tile},
    {bench::knob_name(bench::Knob::row_block), bench::Knob::row_block},
    {bench::knob_name(bench::Knob::stages), bench::Knob::stages}};
constexpr Choice<Put> kPuts[] = {{"multicast", Put::multicast}, {"unicast", Put::unicast}};

template <typename T, std::size_t N>
std::string names_of(const Choice<T> (&choices)[N]) {
  std::string names;
  for (const auto& choice : choices) names += (names.empty() ? "" : ", ") + std::string(choice.name);
  return names;
}

template <typename T, std::size_t N>
T choose(const char* flag, std::string_view text, const Choice<T> (&choices)[N]) {
  for (const auto& choice : choices)
    if (text == choice.name) return choice.value;
  base::bad_argument(flag, io::escaped(text), names_of(choices));
}

// A flag whose text `parse` turns into a value. Errors of ours pass through CLI11 as they are.
template <typename Parse>
CLI::Option* add_text(CLI::App& app, const char* flag, const std::string& type, const char* help,
                      Parse parse) {
  return app.add_option_function<std::string>(flag, parse, help)->type_name(type);
}

int rank_count(int ranks) {
  if (!protocol::is_supported_rank_count(ranks)) base::bad_argument("--tp", ranks, "1, 2, 4, 8 or 16");
  return ranks;
}

void add_size(CLI::App& app, const char* flag, const char* help, std::optional<int>& value) {
  add_text(app, flag, "N", help, [flag, &value](const std::string& text) {
    value = parse_number(flag, text, 1, protocol::kMaxColumns);
  });
}

}  // namespace

Shape ShapeOptions::shape(int ranks) const {
  Shape shape;
  shape.ranks = ranks;
  shape.hidden = hidden.value_or(shape.hidden);
  shape.latent = latent.value_or(shape.latent);
  shape.top_k = top_k.value_or(shape.top_k);
  shape.capacity = capacity.value_or(shape.capacity);
  shape.poll_capacity = std::min(shape.poll_capacity, shape.capacity);
  shape.eps = eps.value_or(shape.eps);
  return shape;
}

WorldOptions SessionOptions::world_options(const std::string& policy_file) const {
  WorldOptions options;
  options.engine = engine;
  options.policy_file = policy_file;
  if (!deadline_seconds) return options;
  options.deadline = std::chrono::milliseconds(std::llround(*deadline_seconds * 1000));
  const bool never = options.deadline.count() == 0;
  options.first_deadline = never ? options.deadline : std::max(options.deadline, options.first_deadline);
  return options;
}

void SessionOptions::choose_engine() {
  if (engine != Engine::automatic) return;
  engine = processes || World::obstacle(Engine::cuda) ? Engine::cpu : Engine::cuda;
}

void choose_replay(SessionOptions& session, const CallOptions& call) {
  if (session.world_given && session.world != WorldKind::replay)
    base::bad_argument(
        "--world", "virtual",
        "replay with --engine cuda: all ranks on one GPU show that a call is right, not how fast");
  if (call.form == Form::published)
    base::bad_argument(
        "--form", "published",
        "rows, permuted or partial with --engine cuda: a producer of the user's is no part of the tail");
  session.world = WorldKind::replay;
}

void SessionOptions::check_supported() const {
  if (world == WorldKind::replay && engine != Engine::cuda)
    base::fail(Code::unsupported,
               "--world = replay: accepted is virtual; replay needs --engine cuda, because it stands for one "
               "rank of a group "
               "on one GPU");
  if (processes && engine == Engine::cuda)
    base::fail(Code::unsupported, "--processes: engine = cuda: accepted is --engine cpu or auto");
  // The door itself refuses an engine that does not run here; it knows the reason.
  if (engine == Engine::cuda) World::single(world_options(""));
}

void add_size_flags(CLI::App& app, ShapeOptions& options) {
  add_size(app, "--hidden", "H, columns of an output row [7168]", options.hidden);
  add_size(app, "--latent", "L, columns of a latent row [3584]", options.latent);
}

void add_shape_flags(CLI::App& app, ShapeOptions& options) {
  add_size_flags(app, options);
  add_size(app, "--top-k", "K, routed experts of a token [16]", options.top_k);
  add_size(app, "--capacity", "C, largest batch of a mailbox [128]", options.capacity);
  add_text(app, "--eps", "X", "added to the mean square of a latent row [1e-5]",
           [&options](const std::string& text) {
             char* end = nullptr;
             const float eps = std::strtof(text.c_str(), &end);
             if (text.empty() || *end != '\0' || !(eps >= 0.0f && eps <= 1.0f))
               base::bad_argument("--eps", io::escaped(text), "a number from 0 to 1");
             options.eps = eps;
           });
}

void add_rank_flag(CLI::App& app, int& ranks) {
  add_text(app, "--tp", "T", "tensor-parallel size: 1, 2, 4, 8, 16 [8]", [&ranks](const std::string& text) {
    ranks = rank_count(parse_number("--tp", text, 1, protocol::kMaxRanks));
  });
}

void add_input_flags(CLI::App& app, CallOptions& options) {
  add_text(app, "--tp", "T,...", "tensor-parallel sizes: 1, 2, 4, 8, 16 [8]",
           [&options](const std::string& text) {
             options.ranks = parse_number_list("--tp", text, 1, protocol::kMaxRanks);
             for (const int ranks : *options.ranks) rank_count(ranks);
           });
  add_text(app, "--batch", "B,...", "batches, such as 4 or 1,4,8 or 1-64 [4]",
           [&options](const std::string& text) {
             options.batches = parse_number_list("--batch", text, 1, protocol::kMaxCapacity);
           });
  add_text(app, "--form", "FORM", "routed input: rows, permuted, partial, published [rows]",
           [&options](const std::string& text) { options.form = choose("--form", text, kForms); });
  app.add_flag("--residual", options.residual, "add a residual row to every output row");
  add_text(app, "--weights-dtype", "TYPE", "routing weights: bf16, fp32 [bf16]",
           [&options](const std::string& text) {
             options.weights = choose("--weights-dtype", text, kWeightTypes);
           });
}

void add_call_flags(CLI::App& app, CallOptions& options) {
  add_input_flags(app, options);
  add_text(app, "--mode", "MODE,...", "auto, front, front_poll, publish, twoshot [auto: the policy's]",
           [&options](const std::string& text) {
             options.modes.clear();
             for (const std::string_view part : split_at_commas(text))
               options.modes.push_back(choose("--mode", part, kModes));
           });
  app.add_option("--policy", options.policy_file, "JSON file that changes the mode table")->type_name("FILE");
}

void add_put_flag(CLI::App& app, CallOptions& options) {
  add_text(app, "--put", "PUT,...", "GPU: how what every rank gets whole leaves: multicast, unicast [both]",
           [&options](const std::string& text) {
             options.puts.clear();
             for (const std::string_view part : split_at_commas(text))
               options.puts.push_back(choose("--put", part, kPuts));
           });
}

void add_knobs_flag(CLI::App& app, TuneOptions& options) {
  add_text(app, "--knobs", "KNOB,...",
           "GPU: what the fastest way's kernel is asked for: trigger, warps, tile, row_block, stages, or "
           "none [all]",
           [&options](const std::string& text) {
             options.knobs.clear();
             options.knobs_given = true;
             if (text == "none") return;
             for (const std::string_view part : split_at_commas(text))
               options.knobs.push_back(choose("--knobs", part, kKnobChoices));
           });
}

const char* put_name(Put put) {
  for (const auto& choice : kPuts)
    if (choice.value == put) return choice.name;
  return "-";
}

void add_seed_flag(CLI::App& app, std::uint64_t& seed) {
  add_text(app, "--seed", "N", "seed of everything synthetic [1]", [&seed](const std::string& text) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
    if (error != std::errc{} || end != text.data() + text.size())
      base::bad_argument("--seed", io::escaped(text), "a number from 0 to 2^64 - 1");
  });
}

void add_number_flag(CLI::App& app, const char* flag, const char* help, int smallest, int largest,
                     int& value) {
  add_text(app, flag, "N", help,
           [=, &value](const std::string& text) { value = parse_number(flag, text, smallest, largest); });
}

void add_engine_flags(CLI::App& app, SessionOptions& options) {
  add_text(app, "--engine", "ENGINE", "auto, cpu, cuda [auto]",
           [&options](const std::string& text) { options.engine = choose("--engine", text, kEngines); });
  add_text(app, "--world", "WORLD", "virtual (all ranks in this process), replay (CUDA only) [virtual]",
           [&options](const std::string& text) {
             options.world = choose("--world", text, kWorlds);
             options.world_given = true;
           });
  add_text(
      app, "--deadline", "SECONDS", "longest wait for a peer, 0 for none [10; 60 for the first call]",
      [&options](const std::string& text) {
        char* end = nullptr;
        const double seconds = std::strtod(text.c_str(), &end);
        if (text.empty() || *end != '\0' || !(seconds == 0.0 || (seconds >= 0.001 && seconds <= 86400.0)))
          base::bad_argument("--deadline", io::escaped(text), "seconds from 0.001 to 86400, or 0 for none");
        options.deadline_seconds = seconds;
      });
  add_seed_flag(app, options.seed);
  app.add_flag("--quiet", options.quiet, "no progress on stderr");
}

void add_session_flags(CLI::App& app, SessionOptions& options) {
  add_engine_flags(app, options);
  app.add_option("--json", options.json_file,
                 "write the results as JSON; - for stdout, in place of the table")
      ->type_name("FILE");
}

int synthetic_layer_count(const std::string& layers) {
  if (layers.empty()) return kDefaultLayers;
  const auto count = io::parse_index(layers);
  if (!count || *count < 1 || *count > 1000)
    base::bad_argument("--layers", io::escaped(layers),
                       "a number of layers from 1 to 1000; a selection such as 1-8 needs --checkpoint");
  return *count;
}

}  // namespace moetail::cli
