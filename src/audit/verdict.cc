#include "audit/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>

#include "audit/statistics.h"

namespace tidemark::audit {
namespace {

// From so many failed cycles on, growth has to be there in their second half as well. Allocators of servers with many
// threads warm up for dozens of cycles, ever more slowly; a leak goes on at its pace.
constexpr std::size_t kCyclesWithHalves = 12;

struct Levels {
  std::optional<std::int64_t> mark;
  std::vector<std::int64_t> failed;
  std::optional<std::int64_t> restored;
  std::vector<std::int64_t> spreads;
  bool missing = false;
};

Levels CollectLevels(const Record& record, int quantity) {
  Levels levels;
  const auto q = static_cast<std::size_t>(quantity);
  for (const Reading& reading : record.readings) {
    if (reading.step != Step::kIdle || reading.phase == Phase::kReady || reading.phase == Phase::kStopped) continue;
    const std::int64_t level = q < reading.medians.size() ? reading.medians[q] : kNotRead;
    if (level == kNotRead) {
      levels.missing = true;
      continue;
    }
    if (reading.phase == Phase::kBaseline) levels.mark = level;
    if (reading.phase == Phase::kFailed) levels.failed.push_back(level);
    if (reading.phase == Phase::kRestored) levels.restored = level;
    if (q < reading.samples.size() && !reading.samples[q].empty()) {
      const auto [low, high] = std::minmax_element(reading.samples[q].begin(), reading.samples[q].end());
      levels.spreads.push_back(*high - *low);
    }
  }
  return levels;
}

// Growth of `failed` in the judgement's fields.
void FillGrowth(const Levels& levels, Judgement& judgement) {
  const Interval growth = MeanStep(levels.failed);
  judgement.growth = growth.mean;
  judgement.growth_low = growth.low;
  judgement.growth_high = growth.high;
  judgement.theil_sen = TheilSenSlope(levels.failed);
  const std::span<const std::int64_t> all(levels.failed);
  judgement.late_growth = all.size() < kCyclesWithHalves ? growth.mean : MeanStep(all.subspan(all.size() / 2)).mean;
}

bool Grows(const Quantity& quantity, const Judgement& judgement) {
  const double limit = quantity.growth_threshold;
  return judgement.growth_low > limit && judgement.theil_sen > limit && judgement.late_growth > limit;
}

}  // namespace

std::string FormatAmount(double value, Unit unit, bool sign) {
  if (!std::isfinite(value)) return std::isnan(value) ? "?" : value > 0 ? "+∞" : "−∞";
  const std::string_view prefix = value < 0 ? "−" : sign && value > 0 ? "+" : "";
  const double size = std::abs(value);
  if (unit == Unit::kCount) {
    if (size == std::floor(size)) return fmt::format("{}{:.0f}", prefix, size);
    return fmt::format("{}{:.2f}", prefix, size);
  }
  if (size < 0.5) return "0 B";
  if (size < 1024) return fmt::format("{}{:.0f} B", prefix, size);
  if (size < 1024.0 * 1024) return fmt::format("{}{:.1f} KiB", prefix, size / 1024);
  if (size < 1024.0 * 1024 * 1024) return fmt::format("{}{:.2f} MiB", prefix, size / 1024 / 1024);
  return fmt::format("{}{:.3f} GiB", prefix, size / 1024 / 1024 / 1024);
}

const char* OutcomeName(Outcome outcome) {
  switch (outcome) {
    case Outcome::kNoLeak:
      return "no leak";
    case Outcome::kLeak:
      return "leak";
    case Outcome::kCouldNotTell:
      return "could not tell";
  }
  return "?";
}

const char* PhaseName(Phase phase) {
  switch (phase) {
    case Phase::kReady:
      return "ready";
    case Phase::kBaseline:
      return "baseline";
    case Phase::kFailed:
      return "failed";
    case Phase::kRestored:
      return "restored";
    case Phase::kStopped:
      return "stopped";
  }
  return "?";
}

Judgement Judge(const Record& record, int index) {
  const Quantity& quantity = record.quantities[static_cast<std::size_t>(index)];
  const Levels levels = CollectLevels(record, index);
  Judgement judgement;
  judgement.quantity = index;
  FillGrowth(levels, judgement);
  if (!levels.mark.has_value() || levels.failed.empty()) {
    judgement.reason = fmt::format("{}: no complete series of readings", quantity.label);
    return judgement;
  }
  judgement.mark = *levels.mark;
  judgement.final_level = levels.restored.value_or(levels.failed.back());
  judgement.noise = static_cast<double>(Median(levels.spreads));
  const auto cycles = static_cast<double>(levels.failed.size());
  judgement.sensitivity = std::max(quantity.tolerance / cycles, quantity.growth_threshold);

  const auto above = static_cast<double>(judgement.final_level - judgement.mark);
  const bool level_up = above > quantity.tolerance;
  const bool grows = Grows(quantity, judgement);
  const std::string above_text = FormatAmount(above, quantity.unit, true);
  const std::string growth_text =
      fmt::format("{} per failed cycle (95 %: {} to {})", FormatAmount(judgement.growth, quantity.unit, true),
                  FormatAmount(judgement.growth_low, quantity.unit, true),
                  FormatAmount(judgement.growth_high, quantity.unit, true));
  if (levels.missing) {
    judgement.reason = fmt::format("{}: some readings are missing", quantity.label);
  } else if (grows && level_up) {
    judgement.outcome = Outcome::kLeak;
    judgement.reason = fmt::format("{}: growth of {}, ended {} from the mark", quantity.label, growth_text, above_text);
  } else if (judgement.noise > quantity.tolerance) {
    judgement.reason =
        fmt::format("{}: the samples of one reading differ by {}, more than the tolerance of {}", quantity.label,
                    FormatAmount(judgement.noise, quantity.unit), FormatAmount(quantity.tolerance, quantity.unit));
  } else if (grows) {
    judgement.reason = fmt::format(
        "{}: growth of {} is likely, but it ended {} from the mark, within the tolerance of {}; run more cycles (--cycles)",
        quantity.label, growth_text, above_text, FormatAmount(quantity.tolerance, quantity.unit));
  } else if (level_up) {
    judgement.reason = fmt::format(
        "{}: ended {} from the mark without steady growth ({}): retained once, or a leak that more cycles would show",
        quantity.label, above_text, growth_text);
  } else {
    judgement.outcome = Outcome::kNoLeak;
    judgement.reason = fmt::format(
        "{}: back at the mark ({}) after {} failed loads, {}; a growth of {} per cycle "
        "would have been seen",
        quantity.label, above_text, levels.failed.size(), growth_text,
        FormatAmount(judgement.sensitivity, quantity.unit));
  }
  return judgement;
}

bool NeedsMoreCycles(const Record& record) {
  for (std::size_t i = 0; i < record.quantities.size(); ++i) {
    const Quantity& quantity = record.quantities[i];
    if (!quantity.judged) continue;
    const Levels levels = CollectLevels(record, static_cast<int>(i));
    if (!levels.mark.has_value() || levels.failed.empty()) continue;
    Judgement judgement;
    FillGrowth(levels, judgement);
    // Half a tolerance of head room: the good cycle that follows may give some of it back.
    const auto above = static_cast<double>(levels.failed.back() - *levels.mark);
    if (Grows(quantity, judgement) && above <= 1.5 * quantity.tolerance) return true;
  }
  return false;
}

Verdict MakeVerdict(const Record& record) {
  Verdict verdict;
  bool judged = false;
  verdict.outcome = Outcome::kNoLeak;
  for (std::size_t i = 0; i < record.quantities.size(); ++i) {
    Judgement judgement = Judge(record, static_cast<int>(i));
    if (record.quantities[i].judged) {
      judged = true;
      if (judgement.outcome == Outcome::kLeak) verdict.outcome = Outcome::kLeak;
      if (judgement.outcome == Outcome::kCouldNotTell && verdict.outcome != Outcome::kLeak) {
        verdict.outcome = Outcome::kCouldNotTell;
      }
      verdict.reasons.push_back(judgement.reason);
    }
    verdict.judgements.push_back(std::move(judgement));
  }
  for (const std::string& problem : record.problems) verdict.reasons.push_back(problem);
  if (!judged || !record.problems.empty()) verdict.outcome = Outcome::kCouldNotTell;

  const auto failed = std::count_if(record.cycles.begin(), record.cycles.end(),
                                    [](const Cycle& cycle) { return cycle.phase == Phase::kFailed; });
  const std::string loads = record.settings.fault == "none" ? "good loads" : "failed loads";
  switch (verdict.outcome) {
    case Outcome::kNoLeak:
      verdict.headline = fmt::format("No leak: memory is back at the mark after {} {}.", failed, loads);
      break;
    case Outcome::kLeak: {
      const auto leak = std::find_if(verdict.judgements.begin(), verdict.judgements.end(), [&](const Judgement& j) {
        return j.outcome == Outcome::kLeak && record.quantities[static_cast<std::size_t>(j.quantity)].judged;
      });
      const Quantity& quantity = record.quantities[static_cast<std::size_t>(leak->quantity)];
      verdict.headline = fmt::format("Leak: {} {} with each of {} {}.", quantity.label,
                                     FormatAmount(leak->growth, quantity.unit, true), failed, loads);
      break;
    }
    case Outcome::kCouldNotTell:
      verdict.headline = record.problems.empty() ? "Could not tell: the readings do not settle the question."
                                                 : fmt::format("Could not tell: {}.", record.problems.front());
      break;
  }
  return verdict;
}

}  // namespace tidemark::audit
