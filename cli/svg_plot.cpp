// SPDX-License-Identifier: Apache-2.0
// Scales, ticks, lines and legend of a plot.
#include "cli/svg_plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

namespace moetail::cli {
namespace {

constexpr double kWidth = 760, kHeight = 360, kLeft = 64, kRight = 296, kTop = 36, kBottom = 48;
constexpr double kLegendStep = 18;
// Of Okabe and Ito: told apart by people who do not see all colours.
constexpr const char* kColours[] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                    "#E69F00", "#56B4E9", "#000000", "#999933"};

struct Range {
  double low = 0, high = 0;
};

bool is_drawn(const Series::Point& point) {
  return std::isfinite(point.x) && std::isfinite(point.y) && point.x > 0 && point.y > 0;
}

/// Steps of 1, 2 or 5 times a power of ten, about five in `range`; on a logarithmic axis all of those in it.
std::vector<double> ticks_of(Range range, Scale scale) {
  std::vector<double> ticks;
  if (scale == Scale::linear) {
    const double rough = range.high / 5, power = std::pow(10, std::floor(std::log10(rough)));
    double step = 10 * power;
    for (double factor : {5.0, 2.0, 1.0})
      if (factor * power >= rough) step = factor * power;
    for (double tick = 0; tick <= range.high * 1.0001; tick += step) ticks.push_back(tick);
    return ticks;
  }
  for (double power = std::pow(10, std::floor(std::log10(range.low))); power <= range.high; power *= 10)
    for (double factor : {1.0, 2.0, 5.0})
      if (factor * power >= range.low * 0.9999 && factor * power <= range.high * 1.0001)
        ticks.push_back(factor * power);
  return ticks;
}

/// Where values lie on the page.
class Axes {
 public:
  Axes(const PlotSpec& spec, const std::vector<Series>& series) : scale_(spec.y_scale) {
    std::vector<double> ys = spec.y_marks;
    for (const Series& one : series)
      for (const auto& point : one.points)
        if (is_drawn(point)) xs_.insert(point.x), ys.push_back(point.y);
    if (xs_.empty()) return;
    const auto [least, most] = std::minmax_element(ys.begin(), ys.end());
    y_ = scale_ == Scale::linear ? Range{0, *most * 1.05} : Range{*least / 1.2, *most * 1.2};
  }
  bool is_empty() const { return xs_.empty(); }
  const std::set<double>& xs() const { return xs_; }
  std::vector<double> y_ticks() const { return ticks_of(y_, scale_); }
  double x(double value) const {
    return place(std::log2(value), std::log2(*xs_.begin()), std::log2(*xs_.rbegin()), kLeft, kWidth - kRight);
  }
  double y(double value) const {
    const auto scaled = [&](double v) { return scale_ == Scale::linear ? v : std::log10(v); };
    return place(scaled(value), scaled(y_.low), scaled(y_.high), kHeight - kBottom, kTop);
  }

 private:
  static double place(double value, double low, double high, double begin, double end) {
    return high > low ? begin + (value - low) / (high - low) * (end - begin) : (begin + end) / 2;
  }
  Scale scale_;
  std::set<double> xs_;
  Range y_;
};

std::string line(double x1, double y1, double x2, double y2, const char* style) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1, y1, x2, y2,
                     style);
}

std::string text(double x, double y, const char* anchor, const std::string& what, const char* more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" {}>{}</text>\n", x, y, anchor, more,
                     html_escaped(what));
}

std::string grid(const PlotSpec& spec, const Axes& axes) {
  constexpr const char* kGrid = "stroke=\"#ddd\"";
  std::string svg;
  for (double tick : axes.y_ticks()) {
    svg += line(kLeft, axes.y(tick), kWidth - kRight, axes.y(tick), kGrid);
    svg += text(kLeft - 6, axes.y(tick) + 4, "end", fmt::format("{:g}", tick));
  }
  for (double tick : axes.xs()) {
    svg += line(axes.x(tick), kTop, axes.x(tick), kHeight - kBottom, kGrid);
    svg += text(axes.x(tick), kHeight - kBottom + 16, "middle", fmt::format("{:g}", tick));
  }
  for (double mark : spec.y_marks)
    svg +=
        line(kLeft, axes.y(mark), kWidth - kRight, axes.y(mark), "stroke=\"#888\" stroke-dasharray=\"2 3\"");
  return svg;
}

std::string drawn(const Series& series, const Axes& axes, const char* colour, double legend_y) {
  const std::string stroke = fmt::format("stroke=\"{}\" stroke-width=\"2\" fill=\"none\"{}", colour,
                                         series.is_dashed ? " stroke-dasharray=\"6 4\"" : "");
  std::string path, dots;
  for (const auto& point : series.points) {
    if (!is_drawn(point)) continue;
    path += fmt::format("{}{:.1f} {:.1f} ", path.empty() ? "M" : "L", axes.x(point.x), axes.y(point.y));
    dots +=
        fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"><title>{}</title></circle>\n",
                    axes.x(point.x), axes.y(point.y), colour,
                    html_escaped(fmt::format("{}: {:g} at {:g}", series.name, point.y, point.x)));
  }
  if (path.empty()) return "";
  path.pop_back();
  const double legend_x = kWidth - kRight + 12;
  return fmt::format("<path d=\"{}\" {}/>\n", path, stroke) + dots +
         line(legend_x, legend_y, legend_x + 22, legend_y, stroke.c_str()) +
         text(legend_x + 28, legend_y + 4, "start", series.name);
}

}  // namespace

std::string html_escaped(const std::string& text) {
  std::string escaped;
  for (char c : text) {
    if (c == '&')
      escaped += "&amp;";
    else if (c == '<')
      escaped += "&lt;";
    else if (c == '>')
      escaped += "&gt;";
    else if (c == '"')
      escaped += "&quot;";
    else
      escaped += c;
  }
  return escaped;
}

std::string svg_plot(const PlotSpec& spec, const std::vector<Series>& series) {
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:g} {:g}\" width=\"{:g}\" height=\"{:g}\" "
      "font-family=\"sans-serif\" font-size=\"12\" role=\"img\">\n",
      kWidth, kHeight, kWidth, kHeight);
  svg += text(kLeft, 20, "start", spec.title, "font-weight=\"bold\" font-size=\"14\"");
  const Axes axes(spec, series);
  if (axes.is_empty()) return svg + text(kLeft, kHeight / 2, "start", "nothing was measured") + "</svg>\n";
  svg += grid(spec, axes);
  svg += text((kLeft + kWidth - kRight) / 2, kHeight - 8, "middle", spec.x_title);
  svg += text(0, 0, "middle", spec.y_title,
              fmt::format("transform=\"translate(16 {:g}) rotate(-90)\"", kHeight / 2).c_str());
  double legend_y = kTop + 8;
  std::size_t colour = 0;
  for (const Series& one : series) {
    const std::string picture = drawn(one, axes, kColours[colour++ % std::size(kColours)], legend_y);
    if (!picture.empty()) legend_y += kLegendStep;
    svg += picture;
  }
  return svg + "</svg>\n";
}

}  // namespace moetail::cli
