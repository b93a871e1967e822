#include "observe/trace_settings.h"

#include <utility>

#include "base/status.h"

namespace tidemark {

absl::Status CheckTraceValues(const TraceValues& values) {
  if (values.off()) return absl::OkStatus();
  constexpr std::string_view kText = "Attempting to set invalid trace setting :";
  if (values.rate == 0) return absl::InvalidArgumentError(fmt::format("{}sample rate must be non-zero", kText));
  if (values.mode == TraceMode::kTriton && values.file.empty()) {
    return absl::InvalidArgumentError(fmt::format("{}trace file name is not given", kText));
  }
  return absl::OkStatus();
}

TraceSettings::TraceSettings(TraceValues start) : start_(std::move(start)) {
  absl::MutexLock lock(&mutex_);
  Replace(global_, start_);
  UpdateActive();
}

TraceValues TraceSettings::Apply(TraceValues base, const Own& own) {
  if (own.level) {
    base.timestamps = own.level->timestamps;
    base.tensors = own.level->tensors;
  }
  base.rate = own.rate.value_or(base.rate);
  base.count = own.count.value_or(base.count);
  base.log_frequency = own.log_frequency.value_or(base.log_frequency);
  return base;
}

void TraceSettings::Replace(State& state, TraceValues values) {
  if (state.stream != 0 && on_closed_) on_closed_(state.stream);
  state = {std::move(values), 0, next_stream_++};
}

void TraceSettings::UpdateActive() {
  const auto traces = [](const State& state) { return !state.values.off() && state.values.count != 0; };
  bool active = traces(global_);
  for (const auto& [name, model] : models_) active = active || traces(model.state);
  active_.store(active, std::memory_order_relaxed);
}

void TraceSettings::set_on_closed(std::function<void(std::uint64_t stream)> closed) {
  absl::MutexLock lock(&mutex_);
  on_closed_ = std::move(closed);
}

TraceValues TraceSettings::Global() const {
  absl::MutexLock lock(&mutex_);
  return global_.values;
}

TraceValues TraceSettings::OfModel(std::string_view model) const {
  absl::MutexLock lock(&mutex_);
  const auto it = models_.find(model);
  return it == models_.end() ? global_.values : it->second.state.values;
}

absl::Status TraceSettings::UpdateGlobal(const TraceUpdate& update) {
  absl::MutexLock lock(&mutex_);
  Own own;
  if (update.level) own.level = update.level->value_or(TraceUpdate::Level{start_.timestamps, start_.tensors});
  if (update.rate) own.rate = update.rate->value_or(start_.rate);
  if (update.count) own.count = update.count->value_or(start_.count);
  if (update.log_frequency) own.log_frequency = update.log_frequency->value_or(start_.log_frequency);
  if (own.empty()) return absl::OkStatus();
  TraceValues next = Apply(global_.values, own);
  RETURN_IF_ERROR(CheckTraceValues(next));
  Replace(global_, std::move(next));
  for (auto& [name, model] : models_) {
    TraceValues values = Apply(global_.values, model.own);
    if (model.own.count) values.count = model.state.values.count;  // what is left of it
    if (values != model.state.values) Replace(model.state, std::move(values));
  }
  UpdateActive();
  return absl::OkStatus();
}

absl::Status TraceSettings::UpdateModel(std::string_view model, const TraceUpdate& update) {
  absl::MutexLock lock(&mutex_);
  const auto it = models_.find(model);
  Own own = it == models_.end() ? Own() : it->second.own;
  const bool changes = update.level || update.rate || update.count || update.log_frequency;
  if (!changes) return absl::OkStatus();
  if (update.level) own.level = *update.level;
  if (update.rate) own.rate = *update.rate;
  if (update.count) own.count = *update.count;
  if (update.log_frequency) own.log_frequency = *update.log_frequency;
  TraceValues next = Apply(global_.values, own);
  RETURN_IF_ERROR(CheckTraceValues(next));
  if (own.empty()) {
    Erase(it);
  } else {
    ModelState& state = it == models_.end() ? models_[std::string(model)] : it->second;
    state.own = own;
    Replace(state.state, std::move(next));
  }
  UpdateActive();
  return absl::OkStatus();
}

void TraceSettings::Forget(std::string_view model) {
  absl::MutexLock lock(&mutex_);
  Erase(models_.find(model));
  UpdateActive();
}

void TraceSettings::Erase(Models::iterator it) {
  if (it == models_.end()) return;
  if (on_closed_) on_closed_(it->second.state.stream);
  models_.erase(it);
}

std::optional<TraceSample> TraceSettings::Sample(std::string_view model, bool forced) {
  absl::MutexLock lock(&mutex_);
  const auto it = models_.find(model);
  State& state = it == models_.end() ? global_ : it->second.state;
  TraceValues& values = state.values;
  if (values.off() || values.count == 0) return std::nullopt;
  if (++state.seen % values.rate != 0 && !forced) return std::nullopt;
  TraceSample sample{NextId(), state.stream, values.log_frequency, values.timestamps, values.tensors};
  if (values.count > 0 && --values.count == 0) UpdateActive();
  return sample;
}

}  // namespace tidemark
