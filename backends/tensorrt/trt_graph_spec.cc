#include "backends/tensorrt/trt_graph_spec.h"

#include <set>
#include <utility>

#include "backends/tensorrt/trt_config.h"
#include "base/status.h"

namespace tidemark {
namespace {

using Spec = inference::ModelOptimizationPolicy::Cuda::GraphSpec;

void CheckBatch(const inference::ModelConfig& config, const Spec& spec, const std::string& path, Findings& out) {
  const std::int32_t max = config.max_batch_size();
  const std::int32_t lower = spec.graph_lower_bound().batch_size();
  if (max == 0) {
    if (spec.batch_size() != 0 || (spec.has_graph_lower_bound() && lower != 0)) {
      out.Add(path + ".batch_size", "graph spec expects 'batch_size' to be 0 if 'max_batch_size' is 0")
          .Says(fmt::format("{}", spec.batch_size()), "0")
          .SetTo("0");
    }
    return;
  }
  const auto outside = [&](std::int32_t size) { return size < 1 || size > max; };
  if (outside(spec.batch_size()) || (spec.has_graph_lower_bound() && outside(lower))) {
    out.Add(path + ".batch_size", "graph spec expects 'batch_size' to be >= 1 and <= {}", max);
  } else if (spec.has_graph_lower_bound() && lower > spec.batch_size()) {
    out.Add(path + ".graph_lower_bound.batch_size",
            "graph lower bound spec expects 'batch_size' to be <= graph spec 'batch_size'")
        .Says(fmt::format("{}", lower), fmt::format("at most {}", spec.batch_size()));
  }
}

void CheckLowerBound(const Spec& spec, const std::string& path, Findings& out) {
  if (!spec.has_graph_lower_bound()) return;
  const std::string place = path + ".graph_lower_bound";
  for (const auto& [name, shape] : spec.input()) {
    const auto lower = spec.graph_lower_bound().input().find(name);
    if (lower == spec.graph_lower_bound().input().end()) {
      out.Add(place, "graph lower bound spec expects shape for input '{}'", name);
      continue;
    }
    if (lower->second.dim_size() != shape.dim_size()) {
      out.Add(place, "graph lower bound spec expects to have '{} dimensions, got {}", shape.dim_size(),
              lower->second.dim_size());
      continue;
    }
    for (int i = 0; i < shape.dim_size(); ++i) {
      if (lower->second.dim(i) < 0) {
        out.Add(place, "graph spec expects input '{}' to have dimension >= 0", name);
      } else if (lower->second.dim(i) > shape.dim(i)) {
        out.Add(place, "graph lower bound spec expects input '{}' to have dimension <= {}", name, shape.dim(i));
      } else if (lower->second.dim(i) < shape.dim(i)) {
        // The larger graph would read and write rows of another length than the request's.
        out.AddWithCode(absl::StatusCode::kUnimplemented, place,
                        "graph lower bound of input '{}': dimension {} of the lower bound is {} and that of the graph "
                        "{}; this server runs a larger graph for a smaller batch only",
                        name, i, lower->second.dim(i), shape.dim(i));
      }
    }
  }
}

std::vector<TrtGraphSpec> DefaultSpecs(const inference::ModelConfig& config) {
  const std::int32_t max = config.max_batch_size();
  if (max == 0) return {TrtGraphSpec()};
  std::set<std::int32_t> sizes = {1, max};
  if (config.has_dynamic_batching()) {
    const auto& preferred = config.dynamic_batching().preferred_batch_size();
    sizes.insert(preferred.begin(), preferred.end());
  } else if (config.sequence_batching().has_oldest()) {
    const auto& preferred = config.sequence_batching().oldest().preferred_batch_size();
    sizes.insert(preferred.begin(), preferred.end());
  } else {
    sizes.insert({2, 3, 4, 6, 8, 12, 16});
  }
  std::vector<TrtGraphSpec> specs;
  for (const std::int32_t size : sizes) {
    if (size >= 1 && size <= max) specs.push_back({size, size, {}});
  }
  return specs;
}

}  // namespace

absl::StatusOr<std::vector<TrtGraphSpec>> GraphSpecsOf(const inference::ModelConfig& config) {
  const auto& cuda = config.optimization().cuda();
  if (cuda.graph_spec().empty()) return DefaultSpecs(config);
  Findings out;
  std::vector<TrtGraphSpec> specs;
  for (int i = 0; i < cuda.graph_spec_size(); ++i) {
    const Spec& given = cuda.graph_spec(i);
    const std::string path = fmt::format("optimization.cuda.graph_spec[{}]", i);
    CheckBatch(config, given, path, out);
    CheckLowerBound(given, path, out);
    TrtGraphSpec spec;
    spec.batch_size = given.batch_size();
    spec.lowest_batch = given.has_graph_lower_bound() ? given.graph_lower_bound().batch_size() : given.batch_size();
    for (const auto& [name, shape] : given.input()) {
      spec.shapes[name] = Shape(shape.dim().begin(), shape.dim().end());
      for (const std::int64_t dim : shape.dim()) {
        if (dim < 0) out.Add(path + ".input", "graph spec expects input '{}' to have dimension >= 0", name);
      }
    }
    specs.push_back(std::move(spec));
  }
  if (!out.empty()) return StatusOf(out.list());
  return specs;
}

}  // namespace tidemark
