// SPDX-License-Identifier: Apache-2.0
// Plain-text tables with columns of one width.
#pragma once

#include <string>
#include <vector>

namespace moetail::cli {

enum class Align { left, right };

struct Column {
  std::string title;
  int width = 0;  ///< of the contents; the title may be wider
  Align align = Align::right;
};

/// One line of a table, without the newline; trailing spaces are cut. `cells`: at most one for each column.
std::string table_line(const std::vector<Column>& columns, const std::vector<std::string>& cells);

/// The line of titles.
std::string table_titles(const std::vector<Column>& columns);

/// A whole table whose columns are as wide as their contents need, one line after the other, each ending in a newline.
std::string table_text(std::vector<Column> columns, const std::vector<std::vector<std::string>>& rows);

}  // namespace moetail::cli
