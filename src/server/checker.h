#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backend/backend_registry.h"
#include "lifecycle/admission.h"
#include "lifecycle/check_model.h"
#include "repository/model_repository.h"
#include "resource/buffer_pool.h"
#include "resource/gpu.h"
#include "resource/ledger.h"
#include "resource/scope.h"

namespace tidemark {

// What `tidemark check` is about: one model, or one configuration without a model around it.
struct CheckTarget {
  std::string name;
  std::filesystem::path directory;
  std::filesystem::path file;  // the configuration's; empty: the one that a load would take
  bool config_only = false;
};

// The parts of a server that look at models, without the serving. One check at a time.
class Checker {
 private:
  struct Private {};

 public:
  struct Options {
    std::string config_name;  // --model-config-name
    bool auto_complete = true;
    bool open = true;  // models are opened with their engines
    std::filesystem::path engine_directory;
    std::map<std::string, BackendSettings> backend_settings;
    std::string cuda_library = "libcuda.so.1";  // as --cuda-library
  };

  static std::unique_ptr<Checker> Create(Options options);
  Checker(Private, Options options);
  ~Checker();
  Checker(const Checker&) = delete;
  Checker& operator=(const Checker&) = delete;

  // What a path means: a configuration file, a model's folder, or a repository of them. NOT_FOUND when it is none of
  // these, in words for the user.
  absl::StatusOr<std::vector<CheckTarget>> Targets(const std::filesystem::path& path) const;

  // `text` stands in for the file's.
  CheckReport Check(const CheckTarget& target, std::optional<std::string> text = std::nullopt);

  // Rows of the ledger that checks have left: none, or a fault of ours.
  std::size_t rows_left() const;

 private:
  const Options options_;
  RepositoryOptions repository_;
  std::unique_ptr<Platform> platform_;
  Ledger ledger_;
  std::unique_ptr<Scope> gpu_scope_;
  std::unique_ptr<Gpus> gpus_;
  std::unique_ptr<BufferPool> buffers_;
  std::unique_ptr<BackendRegistry> backends_;
  Admission admission_;
  int checks_ = 0;
};

}  // namespace tidemark
