#include "frontend/http/route_match.h"

#include <algorithm>

namespace tidemark {
namespace {

// Takes `prefix` off `text`.
bool Take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// Takes one non-empty segment, up to the next '/' or the end.
bool TakeSegment(std::string_view& text, std::string_view& segment) {
  segment = text.substr(0, text.find('/'));
  text.remove_prefix(segment.size());
  return !segment.empty();
}

bool IsVersion(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Behind "/v2/models/".
RouteMatch MatchModel(std::string_view rest) {
  RouteMatch match;
  if (!TakeSegment(rest, match.model)) return {};
  if (Take(rest, "/versions/")) {
    if (!TakeSegment(rest, match.version) || !IsVersion(match.version)) return {};
  }
  if (rest.empty()) match.route = Route::kModelMetadata;
  if (rest == "/infer") match.route = Route::kInfer;
  if (rest == "/ready") match.route = Route::kModelReady;
  if (rest == "/config") match.route = Route::kModelConfig;
  if (rest == "/stats") match.route = Route::kModelStatistics;
  if (rest == "/memory") match.route = Route::kModelMemory;
  if (rest == "/generate") match.route = Route::kGenerate;
  if (rest == "/generate_stream") match.route = Route::kGenerateStream;
  if (rest == "/trace/setting" && match.version.empty()) match.route = Route::kModelTrace;
  return match;
}

// Behind "/v2/systemsharedmemory" or "/v2/cudasharedmemory".
RouteMatch MatchSharedMemory(std::string_view rest, Route status, Route registration, Route unregistration) {
  RouteMatch match;
  if (Take(rest, "/region/") && !TakeSegment(rest, match.region)) return {};
  if (rest == "/status") match.route = status;
  if (rest == "/register") match.route = registration;
  if (rest == "/unregister") match.route = unregistration;
  return match;
}

// Behind "/v2/repository"; "/index" or "/models/M/load", with or without a repository's name in front.
RouteMatch MatchRepositoryTail(std::string_view rest) {
  RouteMatch match;
  if (rest == "/index") {
    match.route = Route::kIndex;
  } else if (Take(rest, "/models/") && TakeSegment(rest, match.model)) {
    if (rest == "/load") match.route = Route::kLoad;
    if (rest == "/unload") match.route = Route::kUnload;
  }
  return match;
}

RouteMatch MatchRepository(std::string_view rest) {
  std::string_view named = rest;
  std::string_view repository;
  if (Take(named, "/") && TakeSegment(named, repository)) {
    RouteMatch match = MatchRepositoryTail(named);
    match.repository = repository;
    if (match.route != Route::kNotFound) return match;
  }
  return MatchRepositoryTail(rest);
}

}  // namespace

RouteMatch MatchRoute(std::string_view path) {
  RouteMatch match;
  std::string_view rest = path;
  if (path == "/dashboard" || path == "/dashboard/") {
    match.route = Route::kDashboard;
    return match;
  }
  if (!Take(rest, "/v2")) return match;
  if (rest == "/models/stats") {
    match.route = Route::kAllStatistics;
  } else if (Take(rest, "/models/")) {
    match = MatchModel(rest);
  } else if (rest.empty()) {
    match.route = Route::kServerMetadata;
  } else if (rest == "/health/live") {
    match.route = Route::kLive;
  } else if (rest == "/health/ready") {
    match.route = Route::kReady;
  } else if (rest == "/memory") {
    match.route = Route::kMemory;
  } else if (rest == "/logging") {
    match.route = Route::kLogging;
  } else if (rest == "/trace/setting") {
    match.route = Route::kTrace;
  } else if (Take(rest, "/systemsharedmemory")) {
    match = MatchSharedMemory(rest, Route::kSystemMemoryStatus, Route::kSystemMemoryRegister,
                              Route::kSystemMemoryUnregister);
  } else if (Take(rest, "/cudasharedmemory")) {
    match = MatchSharedMemory(rest, Route::kCudaMemoryStatus, Route::kCudaMemoryRegister, Route::kCudaMemoryUnregister);
  } else if (Take(rest, "/repository")) {
    match = MatchRepository(rest);
  }
  return match.route == Route::kNotFound ? RouteMatch() : match;
}

RouteRule RuleOf(Route route) {
  switch (route) {
    case Route::kNotFound:
      break;
    case Route::kServerMetadata:
    case Route::kModelMetadata:
      return {.get = true, .post = false, .category = ApiCategory::kMetadata};
    case Route::kLive:
    case Route::kReady:
    case Route::kModelReady:
      return {.get = true, .post = false, .category = ApiCategory::kHealth};
    case Route::kModelConfig:
      return {.get = true, .post = false, .category = ApiCategory::kModelConfig};
    case Route::kModelStatistics:
    case Route::kAllStatistics:
    case Route::kMemory:
    case Route::kModelMemory:
    case Route::kDashboard:
      return {.get = true, .post = false, .category = ApiCategory::kStatistics};
    case Route::kInfer:
    case Route::kGenerate:
    case Route::kGenerateStream:
      return {.get = false, .post = true, .category = ApiCategory::kInference};
    case Route::kIndex:
    case Route::kLoad:
    case Route::kUnload:
      return {.get = false, .post = true, .category = ApiCategory::kModelRepository};
    case Route::kLogging:
      return {.get = true, .post = true, .category = ApiCategory::kLogging};
    case Route::kTrace:
    case Route::kModelTrace:
      return {.get = true, .post = true, .category = ApiCategory::kTrace};
    case Route::kSystemMemoryStatus:
    case Route::kCudaMemoryStatus:
      return {.get = true, .post = false, .category = ApiCategory::kSharedMemory};
    case Route::kSystemMemoryRegister:
    case Route::kSystemMemoryUnregister:
    case Route::kCudaMemoryRegister:
    case Route::kCudaMemoryUnregister:
      return {.get = false, .post = true, .category = ApiCategory::kSharedMemory};
  }
  return {};
}

}  // namespace tidemark
