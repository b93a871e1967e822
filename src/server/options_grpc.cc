#include <limits>

#include "server/options_table.h"

namespace tidemark {
namespace {

constexpr int kMaxInt = std::numeric_limits<int>::max();

absl::Status SetCompressionLevel(const std::string& text, ServerOptions& options) {
  if (text == "none") {
    options.grpc_compression_level = 0;
  } else if (text == "low") {
    options.grpc_compression_level = 1;
  } else if (text == "medium") {
    options.grpc_compression_level = 6;
  } else if (text == "high") {
    options.grpc_compression_level = 9;
  } else {
    return absl::InvalidArgumentError(fmt::format(
        "invalid argument for --grpc_infer_response_compression_level: '{}', expected none, low, medium or high",
        text));
  }
  return absl::OkStatus();
}

// A duration in milliseconds.
template <typename Get>
Apply SetMillis(Get get) {
  return [get](const std::string& text, ServerOptions& options) -> absl::Status {
    ASSIGN_OR_RETURN(const int millis, ParseNumber<int>(text, 1, kMaxInt));
    get(options) = std::chrono::milliseconds(millis);
    return absl::OkStatus();
  };
}

// Of Triton's thread and object pools; read so that a bad value is told, as there.
Apply CheckedOnly(std::string_view name, int low, int high, std::string_view out_of_range) {
  return [=](const std::string& text, ServerOptions& options) -> absl::Status {
    ASSIGN_OR_RETURN(const int number, ParseNumber<int>(text, std::numeric_limits<int>::min(), kMaxInt));
    if (number < low || number > high) return absl::InvalidArgumentError(std::string(out_of_range));
    return WithoutEffect(name, "calls share the event loops and allocate nothing that could be kept")(text, options);
  };
}

std::vector<OptionRow> KeepaliveOptions() {
  return {
      {"grpc-keepalive-time", "MS", "silence after which a client is asked whether it is there",
       SetMillis([](auto& o) -> auto& { return o.grpc.keepalive.time; })},
      {"grpc-keepalive-timeout", "MS", "how long its answer may take",
       SetMillis([](auto& o) -> auto& { return o.grpc.keepalive.timeout; })},
      {"grpc-keepalive-permit-without-calls", "BOOL", "the same while there is no call",
       SetBool([](auto& o) -> auto& { return o.grpc.keepalive.permit_without_calls; })},
      {"grpc-http2-max-pings-without-data", "N", "questions in a row without data between them; 0 = any number",
       SetNumber<int>(
           0, kMaxInt, [](auto& o) -> auto& { return o.grpc.keepalive.max_pings_without_data; })},
      {"grpc-http2-min-recv-ping-interval-without-data", "MS", "clients that ask sooner get a strike",
       SetMillis([](auto& o) -> auto& { return o.grpc.keepalive.min_recv_ping_interval_without_data; })},
      {"grpc-http2-max-ping-strikes", "N", "strikes beyond which a connection is ended; 0 = any number",
       SetNumber<int>(
           0, kMaxInt, [](auto& o) -> auto& { return o.grpc.keepalive.max_ping_strikes; })},
      {"grpc-max-connection-age", "MS", "then a connection takes no new calls",
       SetMillis([](auto& o) -> auto& { return o.grpc.keepalive.connection_age; })},
      {"grpc-max-connection-age-grace", "MS", "and this long after that it is cut",
       SetMillis([](auto& o) -> auto& { return o.grpc.keepalive.connection_age_grace; })},
  };
}

}  // namespace

std::vector<OptionRow> GrpcOptions() {
  std::vector<OptionRow> rows = {
      {"allow-grpc", "BOOL", "serve gRPC; default: true, but not with AIP_MODE=PREDICTION",
       [](const std::string& text, ServerOptions& o) -> absl::Status {
         ASSIGN_OR_RETURN(o.allow_grpc, ParseBool(text));
         o.allow_grpc_given = true;
         return absl::OkStatus();
       }},
      {"grpc-address", "ADDRESS", "where to listen", SetString([](auto& o) -> auto& { return o.grpc.address; })},
      {"grpc-port", "PORT", "0 = any free port",
       [](const std::string& text, ServerOptions& o) -> absl::Status {
         ASSIGN_OR_RETURN(o.grpc.port, ParseNumber<std::uint16_t>(text, 0, 65535));
         return absl::OkStatus();
       }},
      {"reuse-grpc-port", "BOOL", "share the port with other processes",
       SetBool([](auto& o) -> auto& { return o.grpc.reuse_port; })},
      {"grpc-unix-socket", "PATH", "serve gRPC on a UNIX-domain socket, too",
       SetString([](auto& o) -> auto& { return o.grpc.unix_path; })},
      {"grpc-port-file", "PATH", "write the bound port here once it is open",
       SetString([](auto& o) -> auto& { return o.grpc_port_file; })},
      {"grpc-header-forward-pattern", "REGEX", "metadata passed on as request parameters",
       SetString([](auto& o) -> auto& { return o.grpc_header_forward_pattern; })},
      {"grpc-infer-response-compression-level", "LEVEL", "none, low, medium or high", SetCompressionLevel},
      {"grpc-max-message-size", "BYTES", "largest message of a client",
       SetNumber<std::uint64_t>(
           1, (std::uint64_t{1} << 31) - 1, [](auto& o) -> auto& { return o.grpc.limits.message_bytes; })},
      {"grpc-max-concurrent-streams", "N", "calls open at one time on a connection",
       SetNumber<std::uint32_t>(
           1, 1 << 20, [](auto& o) -> auto& { return o.grpc.limits.streams; })},
      {"grpc-infer-thread-count", "N", "",
       CheckedOnly("grpc-infer-thread-count", 2, 128,
                   "invalid argument for --grpc_infer_thread_count. Must be in the range 2 to 128.")},
      {"grpc-infer-allocation-pool-size", "N", "",
       CheckedOnly("grpc-infer-allocation-pool-size", 0, kMaxInt,
                   "invalid argument for --grpc_infer_allocation_pool_size. Must be positive.")},
      {"grpc-max-response-pool-size", "N", "",
       CheckedOnly("grpc-max-response-pool-size", 1, kMaxInt,
                   "invalid argument for --grpc_max_response_pool_size. Must be greater than 0.")},
      {"grpc-use-ssl", "BOOL", "serve gRPC over TLS", SetBool([](auto& o) -> auto& { return o.grpc_use_tls; })},
      {"grpc-use-ssl-mutual", "BOOL", "for clients with a certificate only; implies --grpc-use-ssl",
       SetBool([](auto& o) -> auto& { return o.grpc_tls.mutual; })},
      {"grpc-server-cert", "PATH", "PEM: the server's certificate and its chain",
       SetString([](auto& o) -> auto& { return o.grpc_tls.certificate_path; })},
      {"grpc-server-key", "PATH", "PEM: the certificate's key",
       SetString([](auto& o) -> auto& { return o.grpc_tls.key_path; })},
      {"grpc-root-cert", "PATH", "PEM: the roots of the clients' certificates",
       SetString([](auto& o) -> auto& { return o.grpc_tls.root_path; })},
  };
  for (OptionRow& row : KeepaliveOptions()) rows.push_back(std::move(row));
  return rows;
}

}  // namespace tidemark
