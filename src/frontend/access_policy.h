#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "frontend/file_stamp.h"

// Who may call what, once for both protocols (docs/operations.md, "Security").
//
// How a front end uses it: it finds out which route or rpc a request names, and hence its ApiCategory, before it looks at
// anything else of the request (method, body, whether the model exists); then it asks
//
//   const AccessDecision decision = policy.Check(Protocol::kGrpc, door_, ApiCategory::kTrace,
//                                                [&](std::string_view name) { return metadata.Find(name); });
//   if (!decision.allowed()) return Answer(decision.status());   // HTTP: decision.http_status(), decision.message
//
// `door_` is a property of the listening socket: a front end that listens for --control-access=grpc:… or grpc-unix:…
// makes those connections with Door::kControl, all others with Door::kService. What names no category of its own (own
// routes that only read, reflection) is kMetadata or kStatistics; grpc.health.v1 is kHealth; every infer rpc kInference.

namespace tidemark {

// The groups of --http-restricted-api, --grpc-restricted-protocol and --control-access.
enum class ApiCategory : std::uint8_t {
  kHealth,
  kMetadata,
  kInference,
  kSharedMemory,
  kModelConfig,
  kModelRepository,
  kStatistics,
  kTrace,
  kLogging,
};
inline constexpr int kApiCategories = 9;
// "health", "shared-memory", …
std::string_view NameOf(ApiCategory category);
std::optional<ApiCategory> ParseApiCategory(std::string_view name);

// A set of categories.
class ApiSet {
 public:
  constexpr ApiSet() = default;
  constexpr ApiSet(std::initializer_list<ApiCategory> all) {
    for (const ApiCategory category : all) Add(category);
  }
  static constexpr ApiSet All() {
    ApiSet all;
    all.bits_ = (1U << kApiCategories) - 1;
    return all;
  }
  constexpr void Add(ApiCategory category) { bits_ |= 1U << static_cast<unsigned>(category); }
  constexpr bool Has(ApiCategory category) const { return (bits_ >> static_cast<unsigned>(category) & 1U) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  friend constexpr bool operator==(ApiSet, ApiSet) = default;

 private:
  std::uint32_t bits_ = 0;
};

// One `<API>[,<API>…]:<key>=<value>`: these APIs want that header with that value.
struct RestrictedApis {
  std::vector<ApiCategory> categories;
  std::string key;
  std::string value;
};
// Parses one use of `option` ("http-restricted-api"). INVALID_ARGUMENT with Triton's texts for a bad form, an unknown
// API, or one that is in `before` already.
absl::StatusOr<RestrictedApis> ParseRestrictedApis(std::string_view option, std::string_view text,
                                                   std::span<const RestrictedApis> before);

// --control-access: how the control APIs may be reached.
//   open                    as every other API (the default, as Triton)
//   off                     not at all
//   ITEM[,ITEM…]            ITEM is one of
//     http:ADDRESS:PORT     a door of its own for them, an HTTP port ("[::1]:9000" for IPv6; port 0: any free one)
//     unix:PATH             the same, HTTP on a UNIX-domain socket
//     grpc:ADDRESS:PORT, grpc-unix:PATH    the same with gRPC
//     keys:FILE             each call needs one of the API keys of FILE (ParseApiKeys), through whatever door
//     apis:NAME[+NAME…]     which APIs are meant; default: model-repository+shared-memory+trace+logging
// With a door the ordinary ports of both protocols refuse these APIs. Every other API is served at every door.
struct ControlAccess {
  struct Address {
    std::string host;
    std::uint16_t port = 0;
  };
  bool off = false;
  std::optional<Address> http;
  std::optional<Address> grpc;
  std::string unix_path;
  std::string grpc_unix_path;
  std::string keys_path;
  ApiSet apis{ApiCategory::kModelRepository, ApiCategory::kSharedMemory, ApiCategory::kTrace, ApiCategory::kLogging};

  bool has_door() const { return http || grpc || !unix_path.empty() || !grpc_unix_path.empty(); }
  bool is_open() const { return !off && !has_door() && keys_path.empty(); }
};
// INVALID_ARGUMENT names the item that is wrong and the forms there are.
absl::StatusOr<ControlAccess> ParseControlAccess(std::string_view text);

// One key: its SHA-256, never its text.
struct ApiKey {
  std::string name;
  std::string digest;  // 32 bytes
  ApiSet apis = ApiSet::All();
};
// Lines `NAME KEY [API,…]`; KEY is the key itself (16 characters or more) or `sha256:` and 64 hexadecimal digits; blank
// lines and those that begin with '#' are skipped. INVALID_ARGUMENT names `file` and line, never a key.
absl::StatusOr<std::vector<ApiKey>> ParseApiKeys(std::string_view text, std::string_view file);

enum class Protocol : std::uint8_t { kHttp, kGrpc };
enum class Door : std::uint8_t { kService, kControl };

struct AccessDecision {
  enum class Outcome : std::uint8_t {
    kAllowed,
    kRestricted,  // the header of a restricted API is missing or wrong
    kNoKey,       // no API key, or none that is known
    kForbidden,   // not through this door, or not with this key
  };
  Outcome outcome = Outcome::kAllowed;
  std::string message;  // what to tell the client
  std::string caller;   // name of the key that was used; for the log

  bool allowed() const { return outcome == Outcome::kAllowed; }
  // 401 for kNoKey (with `WWW-Authenticate: Bearer`), else 403.
  int http_status() const { return outcome == Outcome::kNoKey ? 401 : 403; }
  // For gRPC: UNAVAILABLE for kRestricted (as Triton), UNAUTHENTICATED, PERMISSION_DENIED.
  absl::Status status() const;
};

// Thread-safe; outlives the front ends. A call that no rule is about costs a look at a table.
class AccessPolicy {
 private:
  struct Private {};  // only Create can name it

 public:
  struct Options {
    std::vector<RestrictedApis> http;
    std::vector<RestrictedApis> grpc;  // the header has "triton-grpc-protocol-" in front of the key
    ControlAccess control;
  };
  // The value of a header or metadata entry by its name (lower case; names match in any case), or nothing.
  using FindHeader = absl::FunctionRef<std::optional<std::string_view>(std::string_view name)>;

  // Reads the key file, if any: INVALID_ARGUMENT when it cannot be read or understood.
  static absl::StatusOr<std::unique_ptr<AccessPolicy>> Create(Options options);
  AccessPolicy(Private, Options options);
  AccessPolicy(const AccessPolicy&) = delete;
  AccessPolicy& operator=(const AccessPolicy&) = delete;

  AccessDecision Check(Protocol protocol, Door door, ApiCategory category, FindHeader find) const {
    if (!checked_[static_cast<std::size_t>(protocol)].Has(category)) return {};
    return CheckRules(protocol, door, category, find);
  }
  // Whether the category is one of the control APIs.
  bool IsControl(ApiCategory category) const { return options_.control.apis.Has(category); }

  // Reads the key file again, for requests from now on. On an error everything stays as it is. Not on an event loop.
  absl::Status Reload();
  // True when the key file is another one than at the last Create or Reload, even a failed one.
  bool FilesChanged() const;

  const ControlAccess& control() const { return options_.control; }

 private:
  using Keys = std::vector<ApiKey>;

  AccessDecision CheckRules(Protocol protocol, Door door, ApiCategory category, FindHeader find) const;
  AccessDecision CheckKey(ApiCategory category, FindHeader find) const;
  std::shared_ptr<const Keys> keys() const;

  const Options options_;
  ApiSet checked_[2];  // by protocol: categories that any rule is about
  mutable absl::Mutex mutex_;
  std::shared_ptr<const Keys> keys_ ABSL_GUARDED_BY(mutex_);  // last owner: this, or a check that still reads them
  FileStamp stamp_ ABSL_GUARDED_BY(mutex_);
  mutable std::atomic<std::int64_t> last_warning_{0};  // NowNanos of the last warning about a wrong key
};

// Whether only this machine reaches a listening address: "127.…", "::1", "localhost".
bool IsLoopback(std::string_view address);

}  // namespace tidemark
