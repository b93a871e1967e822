#include "server/observation.h"

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "frontend/socket.h"

namespace tidemark {

Observation::Observation(const ServerOptions& options)
    : options_(options),
      witness_(MemoryWitness::Create(options.metrics.allow && options.metrics.gpu)),
      statistics_(options.metrics.latencies) {}

void Observation::Connect(Parts parts) {
  parts_ = std::move(parts);
  report_ = std::make_unique<MemoryReport>(MemoryReport::Parts{.registry = parts_.registry,
                                                               .lifecycle = parts_.lifecycle,
                                                               .ledger = parts_.ledger,
                                                               .buffers = parts_.buffers,
                                                               .witness = witness_.get()});
}

absl::Status Observation::OpenMetrics(const std::vector<EventLoop*>& loops) {
  if (!options_.metrics.allow) return absl::OkStatus();
  MetricsPage::Options page;
  page.server_version = TIDEMARK_VERSION;
  page.cpu = options_.metrics.cpu;
  page.gpu = options_.metrics.gpu;
  page.namespaces = options_.model_namespacing;
  page.interval = absl::Milliseconds(options_.metrics.interval_ms);
  page.request_memory_limit = options_.request_memory_limit;
  page_ = std::make_unique<MetricsPage>(std::move(page), MetricsPage::Parts{.registry = parts_.registry,
                                                                            .lifecycle = parts_.lifecycle,
                                                                            .ledger = parts_.ledger,
                                                                            .buffers = parts_.buffers,
                                                                            .witness = witness_.get(),
                                                                            .statistics = &statistics_,
                                                                            .cache = parts_.cache,
                                                                            .report = report_.get(),
                                                                            .connections = parts_.connections});
  handler_ = std::make_unique<MetricsHandler>(page_.get(), parts_.offload);
  HttpServerOptions http;
  http.address = options_.metrics.address.empty() ? options_.http_address : options_.metrics.address;
  http.port = options_.metrics.port;
  ASSIGN_OR_RETURN(server_, HttpServer::Create(std::move(http), loops, handler_.get(), parts_.buffers));
  return absl::OkStatus();
}

absl::Status Observation::StartMetrics() {
  if (server_ == nullptr) return absl::OkStatus();
  server_->Start();
  LOG_INFO("Started Metrics Service at {}:{}",
           options_.metrics.address.empty() ? options_.http_address : options_.metrics.address, server_->port());
  return WritePortFile(options_.metrics.port_file, server_->port());
}

void Observation::StopMetrics() {
  if (server_ != nullptr) server_->Stop(std::chrono::milliseconds(0));
}

absl::Status WritePortFile(const std::string& path, std::uint16_t port) {
  if (path.empty()) return absl::OkStatus();
  const std::filesystem::path draft = path + ".new";
  const auto failed = [&](std::string_view why) {
    return absl::InternalError(fmt::format("cannot write the port file '{}': {}", path, why));
  };
  errno = 0;
  if (!(std::ofstream(draft) << port << std::endl)) return failed(ErrnoText(errno));
  std::error_code error;
  std::filesystem::rename(draft, path, error);
  return error ? failed(error.message()) : absl::OkStatus();
}

}  // namespace tidemark
