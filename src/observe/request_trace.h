#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/data_type.h"
#include "observe/model_statistics.h"
#include "observe/trace_settings.h"

namespace tidemark {

// Moments of a request, by Triton's names.
enum class TraceEvent : std::uint8_t {
  kHttpRecvStart,
  kHttpRecvEnd,
  kGrpcWaitreadStart,
  kGrpcWaitreadEnd,
  kRequestStart,
  kQueueStart,
  kComputeStart,
  kComputeInputEnd,
  kComputeOutputStart,
  kComputeEnd,
  kInferResponseComplete,
  kRequestEnd,
  kHttpSendStart,
  kHttpSendEnd,
  kGrpcSendStart,
  kGrpcSendEnd,
};
std::string_view NameOf(TraceEvent event);

// W3C trace context: whose trace a request goes on with.
struct TraceContext {
  std::array<std::uint8_t, 16> trace_id{};
  std::array<std::uint8_t, 8> span_id{};  // of the caller
  std::string state;                      // `tracestate`, as it came
};
// A `traceparent` of any version but ff; nothing for what is none.
std::optional<TraceContext> ParseTraceParent(std::string_view traceparent, std::string_view tracestate);

// What is known of one traced request (or one step of an ensemble) when it has ended. A plain value.
struct TraceRecord {
  struct Mark {
    TraceEvent event;
    std::int64_t nanos;  // NowNanos() clock
  };
  struct Tensor {
    std::string_view activity;  // "TENSOR_QUEUE_INPUT" or "TENSOR_BACKEND_OUTPUT"
    std::string name;
    std::string data;
    std::string shape;
    DataType type;
  };

  TraceSample sample;
  std::uint64_t parent_id = 0;  // of the ensemble's trace; 0: none
  std::string model;
  std::int64_t version = 0;
  std::string request_id;
  std::vector<Mark> marks;  // in the order of the file
  std::vector<Tensor> tensors;
  // OpenTelemetry: the trace, the caller's span (zero: none), this request's spans.
  TraceContext context;
  std::array<std::uint8_t, 8> request_span{};  // zero for a step of an ensemble
  std::array<std::uint8_t, 8> model_span{};
  std::array<std::uint8_t, 8> compute_span{};

  std::int64_t Find(TraceEvent event) const;  // 0: not marked
  std::size_t bytes() const;                  // of memory, about
};

// Where records go. Thread-safe.
class TraceSink {
 public:
  virtual ~TraceSink() = default;
  virtual void Take(TraceRecord record) = 0;
  virtual std::uint64_t NextId() = 0;
};

// A request that is being traced; belongs to the request (InferenceRequest::trace), later to its answer: its end is the
// moment after which nothing more happens, and its destruction hands the record to the sink. Used by one thread at a
// time.
class RequestTrace {
 public:
  // Last owner of the sink: the tracer, or the last trace.
  RequestTrace(std::shared_ptr<TraceSink> sink, TraceRecord record, bool http)
      : sink_(std::move(sink)), record_(std::move(record)), http_(http) {}
  // Marks the end of sending for what has begun to.
  ~RequestTrace();
  RequestTrace(const RequestTrace&) = delete;
  RequestTrace& operator=(const RequestTrace&) = delete;

  bool timestamps() const { return record_.sample.timestamps; }
  bool tensors() const { return record_.sample.tensors; }

  // Ignored without TIMESTAMPS, and for a moment that is not known (0).
  void Mark(TraceEvent event, std::int64_t nanos);
  // The moments from the request's start to the end of its computation, and now as its end.
  void MarkTimes(const RequestTimes& times);
  // Values of a tensor, if TENSORS are traced. Long ones are cut, with "..." at the end.
  void AddTensor(std::string_view activity, std::string_view name, DataType type, std::span<const std::int64_t> shape,
                 std::span<const std::byte> data);
  // The trace of a step of this ensemble.
  std::shared_ptr<RequestTrace> MakeChild(std::string_view model, std::int64_t version) const;

 private:
  const std::shared_ptr<TraceSink> sink_;
  TraceRecord record_;
  const bool http_;
  bool sending_ = false;
};

// Eight random bytes that are not all zero.
std::array<std::uint8_t, 8> RandomSpanId();

// The record as members of Triton's trace file, with commas between them but none at the ends.
std::string TritonTraceJson(const TraceRecord& record);
// Spans of the record in OTLP's JSON, with commas between them. `unix_offset`: Unix time minus NowNanos(), nanoseconds.
std::string OtlpSpansJson(const TraceRecord& record, std::int64_t unix_offset);
int OtlpSpanCount(const TraceRecord& record);
// The message of an export around `spans`.
std::string OtlpRequestJson(const std::vector<std::pair<std::string, std::string>>& resource, std::string_view spans);

}  // namespace tidemark
