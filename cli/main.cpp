// SPDX-License-Identifier: Apache-2.0
// The program `moetail`.
#include "cli/command_line.hpp"

int main(int argc, char** argv) {
  return moetail::cli::run_main(argc, argv);
}
