// SPDX-License-Identifier: Apache-2.0
// The command `moetail` as a function.
#pragma once

namespace moetail::cli {

/// What main() does: reads the flags, runs the subcommand, says on stderr what went wrong. Returns the exit code (exit_code.hpp).
int run_main(int argc, char** argv);

}  // namespace moetail::cli
