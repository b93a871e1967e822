#include "audit/report_html.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "audit/report_chart.h"
#include "audit/results_json.h"
#include "audit/verdict.h"

namespace tidemark::audit {
namespace {

constexpr std::string_view kStyle = R"css(
:root{color-scheme:light dark;--bg:#f6f7f8;--card:#fff;--ink:#18222c;--soft:#5c6975;--rule:#dfe4e8;--line:#1766a6;
--mark:#0c8577;--tide:rgba(12,133,119,.10);--bad:#b3261e;--badbg:#fdecea;--good:#0b7a55;--goodbg:#e6f5ee;
--odd:#8a5a00;--oddbg:#fdf3dc;--failband:rgba(179,38,30,.055);--band:rgba(23,102,166,.045)}
@media(prefers-color-scheme:dark){:root{--bg:#10161c;--card:#18212a;--ink:#e5ebf0;--soft:#98a6b3;--rule:#2b3742;
--line:#6db5f2;--mark:#3fc9b4;--tide:rgba(63,201,180,.12);--bad:#ff8a80;--badbg:#3a1b1a;--good:#5fd6a5;
--goodbg:#12332a;--odd:#f2c265;--oddbg:#372c13;--failband:rgba(255,138,128,.07);--band:rgba(109,181,242,.05)}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1040px;margin:0 auto;padding:28px 20px 60px}
header p{margin:2px 0;color:var(--soft)}h1{font-size:20px;margin:0;font-weight:650}
h2{font-size:16px;margin:34px 0 10px;font-weight:650}h2::first-letter{text-transform:uppercase}
.verdict{border-radius:12px;padding:18px 22px;margin:18px 0;border:1px solid}
.verdict b{font-size:21px;line-height:1.3;display:block}.verdict ul{margin:8px 0 0;padding-left:20px}
.verdict.no-leak{background:var(--goodbg);border-color:var(--good)}.verdict.no-leak b{color:var(--good)}
.verdict.leak{background:var(--badbg);border-color:var(--bad)}.verdict.leak b{color:var(--bad)}
.verdict.could-not-tell{background:var(--oddbg);border-color:var(--odd)}.verdict.could-not-tell b{color:var(--odd)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(190px,1fr));gap:12px}
.tile{background:var(--card);border:1px solid var(--rule);border-radius:10px;padding:12px 16px}
.tile span{display:block;color:var(--soft);font-size:13px}.tile b{font-size:22px;font-variant-numeric:tabular-nums;font-weight:600}
.card{background:var(--card);border:1px solid var(--rule);border-radius:10px;padding:14px;overflow-x:auto;margin-top:14px}
.chart{width:100%;min-width:640px;height:auto;display:block;font:12px system-ui,sans-serif}
.phase{fill:none}.phase.failed{fill:var(--failband)}.phase.baseline,.phase.restored{fill:var(--band)}
.phase-name{fill:var(--soft);text-anchor:middle}.grid{stroke:var(--rule);stroke-width:1}
.tick{fill:var(--soft);text-anchor:end}.cycle{fill:var(--soft);text-anchor:middle}
.tolerance{fill:var(--tide)}.mark{stroke:var(--mark);stroke-width:2;stroke-dasharray:7 5}
.mark-name{fill:var(--mark);text-anchor:end;font-weight:600}
.line{fill:none;stroke:var(--line);stroke-width:2.5;stroke-linejoin:round}
.point circle{fill:var(--line);stroke:var(--card);stroke-width:2}
.failed-point circle{fill:var(--card)}.failed-point path{stroke:var(--bad);stroke-width:2.4;stroke-linecap:round;fill:none}
.loaded-point path{fill:var(--card);stroke:var(--soft);stroke-width:1.4}.outside{fill:var(--soft);text-anchor:middle}
.legend{color:var(--soft);font-size:13px;margin:8px 4px 0}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:14px}
th{text-align:left;color:var(--soft);font-weight:500;border-bottom:1px solid var(--rule);padding:5px 12px 5px 0}
td{border-bottom:1px solid var(--rule);padding:5px 12px 5px 0;vertical-align:top}
tr:last-child td{border-bottom:0}td.n,th.n{text-align:right}tr.failed td:first-child{color:var(--bad)}
.odd{color:var(--odd);font-weight:600}.soft{color:var(--soft)}
code{font:13px ui-monospace,SFMono-Regular,Menlo,monospace;overflow-wrap:anywhere}
footer{margin-top:36px;color:var(--soft);font-size:13px}
)css";

// The quantity of the chart and the tiles: the first that leaks, else the first judged one.
int MainQuantity(const Record& record) {
  for (const Judgement& judgement : record.verdict.judgements) {
    const bool judged = record.quantities[static_cast<std::size_t>(judgement.quantity)].judged;
    if (judged && judgement.outcome == Outcome::kLeak) return judgement.quantity;
  }
  for (std::size_t q = 0; q < record.quantities.size(); ++q) {
    if (record.quantities[q].judged) return static_cast<int>(q);
  }
  return 0;
}

std::string Tile(std::string_view label, std::string_view value) {
  return fmt::format("<div class=\"tile\"><span>{}</span><b>{}</b></div>\n", label, Escape(value));
}

std::string VerdictSection(const Record& record) {
  std::string css(OutcomeName(record.verdict.outcome));
  std::replace(css.begin(), css.end(), ' ', '-');
  std::string out = fmt::format("<section class=\"verdict {}\"><b>{}</b><ul>", css, Escape(record.verdict.headline));
  for (const std::string& reason : record.verdict.reasons) out += fmt::format("<li>{}</li>", Escape(reason));
  return out + "</ul></section>\n";
}

std::string TilesSection(const Record& record) {
  const auto main = static_cast<std::size_t>(MainQuantity(record));
  if (main >= record.verdict.judgements.size()) return {};
  const Judgement& judgement = record.verdict.judgements[main];
  const Unit unit = record.quantities[main].unit;
  const auto failed = std::count_if(record.cycles.begin(), record.cycles.end(),
                                    [](const Cycle& cycle) { return cycle.phase == Phase::kFailed; });
  std::string out = "<section class=\"tiles\">\n";
  out += Tile("the mark", FormatAmount(static_cast<double>(judgement.mark), unit));
  out +=
      Tile("end, from the mark", FormatAmount(static_cast<double>(judgement.final_level - judgement.mark), unit, true));
  out += Tile("growth per failed load", FormatAmount(judgement.growth, unit, true));
  out += Tile("its 95 % interval", "± " + FormatAmount((judgement.growth_high - judgement.growth_low) / 2, unit));
  out += Tile(record.settings.fault == "none" ? "audited loads" : "failed loads", std::to_string(failed));
  return out + "</section>\n";
}

std::string ChartSection(const Record& record) {
  const int main = MainQuantity(record);
  const std::string chart = MemoryChart(record, main);
  if (chart.empty()) return {};
  return fmt::format(
      "<h2>{} through the audit</h2><div class=\"card\">{}<p class=\"legend\">● after an unload&ensp; "
      "✕ after a failed load and its unload&ensp; △ while loaded (at the edge if outside the scale)&ensp; "
      "dashed: the mark, with its tolerance of {} above it</p></div>\n",
      Escape(record.quantities[static_cast<std::size_t>(main)].label), chart,
      FormatAmount(record.quantities[static_cast<std::size_t>(main)].tolerance,
                   record.quantities[static_cast<std::size_t>(main)].unit));
}

std::string ReadingsSection(const Record& record) {
  std::string out = "<h2>Readings</h2><div class=\"card\"><table><tr><th>phase</th><th>state</th>";
  for (const Quantity& quantity : record.quantities) {
    out += fmt::format("<th class=\"n\">{}</th>", Escape(quantity.label));
  }
  const auto main = static_cast<std::size_t>(MainQuantity(record));
  out += "<th class=\"n\">from the mark</th><th class=\"n\">since the last</th><th class=\"n\">settled in</th></tr>\n";
  std::optional<std::int64_t> last;
  for (const Reading& reading : record.readings) {
    const bool ended = reading.phase == Phase::kStopped;
    out += fmt::format("<tr class=\"{}\"><td>{}{}</td><td>{}</td>", PhaseName(reading.phase), PhaseName(reading.phase),
                       reading.cycle > 0 ? fmt::format(" {}", reading.cycle) : "",
                       ended                           ? "ended"
                       : reading.step == Step::kLoaded ? "loaded"
                                                       : "idle");
    for (std::size_t q = 0; q < record.quantities.size(); ++q) {
      const std::int64_t value = reading.medians[q];
      out += fmt::format(
          "<td class=\"n\">{}</td>",
          value == kNotRead ? "not read" : FormatAmount(static_cast<double>(value), record.quantities[q].unit));
    }
    const bool compared = !ended && reading.step == Step::kIdle && reading.phase != Phase::kReady &&
                          main < record.verdict.judgements.size() && reading.medians[main] != kNotRead;
    const Unit unit = record.quantities[main].unit;
    const std::int64_t value = reading.medians[main];
    out += fmt::format(
        "<td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>\n",
        compared ? FormatAmount(static_cast<double>(value - record.verdict.judgements[main].mark), unit, true) : "",
        compared && last.has_value() ? FormatAmount(static_cast<double>(value - *last), unit, true) : "",
        ended ? ""
              : fmt::format("{:.0f} ms{}", reading.settle_seconds * 1000, reading.settled ? "" : " (not settled)"));
    if (compared) last = value;
  }
  return out + "</table></div>\n";
}

std::string JudgementsSection(const Record& record) {
  std::string out =
      "<h2>Judgement</h2><div class=\"card\"><table><tr><th>figure</th><th class=\"n\">mark</th>"
      "<th class=\"n\">end</th><th class=\"n\">growth per failed load</th><th class=\"n\">95 % interval</th>"
      "<th class=\"n\">Theil–Sen</th><th class=\"n\">limits: growth, level</th><th>verdict</th></tr>\n";
  for (const Judgement& judgement : record.verdict.judgements) {
    const Quantity& quantity = record.quantities[static_cast<std::size_t>(judgement.quantity)];
    const auto amount = [&](double value, bool sign) { return FormatAmount(value, quantity.unit, sign); };
    out += fmt::format(
        "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>"
        "<td class=\"n\">{} … {}</td><td class=\"n\">{}</td><td class=\"n\">{}, {}</td><td>{}</td></tr>\n",
        Escape(quantity.label), amount(static_cast<double>(judgement.mark), false),
        amount(static_cast<double>(judgement.final_level), false), amount(judgement.growth, true),
        amount(judgement.growth_low, true), amount(judgement.growth_high, true), amount(judgement.theil_sen, true),
        amount(quantity.growth_threshold, false), amount(quantity.tolerance, false),
        quantity.judged ? OutcomeName(judgement.outcome) : "<span class=\"soft\">shown only</span>");
  }
  return out + "</table></div>\n";
}

std::string AnswersSection(const Record& record) {
  std::string out =
      "<h2>The server's answers</h2><div class=\"card\"><table><tr><th>cycle</th><th class=\"n\">load</th>"
      "<th class=\"n\">ms</th><th class=\"n\">unload</th><th class=\"n\">ms</th><th>text</th></tr>\n";
  for (const Cycle& cycle : record.cycles) {
    const std::string text = cycle.load_text.empty() ? cycle.unload_text : cycle.load_text;
    out += fmt::format(
        "<tr class=\"{}\"><td>{} {}</td><td class=\"n\">{}</td><td class=\"n\">{:.1f}</td><td class=\"n\">{}</td>"
        "<td class=\"n\">{:.1f}</td><td>{}<code>{}</code></td></tr>\n",
        PhaseName(cycle.phase), PhaseName(cycle.phase), cycle.number, cycle.load_status, cycle.load_seconds * 1000,
        cycle.unload_status, cycle.unload_seconds * 1000,
        cycle.as_intended ? "" : "<span class=\"odd\">not as intended</span> ", Escape(text));
  }
  return out + "</table></div>\n";
}

std::string EnvironmentSection(const Record& record) {
  const Environment& environment = record.environment;
  std::string command;
  for (const std::string& word : environment.command) command += (command.empty() ? "" : " ") + word;
  std::string out = "<h2>Environment</h2><div class=\"card\"><table>\n";
  const auto row = [&out](std::string_view name, const std::string& value) {
    if (!value.empty()) out += fmt::format("<tr><td>{}</td><td><code>{}</code></td></tr>\n", name, Escape(value));
  };
  row("server", fmt::format("{} {}", environment.server_name, environment.server_version));
  row("address", environment.url);
  row("command", command);
  row("process", std::to_string(environment.pid));
  row("probe", environment.probe);
  row("GPU", environment.gpu);
  row("machine", fmt::format("{}, {} × {}, {}", environment.host, environment.cpu_count, environment.cpu,
                             FormatAmount(static_cast<double>(environment.memory_bytes), Unit::kBytes)));
  row("kernel", environment.kernel);
  row("readings", fmt::format("median of {} samples, {:.0f} ms apart, settled within {:.1f} s", record.settings.samples,
                              record.settings.sample_interval_seconds * 1000, record.settings.settle_limit_seconds));
  for (const std::string& note : record.notes) row("note", note);
  return out + "</table></div>\n";
}

}  // namespace

std::string ReportHtml(const Record& record) {
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
      "<title>{}: {}</title><style>{}</style></head>\n<body><main>\n",
      Escape(record.settings.model), OutcomeName(record.verdict.outcome), kStyle);
  out += fmt::format("<header><h1>Leak audit of model “{}”</h1><p>{} {} · fault: {} · {} · {:.1f} s</p></header>\n",
                     Escape(record.settings.model), Escape(record.environment.server_name),
                     Escape(record.environment.server_version), Escape(record.settings.fault),
                     Escape(record.environment.started), record.seconds);
  out += VerdictSection(record);
  out += TilesSection(record);
  out += ChartSection(record);
  out += ReadingsSection(record);
  out += JudgementsSection(record);
  out += AnswersSection(record);
  out += EnvironmentSection(record);
  out += fmt::format(
      "<footer>tidemark audit {} · results.json beside this page holds every sample (format version {})"
      "</footer>\n</main></body></html>\n",
      Escape(record.environment.auditor_version), kResultsVersion);
  return out;
}

}  // namespace tidemark::audit
