#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "frontend/http/routes.h"
#include "frontend/shared_memory.h"
#include "protocol/control_requests.h"
#include "protocol/json_writer.h"
#include "protocol/shared_memory_requests.h"

namespace tidemark {
namespace {

std::string StatusJson(const std::vector<SharedMemoryInfo>& regions, bool system) {
  std::string out = "[";
  for (const SharedMemoryInfo& region : regions) {
    if (out.size() > 1) out += ',';
    out += "{\"name\":";
    AppendJsonString(out, region.name);
    if (system) {
      out += ",\"key\":";
      AppendJsonString(out, region.key);
      out += fmt::format(",\"offset\":{}", region.offset);
    } else {
      out += fmt::format(",\"device_id\":{}", region.device);
    }
    out += fmt::format(",\"byte_size\":{}}}", region.byte_size);
  }
  out += ']';
  return out;
}

absl::Status Register(SharedMemoryRegions& regions, bool system, const std::string& name, std::string_view body) {
  if (system) {
    ASSIGN_OR_RETURN(const SystemMemoryRequest request, ParseSystemMemoryRequest(body));
    return regions.RegisterSystem(name, request.key, request.offset, request.byte_size);
  }
  ASSIGN_OR_RETURN(const CudaMemoryRequest request, ParseCudaMemoryRequest(body));
  return regions.RegisterCuda(name, std::as_bytes(std::span(request.raw_handle)), request.device, request.byte_size);
}

}  // namespace

void HttpRoutes::SharedMemoryStatus(const RouteMatch& match, ResponseSender sender) const {
  const bool system = match.route == Route::kSystemMemoryStatus;
  const auto regions =
      system ? parts_.shared_memory->SystemStatus(match.region) : parts_.shared_memory->CudaStatus(match.region);
  if (!regions.ok()) return http::SendError(std::move(sender), regions.status());
  http::SendJson(std::move(sender), StatusJson(*regions, system));
}

// Opening an object of another process, mapping and unmapping it are not for the event loop.
void HttpRoutes::RegisterSharedMemory(const RouteMatch& match, HttpRequest& request, ResponseSender sender) const {
  const bool system = match.route == Route::kSystemMemoryRegister;
  absl::Status status = parts_.shared_memory->Allowed();
  if (status.ok() && match.region.empty()) {
    status = absl::InvalidArgumentError(
        fmt::format("'region name' is necessary to register {} shared memory region", system ? "system" : "cuda"));
  }
  if (status.ok()) status = CheckJsonSize(request.body().size(), options_.max_input_bytes);
  if (!status.ok()) return http::SendError(std::move(sender), status);
  parts_.offload([regions = parts_.shared_memory, system, name = std::string(match.region), body = request.body_text(),
                  answer = std::move(sender)]() mutable {
    const absl::Status registered = Register(*regions, system, name, body);
    if (!registered.ok()) return http::SendError(std::move(answer), registered);
    http::SendEmpty(std::move(answer), http::kJson);
  });
}

void HttpRoutes::UnregisterSharedMemory(const RouteMatch& match, ResponseSender sender) const {
  if (const absl::Status status = parts_.shared_memory->Allowed(); !status.ok()) {
    return http::SendError(std::move(sender), status);
  }
  const bool system = match.route == Route::kSystemMemoryUnregister;
  parts_.offload(
      [regions = parts_.shared_memory, system, name = std::string(match.region), answer = std::move(sender)]() mutable {
        const absl::Status status = system ? regions->UnregisterSystem(name) : regions->UnregisterCuda(name);
        if (!status.ok()) return http::SendError(std::move(answer), status);
        http::SendEmpty(std::move(answer), http::kJson);
      });
}

}  // namespace tidemark
