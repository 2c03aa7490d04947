// SPDX-License-Identifier: Apache-2.0
// What the command line says, as values: one struct for each group of flags, and the functions that add a group to a subcommand.
// Flags are checked one by one here; rules that join several of them are the library's.
#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/cuda/knob.hpp"
#include "moetail/policy.hpp"

namespace moetail::cli {

/// --hidden, --latent, --top-k, --capacity, --eps. What is not given is Kimi K3's, or comes from the user's files.
struct ShapeOptions {
  std::optional<int> hidden, latent, top_k, capacity;
  std::optional<float> eps;

  /// A shape of T = `ranks` with these sizes and K3's others. Not checked: make_plan does that.
  Shape shape(int ranks) const;
};

/// --tp, --batch, --mode, --form, --residual, --weights-dtype, --policy: what is called. Several values of the first three
/// make several configurations, every combination of them.
struct CallOptions {
  std::optional<std::vector<int>> ranks;    ///< default 8
  std::optional<std::vector<int>> batches;  ///< default 4
  std::vector<Mode> modes = {Mode::automatic};
  std::optional<Form> form;  ///< default: rows
  std::optional<WeightType> weights;
  bool residual = false;
  std::string policy_file;
  std::vector<Put> puts = {Put::automatic};  ///< --put, of bench only
};

/// "multicast", "unicast"; "-" where the transport decides.
const char* put_name(Put put);

enum class WorldKind : int { virtual_ranks, replay };

/// --engine, --world, --deadline, --seed, --json, --quiet: how it is called and what is reported.
struct SessionOptions {
  Engine engine = Engine::automatic;
  WorldKind world = WorldKind::virtual_ranks;
  bool world_given = false;  ///< --world was there
  bool processes = false;    ///< --processes, of run only: each rank a process
  std::optional<double> deadline_seconds;
  std::uint64_t seed = 1;
  std::string json_file;  ///< "-": stdout; empty: none
  bool quiet = false;
  std::vector<std::string> command_line;  ///< as the shell gave it, for the report

  WorldOptions world_options(const std::string& policy_file) const;
  /// Settles auto: cuda where that engine runs on this machine, else cpu.
  void choose_engine();
  /// Throws Code::unsupported where this build cannot do what --engine or --world ask for.
  void check_supported() const;
};

/// For what times or traces a tail on a GPU: the replayed world. Throws Code::invalid_argument where another world was asked for, or input that
/// a user's own kernel publishes.
void choose_replay(SessionOptions& session, const CallOptions& call);

/// --layers: a number of layers of synthetic weights, or layers by their index in a checkpoint.
struct RunOptions {
  ShapeOptions shape;
  CallOptions call;
  SessionOptions session;
  std::string layers;      ///< empty: 16 synthetic layers, or all that the checkpoint has
  std::string checkpoint;  ///< directory or file; empty: synthetic weights
  std::string inputs;      ///< captured step; empty: synthetic inputs
  int steps = 12;
};

struct BenchOptions {
  ShapeOptions shape;
  CallOptions
      call;  ///< batches: 1, 2, 4, 8, 16, on a GPU up to 128, where none are given; puts: both on a GPU
  SessionOptions session;
  std::string layers;      ///< number of synthetic layers; empty: 16, on a GPU 93
  int rounds = 20;         ///< of one step of ours, the baseline's, and ours again
  bool alone = false;      ///< time each program with no other in between, too
  bool cold_rows = false;  ///< GPU: expert rows out of memory, not out of L2
  bool take = false;       ///< GPU: the take behind each tail, in the same graph
  bool phases = false;     ///< GPU: where a layer's time goes, from traced kernels
  std::string csv_file;    ///< empty: none
  std::string html_file;   ///< likewise
};

struct TraceOptions {
  RunOptions run;  ///< synthetic weights and inputs; steps: those that are traced
  std::string out_file;
};

struct TuneOptions {
  /// Synthetic weights and inputs; batches: 1, 2, 4, 8, 16, 32, on a GPU up to 128, where none are given; one put.
  RunOptions run;
  int rounds = 0;  ///< measured steps, or replays, of each way; 0: 12, on a GPU 40
  std::vector<bench::Knob> knobs = {bench::kKnobs.begin(), bench::kKnobs.end()};  ///< GPU: what is tried
  bool knobs_given = false;                                                       ///< --knobs was there
  std::string out_file;
};

struct WarmupOptions {
  ShapeOptions shape;
  CallOptions call;
  SessionOptions session;  ///< engine, world and deadline
};

struct PlanOptions {
  ShapeOptions shape;
  CallOptions call;
  bool measure = false;
};

struct InfoOptions {
  ShapeOptions shape;
  int ranks = 8;
};

struct MakeCheckpointOptions {
  ShapeOptions shape;
  std::string directory;
  std::string layers = "16";
  std::string prefix;
  int shards = 1;
  std::uint64_t seed = 1;
  bool force = false;
  bool quiet = false;
};

void add_size_flags(CLI::App& app, ShapeOptions& options);  ///< --hidden and --latent only
void add_shape_flags(CLI::App& app, ShapeOptions& options);
void add_rank_flag(CLI::App& app, int& ranks);  ///< --tp with one value
void add_seed_flag(CLI::App& app, std::uint64_t& seed);
void add_number_flag(CLI::App& app, const char* flag, const char* help, int smallest, int largest,
                     int& value);
void add_input_flags(CLI::App& app, CallOptions& options);  ///< all of a call's but --mode and --policy
void add_call_flags(CLI::App& app, CallOptions& options);
void add_put_flag(CLI::App& app, CallOptions& options);
void add_knobs_flag(CLI::App& app, TuneOptions& options);
void add_engine_flags(CLI::App& app, SessionOptions& options);  ///< all of a session's but --json
void add_session_flags(CLI::App& app, SessionOptions& options);

/// --layers for synthetic weights: how many. Throws Code::invalid_argument.
int synthetic_layer_count(const std::string& layers);

// One step to warm up, and the repeat of its inputs two steps later.
inline constexpr int kLeastSteps = 3;
inline constexpr int kDefaultLayers = 16;
// On a GPU: as many MoE layers as Kimi K3 has, and one: a graph of them reads ten times what the L2 holds.
inline constexpr const char* kGpuLayers = "93";
inline constexpr int kDefaultRanks = 8;
inline constexpr int kDefaultBatch = 4;

}  // namespace moetail::cli
