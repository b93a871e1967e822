#include "server/options.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <set>
#include <utility>

#include "base/status.h"
#include "server/options_table.h"

namespace tidemark {
namespace {

absl::StatusOr<ServerOptions> Parse(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "--model-repository=/models");
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  return ParseServerOptions(pointers);
}

std::string Error(std::vector<std::string> arguments) {
  return std::string(MessageOf(Parse(std::move(arguments)).status()));
}

std::vector<std::string> TritonsOptions() {
  std::ifstream file(TIDEMARK_TRITON_OPTIONS);
  std::vector<std::string> names;
  for (std::string name; std::getline(file, name);) names.push_back(name);
  return names;
}

TEST(OptionsTest, EveryOptionOfTritonIsKnownAndHelpNamesIt) {
  std::set<std::string_view> known;
  for (const OptionRow& row : AllOptions()) EXPECT_TRUE(known.insert(row.name).second) << row.name << " twice";
  const std::string help = Error({"--help"});
  const std::vector<std::string> names = TritonsOptions();
  EXPECT_GT(names.size(), 85u);
  for (const std::string& name : names) {
    EXPECT_TRUE(known.contains(name)) << name;
    EXPECT_NE(help.find("--" + name), std::string::npos) << name;
  }
}

TEST(OptionsTest, WhatHasNoEffectIsTakenAndSaysWhy) {
  const std::vector<OptionRow> without = OptionsWithoutEffect();
  for (const OptionRow& row : without) {
    bool replaced = false;
    for (const OptionRow& other : AllOptions())
      replaced = replaced || (other.name == row.name && other.help != row.help);
    if (replaced) continue;
    const absl::StatusOr<ServerOptions> options = Parse({fmt::format("--{}=1", row.name)});
    ASSERT_TRUE(options.ok()) << row.name << options.status();
    ASSERT_EQ(options->without_effect.size(), 1u) << row.name;
    EXPECT_EQ(options->without_effect[0], fmt::format("option '--{}' has no effect: {}", row.name, row.help));
  }
}

TEST(OptionsTest, AnUnknownOptionIsRefusedWithTheNearestName) {
  EXPECT_EQ(Error({"--http-prot=1"}), "unrecognized option '--http-prot'; did you mean '--http-port'?");
  EXPECT_EQ(Error({"--stric-readiness=1"}),
            "unrecognized option '--stric-readiness'; did you mean '--strict-readiness'?");
  EXPECT_EQ(Error({"stray"}), "Unexpected argument: stray");
  EXPECT_EQ(Error({"-x"}), "Unexpected argument: -x");
}

TEST(OptionsTest, UnambiguousPrefixesAndBothFormsOfValuesAreTaken) {
  EXPECT_FALSE(Parse({"--log-warn", "false"})->log.warning);
  EXPECT_FALSE(Parse({"--log-warn=off"})->log.warning);
  EXPECT_EQ(Error({"--http-=1"}).substr(0, 38), "option '--http-' is ambiguous; possibi");
  EXPECT_EQ(Error({"--http-port"}), "option '--http-port' requires an argument");
  EXPECT_EQ(Error({"--disable-auto-complete-config=1"}), "option '--disable-auto-complete-config' takes no value");
  EXPECT_FALSE(Parse({"--disable-auto-complete-config"})->auto_complete);
}

TEST(OptionsTest, BadValuesHaveTritonsTexts) {
  EXPECT_EQ(Error({"--http-port=x"}), "Bad option: \"--http-port\".\nInvalid option value. Got x");
  EXPECT_EQ(Error({"--allow-http=maybe"}), "Bad option: \"--allow-http\".\ninvalid value for bool option: maybe");
  EXPECT_EQ(Error({"--http-max-input-size=0"}),
            "Bad option: \"--http-max-input-size\".\nError: --http-max-input-size must be greater than 0.");
  EXPECT_EQ(Error({"--trace-config=level=FOO"}),
            "Bad option: \"--trace-config\".\ninvalid value for trace level option: foo");
  EXPECT_EQ(
      Error({"--trace-config=mode=foo"}),
      "Bad option: \"--trace-config\".\ninvalid value for trace mode option: foo. Available options are \"triton\" "
      "and \"opentelemetry\"");
  EXPECT_EQ(Error({"--trace-config=triton,x"}),
            "Bad option: \"--trace-config\".\n--trace-config option format is '<trace mode>,<setting>=<value>'. Got "
            "triton,x");
  for (const char* text :
       {"--trace-config=rate=-1", "--trace-config=count=-2", "--trace-config=nonsense=1",
        "--trace-config=triton,nonsense=1", "--trace-config=opentelemetry,nonsense=1",
        "--trace-config=opentelemetry,resource=x", "--trace-config=opentelemetry,bsp_max_queue_size=0",
        "--trace-level=x", "--control-access=x", "--http-restricted-api=x", "--grpc-restricted-protocol=trace"}) {
    EXPECT_EQ(Parse({text}).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

// Each has a field of its own; that the structures arrive where they count is seen in tests/integration.
TEST(OptionsTest, EveryLimitOfAClientReachesItsOwnField) {
  const auto ms = [](std::chrono::milliseconds value) { return value.count(); };
  const std::vector<std::pair<std::string_view, std::function<std::int64_t(const ServerOptions&)>>> limits = {
      {"http-max-head-size=3001", [](auto& o) { return o.http_limits.head_bytes; }},
      {"http-max-header-count=3002", [](auto& o) { return o.http_limits.header_count; }},
      {"http-max-body-size=3003", [](auto& o) { return o.http_limits.body_bytes; }},
      {"http-max-stream-backlog=3004", [](auto& o) { return o.http_limits.stream_bytes; }},
      {"http-max-connections=3005", [](auto& o) { return o.http_limits.connections; }},
      {"http-progress-size=3006", [](auto& o) { return o.http_limits.progress_bytes; }},
      {"http-head-timeout-secs=3007", [&](auto& o) { return ms(o.http_limits.head_timeout) / 1000; }},
      {"http-body-timeout-secs=3008", [&](auto& o) { return ms(o.http_limits.body_timeout) / 1000; }},
      {"http-idle-timeout-secs=3009", [&](auto& o) { return ms(o.http_limits.idle_timeout) / 1000; }},
      {"http-progress-window-secs=3010", [&](auto& o) { return ms(o.http_limits.progress_window) / 1000; }},
      {"http-memory-wait-secs=3011", [&](auto& o) { return ms(o.http_limits.memory_wait) / 1000; }},
      {"http-max-json-depth=301", [](auto& o) { return o.http_json.depth; }},
      {"http-max-json-elements=3013", [](auto& o) { return o.http_json.elements; }},
      {"http-max-input-size=3014", [](auto& o) { return o.http_max_input_size; }},
      {"max-shm-regions=3015", [](auto& o) { return o.max_shm_regions; }},
      {"grpc-max-message-size=3016", [](auto& o) { return o.grpc.limits.message_bytes; }},
      {"grpc-max-concurrent-streams=3017", [](auto& o) { return o.grpc.limits.streams; }},
      {"grpc-keepalive-time=3018", [&](auto& o) { return ms(o.grpc.keepalive.time); }},
      {"grpc-keepalive-timeout=3019", [&](auto& o) { return ms(o.grpc.keepalive.timeout); }},
      {"grpc-http2-max-pings-without-data=3020", [](auto& o) { return o.grpc.keepalive.max_pings_without_data; }},
      {"grpc-http2-min-recv-ping-interval-without-data=3021",
       [&](auto& o) { return ms(o.grpc.keepalive.min_recv_ping_interval_without_data); }},
      {"grpc-http2-max-ping-strikes=3022", [](auto& o) { return o.grpc.keepalive.max_ping_strikes; }},
      {"grpc-max-connection-age=3023", [&](auto& o) { return ms(o.grpc.keepalive.connection_age.value()); }},
      {"grpc-max-connection-age-grace=3024",
       [&](auto& o) { return ms(o.grpc.keepalive.connection_age_grace.value()); }},
  };
  std::vector<std::string> arguments;
  for (const auto& [text, get] : limits) arguments.push_back("--" + std::string(text));
  const absl::StatusOr<ServerOptions> options = Parse(arguments);
  ASSERT_TRUE(options.ok()) << options.status();
  for (const auto& [text, get] : limits) {
    EXPECT_EQ(get(*options), std::stoll(std::string(text.substr(text.find('=') + 1)))) << text;
  }
}

TEST(OptionsTest, TraceOptionsOfBothAgesMeanTheSame) {
  const TraceValues now =
      Parse({"--trace-config=triton,file=/f", "--trace-config=level=TIMESTAMPS", "--trace-config=level=TENSORS",
             "--trace-config=rate=2", "--trace-config=count=3", "--trace-config=triton,log-frequency=4"})
          ->trace.start;
  const TraceValues then = Parse({"--trace-file=/f", "--trace-level=TIMESTAMPS", "--trace-level=TENSORS",
                                  "--trace-rate=2", "--trace-count=3", "--trace-log-frequency=4"})
                               ->trace.start;
  EXPECT_EQ(now, then);
  EXPECT_TRUE(now.timestamps && now.tensors);
  EXPECT_EQ(now.log_frequency, 4u);
  EXPECT_NE(Error({"--trace-level=TIMESTAMPS"}).find("trace file name is not given"), std::string::npos);
  const absl::StatusOr<ServerOptions> otel = Parse(
      {"--trace-config=mode=opentelemetry", "--trace-config=level=TIMESTAMPS",
       "--trace-config=opentelemetry,resource=service.name=x", "--trace-config=opentelemetry,bsp_schedule_delay=7"});
  ASSERT_TRUE(otel.ok()) << otel.status();
  EXPECT_EQ(otel->trace.resource.at(0).second, "x");
  EXPECT_EQ(otel->trace.start.mode_options.at(2).second, "7");
}

TEST(OptionsTest, RestrictionsOfBothProtocolsAreKeptApart) {
  const absl::StatusOr<ServerOptions> options =
      Parse({"--http-restricted-api=trace:a=b", "--grpc-restricted-protocol=trace,health:c=d"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->access.http.size(), 1u);
  EXPECT_EQ(options->access.grpc.at(0).categories.size(), 2u);
  EXPECT_NE(Error({"--http-restricted-api=trace:a=b", "--http-restricted-api=trace:c=d"})
                .find("restricted api 'trace' can not be specified in multiple config groups"),
            std::string::npos);
}

TEST(OptionsTest, TheCacheIsLocalAndHasASize) {
  EXPECT_EQ(Parse({})->response_cache_bytes, 0U);
  EXPECT_EQ(Parse({"--cache-config=local,size=4096"})->response_cache_bytes, 4096U);
  const absl::StatusOr<ServerOptions> old = Parse({"--response-cache-byte-size=4096"});
  EXPECT_EQ(old->response_cache_bytes, 4096U);
  EXPECT_EQ(old->without_effect.size(), 1U) << "it is deprecated";
  EXPECT_EQ(Parse({"--response-cache-byte-size=0"})->response_cache_bytes, 0U);
  EXPECT_EQ(
      Error({"--response-cache-byte-size=1", "--cache-config=local,size=1"}),
      "Error: Incompatible flags --response-cache-byte-size and --cache-config both provided. Please provide one or "
      "the other.");
  EXPECT_EQ(Error({"--cache-config=local,size=1", "--cache-config=redis,host=h"}),
            "found multiple cache configurations, but only a single cache is currently supported");
}

// Sets environment variables for one test.
class Environment {
 public:
  Environment(std::initializer_list<std::pair<const char*, const char*>> values) {
    for (const auto& [name, value] : values) {
      names_.push_back(name);
      setenv(name, value, 1);
    }
  }
  ~Environment() {
    for (const char* name : names_) unsetenv(name);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::vector<const char*> names_;
};

TEST(OptionsTest, VertexIsSetUpByItsPlatform) {
  EXPECT_FALSE(*Parse({})->vertex.allow);
  EXPECT_EQ(Error({"--allow-vertex-ai=true"}), "AIP_PREDICT_ROUTE is not defined for Vertex AI endpoint");
  const Environment environment{{"AIP_MODE", "PREDICTION"},
                                {"AIP_HTTP_PORT", "9090"},
                                {"AIP_HEALTH_ROUTE", "/h"},
                                {"AIP_PREDICT_ROUTE", "/p"},
                                {"AIP_STORAGE_URI", "/storage"}};
  const absl::StatusOr<ServerOptions> options = ParseServerOptions({});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_TRUE(*options->vertex.allow);
  EXPECT_FALSE(options->allow_http);
  EXPECT_FALSE(options->allow_grpc);
  std::string grpc = "--allow-grpc=true";
  char* const arguments[] = {grpc.data()};
  EXPECT_TRUE(ParseServerOptions(arguments)->allow_grpc);
  EXPECT_EQ(options->vertex.port, 9090);
  EXPECT_EQ(options->vertex.health_route, "/h");
  EXPECT_EQ(options->vertex.predict_route, "/p");
  ASSERT_EQ(options->model_repositories.size(), 1U);
  EXPECT_EQ(options->model_repositories[0], "/storage");
  EXPECT_TRUE(Parse({"--allow-http=true"})->allow_http);
  EXPECT_EQ(Parse({"--vertex-ai-port=7"})->vertex.port, 7);
  EXPECT_EQ(Parse({})->model_repositories[0], "/models");
  const absl::StatusOr<ServerOptions> off = Parse({"--allow-vertex-ai=false"});
  ASSERT_TRUE(off.ok()) << off.status();
  EXPECT_FALSE(*off->vertex.allow);
  EXPECT_TRUE(off->allow_http && off->allow_grpc) << "there would be no port";
  EXPECT_EQ(Error({"--allow-sagemaker=true", "--sagemaker-port=9090"}),
            "--sagemaker-port and --vertex-ai-port are both 9090, expected two different ports");
}

TEST(OptionsTest, DefaultModelsOfTheCloudsAreNames) {
  const Environment environment{
      {"AIP_HEALTH_ROUTE", "/h"}, {"AIP_PREDICT_ROUTE", "/p"}, {"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME", "a/versions/1"}};
  EXPECT_EQ(Error({"--allow-sagemaker=1"}),
            "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME: found 'a/versions/1', expected the name of a model");
  EXPECT_TRUE(Parse({}).ok()) << "SageMaker is not served";
  EXPECT_EQ(Error({"--allow-vertex-ai=1", "--vertex-ai-default-model=.."}),
            "--vertex-ai-default-model: found '..', expected the name of a model");
  EXPECT_EQ(Parse({"--allow-vertex-ai=1", "--vertex-ai-default-model=what?"})->vertex.default_model, "what?");
}

TEST(OptionsTest, PortsBesideSageMakersLieInItsRange) {
  EXPECT_EQ(Parse({"--allow-sagemaker=1"})->sagemaker.port, 8080);
  EXPECT_EQ(Error({"--allow-sagemaker=1", "--sagemaker-safe-port-range=8001-9000"}),
            "--http-port: found port 8000, expected one of --sagemaker-safe-port-range, 8001 to 9000");
  EXPECT_TRUE(Parse({"--allow-sagemaker=1", "--sagemaker-safe-port-range=8000-8002"}).ok());
  EXPECT_TRUE(Parse({"--allow-sagemaker=1", "--sagemaker-safe-port-range=8001-9000", "--allow-http=false"}).ok());
  EXPECT_TRUE(Parse({"--sagemaker-safe-port-range=1-2"}).ok()) << "without SageMaker there is no such range";
  for (const char* range : {"8000", "9-8", "a-b", "1-70000"}) {
    EXPECT_FALSE(Parse({fmt::format("--sagemaker-safe-port-range={}", range)}).ok()) << range;
  }
}

TEST(OptionsTest, ResourcesHaveANameACountAndPerhapsADevice) {
  EXPECT_FALSE(Parse({"--rate-limit=off"})->rate_limit);
  const absl::StatusOr<ServerOptions> options =
      Parse({"--rate-limit=execution_count", "--rate-limit-resource=R:4", "--rate-limit-resource=S:2:1"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_TRUE(options->rate_limit);
  ASSERT_EQ(options->rate_limits.size(), 2U);
  EXPECT_EQ(options->rate_limits[0].count, 4U);
  EXPECT_FALSE(options->rate_limits[0].device.has_value());
  EXPECT_EQ(options->rate_limits[1].name, "S");
  EXPECT_EQ(options->rate_limits[1].device, 1);
  for (const char* text : {"R", ":4", "R:1:2:3"}) {
    EXPECT_NE(Error({fmt::format("--rate-limit-resource={}", text)})
                  .find("--rate-limit-resource option format is '<resource_name>:<count>:<device>' or "
                        "'<resource_name>:<count>'. Got " +
                        std::string(text)),
              std::string::npos);
  }
}

TEST(OptionsTest, GpusMayBeLimited) {
  const auto options =
      Parse({"--model-load-gpu-limit=0:0.4", "--model-load-gpu-limit=1:1", "--min-supported-compute-capability=7.5"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->gpu_policy.load_limits, (std::map<DeviceId, double>{{0, 0.4}, {1, 1.0}}));
  EXPECT_EQ(options->gpu_policy.min_compute_capability, 7.5);
  EXPECT_NE(Error({"--model-load-gpu-limit=-1:0.4"}).find("expects device ID >= 0, got -1"), std::string::npos);
  EXPECT_NE(Error({"--model-load-gpu-limit=0:-0.4"}).find("expects limit fraction to be in range [0.0, 1.0], got -0.4"),
            std::string::npos);
  EXPECT_NE(Error({"--model-load-gpu-limit=0:nan"}).find("expects limit fraction"), std::string::npos);
  EXPECT_NE(Error({"--model-load-gpu-limit=0.4"}).find("option format is '<device id>:<fraction>'"), std::string::npos);
}

}  // namespace
}  // namespace tidemark
