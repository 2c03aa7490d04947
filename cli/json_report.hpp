// SPDX-License-Identifier: Apache-2.0
// The results of a run as JSON: everything in the table, and what it was measured on and with. docs/cli.md lists the fields.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/floor.hpp"
#include "cli/machine.hpp"
#include "cli/options.hpp"
#include "cli/result.hpp"

namespace moetail::cli {

/// Where a report goes. The file is created before the run, so that a path that cannot be written is refused at once.
class ReportFile {
 public:
  /// `path`: "-" for stdout, empty for no report. Throws Code::file.
  explicit ReportFile(const std::string& path);

  bool is_stdout() const { return path_ == "-"; }
  /// Throws Code::file where not everything could be written.
  void write(const nlohmann::json& report);

 private:
  std::string path_;
  std::ofstream file_;
};

/// What any report begins with: version, date, command line, machine, ceilings.
nlohmann::json report_head(const SessionOptions& session, const Machine& machine, const Ceilings& ceilings);

nlohmann::json result_json(const Result& result);

/// The model and where its weights and inputs come from.
nlohmann::json model_json(const RunOptions& options, const RunSetup& setup);

}  // namespace moetail::cli
