// SPDX-License-Identifier: Apache-2.0
// Line plots as SVG text, for a page that has to be whole without a network: no script, no font, no style of others.
#pragma once

#include <string>
#include <vector>

namespace moetail::cli {

/// Points joined in the order given. What is not a finite number above 0 is left out, as a gap is.
struct Series {
  struct Point {
    double x, y;
  };
  std::string name;
  std::vector<Point> points;
  bool is_dashed = false;  ///< for what was computed rather than timed
};

enum class Scale { linear, logarithmic };

struct PlotSpec {
  std::string title, x_title, y_title;
  Scale y_scale = Scale::linear;
  std::vector<double> y_marks;  ///< lines across, such as a target
};

/// An `<svg>` element. The x axis is logarithmic to base 2 with a tick at every x that occurs; a linear y axis begins at 0. Text is
/// escaped. Without a point it says so.
std::string svg_plot(const PlotSpec& spec, const std::vector<Series>& series);

/// `text` with what HTML would take for markup as entities.
std::string html_escaped(const std::string& text);

}  // namespace moetail::cli
