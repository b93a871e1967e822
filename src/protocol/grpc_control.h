#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/log.h"
#include "inference/model_info.h"
#include "observe/model_statistics.h"
#include "observe/trace_settings.h"
#include "proto/grpc_service.pb.h"
#include "proto/health.pb.h"
#include "protocol/control_requests.h"
#include "protocol/documents.h"

// The control messages of the gRPC protocol: what control_requests.h and documents.h are for HTTP. Errors are
// INVALID_ARGUMENT with Triton's texts, UNIMPLEMENTED for what may not be set over the network. Pure functions,
// thread-safe.

namespace tidemark {

// `versions`: those to be listed, ascending.
void FillModelMetadata(const ModelInfo& model, std::span<const std::int64_t> versions,
                       inference::ModelMetadataResponse& response);

void FillModelStatistics(std::string_view name, std::int64_t version, const ModelStatisticsSnapshot& statistics,
                         std::span<const MemoryUsage> memory, inference::ModelStatistics& out);

// Files are moved out of the request.
absl::StatusOr<LoadParameters> ReadLoadRequest(inference::RepositoryModelLoadRequest& request);
// Whether models that were loaded for this one go with it.
absl::StatusOr<bool> ReadUnloadRequest(const inference::RepositoryModelUnloadRequest& request);

// `settings` with what the request changes.
absl::StatusOr<LogSettings> ReadLogSettings(const inference::LogSettingsRequest& request, LogSettings settings);
void FillLogSettings(const LogSettings& settings, inference::LogSettingsResponse& response);

absl::StatusOr<TraceUpdate> ReadTraceUpdate(const inference::TraceSettingRequest& request);
void FillTraceSettings(const TraceValues& values, inference::TraceSettingResponse& response);

}  // namespace tidemark
