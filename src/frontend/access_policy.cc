#include "frontend/access_policy.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <iterator>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"

namespace tidemark {
namespace {

constexpr std::array<std::string_view, kApiCategories> kNames = {"health",        "metadata",     "inference",
                                                                 "shared-memory", "model-config", "model-repository",
                                                                 "statistics",    "trace",        "logging"};
constexpr std::string_view kGrpcPrefix = "triton-grpc-protocol-";
constexpr std::size_t kShortestKey = 16;
constexpr std::size_t kLongestKey = 1024;
constexpr std::int64_t kWarningNanos = 1'000'000'000;

// Takes what is in front of the first `separator` off `text`, and the separator.
std::string_view TakePart(std::string_view& text, char separator) {
  const std::size_t end = text.find(separator);
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return part;
}

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

std::string_view TakeWord(std::string_view& text) {
  text = Trimmed(text);
  const std::string_view word = text.substr(0, text.find_first_of(" \t"));
  text.remove_prefix(word.size());
  return word;
}

absl::StatusOr<ControlAccess::Address> ParseAddress(std::string_view item, std::string_view text) {
  const std::size_t colon = text.rfind(':');
  ControlAccess::Address address;
  if (colon != std::string_view::npos) {
    std::string_view host = text.substr(0, colon);
    if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
    address.host = host;
    const std::string_view port = text.substr(colon + 1);
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
    if (error == std::errc() && end == port.data() + port.size() && !host.empty()) return address;
  }
  return absl::InvalidArgumentError(
      fmt::format("--control-access: '{}' names no address and port, expected for example '{}127.0.0.1:9000'", item,
                  item.substr(0, item.find(':') + 1)));
}

absl::Status ParseItem(std::string_view item, ControlAccess& access) {
  std::string_view value = item;
  const std::string_view kind = TakePart(value, ':');
  if (kind == "http" || kind == "grpc") {
    ASSIGN_OR_RETURN((kind == "http" ? access.http : access.grpc), ParseAddress(item, value));
    return absl::OkStatus();
  }
  if (kind == "apis") {
    access.apis = ApiSet();
    while (!value.empty()) {
      const std::string_view name = TakePart(value, '+');
      const std::optional<ApiCategory> category = ParseApiCategory(name);
      if (!category) return absl::InvalidArgumentError(fmt::format("--control-access: unknown api '{}'", name));
      access.apis.Add(*category);
    }
    if (access.apis.empty()) return absl::InvalidArgumentError("--control-access: 'apis:' names no api");
    return absl::OkStatus();
  }
  std::string* path = kind == "unix"        ? &access.unix_path
                      : kind == "grpc-unix" ? &access.grpc_unix_path
                      : kind == "keys"      ? &access.keys_path
                                            : nullptr;
  if (path == nullptr || value.empty()) {
    return absl::InvalidArgumentError(
        fmt::format("--control-access: cannot understand '{}', expected open, off, or a list of http:ADDRESS:PORT, "
                    "unix:PATH, grpc:ADDRESS:PORT, grpc-unix:PATH, keys:FILE, apis:NAME+NAME",
                    item));
  }
  *path = value;
  return absl::OkStatus();
}

std::string Sha256(std::string_view text) {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(),
         reinterpret_cast<unsigned char*>(digest.data()));
  return digest;
}

// Equal, in a time that tells nothing about where they differ.
bool SameSecret(std::string_view a, std::string_view b) {
  const std::string x = Sha256(a);
  const std::string y = Sha256(b);
  return CRYPTO_memcmp(x.data(), y.data(), x.size()) == 0;
}

std::optional<std::string> FromHex(std::string_view text) {
  if (text.size() != 2 * SHA256_DIGEST_LENGTH) return std::nullopt;
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); i += 2) {
    unsigned value = 0;
    const auto [end, error] = std::from_chars(text.data() + i, text.data() + i + 2, value, 16);
    if (error != std::errc() || end != text.data() + i + 2) return std::nullopt;
    bytes += static_cast<char>(value);
  }
  return bytes;
}

// NAME KEY [API,…]
absl::StatusOr<ApiKey> ParseKeyLine(std::string_view line) {
  ApiKey key;
  key.name = TakeWord(line);
  const std::string_view secret = TakeWord(line);
  std::string_view apis = TakeWord(line);
  if (secret.empty()) return absl::InvalidArgumentError("expected 'NAME KEY [API,…]'");
  if (!Trimmed(line).empty()) return absl::InvalidArgumentError("more than 'NAME KEY [API,…]'");
  if (secret.starts_with("sha256:")) {
    std::optional<std::string> digest = FromHex(secret.substr(7));
    if (!digest) return absl::InvalidArgumentError("'sha256:' wants 64 hexadecimal digits");
    key.digest = *std::move(digest);
  } else if (secret.size() < kShortestKey || secret.size() > kLongestKey) {
    return absl::InvalidArgumentError(fmt::format("the key of '{}' has {} characters, expected {} to {}", key.name,
                                                  secret.size(), kShortestKey, kLongestKey));
  } else {
    key.digest = Sha256(secret);
  }
  if (apis.empty()) return key;
  key.apis = ApiSet();
  while (!apis.empty()) {
    const std::string_view name = TakePart(apis, ',');
    const std::optional<ApiCategory> category = ParseApiCategory(name);
    if (!category) return absl::InvalidArgumentError(fmt::format("unknown api '{}'", name));
    key.apis.Add(*category);
  }
  return key;
}

absl::StatusOr<std::vector<ApiKey>> ReadApiKeys(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file) return absl::InvalidArgumentError(fmt::format("cannot read the API keys in '{}'", path));
  struct stat status {};
  if (stat(path.c_str(), &status) == 0 && (status.st_mode & (S_IROTH | S_IWOTH)) != 0) {
    LOG_WARNING("the API keys in '{}' can be read or written by every user of this machine", path);
  }
  ASSIGN_OR_RETURN(std::vector<ApiKey> keys, ParseApiKeys(text, path));
  if (keys.empty()) LOG_WARNING("there are no API keys in '{}': nobody may call the control APIs", path);
  return keys;
}

// The key that a request brings: `Authorization: Bearer KEY`, or `X-Tidemark-Key: KEY`.
std::string_view PresentedKey(AccessPolicy::FindHeader find) {
  constexpr std::string_view kScheme = "bearer ";
  if (const std::optional<std::string_view> value = find("authorization"); value && value->size() > kScheme.size()) {
    const bool bearer = std::equal(kScheme.begin(), kScheme.end(), value->begin(),
                                   [](char a, char b) { return a == (b >= 'A' && b <= 'Z' ? b - 'A' + 'a' : b); });
    if (bearer) return Trimmed(value->substr(kScheme.size()));
  }
  return find("x-tidemark-key").value_or("");
}

}  // namespace

std::string_view NameOf(ApiCategory category) { return kNames[static_cast<std::size_t>(category)]; }

std::optional<ApiCategory> ParseApiCategory(std::string_view name) {
  const auto it = std::find(kNames.begin(), kNames.end(), name);
  if (it == kNames.end()) return std::nullopt;
  return static_cast<ApiCategory>(it - kNames.begin());
}

absl::StatusOr<RestrictedApis> ParseRestrictedApis(std::string_view option, std::string_view text,
                                                   std::span<const RestrictedApis> before) {
  const bool grpc = option.starts_with("grpc");
  const std::string_view what = grpc ? "protocol" : "api";
  const std::size_t colon = text.find(':');
  const std::size_t equals = colon == std::string_view::npos ? colon : text.find('=', colon);
  if (equals == std::string_view::npos) {
    return absl::InvalidArgumentError(fmt::format("--{0} option format is '<{1}1>,<{1}2>,...:<key>=<value>'. Got {2}",
                                                  option, grpc ? "protocol" : "API", text));
  }
  RestrictedApis apis;
  apis.key = text.substr(colon + 1, equals - colon - 1);
  apis.value = text.substr(equals + 1);
  std::string_view names = text.substr(0, colon);
  do {
    const std::string_view name = TakePart(names, ',');
    const std::optional<ApiCategory> category = ParseApiCategory(name);
    if (!category) return absl::InvalidArgumentError(fmt::format("unknown restricted {} '{}'", what, name));
    const auto has = [&](const RestrictedApis& other) {
      return std::find(other.categories.begin(), other.categories.end(), *category) != other.categories.end();
    };
    if (has(apis) || std::any_of(before.begin(), before.end(), has)) {
      return absl::InvalidArgumentError(
          fmt::format("restricted {} '{}' can not be specified in multiple config groups", what, name));
    }
    apis.categories.push_back(*category);
  } while (!names.empty());
  return apis;
}

absl::StatusOr<ControlAccess> ParseControlAccess(std::string_view text) {
  ControlAccess access;
  if (text == "open") return access;
  if (text == "off") {
    access.off = true;
    return access;
  }
  if (text.ends_with(',')) return ParseItem("", access);
  do {
    RETURN_IF_ERROR(ParseItem(TakePart(text, ','), access));
  } while (!text.empty());
  if (access.is_open()) {
    return absl::InvalidArgumentError("--control-access: 'apis:' needs a door, 'keys:' or another rule beside it");
  }
  return access;
}

absl::StatusOr<std::vector<ApiKey>> ParseApiKeys(std::string_view text, std::string_view file) {
  std::vector<ApiKey> keys;
  for (int number = 1; !text.empty(); ++number) {
    const std::string_view line = Trimmed(TakePart(text, '\n'));
    if (line.empty() || line.starts_with('#')) continue;
    absl::StatusOr<ApiKey> key = ParseKeyLine(line);
    if (key.ok()) {
      for (const ApiKey& other : keys) {
        if (other.name == key->name) key = absl::InvalidArgumentError(fmt::format("second key of '{}'", other.name));
        if (!key.ok()) break;
        if (other.digest == key->digest) {
          key = absl::InvalidArgumentError(fmt::format("'{}' has the same key as '{}'", key->name, other.name));
          break;
        }
      }
    }
    if (!key.ok()) {
      return absl::InvalidArgumentError(fmt::format("API keys, {}:{}: {}", file, number, MessageOf(key.status())));
    }
    keys.push_back(*std::move(key));
  }
  return keys;
}

absl::Status AccessDecision::status() const {
  switch (outcome) {
    case Outcome::kAllowed:
      return absl::OkStatus();
    case Outcome::kRestricted:
      return absl::UnavailableError(message);
    case Outcome::kNoKey:
      return absl::UnauthenticatedError(message);
    case Outcome::kForbidden:
      return absl::PermissionDeniedError(message);
  }
  return absl::InternalError(message);
}

AccessPolicy::AccessPolicy(Private /*only Create*/, Options options) : options_(std::move(options)) {
  for (std::size_t protocol = 0; protocol < 2; ++protocol) {
    for (const RestrictedApis& apis : protocol == 0 ? options_.http : options_.grpc) {
      for (const ApiCategory category : apis.categories) checked_[protocol].Add(category);
    }
    for (int i = 0; !options_.control.is_open() && i < kApiCategories; ++i) {
      const auto category = static_cast<ApiCategory>(i);
      if (options_.control.apis.Has(category)) checked_[protocol].Add(category);
    }
  }
}

absl::StatusOr<std::unique_ptr<AccessPolicy>> AccessPolicy::Create(Options options) {
  auto policy = std::make_unique<AccessPolicy>(Private(), std::move(options));
  RETURN_IF_ERROR(policy->Reload());
  return policy;
}

absl::Status AccessPolicy::Reload() {
  const std::string& path = options_.control.keys_path;
  if (path.empty()) return absl::OkStatus();
  const FileStamp stamp = StampOf(path);  // before reading: what changes meanwhile is seen next time
  absl::StatusOr<Keys> keys = ReadApiKeys(path);
  absl::MutexLock lock(&mutex_);
  stamp_ = stamp;
  RETURN_IF_ERROR(keys.status());
  keys_ = std::make_shared<const Keys>(*std::move(keys));
  return absl::OkStatus();
}

bool AccessPolicy::FilesChanged() const {
  if (options_.control.keys_path.empty()) return false;
  const FileStamp now = StampOf(options_.control.keys_path);
  absl::MutexLock lock(&mutex_);
  return now != stamp_;
}

std::shared_ptr<const AccessPolicy::Keys> AccessPolicy::keys() const {
  absl::MutexLock lock(&mutex_);
  return keys_;
}

AccessDecision AccessPolicy::CheckRules(Protocol protocol, Door door, ApiCategory category, FindHeader find) const {
  using Outcome = AccessDecision::Outcome;
  const bool grpc = protocol == Protocol::kGrpc;
  const std::string_view what = grpc ? "protocol" : "API";
  const ControlAccess& control = options_.control;
  const bool is_control = control.apis.Has(category);
  if (is_control && (control.off || (control.has_door() && door != Door::kControl))) {
    return {Outcome::kForbidden,
            fmt::format("This {} is restricted, {}", what,
                        control.off ? "--control-access is off" : "it is served at its own address (--control-access)"),
            {}};
  }
  for (const RestrictedApis& apis : grpc ? options_.grpc : options_.http) {
    if (std::find(apis.categories.begin(), apis.categories.end(), category) == apis.categories.end()) continue;
    const std::string key = grpc ? std::string(kGrpcPrefix) + apis.key : apis.key;
    const std::optional<std::string_view> value = find(key);
    if (!value || !SameSecret(*value, apis.value)) {
      return {Outcome::kRestricted, fmt::format("This {} is restricted, expecting header '{}'", what, key), {}};
    }
  }
  if (is_control && !control.keys_path.empty()) return CheckKey(category, find);
  return {};
}

AccessDecision AccessPolicy::CheckKey(ApiCategory category, FindHeader find) const {
  using Outcome = AccessDecision::Outcome;
  const std::string_view presented = PresentedKey(find);
  if (presented.empty()) {
    return {Outcome::kNoKey, fmt::format("'{}' needs an API key: 'Authorization: Bearer <key>'", NameOf(category)), {}};
  }
  const std::shared_ptr<const Keys> keys = this->keys();
  const std::string digest = Sha256(presented.substr(0, kLongestKey + 1));
  const ApiKey* found = nullptr;
  for (const ApiKey& key : *keys) {  // all of them, always
    if (CRYPTO_memcmp(key.digest.data(), digest.data(), digest.size()) == 0) found = &key;
  }
  if (found == nullptr) {
    const std::int64_t now = NowNanos();
    std::int64_t last = last_warning_.load(std::memory_order_relaxed);
    if (now - last > kWarningNanos && last_warning_.compare_exchange_strong(last, now)) {
      LOG_WARNING("control access: an unknown API key was presented for '{}'", NameOf(category));
    }
    return {Outcome::kNoKey, fmt::format("unknown API key for '{}'", NameOf(category)), {}};
  }
  if (!found->apis.Has(category)) {
    return {Outcome::kForbidden, fmt::format("API key '{}' is not for '{}'", found->name, NameOf(category)),
            found->name};
  }
  return {Outcome::kAllowed, {}, found->name};
}

bool IsLoopback(std::string_view address) {
  return address.starts_with("127.") || address == "::1" || address == "localhost";
}

}  // namespace tidemark
