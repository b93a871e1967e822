#pragma once

#include <cstdint>
#include <string_view>

#include "frontend/access_policy.h"

namespace tidemark {

enum class Route : std::uint8_t {
  kNotFound,
  kServerMetadata,
  kLive,
  kReady,
  kModelMetadata,
  kModelReady,
  kModelConfig,
  kModelStatistics,
  kAllStatistics,
  kMemory,
  kModelMemory,
  kDashboard,
  kInfer,
  kGenerate,
  kGenerateStream,
  kIndex,
  kLoad,
  kUnload,
  kLogging,
  kTrace,
  kModelTrace,
  kSystemMemoryStatus,
  kSystemMemoryRegister,
  kSystemMemoryUnregister,
  kCudaMemoryStatus,
  kCudaMemoryRegister,
  kCudaMemoryUnregister,
};

// What a path names. Views into the path.
struct RouteMatch {
  Route route = Route::kNotFound;
  std::string_view model;
  std::string_view version;     // digits; empty: none
  std::string_view repository;  // of repository routes; empty: none
  std::string_view region;      // of shared-memory routes; empty: none
};

// Matches the raw path, without query, as Triton's regular expressions do (protocol digest 1.3): whole, in their order,
// no percent decoding, no trailing slash. Thread-safe.
RouteMatch MatchRoute(std::string_view path);

// What a route takes, and the group of APIs it belongs to.
struct RouteRule {
  bool get = false;
  bool post = false;
  ApiCategory category = ApiCategory::kMetadata;
};
RouteRule RuleOf(Route route);

}  // namespace tidemark
