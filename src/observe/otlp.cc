#include <httplib.h>

#include "base/status.h"
#include "observe/tracer.h"

// The only file of the server that includes cpp-httplib, which is large.

namespace tidemark {

absl::Status SendOtlp(const std::string& url, const std::string& body, absl::Duration timeout) {
  const std::size_t scheme = url.find("://");
  const std::size_t slash = url.find('/', scheme == std::string::npos ? 0 : scheme + 3);
  const std::string base = url.substr(0, slash);
  const std::string path = slash == std::string::npos ? "/v1/traces" : url.substr(slash);
  httplib::Client client(base);
  if (!client.is_valid()) return absl::InvalidArgumentError(fmt::format("'{}' is no address of a collector", url));
  const auto seconds = static_cast<time_t>(absl::ToInt64Seconds(timeout));
  client.set_connection_timeout(seconds);
  client.set_read_timeout(seconds);
  client.set_write_timeout(seconds);
  const httplib::Result result = client.Post(path, body, "application/json");
  if (!result) return absl::UnavailableError(httplib::to_string(result.error()));
  const int status = result->status;
  if (status >= 200 && status < 300) return absl::OkStatus();
  const std::string text = fmt::format("the collector answers {}", status);
  // OTLP: these four may be tried again.
  if (status == 429 || status == 502 || status == 503 || status == 504) return absl::UnavailableError(text);
  return absl::InvalidArgumentError(text);
}

}  // namespace tidemark
