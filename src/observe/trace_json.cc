// The two forms in which traces leave: Triton's files and OTLP's JSON.

#include <iterator>
#include <nlohmann/json.hpp>

#include "base/status.h"
#include "observe/request_trace.h"

namespace tidemark {
namespace {

// A JSON string; what is no UTF-8 is replaced.
std::string Quoted(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string Hex(std::span<const std::uint8_t> bytes) {
  std::string text;
  for (const std::uint8_t byte : bytes) fmt::format_to(std::back_inserter(text), "{:02x}", byte);
  return text;
}

bool IsZero(std::span<const std::uint8_t> bytes) {
  for (const std::uint8_t byte : bytes) {
    if (byte != 0) return false;
  }
  return true;
}

bool OfFrontEnd(TraceEvent event) {
  switch (event) {
    case TraceEvent::kHttpRecvStart:
    case TraceEvent::kHttpRecvEnd:
    case TraceEvent::kGrpcWaitreadStart:
    case TraceEvent::kGrpcWaitreadEnd:
    case TraceEvent::kInferResponseComplete:
    case TraceEvent::kHttpSendStart:
    case TraceEvent::kHttpSendEnd:
    case TraceEvent::kGrpcSendStart:
    case TraceEvent::kGrpcSendEnd:
      return true;
    default:
      return false;
  }
}

bool OfCompute(TraceEvent event) { return event >= TraceEvent::kComputeStart && event <= TraceEvent::kComputeEnd; }

struct Span {
  std::string name;
  std::span<const std::uint8_t> id;
  std::span<const std::uint8_t> parent;
  std::string attributes;
  std::string events;
  std::int64_t begin = 0;
  std::int64_t end = 0;

  void Add(const TraceRecord::Mark& mark, std::int64_t offset) {
    fmt::format_to(std::back_inserter(events), "{}{{\"name\":\"{}\",\"timeUnixNano\":\"{}\"}}",
                   events.empty() ? "" : ",", NameOf(mark.event), mark.nanos + offset);
    if (begin == 0 || mark.nanos < begin) begin = mark.nanos;
    if (mark.nanos > end) end = mark.nanos;
  }
};

void AppendSpan(std::string& out, const Span& span, const TraceRecord& record, std::int64_t offset) {
  if (!out.empty()) out += ',';
  out += fmt::format("{{\"traceId\":\"{}\",\"spanId\":\"{}\",", Hex(record.context.trace_id), Hex(span.id));
  if (!IsZero(span.parent)) out += fmt::format("\"parentSpanId\":\"{}\",", Hex(span.parent));
  if (!record.context.state.empty()) out += fmt::format("\"traceState\":{},", Quoted(record.context.state));
  out += fmt::format(
      "\"name\":{},\"kind\":2,\"startTimeUnixNano\":\"{}\",\"endTimeUnixNano\":\"{}\",\"attributes\":[{}],"
      "\"events\":[{}]}}",
      Quoted(span.name), span.begin + offset, span.end + offset, span.attributes, span.events);
}

std::string StringAttribute(std::string_view key, std::string_view value) {
  return fmt::format("{{\"key\":{},\"value\":{{\"stringValue\":{}}}}}", Quoted(key), Quoted(value));
}

std::string IntAttribute(std::string_view key, std::int64_t value) {
  return fmt::format("{{\"key\":\"{}\",\"value\":{{\"intValue\":\"{}\"}}}}", key, value);
}

}  // namespace

std::string TritonTraceJson(const TraceRecord& record) {
  const std::uint64_t id = record.sample.id;
  std::string out;
  bool described = false;
  const auto describe = [&] {
    if (std::exchange(described, true)) return;
    if (!out.empty()) out += ',';
    out += fmt::format("{{\"id\":{},\"model_name\":{},\"model_version\":{}", id, Quoted(record.model), record.version);
    if (!record.request_id.empty()) out += fmt::format(",\"request_id\":{}", Quoted(record.request_id));
    if (record.parent_id != 0) out += fmt::format(",\"parent_id\":{}", record.parent_id);
    out += '}';
    for (const TraceRecord::Tensor& tensor : record.tensors) {
      out += fmt::format(
          ",{{\"id\":{},\"activity\":\"{}\",\"tensor\":{{\"name\":{},\"data\":{},\"shape\":\"{}\",\"dtype\":\"{}\"}}}}",
          id, tensor.activity, Quoted(tensor.name), Quoted(tensor.data), tensor.shape, ProtocolName(tensor.type));
    }
  };
  for (const TraceRecord::Mark& mark : record.marks) {
    if (mark.event >= TraceEvent::kRequestStart) describe();
    if (!out.empty()) out += ',';
    out +=
        fmt::format("{{\"id\":{},\"timestamps\":[{{\"name\":\"{}\",\"ns\":{}}}]}}", id, NameOf(mark.event), mark.nanos);
  }
  describe();
  return out;
}

int OtlpSpanCount(const TraceRecord& record) {
  return 1 + (record.Find(TraceEvent::kComputeStart) != 0 ? 1 : 0) + (IsZero(record.request_span) ? 0 : 1);
}

std::string OtlpSpansJson(const TraceRecord& record, std::int64_t unix_offset) {
  const bool has_root = !IsZero(record.request_span);
  Span root{"InferRequest", record.request_span, record.context.span_id, {}, {}};
  Span model{record.model,
             record.model_span,
             has_root ? std::span<const std::uint8_t>(record.request_span)
                      : std::span<const std::uint8_t>(record.context.span_id),
             {},
             {}};
  Span compute{"compute", record.compute_span, record.model_span, {}, {}};
  for (const TraceRecord::Mark& mark : record.marks) {
    Span& span = OfCompute(mark.event) ? compute : has_root && OfFrontEnd(mark.event) ? root : model;
    span.Add(mark, unix_offset);
  }
  model.attributes = StringAttribute("triton.model_name", record.model) + "," +
                     IntAttribute("triton.model_version", record.version) + "," +
                     IntAttribute("triton.trace_id", static_cast<std::int64_t>(record.sample.id)) + "," +
                     IntAttribute("triton.trace_parent_id", static_cast<std::int64_t>(record.parent_id));
  if (!record.request_id.empty()) model.attributes += "," + StringAttribute("triton.request_id", record.request_id);
  for (const TraceRecord::Tensor& tensor : record.tensors) {
    model.events += fmt::format(
        "{}{{\"name\":\"{}\",\"timeUnixNano\":\"{}\",\"attributes\":[{},{},{},{}]}}", model.events.empty() ? "" : ",",
        tensor.activity, (model.begin != 0 ? model.begin : root.begin) + unix_offset,
        StringAttribute("name", tensor.name), StringAttribute("data", tensor.data),
        StringAttribute("shape", tensor.shape), StringAttribute("dtype", ProtocolName(tensor.type)));
  }
  // A root without moments of its own (gRPC without its marks) spans the model.
  if (root.begin == 0 || (model.begin != 0 && model.begin < root.begin)) root.begin = model.begin;
  if (root.end < model.end) root.end = model.end;
  std::string out;
  if (record.Find(TraceEvent::kComputeStart) != 0) AppendSpan(out, compute, record, unix_offset);
  AppendSpan(out, model, record, unix_offset);
  if (has_root) AppendSpan(out, root, record, unix_offset);
  return out;
}

std::string OtlpRequestJson(const std::vector<std::pair<std::string, std::string>>& resource, std::string_view spans) {
  std::string attributes =
      StringAttribute("telemetry.sdk.name", "tidemark") + "," + StringAttribute("telemetry.sdk.language", "cpp");
  for (const auto& [key, value] : resource) attributes += "," + StringAttribute(key, value);
  return fmt::format(
      "{{\"resourceSpans\":[{{\"resource\":{{\"attributes\":[{}]}},\"scopeSpans\":[{{\"scope\":{{\"name\":"
      "\"triton-server\"}},\"spans\":[{}]}}]}}]}}",
      attributes, spans);
}

}  // namespace tidemark
