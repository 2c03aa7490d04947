// SPDX-License-Identifier: Apache-2.0
// Formatting of tables.
#include "cli/table.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace moetail::cli {

std::string table_line(const std::vector<Column>& columns, const std::vector<std::string>& cells) {
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const Column& column = columns[i];
    const int width = std::max(column.width, static_cast<int>(column.title.size()));
    if (i > 0) line += "  ";
    line += column.align == Align::left ? fmt::format("{:<{}}", cells[i], width)
                                        : fmt::format("{:>{}}", cells[i], width);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

std::string table_titles(const std::vector<Column>& columns) {
  std::vector<std::string> titles;
  titles.reserve(columns.size());
  for (const Column& column : columns) titles.push_back(column.title);
  return table_line(columns, titles);
}

std::string table_text(std::vector<Column> columns, const std::vector<std::vector<std::string>>& rows) {
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i)
      columns[i].width = std::max(columns[i].width, static_cast<int>(row[i].size()));
  std::string text = table_titles(columns) + "\n";
  for (const auto& row : rows) text += table_line(columns, row) + "\n";
  return text;
}

}  // namespace moetail::cli
