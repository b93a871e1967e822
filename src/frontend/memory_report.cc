#include "frontend/memory_report.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "base/status.h"

namespace tidemark {
namespace {

using Json = nlohmann::ordered_json;

// Bytes of invalid UTF-8 (model names are file names) do not make a document impossible.
std::string Dump(const Json& document) {
  return document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Json BytesJson(const DeviceBytes& bytes) {
  Json object = Json::object();
  for (const auto& [device, count] : bytes) object[DeviceName(device)] = count;
  return object;
}

Json LoadJson(const LoadRecord& record) {
  Json object = {
      {"ended_ms", record.ended_ms}, {"seconds", record.seconds}, {"result", record.ok ? "ready" : "failed"}};
  if (!record.ok) object["reason"] = record.reason;
  object["taken_bytes"] = BytesJson(record.taken);
  object["witness_bytes"] = BytesJson(record.witness);
  if (!record.ok) object["rows_left"] = record.rows_left;
  return object;
}

Json UnloadRecordJson(const UnloadRecord& record) {
  return {{"ended_ms", record.ended_ms},
          {"seconds", record.seconds},
          {"verdict", UnloadVerdictName(record.verdict)},
          {"held_bytes", BytesJson(record.held)},
          {"returned_bytes", BytesJson(record.returned)},
          {"witness_bytes", BytesJson(record.witness)},
          {"rows_left", record.rows_left}};
}

// What UnloadRecordJson says, with the version in front, as text: every unload's answer waits for it.
std::string UnloadRecordText(std::int64_t version, const UnloadRecord& record) {
  const auto bytes_text = [](const DeviceBytes& bytes) {
    std::string text;
    for (const auto& [device, count] : bytes) {
      fmt::format_to(std::back_inserter(text), "{}\"{}\":{}", text.empty() ? "" : ",", DeviceName(device), count);
    }
    return text;
  };
  return fmt::format(
      "{{\"version\":\"{}\",\"ended_ms\":{},\"seconds\":{},\"verdict\":\"{}\",\"held_bytes\":{{{}}},"
      "\"returned_bytes\":{{{}}},\"witness_bytes\":{{{}}},\"rows_left\":{}}}",
      version, record.ended_ms, record.seconds, UnloadVerdictName(record.verdict), bytes_text(record.held),
      bytes_text(record.returned), bytes_text(record.witness), record.rows_left);
}

// Sums over the rows of one version.
struct RowSums {
  DeviceBytes memory;
  std::int64_t mapped_files = 0;
  std::uint64_t rows = 0;
  std::uint64_t stranded = 0;
};

// Rows by owner path, so that those below one path lie together.
class RowIndex {
 public:
  explicit RowIndex(const std::vector<LedgerRow>& rows) {
    for (const LedgerRow& row : rows) by_owner_.emplace(row.owner, &row);
  }
  RowSums Below(const std::string& path) const {
    RowSums sums;
    for (auto it = by_owner_.lower_bound(path); it != by_owner_.end() && it->first.starts_with(path); ++it) {
      const LedgerRow& row = *it->second;
      ++sums.rows;
      if (row.state == RowState::kStranded) ++sums.stranded;
      if (CountsAgainstBudget(row.kind)) sums.memory[row.device] += static_cast<std::int64_t>(row.bytes);
      if (row.kind == ResourceKind::kFileMapping) sums.mapped_files += static_cast<std::int64_t>(row.bytes);
    }
    return sums;
  }

 private:
  std::multimap<std::string_view, const LedgerRow*> by_owner_;
};

// Resident rows: what engines and the server keep for as long as the process lives.
Json ResidentJson(const std::vector<LedgerRow>& rows) {
  std::map<std::string, DeviceBytes> owners;
  for (const LedgerRow& row : rows) {
    if (!row.resident) continue;
    std::size_t end = row.owner.find('/');  // "backend/onnxruntime/…" to "backend/onnxruntime"
    if (end != std::string::npos) end = row.owner.find('/', end + 1);
    DeviceBytes& bytes = owners[row.owner.substr(0, end)];
    if (CountsAgainstBudget(row.kind)) bytes[row.device] += static_cast<std::int64_t>(row.bytes);
  }
  Json array = Json::array();
  for (const auto& [owner, bytes] : owners) array.push_back({{"owner", owner}, {"bytes", BytesJson(bytes)}});
  return array;
}

Json StrandedJson(const std::vector<LedgerRow>& rows) {
  Json array = Json::array();
  for (const LedgerRow& row : rows) {
    if (row.state != RowState::kStranded) continue;
    array.push_back({{"owner", row.owner},
                     {"site", row.site},
                     {"kind", ResourceKindName(row.kind)},
                     {"device", DeviceName(row.device)},
                     {"bytes", row.bytes},
                     {"reason", row.reason}});
  }
  return array;
}

Json DeviceJson(const DevicePicture& picture, const LedgerTotals& totals, const std::optional<Ledger::Room>& room) {
  Json object = {{"device", DeviceName(picture.device)}};
  if (!picture.uuid.empty()) object["uuid"] = picture.uuid;
  if (!picture.name.empty()) object["name"] = picture.name;
  object["total_bytes"] = picture.total_bytes;
  object["ledger_bytes"] = picture.ledger.now;
  object["high_water_bytes"] = picture.ledger.high_water;
  if (picture.device == kHost) object["request_bytes"] = picture.requests;
  if (picture.witness >= 0) {
    object["witness"] = picture.source;
    object["witness_bytes"] = picture.witness;
    object["unattributed_bytes"] = picture.unattributed();
  }
  if (room) {
    object["limit_bytes"] = room->budget;
    object["free_bytes"] = room->free;
  }
  Json kinds = Json::object();
  if (const auto it = totals.kinds.find(picture.device); it != totals.kinds.end()) {
    const auto resident = totals.resident_bytes.find(picture.device);
    for (std::size_t i = 0; i < kResourceKinds; ++i) {
      const MemoryFigures& figures = it->second[i];
      if (figures.high_water == 0) continue;
      kinds[std::string(ResourceKindName(static_cast<ResourceKind>(i)))] = {
          {"bytes", figures.now},
          {"high_water_bytes", figures.high_water},
          {"resident_bytes", resident == totals.resident_bytes.end() ? 0 : resident->second[i]}};
    }
  }
  object["kinds"] = std::move(kinds);
  return object;
}

Json UseJson(const std::map<DeviceId, MemoryUse>& uses) {
  Json array = Json::array();
  for (const auto& [device, use] : uses) {
    array.push_back({{"device", DeviceName(device)},
                     {"bytes", use.total()},
                     {"weights_bytes", use.weights},
                     {"working_bytes", use.working},
                     {"cached_bytes", use.cached},
                     {"high_water_bytes", use.high_water}});
  }
  return array;
}

Json VersionJson(const RegistryModel& model, const VersionEntry& entry, const LoadHistory::VersionHistory& history,
                 const MemoryEstimate& learned, const RowIndex& rows) {
  Json object = {{"version", fmt::format("{}", entry.version)}, {"state", VersionStateName(entry.state)}};
  if (!entry.reason.empty()) object["reason"] = entry.reason;
  if (const absl::Status health = HealthOf(entry); !health.ok()) object["failure"] = MessageOf(health);
  const RowSums sums = rows.Below(fmt::format("model/{}/{}/", model.key, entry.version));
  std::map<DeviceId, MemoryUse> uses;
  if (ModelHandle handle = ModelHandle::Enter(entry.published); handle) {
    uses = MemoryUseOf(*handle, history);
    object["backend"] = handle->info().config().backend();
  } else {
    for (const auto& [device, bytes] : sums.memory) uses[device].working = bytes;  // on its way in or out
  }
  object["memory"] = UseJson(uses);
  object["mapped_file_bytes"] = sums.mapped_files;
  Json& marks = object["learned_high_water_bytes"] = Json::object();
  for (const auto& [device, bytes] : learned) marks[DeviceName(device)] = bytes;
  object["rows"] = sums.rows;
  object["stranded_rows"] = sums.stranded;
  if (history.load) object["last_load"] = LoadJson(*history.load);
  if (history.unload) object["last_unload"] = UnloadRecordJson(*history.unload);
  return object;
}

Json ModelVersionsJson(const RegistryModel& model, std::int64_t version, const Lifecycle& lifecycle,
                       const RowIndex& rows) {
  const LoadHistory::ModelHistory history = lifecycle.history().Of(model.key);
  Json versions = Json::array();
  for (const auto& [number, entry] : model.versions) {
    if (version >= 0 && number != version) continue;
    const auto it = history.versions.find(number);
    versions.push_back(VersionJson(model, entry,
                                   it == history.versions.end() ? LoadHistory::VersionHistory() : it->second,
                                   lifecycle.Learned(model.key, number), rows));
  }
  return versions;
}

Json EventsJson(const std::vector<LoadHistory::Event>& events) {
  Json array = Json::array();
  for (const LoadHistory::Event& event : events) {
    array.push_back({{"ended_ms", event.ended_ms},
                     {"model", event.key.substr(event.key.rfind('/') + 1)},
                     {"version", fmt::format("{}", event.version)},
                     {"operation", event.load ? "load" : "unload"},
                     {"ok", event.ok},
                     {"seconds", event.seconds},
                     {"bytes", event.bytes},
                     {"text", event.text}});
  }
  return array;
}

std::string_view StateName(ServerState state) {
  switch (state) {
    case ServerState::kStarting:
      return "starting";
    case ServerState::kReady:
      return "ready";
    case ServerState::kExiting:
      break;
  }
  return "exiting";
}

}  // namespace

std::map<DeviceId, MemoryUse> MemoryUseOf(Model& model, const LoadHistory::VersionHistory& history) {
  std::map<DeviceId, MemoryUse> uses;
  for (const auto& [device, figures] : model.scope().MemoryUse()) {
    const auto now = static_cast<std::int64_t>(figures.now);
    MemoryUse use;
    use.high_water = static_cast<std::int64_t>(figures.high_water);
    use.cached = std::min(now, static_cast<std::int64_t>(model.cached_bytes(device)));
    const auto ready = history.at_ready.find(device);
    std::int64_t weights = ready == history.at_ready.end() ? 0 : ready->second;
    if (device == kHost) weights -= static_cast<std::int64_t>(history.cached_at_ready);
    use.weights = std::clamp<std::int64_t>(weights, 0, now - use.cached);
    use.working = now - use.cached - use.weights;
    uses[device] = use;
  }
  if (const MemoryFigures answers = model.answer_memory(); answers.high_water != 0) {
    uses[kHost].cached += static_cast<std::int64_t>(answers.now);
    uses[kHost].high_water += static_cast<std::int64_t>(answers.high_water);
  }
  return uses;
}

std::vector<DevicePicture> MemoryReport::Devices(const LedgerTotals& totals) const {
  std::map<DeviceId, DevicePicture> pictures;
  DevicePicture& host = pictures[kHost];
  host.requests = parts_.buffers->used_bytes() + parts_.buffers->cached_bytes();
  if (const auto memory = parts_.witness->Process(); memory.ok()) {
    host.witness = static_cast<std::int64_t>(memory->anonymous);
    host.source = "kernel";
  }
  if (const auto machine = parts_.witness->Machine(); machine.ok()) {
    host.total_bytes = static_cast<std::int64_t>(machine->total);
  }
  for (const GpuWitness& gpu : parts_.witness->Gpus()) {
    DevicePicture& picture = pictures[gpu.device];
    picture.uuid = gpu.vitals.uuid;
    picture.name = gpu.vitals.name;
    picture.total_bytes = gpu.vitals.total_bytes;
    picture.source = gpu.process_bytes ? "driver" : "driver, all processes";
    picture.witness = gpu.process_bytes ? static_cast<std::int64_t>(*gpu.process_bytes) : gpu.vitals.used_bytes;
  }
  for (const auto& [device, figures] : totals.memory) pictures[device].ledger = figures;
  std::vector<DevicePicture> sorted;
  for (auto& [device, picture] : pictures) {
    picture.device = device;
    sorted.push_back(std::move(picture));
  }
  return sorted;
}

std::string MemoryReport::ServerJson() const {
  const LedgerTotals totals = parts_.ledger->Totals();
  const std::vector<LedgerRow> rows = parts_.ledger->Rows();
  const RowIndex index(rows);
  const LoadHistory& history = parts_.lifecycle->history();
  Json document = {{"state", StateName(parts_.lifecycle->state())}, {"ready", parts_.lifecycle->Ready()}};
  Json& devices = document["devices"] = Json::array();
  for (const DevicePicture& picture : Devices(totals)) {
    devices.push_back(DeviceJson(picture, totals, parts_.ledger->RoomOn(picture.device)));
  }
  document["requests"] = {{"used_bytes", parts_.buffers->used_bytes()},
                          {"cached_bytes", parts_.buffers->cached_bytes()}};
  document["rows"] = totals.rows;
  document["resident_rows"] = totals.resident_rows;
  document["resident"] = ResidentJson(rows);
  document["stranded"] = StrandedJson(rows);
  Json& models = document["models"] = Json::array();
  const std::shared_ptr<const RegistrySnapshot> snapshot = parts_.registry->Snapshot();
  for (const auto& [key, model] : *snapshot) {
    models.push_back({{"name", model->name}, {"versions", ModelVersionsJson(*model, -1, *parts_.lifecycle, index)}});
  }
  document["events"] = EventsJson(history.Events());
  return Dump(document);
}

absl::StatusOr<std::string> MemoryReport::ModelJson(std::string_view name, std::int64_t version) const {
  const std::shared_ptr<const RegistrySnapshot> snapshot = parts_.registry->Snapshot();
  Json versions = Json::array();
  const std::vector<LedgerRow> rows = parts_.ledger->Rows();
  const RowIndex index(rows);
  bool known = false;
  for (const auto& [key, model] : *snapshot) {
    if (model->name != name) continue;
    known = true;
    for (Json& entry : ModelVersionsJson(*model, version, *parts_.lifecycle, index)) {
      versions.push_back(std::move(entry));
    }
  }
  if (!known) return absl::NotFoundError(fmt::format("Request for unknown model: '{}' is not found", name));
  if (version >= 0 && versions.empty()) {
    return absl::NotFoundError(fmt::format("Request for unknown model: '{}' version {} is not found", name, version));
  }
  return Dump(Json{{"name", name}, {"versions", std::move(versions)}});
}

std::string MemoryReport::UnloadJson(std::string_view name, std::int64_t since_ms) const {
  std::string versions;
  const std::shared_ptr<const RegistrySnapshot> snapshot = parts_.registry->Snapshot();
  for (const auto& [key, model] : *snapshot) {
    if (model->name != name) continue;
    for (const auto& [number, history] : parts_.lifecycle->history().Of(key).versions) {
      if (!history.unload || history.unload->ended_ms < since_ms) continue;
      if (!versions.empty()) versions += ',';
      versions += UnloadRecordText(number, *history.unload);
    }
  }
  return fmt::format("{{\"unload\":{{\"model\":{},\"versions\":[{}]}}}}", Dump(name), versions);
}

}  // namespace tidemark
