#include "audit/environment.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

namespace tidemark::audit {

void DescribeMachine(Environment& environment) {
  utsname names{};
  if (uname(&names) == 0) {
    environment.host = names.nodename;
    environment.kernel = fmt::format("{} {} {}", names.sysname, names.release, names.machine);
  }
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    const std::size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) {
      environment.cpu = line.substr(colon + 2);
      break;
    }
  }
  environment.cpu_count = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  environment.memory_bytes = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  environment.auditor_version = TIDEMARK_VERSION;
  environment.started = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
}

void DescribeServer(RepositoryClient& client, Environment& environment) {
  const auto answer = client.Get("/v2");
  if (!answer.ok() || !answer->ok()) return;
  const auto json = nlohmann::json::parse(answer->body, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return;
  const auto text = [&](const char* key) {
    const auto it = json.find(key);
    return it != json.end() && it->is_string() ? it->get<std::string>() : std::string();
  };
  environment.server_name = text("name");
  environment.server_version = text("version");
  if (!json.contains("extensions") || !json["extensions"].is_array()) return;
  for (const auto& extension : json["extensions"]) {
    if (extension.is_string()) environment.server_extensions.push_back(extension.get<std::string>());
  }
}

}  // namespace tidemark::audit
