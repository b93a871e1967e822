#include "backends/tensorrt/plan_header.h"

#include <cstdint>
#include <cstring>

#include "base/status.h"

namespace tidemark {
namespace {

constexpr std::size_t kHeaderBytes = 32;
constexpr std::size_t kSizeAt = 16;
constexpr std::size_t kVersionAt = 24;

}  // namespace

std::string TrtVersion::Text() const { return fmt::format("{}.{}.{}.{}", major, minor, patch, build); }

absl::StatusOr<TrtVersion> ReadPlanHeader(std::span<const std::byte> plan, std::string_view what) {
  const auto refuse = [&](std::string_view why) {
    return absl::InternalError(fmt::format("unable to create TensorRT engine: '{}' {}", what, why));
  };
  if (plan.size() < kHeaderBytes) return refuse(fmt::format("has {} bytes, too few for a plan", plan.size()));
  if (std::memcmp(plan.data(), "vtrt", 4) == 0) {
    return refuse("is a plan of TensorRT for RTX, another product, which this server does not run");
  }
  if (std::memcmp(plan.data(), "ftrt", 4) != 0) return refuse("is not a TensorRT plan (it does not begin with 'ftrt')");
  std::uint64_t bytes = 0;
  std::memcpy(&bytes, plan.data() + kSizeAt, sizeof bytes);
  if (bytes > plan.size()) {
    return refuse(fmt::format("is cut: {} of the plan's {} bytes are there", plan.size(), bytes));
  }
  const auto part = [&](std::size_t i) { return std::to_integer<int>(plan[kVersionAt + i]); };
  return TrtVersion{part(0), part(1), part(2), part(3)};
}

}  // namespace tidemark
