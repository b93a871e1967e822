#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/cancel.h"

namespace tidemark::audit {

// Where a server listens.
struct Endpoint {
  std::string host;
  int port = 0;
};

// From "HOST:PORT", "http://HOST:PORT", "HOST" (port 8000) or "[v6]:PORT".
absl::StatusOr<Endpoint> ParseEndpoint(std::string_view url);

struct HttpAnswer {
  int status = 0;
  std::string body;

  bool ok() const { return status == 200; }
  // The `error` member of a JSON body, else the body itself.
  std::string ErrorText() const;
};

struct IndexEntry {
  std::string name;
  std::string version;
  std::string state;
  std::string reason;
};

// Blocking client of the HTTP model-repository API (docs: the KServe v2 protocol and Triton's model repository
// extension); nothing in it is particular to one server. Every call answers what the server said; UNAVAILABLE when there
// was no answer, CANCELLED after a cancel. Not thread-safe, but the CancelFlag may be set from any thread: it closes
// the connection.
class RepositoryClient {
 public:
  // `cancel` (may be null) must outlive the client. `timeout` bounds each answer; loads may be slow.
  RepositoryClient(Endpoint endpoint, std::chrono::seconds timeout, CancelFlag* cancel);
  ~RepositoryClient();
  RepositoryClient(const RepositoryClient&) = delete;
  RepositoryClient& operator=(const RepositoryClient&) = delete;

  absl::StatusOr<HttpAnswer> Get(const std::string& path);
  absl::StatusOr<HttpAnswer> Post(const std::string& path, const std::string& body);

  absl::StatusOr<HttpAnswer> Load(const std::string& model);
  absl::StatusOr<HttpAnswer> Unload(const std::string& model);
  absl::StatusOr<HttpAnswer> Config(const std::string& model);
  // INTERNAL when the answer is no index.
  absl::StatusOr<std::vector<IndexEntry>> Index();

 private:
  struct Connection;
  std::unique_ptr<Connection> connection_;
};

}  // namespace tidemark::audit
