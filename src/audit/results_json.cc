#include "audit/results_json.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "audit/verdict.h"

namespace tidemark::audit {
namespace {

using Json = nlohmann::ordered_json;

Json Number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json Amount(std::int64_t value) { return value == kNotRead ? Json(nullptr) : Json(value); }

const char* OutcomeId(Outcome outcome) {
  switch (outcome) {
    case Outcome::kNoLeak:
      return "no_leak";
    case Outcome::kLeak:
      return "leak";
    case Outcome::kCouldNotTell:
      return "could_not_tell";
  }
  return "?";
}

Json EnvironmentJson(const Environment& environment) {
  return {{"server",
           {{"name", environment.server_name},
            {"version", environment.server_version},
            {"extensions", environment.server_extensions},
            {"url", environment.url},
            {"command", environment.command},
            {"pid", environment.pid}}},
          {"machine",
           {{"host", environment.host},
            {"kernel", environment.kernel},
            {"cpu", environment.cpu},
            {"cpus", environment.cpu_count},
            {"memory_bytes", environment.memory_bytes},
            {"gpu", environment.gpu}}},
          {"auditor_version", environment.auditor_version},
          {"started", environment.started}};
}

Json SettingsJson(const Record& record) {
  const Settings& settings = record.settings;
  return {{"model", settings.model},
          {"fault", settings.fault},
          {"probe", record.environment.probe},
          {"baseline_cycles", settings.baseline_cycles},
          {"failed_cycles", settings.failed_cycles},
          {"max_cycles", settings.max_cycles},
          {"samples_per_reading", settings.samples},
          {"sample_interval_seconds", settings.sample_interval_seconds},
          {"settle_limit_seconds", settings.settle_limit_seconds}};
}

Json QuantitiesJson(const Record& record) {
  Json list = Json::array();
  for (const Quantity& quantity : record.quantities) {
    list.push_back({{"id", quantity.id},
                    {"label", quantity.label},
                    {"unit", quantity.unit == Unit::kBytes ? "bytes" : "count"},
                    {"judged", quantity.judged},
                    {"growth_threshold", quantity.growth_threshold},
                    {"tolerance", quantity.tolerance}});
  }
  return list;
}

Json ReadingsJson(const Record& record) {
  Json list = Json::array();
  for (const Reading& reading : record.readings) {
    Json samples = Json::object();
    Json medians = Json::object();
    for (std::size_t q = 0; q < record.quantities.size() && q < reading.medians.size(); ++q) {
      medians[record.quantities[q].id] = Amount(reading.medians[q]);
      Json& values = samples[record.quantities[q].id] = Json::array();
      for (const std::int64_t value : reading.samples[q]) values.push_back(Amount(value));
    }
    list.push_back({{"phase", PhaseName(reading.phase)},
                    {"cycle", reading.cycle},
                    {"step", reading.step == Step::kLoaded ? "loaded" : "idle"},
                    {"seconds", reading.seconds},
                    {"settled", reading.settled},
                    {"settle_seconds", reading.settle_seconds},
                    {"medians", std::move(medians)},
                    {"samples", std::move(samples)}});
  }
  return list;
}

Json CyclesJson(const Record& record) {
  Json list = Json::array();
  for (const Cycle& cycle : record.cycles) {
    list.push_back({{"phase", PhaseName(cycle.phase)},
                    {"cycle", cycle.number},
                    {"load_status", cycle.load_status},
                    {"load_seconds", cycle.load_seconds},
                    {"load_text", cycle.load_text},
                    {"as_intended", cycle.as_intended},
                    {"unload_status", cycle.unload_status},
                    {"unload_seconds", cycle.unload_seconds},
                    {"unload_text", cycle.unload_text}});
  }
  return list;
}

Json VerdictJson(const Record& record) {
  Json judgements = Json::array();
  for (const Judgement& judgement : record.verdict.judgements) {
    const Quantity& quantity = record.quantities[static_cast<std::size_t>(judgement.quantity)];
    judgements.push_back({{"quantity", quantity.id},
                          {"judged", quantity.judged},
                          {"outcome", OutcomeId(judgement.outcome)},
                          {"mark", judgement.mark},
                          {"final", judgement.final_level},
                          {"above_mark", judgement.final_level - judgement.mark},
                          {"growth_per_failed_cycle", Number(judgement.growth)},
                          {"growth_low_95", Number(judgement.growth_low)},
                          {"growth_high_95", Number(judgement.growth_high)},
                          {"late_growth", Number(judgement.late_growth)},
                          {"theil_sen_slope", Number(judgement.theil_sen)},
                          {"noise", Number(judgement.noise)},
                          {"sensitivity", Number(judgement.sensitivity)},
                          {"reason", judgement.reason}});
  }
  return {{"outcome", OutcomeId(record.verdict.outcome)},
          {"exit_code", static_cast<int>(record.verdict.outcome)},
          {"headline", record.verdict.headline},
          {"reasons", record.verdict.reasons},
          {"judgements", std::move(judgements)}};
}

}  // namespace

std::string ResultsJson(const Record& record) {
  const Json json = {{"format", "tidemark-audit"},
                     {"version", kResultsVersion},
                     {"verdict", VerdictJson(record)},
                     {"environment", EnvironmentJson(record.environment)},
                     {"settings", SettingsJson(record)},
                     {"quantities", QuantitiesJson(record)},
                     {"readings", ReadingsJson(record)},
                     {"cycles", CyclesJson(record)},
                     {"notes", record.notes},
                     {"problems", record.problems},
                     {"seconds", record.seconds}};
  // A server's texts may hold bytes that are no UTF-8.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace tidemark::audit
