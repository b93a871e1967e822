#include "frontend/access_policy.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>

#include "base/status.h"
#include "tests/support/certificates.h"

namespace tidemark {
namespace {

using Headers = std::map<std::string, std::string, std::less<>>;
using Outcome = AccessDecision::Outcome;

constexpr const char* kSecret = "0123456789abcdef";

AccessDecision Ask(const AccessPolicy& policy, Protocol protocol, Door door, ApiCategory category,
                   const Headers& headers = {}) {
  return policy.Check(protocol, door, category, [&](std::string_view name) -> std::optional<std::string_view> {
    const auto it = headers.find(name);
    if (it == headers.end()) return std::nullopt;
    return it->second;
  });
}

std::unique_ptr<AccessPolicy> Make(std::string_view control, AccessPolicy::Options options = {}) {
  options.control = ParseControlAccess(control).value();
  return AccessPolicy::Create(std::move(options)).value();
}

class KeyFile {
 public:
  explicit KeyFile(std::string_view text)
      : path_(std::filesystem::temp_directory_path() / ("keys-test-" + std::to_string(getpid()))) {
    Write(text);
  }
  ~KeyFile() { std::filesystem::remove(path_); }
  void Write(std::string_view text) const { WriteFile(path_, text); }
  std::string path() const { return path_; }

 private:
  std::filesystem::path path_;
};

constexpr ApiCategory kControl[] = {ApiCategory::kModelRepository, ApiCategory::kSharedMemory, ApiCategory::kTrace,
                                    ApiCategory::kLogging};
constexpr ApiCategory kOthers[] = {ApiCategory::kHealth, ApiCategory::kMetadata, ApiCategory::kInference,
                                   ApiCategory::kModelConfig, ApiCategory::kStatistics};
constexpr Protocol kProtocols[] = {Protocol::kHttp, Protocol::kGrpc};

TEST(AccessPolicyTest, EverythingIsOpenByDefault) {
  const auto policy = AccessPolicy::Create({}).value();
  for (const Protocol protocol : kProtocols) {
    for (int i = 0; i < kApiCategories; ++i) {
      EXPECT_TRUE(Ask(*policy, protocol, Door::kService, static_cast<ApiCategory>(i)).allowed());
    }
  }
}

TEST(AccessPolicyTest, WithADoorControlIsServedThereOnly) {
  const auto policy = Make("unix:/tmp/control");
  for (const Protocol protocol : kProtocols) {
    for (const ApiCategory category : kControl) {
      const AccessDecision decision = Ask(*policy, protocol, Door::kService, category);
      EXPECT_EQ(decision.outcome, Outcome::kForbidden) << NameOf(category);
      EXPECT_EQ(decision.http_status(), 403);
      EXPECT_EQ(decision.status().code(), absl::StatusCode::kPermissionDenied);
      EXPECT_TRUE(Ask(*policy, protocol, Door::kControl, category).allowed());
    }
    for (const ApiCategory category : kOthers) {
      EXPECT_TRUE(Ask(*policy, protocol, Door::kService, category).allowed()) << NameOf(category);
      EXPECT_TRUE(Ask(*policy, protocol, Door::kControl, category).allowed()) << NameOf(category);
    }
  }
}

TEST(AccessPolicyTest, OffMeansOffEverywhere) {
  const auto policy = Make("off");
  for (const ApiCategory category : kControl) {
    EXPECT_FALSE(Ask(*policy, Protocol::kHttp, Door::kService, category).allowed());
    EXPECT_FALSE(Ask(*policy, Protocol::kGrpc, Door::kControl, category).allowed());
  }
  EXPECT_TRUE(Ask(*policy, Protocol::kGrpc, Door::kService, ApiCategory::kInference).allowed());
}

TEST(AccessPolicyTest, KeysOpenWhatTheyAreFor) {
  // The second key is given by its SHA-256.
  const KeyFile file(
      "# names and keys\n\nops 0123456789abcdef\r\n"
      "tracer sha256:f39dac6cbaba535e2c207cd0cd8f154974223c848f727f98b3564cea569b41cf trace,logging\n");
  const auto policy = Make("keys:" + file.path());
  for (const Protocol protocol : kProtocols) {
    for (const Door door : {Door::kService, Door::kControl}) {
      const auto ask = [&](const Headers& headers, ApiCategory category) {
        return Ask(*policy, protocol, door, category, headers);
      };
      const AccessDecision none = ask({}, ApiCategory::kTrace);
      EXPECT_EQ(none.outcome, Outcome::kNoKey);
      EXPECT_EQ(none.http_status(), 401);
      EXPECT_EQ(none.status().code(), absl::StatusCode::kUnauthenticated);
      const AccessDecision good = ask({{"authorization", "Bearer 0123456789abcdef"}}, ApiCategory::kModelRepository);
      EXPECT_TRUE(good.allowed());
      EXPECT_EQ(good.caller, "ops");
      EXPECT_TRUE(ask({{"authorization", "bEARER  0123456789abcdef "}}, ApiCategory::kLogging).allowed());
      EXPECT_TRUE(ask({{"x-tidemark-key", kSecret}}, ApiCategory::kLogging).allowed());
      for (const char* wrong : {"Bearer 0123456789abcdeF", "Bearer 0123456789abcde", "Bearer 0123456789abcdef0",
                                "Bearer ", "Bearer", "", "Basic 0123456789abcdef", "0123456789abcdef", "Bearer ops"}) {
        EXPECT_EQ(ask({{"authorization", wrong}}, ApiCategory::kLogging).outcome, Outcome::kNoKey) << wrong;
      }
      const Headers tracer = {{"x-tidemark-key", "abcdefghijklmnop"}};
      EXPECT_TRUE(ask(tracer, ApiCategory::kTrace).allowed());
      EXPECT_EQ(ask(tracer, ApiCategory::kModelRepository).outcome, Outcome::kForbidden);
      EXPECT_TRUE(ask({}, ApiCategory::kInference).allowed());
    }
  }
}

TEST(AccessPolicyTest, AKeyForSomeApisIsForbiddenOthersByName) {
  const KeyFile file("tracer 0123456789abcdef trace\n");
  const auto policy = Make("keys:" + file.path());
  const Headers headers = {{"x-tidemark-key", kSecret}};
  EXPECT_TRUE(Ask(*policy, Protocol::kHttp, Door::kService, ApiCategory::kTrace, headers).allowed());
  const AccessDecision decision = Ask(*policy, Protocol::kHttp, Door::kService, ApiCategory::kLogging, headers);
  EXPECT_EQ(decision.outcome, Outcome::kForbidden);
  EXPECT_EQ(decision.message, "API key 'tracer' is not for 'logging'");
  EXPECT_EQ(decision.caller, "tracer");
}

TEST(AccessPolicyTest, KeysAreReadAgainAndABadFileChangesNothing) {
  const KeyFile file("ops 0123456789abcdef\n");
  const auto policy = Make("keys:" + file.path());
  const auto opens = [&](const char* key) {
    return Ask(*policy, Protocol::kHttp, Door::kService, ApiCategory::kTrace, {{"x-tidemark-key", key}}).allowed();
  };
  EXPECT_FALSE(policy->FilesChanged());
  file.Write("ops a-different-key-now\n");
  EXPECT_TRUE(policy->FilesChanged());
  EXPECT_TRUE(opens(kSecret));
  EXPECT_TRUE(policy->Reload().ok());
  EXPECT_FALSE(policy->FilesChanged());
  EXPECT_FALSE(opens(kSecret));
  EXPECT_TRUE(opens("a-different-key-now"));
  file.Write("ops short\n");
  const absl::Status status = policy->Reload();
  EXPECT_NE(MessageOf(status).find(":1: the key of 'ops' has 5 characters"), std::string::npos) << status;
  EXPECT_TRUE(opens("a-different-key-now"));
  EXPECT_FALSE(policy->FilesChanged());
  file.Write("# nobody\n");
  EXPECT_TRUE(policy->Reload().ok());
  EXPECT_FALSE(opens("a-different-key-now"));
}

TEST(AccessPolicyTest, BadKeyFilesAreRefusedByLineWithoutShowingKeys) {
  const std::pair<const char*, const char*> cases[] = {
      {"a\n", "keys:1: expected 'NAME KEY"},
      {"\n\na 0123456789abcdef trace x\n", "keys:3: more than"},
      {"a 0123456789abcdef nonsense\n", "keys:1: unknown api 'nonsense'"},
      {"a sha256:0123\n", "keys:1: 'sha256:' wants 64"},
      {"a 0123456789abcdef\na 0123456789abcdeg\n", "keys:2: second key of 'a'"},
      {"a 0123456789abcdef\nb 0123456789abcdef\n", "keys:2: 'b' has the same key as 'a'"},
      {"a 0123456789abcde\n", "has 15 characters"},
  };
  for (const auto& [text, expected] : cases) {
    const absl::Status status = ParseApiKeys(text, "keys").status();
    EXPECT_NE(MessageOf(status).find(expected), std::string::npos) << text << status;
    EXPECT_EQ(MessageOf(status).find("0123456789"), std::string::npos) << status;
  }
  EXPECT_FALSE(
      AccessPolicy::Create({.http = {}, .grpc = {}, .control = ParseControlAccess("keys:/no/such").value()}).ok());
}

TEST(AccessPolicyTest, RestrictedApisWantTheirHeader) {
  AccessPolicy::Options options;
  options.http.push_back(ParseRestrictedApis("http-restricted-api", "inference,logging:key=secret", {}).value());
  options.grpc.push_back(ParseRestrictedApis("grpc-restricted-protocol", "trace:k=a=b", {}).value());
  const auto policy = AccessPolicy::Create(options).value();
  const AccessDecision none = Ask(*policy, Protocol::kHttp, Door::kService, ApiCategory::kInference);
  EXPECT_EQ(none.message, "This API is restricted, expecting header 'key'");
  EXPECT_EQ(none.http_status(), 403);
  EXPECT_FALSE(Ask(*policy, Protocol::kHttp, Door::kControl, ApiCategory::kLogging, {{"key", "Secret"}}).allowed());
  EXPECT_TRUE(Ask(*policy, Protocol::kHttp, Door::kService, ApiCategory::kLogging, {{"key", "secret"}}).allowed());
  EXPECT_TRUE(Ask(*policy, Protocol::kHttp, Door::kService, ApiCategory::kTrace).allowed());
  EXPECT_TRUE(Ask(*policy, Protocol::kGrpc, Door::kService, ApiCategory::kInference).allowed());
  const AccessDecision grpc = Ask(*policy, Protocol::kGrpc, Door::kService, ApiCategory::kTrace, {{"k", "a=b"}});
  EXPECT_EQ(grpc.message, "This protocol is restricted, expecting header 'triton-grpc-protocol-k'");
  EXPECT_EQ(grpc.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(Ask(*policy, Protocol::kGrpc, Door::kService, ApiCategory::kTrace, {{"triton-grpc-protocol-k", "a=b"}})
                  .allowed());
}

TEST(AccessPolicyTest, RestrictionsAreParsedAsTritonDoes) {
  const auto error = [](std::string_view text, std::span<const RestrictedApis> before) {
    return std::string(MessageOf(ParseRestrictedApis("http-restricted-api", text, before).status()));
  };
  EXPECT_EQ(error("inference", {}),
            "--http-restricted-api option format is '<API1>,<API2>,...:<key>=<value>'. Got inference");
  EXPECT_EQ(error("x:k=v", {}), "unknown restricted api 'x'");
  EXPECT_EQ(error("trace,trace:k=v", {}), "restricted api 'trace' can not be specified in multiple config groups");
  const RestrictedApis before[] = {{{ApiCategory::kTrace}, "k", "v"}};
  EXPECT_EQ(error("logging,trace:k=v", before),
            "restricted api 'trace' can not be specified in multiple config groups");
}

TEST(AccessPolicyTest, ControlAccessIsParsedWhole) {
  const ControlAccess access =
      ParseControlAccess("http:[::1]:9000,grpc:localhost:0,unix:/a b,grpc-unix:/c,keys:/k,apis:trace+inference")
          .value();
  EXPECT_EQ(access.http->host, "::1");
  EXPECT_EQ(access.http->port, 9000);
  EXPECT_EQ(access.grpc->host, "localhost");
  EXPECT_EQ(access.grpc->port, 0);
  EXPECT_EQ(access.unix_path, "/a b");
  EXPECT_EQ(access.grpc_unix_path, "/c");
  EXPECT_EQ(access.keys_path, "/k");
  EXPECT_EQ(access.apis, (ApiSet{ApiCategory::kTrace, ApiCategory::kInference}));
  EXPECT_TRUE(ParseControlAccess("open").value().is_open());
  for (const char* text : {"", "closed", "http:", "http:9000", "http::9000", "http:a:65536", "http:a:1x", "unix:",
                           "keys:", "apis:", "apis:x", "apis:trace", "unix:/a,", "open,unix:/a", "off,keys:/k"}) {
    EXPECT_EQ(ParseControlAccess(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace tidemark
