#include "audit/http_client.h"

#include <fmt/format.h>
#include <httplib.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/status.h"

// The only file that includes cpp-httplib, which is large.

namespace tidemark::audit {
namespace {

std::string PathEscape(const std::string& name) {
  std::string out;
  for (const char c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                       c == '_' || c == '.' || c == '~';
    if (plain) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

}  // namespace

absl::StatusOr<Endpoint> ParseEndpoint(std::string_view url) {
  const auto invalid = [url](std::string_view why) {
    return absl::InvalidArgumentError(fmt::format("'{}' is no server address: {}; expected HOST:PORT", url, why));
  };
  std::string_view rest = url;
  if (const std::size_t scheme = rest.find("://"); scheme != std::string_view::npos) {
    if (rest.substr(0, scheme) != "http") return invalid("only http is supported");
    rest.remove_prefix(scheme + 3);
  }
  while (!rest.empty() && rest.back() == '/') rest.remove_suffix(1);
  if (rest.find('/') != std::string_view::npos) return invalid("it has a path");
  Endpoint endpoint;
  endpoint.port = 8000;
  std::size_t colon = rest.rfind(':');
  if (!rest.empty() && rest.front() == '[') {
    const std::size_t close = rest.find(']');
    if (close == std::string_view::npos) return invalid("unclosed '['");
    endpoint.host = std::string(rest.substr(1, close - 1));
    colon = close + 1 < rest.size() ? close + 1 : std::string_view::npos;
    if (colon != std::string_view::npos && rest[colon] != ':') return invalid("text after ']'");
  } else {
    endpoint.host = std::string(rest.substr(0, colon));
  }
  if (endpoint.host.empty()) return invalid("it has no host");
  if (colon != std::string_view::npos) {
    const std::string_view digits = rest.substr(colon + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), endpoint.port);
    if (error != std::errc() || end != digits.data() + digits.size() || endpoint.port < 1 || endpoint.port > 65535) {
      return invalid(fmt::format("'{}' is no port", digits));
    }
  }
  return endpoint;
}

std::string HttpAnswer::ErrorText() const {
  const auto json = nlohmann::json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (json.is_object() && json.contains("error") && json["error"].is_string()) return json["error"].get<std::string>();
  return body;
}

struct RepositoryClient::Connection {
  Connection(const Endpoint& endpoint, CancelFlag* flag)
      : client(endpoint.host, endpoint.port), cancel(flag), on_cancel(flag, [this] { client.stop(); }) {}

  httplib::Client client;
  CancelFlag* cancel;
  ScopedOnCancel on_cancel;
};

RepositoryClient::RepositoryClient(Endpoint endpoint, std::chrono::seconds timeout, CancelFlag* cancel)
    : connection_(std::make_unique<Connection>(endpoint, cancel)) {
  // A connection for each request: one that stays open would come and go in the descriptors that are counted.
  connection_->client.set_keep_alive(false);
  connection_->client.set_tcp_nodelay(true);
  connection_->client.set_connection_timeout(5);
  connection_->client.set_read_timeout(timeout.count());
  connection_->client.set_write_timeout(30);
}

RepositoryClient::~RepositoryClient() = default;

namespace {

absl::StatusOr<HttpAnswer> ToAnswer(httplib::Result result, const std::string& what, CancelFlag* cancel) {
  if (cancel != nullptr && cancel->cancelled()) return absl::CancelledError("interrupted");
  if (!result) return absl::UnavailableError(fmt::format("no answer to {}: {}", what, to_string(result.error())));
  return HttpAnswer{result->status, std::move(result->body)};
}

}  // namespace

absl::StatusOr<HttpAnswer> RepositoryClient::Get(const std::string& path) {
  if (connection_->cancel != nullptr && connection_->cancel->cancelled()) return absl::CancelledError("interrupted");
  return ToAnswer(connection_->client.Get(path), "GET " + path, connection_->cancel);
}

absl::StatusOr<HttpAnswer> RepositoryClient::Post(const std::string& path, const std::string& body) {
  if (connection_->cancel != nullptr && connection_->cancel->cancelled()) return absl::CancelledError("interrupted");
  return ToAnswer(connection_->client.Post(path, body, "application/json"), "POST " + path, connection_->cancel);
}

absl::StatusOr<HttpAnswer> RepositoryClient::Load(const std::string& model) {
  return Post(fmt::format("/v2/repository/models/{}/load", PathEscape(model)), "{}");
}

absl::StatusOr<HttpAnswer> RepositoryClient::Unload(const std::string& model) {
  return Post(fmt::format("/v2/repository/models/{}/unload", PathEscape(model)), "{}");
}

absl::StatusOr<HttpAnswer> RepositoryClient::Config(const std::string& model) {
  return Get(fmt::format("/v2/models/{}/config", PathEscape(model)));
}

absl::StatusOr<std::vector<IndexEntry>> RepositoryClient::Index() {
  ASSIGN_OR_RETURN(const HttpAnswer answer, Post("/v2/repository/index", "{}"));
  const auto json = nlohmann::json::parse(answer.body, nullptr, /*allow_exceptions=*/false);
  if (!answer.ok() || !json.is_array()) {
    return absl::InternalError(
        fmt::format("the repository index was answered with {} and {}", answer.status, answer.body.substr(0, 200)));
  }
  std::vector<IndexEntry> entries;
  const auto text = [](const nlohmann::json& object, const char* key) {
    const auto it = object.find(key);
    return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
  };
  for (const auto& item : json) {
    if (!item.is_object()) continue;
    entries.push_back({text(item, "name"), text(item, "version"), text(item, "state"), text(item, "reason")});
  }
  return entries;
}

}  // namespace tidemark::audit
