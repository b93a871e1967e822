#include "observe/request_trace.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <random>
#include <utility>

#include "base/clock.h"
#include "base/status.h"

namespace tidemark {
namespace {

constexpr std::size_t kLongestTensor = 64 * 1024;  // characters of a tensor's values

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// Lower-case hexadecimal that is not all zero.
bool ReadHex(std::string_view text, std::span<std::uint8_t> bytes) {
  bool any = false;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const int high = HexDigit(text[2 * i]);
    const int low = HexDigit(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    bytes[i] = static_cast<std::uint8_t>(high * 16 + low);
    any = any || bytes[i] != 0;
  }
  return any;
}

template <typename T>
T Load(const std::byte* data) {
  T value;
  std::memcpy(&value, data, sizeof(T));
  return value;
}

float FromHalf(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits >> 15) << 31;
  const std::uint32_t exponent = bits >> 10 & 31;
  const std::uint32_t fraction = bits & 1023;
  float value = 0;
  if (exponent == 0) {
    value = static_cast<float>(fraction) * 0x1p-24F;
    return sign != 0 ? -value : value;
  }
  const std::uint32_t wide = sign | (exponent == 31 ? 255U : exponent + 112U) << 23 | fraction << 13;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

float FromBf16(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float value = 0;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

std::string ElementText(DataType type, const std::byte* at) {
  switch (type) {
    case DataType::kBool:
      return Load<std::uint8_t>(at) != 0 ? "1" : "0";
    case DataType::kUint8:
      return fmt::format("{}", Load<std::uint8_t>(at));
    case DataType::kUint16:
      return fmt::format("{}", Load<std::uint16_t>(at));
    case DataType::kUint32:
      return fmt::format("{}", Load<std::uint32_t>(at));
    case DataType::kUint64:
      return fmt::format("{}", Load<std::uint64_t>(at));
    case DataType::kInt8:
      return fmt::format("{}", Load<std::int8_t>(at));
    case DataType::kInt16:
      return fmt::format("{}", Load<std::int16_t>(at));
    case DataType::kInt32:
      return fmt::format("{}", Load<std::int32_t>(at));
    case DataType::kInt64:
      return fmt::format("{}", Load<std::int64_t>(at));
    case DataType::kFp16:
      return fmt::format("{}", FromHalf(Load<std::uint16_t>(at)));
    case DataType::kBf16:
      return fmt::format("{}", FromBf16(Load<std::uint16_t>(at)));
    case DataType::kFp32:
      return fmt::format("{}", Load<float>(at));
    case DataType::kFp64:
      return fmt::format("{}", Load<double>(at));
    case DataType::kBytes:
    case DataType::kInvalid:
      break;
  }
  return {};
}

std::string TensorText(DataType type, std::span<const std::byte> data) {
  std::string text;
  const std::size_t size = ElementByteSize(type);
  for (std::size_t at = 0; at < data.size();) {
    if (text.size() >= kLongestTensor) return text + ",...";
    if (!text.empty()) text += ',';
    if (size != 0) {
      if (data.size() - at < size) break;
      text += ElementText(type, data.data() + at);
      at += size;
      continue;
    }
    if (data.size() - at < 4) break;
    const std::size_t length = Load<std::uint32_t>(data.data() + at);
    at += 4;
    if (type != DataType::kBytes || data.size() - at < length) break;
    const std::size_t shown = std::min(length, kLongestTensor);
    text += '"';
    text.append(reinterpret_cast<const char*>(data.data() + at), shown);
    text += shown < length ? "...\"" : "\"";
    at += length;
  }
  return text;
}

}  // namespace

std::string_view NameOf(TraceEvent event) {
  static constexpr std::string_view kNames[] = {
      "HTTP_RECV_START",      "HTTP_RECV_END", "GRPC_WAITREAD_START",     "GRPC_WAITREAD_END",
      "REQUEST_START",        "QUEUE_START",   "COMPUTE_START",           "COMPUTE_INPUT_END",
      "COMPUTE_OUTPUT_START", "COMPUTE_END",   "INFER_RESPONSE_COMPLETE", "REQUEST_END",
      "HTTP_SEND_START",      "HTTP_SEND_END", "GRPC_SEND_START",         "GRPC_SEND_END"};
  return kNames[static_cast<std::size_t>(event)];
}

std::optional<TraceContext> ParseTraceParent(std::string_view traceparent, std::string_view tracestate) {
  // version "-" trace-id "-" parent-id "-" flags [ "-" more, of later versions ]
  if (traceparent.size() < 55 || traceparent[2] != '-' || traceparent[35] != '-' || traceparent[52] != '-') {
    return std::nullopt;
  }
  const bool digits = HexDigit(traceparent[0]) >= 0 && HexDigit(traceparent[1]) >= 0 &&
                      HexDigit(traceparent[53]) >= 0 && HexDigit(traceparent[54]) >= 0;
  const std::string_view version = traceparent.substr(0, 2);
  if (!digits || version == "ff") return std::nullopt;
  if (traceparent.size() > 55 && (version == "00" || traceparent[55] != '-')) return std::nullopt;
  TraceContext context;
  if (!ReadHex(traceparent.substr(3, 32), context.trace_id)) return std::nullopt;
  if (!ReadHex(traceparent.substr(36, 16), context.span_id)) return std::nullopt;
  context.state = tracestate.substr(0, 512);  // as long as the W3C wants it to be kept
  return context;
}

std::array<std::uint8_t, 8> RandomSpanId() {
  thread_local std::mt19937_64 generator{std::random_device{}()};
  std::uint64_t bits = 0;
  while (bits == 0) bits = generator();
  std::array<std::uint8_t, 8> id;
  std::memcpy(id.data(), &bits, sizeof(bits));
  return id;
}

std::int64_t TraceRecord::Find(TraceEvent event) const {
  const auto it = std::find_if(marks.begin(), marks.end(), [event](const Mark& mark) { return mark.event == event; });
  return it == marks.end() ? 0 : it->nanos;
}

std::size_t TraceRecord::bytes() const {
  std::size_t total = sizeof(*this) + marks.capacity() * sizeof(Mark) + model.size() + request_id.size();
  for (const Tensor& tensor : tensors) total += sizeof(tensor) + tensor.name.size() + tensor.data.size();
  return total;
}

RequestTrace::~RequestTrace() {
  if (sending_) Mark(http_ ? TraceEvent::kHttpSendEnd : TraceEvent::kGrpcSendEnd, NowNanos());
  sink_->Take(std::move(record_));
}

void RequestTrace::Mark(TraceEvent event, std::int64_t nanos) {
  if (!timestamps() || nanos == 0) return;
  sending_ = sending_ || event == TraceEvent::kHttpSendStart || event == TraceEvent::kGrpcSendStart;
  record_.marks.push_back({event, nanos});
}

void RequestTrace::MarkTimes(const RequestTimes& times) {
  Mark(TraceEvent::kRequestStart, times.received);
  Mark(TraceEvent::kQueueStart, times.queued);
  Mark(TraceEvent::kComputeStart, times.compute_start);
  Mark(TraceEvent::kComputeInputEnd, times.infer_start);
  Mark(TraceEvent::kComputeOutputStart, times.infer_end);
  Mark(TraceEvent::kComputeEnd, times.compute_end);
  const std::int64_t now = NowNanos();
  Mark(TraceEvent::kInferResponseComplete, now);
  Mark(TraceEvent::kRequestEnd, now);
}

void RequestTrace::AddTensor(std::string_view activity, std::string_view name, DataType type,
                             std::span<const std::int64_t> shape, std::span<const std::byte> data) {
  if (!tensors()) return;
  std::string dimensions;
  for (const std::int64_t dimension : shape) {
    fmt::format_to(std::back_inserter(dimensions), "{}{}", dimensions.empty() ? "" : ",", dimension);
  }
  record_.tensors.push_back({activity, std::string(name), TensorText(type, data), std::move(dimensions), type});
}

std::shared_ptr<RequestTrace> RequestTrace::MakeChild(std::string_view model, std::int64_t version) const {
  TraceRecord record;
  record.sample = record_.sample;
  record.sample.id = sink_->NextId();
  record.parent_id = record_.sample.id;
  record.model = model;
  record.version = version;
  record.request_id = record_.request_id;
  record.context.trace_id = record_.context.trace_id;
  record.context.state = record_.context.state;
  record.context.span_id = record_.model_span;
  record.model_span = RandomSpanId();
  record.compute_span = RandomSpanId();
  return std::make_shared<RequestTrace>(sink_, std::move(record), http_);
}

}  // namespace tidemark
