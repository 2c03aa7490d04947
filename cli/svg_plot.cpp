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
// Of Okabe and Ito, and three more: told apart by people who do not see all colours. As many as a traced layer has phases.
constexpr const char* kColours[] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00",
                                    "#56B4E9", "#000000", "#999933", "#882255", "#AAAAAA"};

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

std::string head(const PlotSpec& spec) {
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:g} {:g}\" width=\"{:g}\" "
             "height=\"{:g}\" font-family=\"sans-serif\" font-size=\"12\" role=\"img\">\n",
             kWidth, kHeight, kWidth, kHeight) +
         text(kLeft, 20, "start", spec.title, "font-weight=\"bold\" font-size=\"14\"");
}

std::string axis_titles(const PlotSpec& spec) {
  return text((kLeft + kWidth - kRight) / 2, kHeight - 8, "middle", spec.x_title) +
         text(0, 0, "middle", spec.y_title,
              fmt::format("transform=\"translate(16 {:g}) rotate(-90)\"", kHeight / 2).c_str());
}

std::string empty_plot(const PlotSpec& spec) {
  return head(spec) + text(kLeft, kHeight / 2, "start", "nothing was measured") + "</svg>\n";
}

std::string rectangle(double x, double y, double width, double height, const char* colour,
                      const std::string& tooltip) {
  return fmt::format(
      "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
      "fill=\"{}\"><title>{}</title></rect>\n",
      x, y, width, height, colour, html_escaped(tooltip));
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
  const Axes axes(spec, series);
  if (axes.is_empty()) return empty_plot(spec);
  std::string svg = head(spec) + grid(spec, axes) + axis_titles(spec);
  double legend_y = kTop + 8;
  std::size_t colour = 0;
  for (const Series& one : series) {
    const std::string picture = drawn(one, axes, kColours[colour++ % std::size(kColours)], legend_y);
    if (!picture.empty()) legend_y += kLegendStep;
    svg += picture;
  }
  return svg + "</svg>\n";
}

std::string svg_stacked_bars(const PlotSpec& spec, const std::vector<std::string>& bars,
                             const std::vector<Stack>& stacks) {
  const auto height_of = [](const Stack& stack, std::size_t bar) {
    const double height = bar < stack.heights.size() ? stack.heights[bar] : 0;
    return std::isfinite(height) && height > 0 ? height : 0;
  };
  std::vector<double> sums(bars.size(), 0);
  for (std::size_t bar = 0; bar < bars.size(); ++bar)
    for (const Stack& stack : stacks) sums[bar] += height_of(stack, bar);
  const double highest = sums.empty() ? 0 : *std::max_element(sums.begin(), sums.end());
  if (highest <= 0) return empty_plot(spec);
  const Range range{0, highest * 1.05};
  const auto y_of = [&](double value) {
    return kHeight - kBottom - value / range.high * (kHeight - kBottom - kTop);
  };
  std::string svg = head(spec);
  for (const double tick : ticks_of(range, Scale::linear)) {
    svg += line(kLeft, y_of(tick), kWidth - kRight, y_of(tick), "stroke=\"#ddd\"");
    svg += text(kLeft - 6, y_of(tick) + 4, "end", fmt::format("{:g}", tick));
  }
  const double step = (kWidth - kRight - kLeft) / static_cast<double>(bars.size()), width = 0.7 * step;
  for (std::size_t bar = 0; bar < bars.size(); ++bar) {
    const double x = kLeft + (static_cast<double>(bar) + 0.5) * step;
    double below = 0;
    for (std::size_t i = 0; i < stacks.size(); ++i) {
      const double height = height_of(stacks[i], bar);
      if (height <= 0) continue;
      svg += rectangle(x - width / 2, y_of(below + height), width, y_of(below) - y_of(below + height),
                       kColours[i % std::size(kColours)],
                       fmt::format("{}: {:.3g} at {}", stacks[i].name, height, bars[bar]));
      below += height;
    }
    svg += text(x, y_of(below) - 4, "middle", fmt::format("{:.3g}", below));
    svg += text(x, kHeight - kBottom + 16, "middle", bars[bar]);
  }
  // As the bars are: the last part on top.
  for (std::size_t i = 0; i < stacks.size(); ++i) {
    const double y = kTop + 8 + kLegendStep * static_cast<double>(stacks.size() - 1 - i);
    svg += rectangle(kWidth - kRight + 12, y - 6, 22, 12, kColours[i % std::size(kColours)], stacks[i].name);
    svg += text(kWidth - kRight + 40, y + 4, "start", stacks[i].name);
  }
  return svg + axis_titles(spec) + "</svg>\n";
}

}  // namespace moetail::cli
