#include "audit/report_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "audit/verdict.h"

namespace tidemark::audit {
namespace {

constexpr double kWidth = 960;
constexpr double kHeight = 380;
constexpr double kLeft = 84;
constexpr double kRight = 24;
constexpr double kTop = 44;
constexpr double kBottom = 40;

struct Point {
  const Reading* reading;
  double x = 0;
  double value = 0;
};

// A step of 1, 2 or 5 (for bytes: a power of two of KiB or MiB) that gives about five ticks.
double NiceStep(double range, Unit unit) {
  if (unit == Unit::kBytes) return std::max(1024.0, std::exp2(std::ceil(std::log2(range / 6))));
  const double rough = std::max(range / 5, 1.0);
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (rough <= factor * power) return factor * power;
  }
  return 10 * power;
}

class Chart {
 public:
  Chart(const Record& record, int quantity)
      : record_(record), quantity_(record.quantities[static_cast<std::size_t>(quantity)]) {
    Collect(static_cast<std::size_t>(quantity));
    if (!idle_.empty()) Scale();
  }

  std::string Draw() {
    if (idle_.empty()) return {};
    out_ = fmt::format(
        "<svg class=\"chart\" viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{} through the audit\">\n",
        kWidth, kHeight, Escape(quantity_.label));
    DrawPhases();
    DrawAxis();
    DrawMark();
    DrawLine();
    for (const Point& point : loaded_) DrawLoaded(point);
    for (const Point& point : idle_) DrawIdle(point);
    return out_ + "</svg>\n";
  }

 private:
  void Collect(std::size_t q) {
    int slot = 0;
    for (const Reading& reading : record_.readings) {
      if (reading.phase == Phase::kStopped || q >= reading.medians.size() || reading.medians[q] == kNotRead) continue;
      const auto value = static_cast<double>(reading.medians[q]);
      if (reading.step == Step::kLoaded) {
        loaded_.push_back({&reading, slot - 0.5, value});
      } else {
        if (reading.phase == Phase::kBaseline) mark_ = value;
        idle_.push_back({&reading, static_cast<double>(slot++), value});
      }
    }
  }

  // The range shows the levels that are compared: the mark with its tolerance and what came after. What lies outside
  // (an empty server, a loaded model) is drawn at the edge.
  void Scale() {
    std::vector<double> levels;
    for (const Point& point : idle_) {
      if (point.reading->phase != Phase::kReady) levels.push_back(point.value);
    }
    if (levels.empty()) levels.push_back(idle_[0].value);
    if (mark_.has_value()) levels.push_back(*mark_ + quantity_.tolerance);
    const auto [low, high] = std::minmax_element(levels.begin(), levels.end());
    low_ = *low;
    high_ = *high;
    const double span = std::max(high_ - low_, quantity_.unit == Unit::kBytes ? 64.0 * 1024 : 4.0);
    for (const Point& point : idle_) {  // an empty server's level, if it is near
      if (point.value >= low_ - span) low_ = std::min(low_, point.value);
    }
    for (const Point& point : loaded_) {
      if (point.value <= high_ + span) high_ = std::max(high_, point.value);
    }
    step_ = NiceStep(std::max(high_ - low_, span / 2), quantity_.unit);
    low_ = std::max(0.0, std::floor((low_ - 0.08 * span) / step_) * step_);
    high_ = std::ceil((high_ + 0.08 * span) / step_) * step_;
    gap_ = (kWidth - kLeft - kRight) / static_cast<double>(idle_.size());
  }

  double X(double slot) const { return kLeft + (slot + 0.5) * gap_; }
  double Y(double value) const {
    const double share = std::clamp((value - low_) / (high_ - low_), 0.0, 1.0);
    return kHeight - kBottom - share * (kHeight - kTop - kBottom);
  }

  void DrawPhases() {
    for (std::size_t i = 0; i < idle_.size();) {
      std::size_t j = i;
      while (j < idle_.size() && idle_[j].reading->phase == idle_[i].reading->phase) ++j;
      const double x = X(static_cast<double>(i) - 0.5);
      const double width = X(static_cast<double>(j) - 0.5) - x;
      const Phase phase = idle_[i].reading->phase;
      out_ += fmt::format("<rect class=\"phase {}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/>\n",
                          PhaseName(phase), x, kTop, width, kHeight - kTop - kBottom);
      if (width >= 34)
        out_ += fmt::format("<text class=\"phase-name\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", x + width / 2,
                            kTop - 12, PhaseLabel(phase, width));
      i = j;
    }
  }

  std::string_view PhaseLabel(Phase phase, double width) const {
    const bool wide = width > 96;
    switch (phase) {
      case Phase::kReady:
        return wide ? "server ready" : "ready";
      case Phase::kBaseline:
        return wide ? "good cycles" : "good";
      case Phase::kFailed:
        if (record_.settings.fault == "none") return wide ? "audited good cycles" : "audited";
        return wide ? "failed loads" : "failed";
      default:
        return wide ? "good again" : "good";
    }
  }

  void DrawAxis() {
    for (double tick = low_; tick <= high_ + step_ / 2; tick += step_) {
      out_ += fmt::format("<line class=\"grid\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>", kLeft,
                          kWidth - kRight, Y(tick), Y(tick));
      out_ += fmt::format("<text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", kLeft - 8, Y(tick) + 4,
                          FormatAmount(tick, quantity_.unit));
    }
    const std::size_t every = 1 + idle_.size() / 24;
    for (std::size_t i = 0; i < idle_.size(); ++i) {
      if (idle_[i].reading->cycle == 0) continue;
      if (every > 1 && idle_[i].reading->cycle % static_cast<int>(every) != 0) continue;
      out_ += fmt::format("<text class=\"cycle\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", X(idle_[i].x),
                          kHeight - kBottom + 18, idle_[i].reading->cycle);
    }
    out_ += fmt::format("<text class=\"cycle\" x=\"{:.1f}\" y=\"{:.1f}\">cycle</text>\n", kLeft - 28,
                        kHeight - kBottom + 18);
  }

  void DrawMark() {
    if (!mark_.has_value()) return;
    const double top = Y(*mark_ + quantity_.tolerance);
    out_ += fmt::format("<rect class=\"tolerance\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/>\n",
                        kLeft, top, kWidth - kLeft - kRight, Y(*mark_) - top);
    out_ += fmt::format("<line class=\"mark\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>\n", kLeft,
                        kWidth - kRight, Y(*mark_), Y(*mark_));
    out_ += fmt::format("<text class=\"mark-name\" x=\"{:.1f}\" y=\"{:.1f}\">the mark {}</text>\n", kWidth - kRight - 6,
                        Y(*mark_) - 10, FormatAmount(*mark_, quantity_.unit));
  }

  void DrawLine() {
    out_ += "<polyline class=\"line\" points=\"";
    for (const Point& point : idle_) out_ += fmt::format("{:.1f},{:.1f} ", X(point.x), Y(point.value));
    out_ += "\"/>\n";
  }

  std::string Title(const Point& point, std::string_view what) const {
    std::string text = fmt::format("{} {}: {} {}", PhaseName(point.reading->phase), point.reading->cycle, what,
                                   FormatAmount(point.value, quantity_.unit));
    if (mark_.has_value()) {
      text += fmt::format(" ({} from the mark)", FormatAmount(point.value - *mark_, quantity_.unit, true));
    }
    return fmt::format("<title>{}</title>", Escape(text));
  }

  void DrawIdle(const Point& point) {
    const double x = X(point.x);
    const double y = Y(point.value);
    const bool failed = point.reading->phase == Phase::kFailed && record_.settings.fault != "none";
    if (failed) {
      const double r = std::min(5.0, gap_ / 3);
      out_ += fmt::format(
          "<g class=\"failed-point\">{}<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\"/>"
          "<path d=\"M{:.1f} {:.1f}l{:.1f} {:.1f}m0 {:.1f}l{:.1f} {:.1f}\"/></g>\n",
          Title(point, "after the failed load"), x, y, r * 1.9, x - r, y - r, 2 * r, 2 * r, -2 * r, -2 * r, 2 * r);
    } else {
      out_ += fmt::format("<g class=\"point\">{}<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\"/></g>\n",
                          Title(point, "idle"), x, y, std::min(5.0, gap_ / 3));
    }
    if (point.value < low_) {
      out_ += fmt::format("<text class=\"outside\" x=\"{:.1f}\" y=\"{:.1f}\">↓ {}</text>\n", x, y - 10,
                          FormatAmount(point.value, quantity_.unit));
    }
  }

  void DrawLoaded(const Point& point) {
    const double x = X(point.x);
    const double y = Y(point.value);
    out_ += fmt::format("<g class=\"loaded-point\">{}<path d=\"M{:.1f} {:.1f}l4.5 8h-9z\"/></g>\n",
                        Title(point, "loaded"), x, y - 4);
  }

  const Record& record_;
  const Quantity& quantity_;
  std::vector<Point> idle_;
  std::vector<Point> loaded_;
  std::optional<double> mark_;
  double low_ = 0;
  double high_ = 1;
  double step_ = 1;
  double gap_ = 1;
  std::string out_;
};

}  // namespace

std::string Escape(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    switch (text[i]) {
      case '&':
        out += "&amp;";
        ++i;
        continue;
      case '<':
        out += "&lt;";
        ++i;
        continue;
      case '>':
        out += "&gt;";
        ++i;
        continue;
      case '"':
        out += "&quot;";
        ++i;
        continue;
      case '\'':
        out += "&#39;";
        ++i;
        continue;
      default:
        break;
    }
    const std::size_t length = lead < 0x80                   ? 1
                               : lead >= 0xF0 && lead < 0xF5 ? 4
                               : lead >= 0xE0 && lead < 0xF0 ? 3
                               : lead >= 0xC2 && lead < 0xE0 ? 2
                                                             : 0;
    bool valid = length != 0 && i + length <= text.size();
    for (std::size_t k = 1; valid && k < length; ++k) {
      valid = (static_cast<unsigned char>(text[i + k]) & 0xC0) == 0x80;
    }
    if (valid) {
      out += text.substr(i, length);
      i += length;
    } else {
      out += "\xEF\xBF\xBD";
      ++i;
    }
  }
  return out;
}

std::string MemoryChart(const Record& record, int quantity) { return Chart(record, quantity).Draw(); }

}  // namespace tidemark::audit
