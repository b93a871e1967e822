#include "server/options_table.h"

namespace tidemark {
namespace {

Apply AddRestricted(std::string_view option, std::vector<RestrictedApis> AccessPolicy::Options::*list) {
  return [option, list](const std::string& text, ServerOptions& options) -> absl::Status {
    ASSIGN_OR_RETURN(RestrictedApis apis, ParseRestrictedApis(option, text, options.access.*list));
    (options.access.*list).push_back(std::move(apis));
    return absl::OkStatus();
  };
}

absl::Status SetControlAccess(const std::string& text, ServerOptions& options) {
  ASSIGN_OR_RETURN(options.access.control, ParseControlAccess(text));
  return absl::OkStatus();
}

}  // namespace

std::vector<OptionRow> AccessOptions() {
  return {
      {"control-access", "open|off|ITEM,…",
       "how repository, trace, logging and shared-memory APIs are reached: http:ADDRESS:PORT, unix:PATH, "
       "grpc:ADDRESS:PORT, grpc-unix:PATH, keys:FILE, apis:NAME+NAME",
       SetControlAccess},
      {"http-restricted-api", "APIS:KEY=VALUE", "APIs that need a header; may be repeated",
       AddRestricted("http-restricted-api", &AccessPolicy::Options::http)},
      {"grpc-restricted-protocol", "PROTOCOLS:KEY=VALUE",
       "the same over gRPC, where 'triton-grpc-protocol-' is in front of the key; may be repeated",
       AddRestricted("grpc-restricted-protocol", &AccessPolicy::Options::grpc)},
      {"http-use-ssl", "BOOL", "serve HTTPS instead of HTTP", SetBool([](auto& o) -> auto& { return o.http_use_tls; })},
      {"http-use-ssl-mutual", "BOOL", "HTTPS for clients with a certificate only; implies --http-use-ssl",
       SetBool([](auto& o) -> auto& { return o.http_tls.mutual; })},
      {"http-server-cert", "PATH", "PEM: the server's certificate and its chain",
       SetString([](auto& o) -> auto& { return o.http_tls.certificate_path; })},
      {"http-server-key", "PATH", "PEM: the certificate's key",
       SetString([](auto& o) -> auto& { return o.http_tls.key_path; })},
      {"http-root-cert", "PATH", "PEM: the roots of the clients' certificates",
       SetString([](auto& o) -> auto& { return o.http_tls.root_path; })},
  };
}

}  // namespace tidemark
