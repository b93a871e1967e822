// How long a load takes against the bare engine's session on the same bytes, in one process, one thread, interleaved.
// Usage: ort_load ENGINE_DIRECTORY [ROUNDS]

#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "backends/onnxruntime/onnxruntime_backend.h"
#include "backends/onnxruntime/ort_runtime.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "tests/support/onnx_builder.h"
#include "tests/support/real_platform.h"

namespace tidemark {
namespace {

namespace fs = std::filesystem;

struct Times {
  std::vector<double> load;
  std::vector<double> unload;
};

double Millis(std::int64_t nanos) { return static_cast<double>(nanos) / 1e6; }

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class Bench {
 public:
  explicit Bench(const fs::path& engines) : engines_(engines) {
    std::string pattern = (fs::temp_directory_path() / "tidemark_ort_bench_XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) std::abort();
    directory_ = pattern;
    fs::create_directories(directory_ / "1");
  }
  ~Bench() { fs::remove_all(directory_); }

  absl::Status Open() {
    ASSIGN_OR_RETURN(backend_, CreateOnnxRuntimeBackend(BackendContext{resident_, {}, engines_}));
    // The bare engine by the same table; its environment is the process' one.
    ASSIGN_OR_RETURN(const Scope::Library library,
                     resident_.OpenLibrary(engines_ / "onnxruntime/libonnxruntime.so", "bench"));
    ASSIGN_OR_RETURN(void* const entry, resident_.Symbol(library, "OrtGetApiBase"));
    api_ = ort::Api::FromTable(reinterpret_cast<const ort::ApiBase* (*)()>(entry)()->get_api(ort::kApiVersion));
    return Check(api_.CreateEnvWithCustomLogger([](void*, int, const char*, const char*, const char*, const char*) {},
                                                nullptr, ort::kLogWarning, "bench", &env_));
  }

  absl::Status Compare(const char* name, const std::string& bytes, int rounds) {
    std::ofstream(directory_ / "1/model.onnx", std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    Times bare;
    Times without;
    Times with;
    inference::ModelConfig config;
    config.set_name("m");
    inference::ModelConfig completed;
    for (int round = -1; round < rounds; ++round) {
      ::malloc_trim(0);
      RETURN_IF_ERROR(Bare(round < 0 ? nullptr : &bare));
      ::malloc_trim(0);
      RETURN_IF_ERROR(Ours(config, round < 0 ? nullptr : &without, &completed));
      ::malloc_trim(0);
      RETURN_IF_ERROR(Ours(completed, round < 0 ? nullptr : &with, nullptr));
    }
    fmt::print(
        "{:<8} bare load {:8.3f} unload {:6.3f} ms | without config {:8.3f} {:6.3f} ({:.2f}x) | with config "
        "{:8.3f} {:6.3f} ({:.2f}x)\n",
        name, Median(bare.load), Median(bare.unload), Median(without.load), Median(without.unload),
        Median(without.load) / Median(bare.load), Median(with.load), Median(with.unload),
        Median(with.load) / Median(bare.load));
    return absl::OkStatus();
  }

 private:
  absl::Status Check(ort::Status* status) const {
    return status == nullptr ? absl::OkStatus() : absl::InternalError(api_.GetErrorMessage(status));
  }

  absl::Status Bare(Times* times) {
    ort::SessionOptions* options = nullptr;
    const std::int64_t start = NowNanos();
    RETURN_IF_ERROR(Check(api_.CreateSessionOptions(&options)));
    RETURN_IF_ERROR(Check(api_.SetIntraOpNumThreads(options, 1)));
    ort::Session* session = nullptr;
    RETURN_IF_ERROR(Check(api_.CreateSession(env_, (directory_ / "1/model.onnx").c_str(), options, &session)));
    const std::int64_t loaded = NowNanos();
    api_.ReleaseSession(session);
    api_.ReleaseSessionOptions(options);
    const std::int64_t end = NowNanos();
    if (times != nullptr) {
      times->load.push_back(Millis(loaded - start));
      times->unload.push_back(Millis(end - loaded));
    }
    return absl::OkStatus();
  }

  absl::Status Ours(const inference::ModelConfig& config, Times* times, inference::ModelConfig* completed) {
    ModelArtifact artifact;
    artifact.model_name = "m";
    artifact.version = 1;
    artifact.model_directory = directory_;
    artifact.version_directory = directory_ / "1";
    const std::int64_t start = NowNanos();
    std::int64_t loaded = 0;
    {
      Scope scope(ledger_, *platform_, "model/m/1");
      ASSIGN_OR_RETURN(const auto model, backend_->CreateModel(artifact, config, scope));
      Scope instance_scope(scope, "instance/0");
      ASSIGN_OR_RETURN(const auto instance, model->CreateInstance(instance_scope, {}, "m_0", kHost));
      loaded = NowNanos();
      if (completed != nullptr) *completed = model->config();
    }
    const std::int64_t end = NowNanos();
    if (times != nullptr) {
      times->load.push_back(Millis(loaded - start));
      times->unload.push_back(Millis(end - loaded));
    }
    return absl::OkStatus();
  }

  const fs::path engines_;
  std::unique_ptr<Platform> platform_ = CreateLinuxPlatform();
  Ledger ledger_;
  Scope resident_{ledger_, *platform_, "backend/onnxruntime", {.resident = true}};
  std::unique_ptr<Backend> backend_;
  fs::path directory_;
  ort::Api api_;
  ort::Env* env_ = nullptr;  // given back with the process
};

absl::Status Main(const fs::path& engines, int rounds) {
  DisableOnnxRuntimeTelemetry();
  LogSettings quiet;
  quiet.info = quiet.warning = false;
  RETURN_IF_ERROR(SetLogSettings(quiet));
  Bench bench(engines);
  RETURN_IF_ERROR(bench.Open());
  RETURN_IF_ERROR(bench.Compare("tiny", testing::OnnxAddSub(testing::kOnnxFloat, {"batch", 16}), rounds * 10));
  return bench.Compare("64 MiB", testing::OnnxMatMulChain(1024, 16), rounds);
}

}  // namespace
}  // namespace tidemark

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: {} ENGINE_DIRECTORY [ROUNDS]\n", argv[0]);
    return 2;
  }
  const absl::Status status = tidemark::Main(argv[1], argc > 2 ? std::atoi(argv[2]) : 9);
  if (!status.ok()) fmt::print(stderr, "{}\n", tidemark::MessageOf(status));
  return status.ok() ? 0 : 1;
}
