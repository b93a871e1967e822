#include "observe/trace_settings.h"

#include <utility>

#include "base/status.h"

namespace tidemark {
namespace {

absl::Status Check(const TraceValues& values) {
  if (values.off()) return absl::OkStatus();
  constexpr std::string_view kText = "Attempting to set invalid trace setting :";
  if (values.rate == 0) return absl::InvalidArgumentError(fmt::format("{}sample rate must be non-zero", kText));
  if (values.file.empty()) return absl::InvalidArgumentError(fmt::format("{}trace file name is not given", kText));
  return absl::OkStatus();
}

}  // namespace

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

TraceValues TraceSettings::Global() const {
  absl::MutexLock lock(&mutex_);
  return global_;
}

TraceValues TraceSettings::OfModel(std::string_view model) const {
  absl::MutexLock lock(&mutex_);
  const auto it = models_.find(model);
  return it == models_.end() ? global_ : Apply(global_, it->second);
}

absl::Status TraceSettings::UpdateGlobal(const TraceUpdate& update) {
  absl::MutexLock lock(&mutex_);
  Own own;
  if (update.level) own.level = update.level->value_or(TraceUpdate::Level{start_.timestamps, start_.tensors});
  if (update.rate) own.rate = update.rate->value_or(start_.rate);
  if (update.count) own.count = update.count->value_or(start_.count);
  if (update.log_frequency) own.log_frequency = update.log_frequency->value_or(start_.log_frequency);
  TraceValues next = Apply(global_, own);
  RETURN_IF_ERROR(Check(next));
  global_ = std::move(next);
  return absl::OkStatus();
}

absl::Status TraceSettings::UpdateModel(std::string_view model, const TraceUpdate& update) {
  absl::MutexLock lock(&mutex_);
  const auto it = models_.find(model);
  Own own = it == models_.end() ? Own() : it->second;
  if (update.level) own.level = *update.level;
  if (update.rate) own.rate = *update.rate;
  if (update.count) own.count = *update.count;
  if (update.log_frequency) own.log_frequency = *update.log_frequency;
  RETURN_IF_ERROR(Check(Apply(global_, own)));
  if (own.empty()) {
    if (it != models_.end()) models_.erase(it);
  } else {
    models_.insert_or_assign(std::string(model), std::move(own));
  }
  return absl::OkStatus();
}

}  // namespace tidemark
