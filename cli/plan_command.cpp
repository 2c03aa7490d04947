// SPDX-License-Identifier: Apache-2.0
// moetail plan: what would run for each (T, B), and what it costs. Runs no tail.
#include <fmt/format.h>

#include <optional>

#include "cli/commands.hpp"
#include "cli/exit_code.hpp"
#include "cli/floor.hpp"
#include "cli/format.hpp"
#include "cli/machine.hpp"
#include "cli/setup.hpp"
#include "cli/table.hpp"

namespace moetail::cli {

int plan_command(const PlanOptions& options) {
  const std::vector<Configuration> configurations =
      make_configurations(options.shape, options.call, 0, Engine::cpu);
  std::optional<Ceilings> ceilings;
  if (options.measure) ceilings = find_ceilings();

  std::vector<Column> columns = {{"T"},
                                 {"B"},
                                 {"mode", 0, Align::left},
                                 {"sharing", 0, Align::left},
                                 {"clusters"},
                                 {"columns"},
                                 {"slices"},
                                 {"weights"},
                                 {"inputs"},
                                 {"outputs"},
                                 {"mailbox"},
                                 {"Mflop"}};
  if (ceilings) columns.push_back({"floor us"});
  std::vector<std::vector<std::string>> rows;
  for (const Configuration& one : configurations) {
    const Plan& plan = one.plan;
    std::vector<std::string> row = {
        fmt::format("{}", one.input.shape.ranks),
        fmt::format("{}", one.input.batch),
        protocol::mode_name(plan.mode),
        plan.shares_reduced ? "reduced" : (plan.mode == Mode::twoshot ? "gather" : "none"),
        fmt::format("{}", plan.clusters),
        fmt::format("{}", plan.columns_per_cluster),
        fmt::format("{}", plan.slices),
        bytes_text(plan.weight_bytes),
        bytes_text(plan.input_bytes),
        bytes_text(plan.output_bytes),
        bytes_text(plan.mailbox_bytes),
        fmt::format("{:.1f}", static_cast<double>(plan.flops) / 1e6)};
    if (ceilings) row.push_back(fmt::format("{:.1f}", floor_of(plan, *ceilings).us()));
    rows.push_back(std::move(row));
  }

  const InputSpec& input = configurations.front().input;
  fmt::print("hidden {}, latent {}, top-k {}, capacity {}, {} input\n\n{}\n", input.shape.hidden,
             input.shape.latent, input.shape.top_k, input.shape.capacity, protocol::form_name(input.form),
             table_text(columns, rows));
  fmt::print(
      "Bytes and operations are a layer's, over all ranks, each input counted once. clusters: threads that a "
      "rank "
      "computes with; columns: output columns of each.\n");
  if (ceilings) {
    const Machine machine = this_machine();
    fmt::print("{}\n{}, {} cores\n", floor_text(*ceilings), machine.cpu, machine.cores);
  } else {
    fmt::print("--measure adds the least time a layer can take on this machine.\n");
  }
  return kAllPassed;
}

}  // namespace moetail::cli
