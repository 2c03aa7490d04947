// SPDX-License-Identifier: Apache-2.0
// moetail info: the machine, the engines, the mailboxes and the environment, as this build sees them.
#include <fmt/format.h>

#include "base/env.hpp"
#include "cli/commands.hpp"
#include "cli/exit_code.hpp"
#include "cli/format.hpp"
#include "cli/machine.hpp"
#include "cli/table.hpp"
#include "engine/cpu/arith.hpp"
#include "engine/cuda/info.hpp"
#include "protocol/layout.hpp"

namespace moetail::cli {
namespace {

using protocol::RegionSpec;

std::string target_names() {
  std::string names;
  for (const cpu::Arith* target : cpu::runnable_arith_targets())
    names += (names.empty() ? "" : ", ") + std::string(target->name);
  return names;
}

void print_machine(const Machine& machine) {
  fmt::print(
      "Machine\n  processor         {}\n  cores             {}\n  memory            {}, {} available\n"
      "  system            {}\n  dispatch targets  {}\n\n",
      machine.cpu, machine.cores, bytes_text(machine.memory_bytes), bytes_text(machine.available_bytes),
      machine.system, target_names());
}

// The reason why an engine cannot run is the door's own.
std::string engine_state(Engine engine) {
  WorldOptions options;
  options.engine = engine;
  try {
    World::single(options);
    if (engine == Engine::cpu) return fmt::format("ready, {} arithmetic", cpu::arith().name);
    return "ready";
  } catch (const Error& error) {
    return fmt::format("cannot run: {}", error.what());
  }
}

std::string device_text(const cuda::DeviceFacts& device) {
  return fmt::format("{}, {}, {} SMs, {} of memory, {} of L2, {} of shared memory a block, {} an SM",
                     device.name, device.arch(), device.num_sms, bytes_text(device.memory_bytes),
                     bytes_text(device.l2_bytes), bytes_text(device.shared_bytes_per_block),
                     bytes_text(device.shared_bytes_per_sm));
}

void print_gpu() {
  const cuda::CudaInfo info = cuda::cuda_info();
  fmt::print(
      "GPU\n  driver            {}\n  compiler          {}\n  kernel cache      {}\n  device            {}\n",
      info.driver, info.nvrtc, info.kernel_cache, info.device ? device_text(*info.device) : "none");
  for (const cuda::ClusterFit& fit : info.clusters)
    fmt::print("  {:17} {} of {} blocks of {} threads, with {} of shared memory a block\n",
               &fit == info.clusters.data() ? "resident clusters" : "", fit.resident, fit.cluster,
               fit.threads, bytes_text(fit.shared_bytes));
  fmt::print("\n");
}

const char* rows_text(protocol::RowCount rows) {
  switch (rows) {
    case protocol::RowCount::capacity: return "C";
    case protocol::RowCount::poll_capacity: return "PC";
    case protocol::RowCount::one: break;
  }
  return "1";
}

const char* length_text(protocol::RowLength length) {
  switch (length) {
    case protocol::RowLength::latent: return "L";
    case protocol::RowLength::hidden: return "H";
    case protocol::RowLength::shard: return "H/T";
    case protocol::RowLength::chunk: return "L/T";
    case protocol::RowLength::routes_latent: return "K, L";
    case protocol::RowLength::routes: return "K";
    case protocol::RowLength::one: return "1";
    case protocol::RowLength::control: break;
  }
  return "words";
}

std::string extents_text(const RegionSpec& spec) {
  return fmt::format("[{}{}{}, {}]", spec.per_slot ? fmt::format("{}, ", protocol::kSlots) : "",
                     spec.per_source ? "T, " : "", rows_text(spec.rows), length_text(spec.length));
}

void print_layout(const Shape& shape) {
  const protocol::Layout layout = protocol::make_layout(shape);
  std::vector<std::vector<std::string>> rows;
  for (const RegionSpec& spec : protocol::kRegionTable) {
    const auto i = static_cast<std::size_t>(spec.region);
    rows.push_back({spec.name, extents_text(spec), spec.element, fmt::format("{}", layout.offset[i]),
                    fmt::format("{}", layout.region_bytes[i]), spec.writer, spec.reader});
  }
  fmt::print("Mailboxes of one rank: T = {}, H = {}, L = {}, K = {}, C = {}, PC = {}\n", shape.ranks,
             shape.hidden, shape.latent, shape.top_k, shape.capacity, shape.poll_capacity);
  fmt::print("{}  {} in all, {} over all ranks\n\n",
             table_text({{"region", 0, Align::left},
                         {"extents", 0, Align::left},
                         {"element", 0, Align::left},
                         {"offset"},
                         {"bytes"},
                         {"writer", 0, Align::left},
                         {"reader", 0, Align::left}},
                        rows),
             bytes_text(layout.total_bytes),
             bytes_text(layout.total_bytes * static_cast<std::uint64_t>(shape.ranks)));
}

void print_environment() {
  std::vector<std::vector<std::string>> rows;
  for (const base::EnvVariable& variable : base::kEnvironment)
    rows.push_back({variable.name, base::read_env(variable).value_or("(not set)"), variable.default_value,
                    variable.accepted, variable.meaning});
  fmt::print("Environment\n{}", table_text({{"variable", 0, Align::left},
                                            {"value", 0, Align::left},
                                            {"default", 0, Align::left},
                                            {"accepted", 0, Align::left},
                                            {"meaning", 0, Align::left}},
                                           rows));
}

}  // namespace

int info_command(const InfoOptions& options) {
  const Shape shape = options.shape.shape(options.ranks);
  make_plan({.shape = shape, .batch = 1});  // states the rule that a shape breaks
  fmt::print("moetail {}\n\n", MOETAIL_VERSION);
  print_machine(this_machine());
  fmt::print("Engines\n  cpu               {}\n  cuda              {}\n\n", engine_state(Engine::cpu),
             engine_state(Engine::cuda));
  print_gpu();
  print_layout(shape);
  print_environment();
  return kAllPassed;
}

}  // namespace moetail::cli
