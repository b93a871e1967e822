#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "observe/request_trace.h"
#include "observe/trace_settings.h"

namespace tidemark {

// Makes traces and brings them out: into files (mode triton) or to a collector (mode opentelemetry), on one thread of its
// own that may wait for disk and network. Requests never wait: what comes while the queue is full is dropped, counted
// and logged.
//
// Thread-safe. Legal order: construction - (a thread) Run - Stop - destruction. Requests may outlive it.
class Tracer {
 public:
  struct Options {
    TraceValues start;  // also `mode` and `file`
    // opentelemetry
    std::string url = "http://localhost:4318/v1/traces";
    std::vector<std::pair<std::string, std::string>> resource;
    std::size_t max_queue_size = 2048;  // traces that wait
    absl::Duration schedule_delay = absl::Milliseconds(5000);
    std::size_t max_export_batch_size = 512;  // spans in one message
  };
  // Sends one message to the collector. An error is tried again; INVALID_ARGUMENT is not.
  using Export = std::function<absl::Status(const std::string& body, absl::Duration timeout)>;

  // `send`: null for the real one (OTLP over HTTP).
  explicit Tracer(Options options, Export send = nullptr);
  ~Tracer();
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  TraceSettings& settings() { return settings_; }
  // Whether anything can ever come out; else no thread is needed.
  bool usable() const { return options_.start.mode == TraceMode::kOpenTelemetry || !options_.start.file.empty(); }

  // What a front end knows of a request when it was decoded.
  struct Begin {
    std::string_view model;
    std::int64_t version = 0;
    std::string_view request_id;
    std::string_view traceparent;  // W3C headers, as they came
    std::string_view tracestate;
    bool http = true;  // or gRPC
  };
  // A trace when it is this request's turn, else null. For most servers and requests it is one relaxed load.
  std::shared_ptr<RequestTrace> Start(const Begin& begin) { return settings_.active() ? StartTrace(begin) : nullptr; }

  // Brings traces out until Stop, then what is left, and ends within a few seconds.
  void Run();
  void Stop();
  std::uint64_t dropped() const;

 private:
  class Queue;
  class Files;

  std::shared_ptr<RequestTrace> StartTrace(const Begin& begin);
  void ExportBatch(std::vector<TraceRecord>& waiting, bool last);

  const Options options_;
  const Export send_;
  TraceSettings settings_;
  const std::shared_ptr<Queue> queue_;  // last owner: this, or the last trace
  std::unique_ptr<Files> files_;        // of Run's thread
};

// OTLP over HTTP(S): POSTs JSON to `url`. INVALID_ARGUMENT when the collector says that it will never take it.
absl::Status SendOtlp(const std::string& url, const std::string& body, absl::Duration timeout);

}  // namespace tidemark
