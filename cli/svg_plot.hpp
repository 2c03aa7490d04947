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

/// One part of every bar, from the bottom up in the order of the parts.
struct Stack {
  std::string name;
  std::vector<double> heights;  ///< one a bar; missing ones are 0
};

/// An `<svg>` element with a bar for each of `bars`, their names, each as high as its parts together, on a linear axis from 0. Each part's number
/// is its tooltip, a bar's sum stands above it. Without a height above 0 it says so.
std::string svg_stacked_bars(const PlotSpec& spec, const std::vector<std::string>& bars,
                             const std::vector<Stack>& stacks);

/// `text` with what HTML would take for markup as entities.
std::string html_escaped(const std::string& text);

}  // namespace moetail::cli
