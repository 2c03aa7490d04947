// SPDX-License-Identifier: Apache-2.0
// The subcommands. Each returns an exit code of cli/exit_code.hpp, and throws moetail::Error for what main reports.
#pragma once

#include "cli/options.hpp"

namespace moetail::cli {

int run_command(const RunOptions& given);
int bench_command(const BenchOptions& given);
int make_checkpoint_command(const MakeCheckpointOptions& options);
int plan_command(const PlanOptions& options);
int trace_command(const TraceOptions& given);
int tune_command(const TuneOptions& given);
int warmup_command(const WarmupOptions& given);
int info_command(const InfoOptions& options);

}  // namespace moetail::cli
