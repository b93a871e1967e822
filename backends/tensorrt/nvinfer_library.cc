#include "backends/tensorrt/nvinfer_library.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "backends/tensorrt/trt_callbacks.h"
#include "base/log.h"
#include "base/status.h"

namespace tidemark {
namespace {

// Older versions counted in thousands (8601 is 8.6.1), and so does TensorRT for RTX, whose numbers begin with 1.
TrtVersion DecodeVersion(int number, int build) {
  if (number < 10000) return {number / 1000, number / 100 % 10, number % 100, build};
  return {number / 10000, number / 100 % 100, number % 100, build};
}

const nv::Abi* AbiFor(const TrtVersion& version) {
  for (const nv::Abi* abi : {&nv::kAbi11, &nv::kAbi10}) {
    if (version.major == abi->major && version.number() >= abi->oldest) return abi;
  }
  return nullptr;
}

// The major version that a library's file name tells ("libnvinfer.so.11", "libnvinfer.so.10.6.0"); 0 for none.
int MajorInName(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  const std::size_t at = name.find(".so.");
  return at == std::string::npos ? 0 : std::atoi(name.c_str() + at + 4);
}

bool IsLibraryName(const std::string& name) {
  return name.rfind("libnvinfer.so.", 0) == 0 || name.rfind("libnvinfer_lean.so.", 0) == 0;
}

// What lies in `folder` as far as it can be read; nothing for what is no folder. Never throws.
std::vector<std::filesystem::path> EntriesOf(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> entries;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    entries.push_back(it->path());
  }
  return entries;
}

}  // namespace

// ---- TrtLibrary -------------------------------------------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<TrtLibrary>> TrtLibrary::Open(Scope& resident, const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const Scope::Library opened, resident.OpenLibrary(path, "TensorRT library"));
  absl::Cleanup close = [&] { resident.Release(opened.handle); };
  auto library = std::make_unique<TrtLibrary>(Private());
  library->path_ = path;
  RETURN_IF_ERROR(library->Resolve(resident, opened));
  KeepLibrary(opened.library);
  RETURN_IF_ERROR(library->RegisterPlugins(resident));
  std::move(close).Cancel();
  LOG_INFO("{}", library->Text());
  return library;
}

absl::Status TrtLibrary::Resolve(Scope& resident, const Scope::Library& library) {
  ASSIGN_OR_RETURN(void* const version, resident.Symbol(library, "getInferLibVersion"));
  int build = 0;
  if (const auto symbol = resident.Symbol(library, "getInferLibBuildVersion"); symbol.ok()) {
    build = reinterpret_cast<nv::LibraryVersion*>(*symbol)();
  }
  version_ = DecodeVersion(reinterpret_cast<nv::LibraryVersion*>(version)(), build);
  abi_ = AbiFor(version_);
  if (abi_ == nullptr) {
    return absl::UnimplementedError(
        fmt::format("'{}' is version {} of its interface; this server works with TensorRT 10 (10.1 and newer) and 11",
                    path_.string(), version_.Text()));
  }
  ASSIGN_OR_RETURN(void* const create, resident.Symbol(library, "createInferRuntime_INTERNAL"));
  create_runtime_ = reinterpret_cast<nv::CreateRuntime*>(create);
  lean_ = !resident.Symbol(library, "createInferBuilder_INTERNAL").ok();
  return absl::OkStatus();
}

absl::Status TrtLibrary::RegisterPlugins(Scope& resident) const {
  if (lean_) return absl::OkStatus();
  const std::filesystem::path plugins = path_.parent_path() / fmt::format("libnvinfer_plugin.so.{}", version_.major);
  const absl::StatusOr<Scope::Library> opened = resident.OpenLibrary(plugins, "TensorRT plug-in library");
  if (absl::IsNotFound(opened.status())) {
    LOG_VERBOSE(1, "no TensorRT plug-ins: {}", MessageOf(opened.status()));
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(opened.status());
  KeepLibrary(opened->library);
  const absl::StatusOr<void*> init = resident.Symbol(*opened, "initLibNvInferPlugins");
  if (!init.ok() || !reinterpret_cast<nv::InitPlugins*>(*init)(TrtLogger(version_.major), "")) {
    LOG_ERROR("Failed to register TensorRT Plugins of '{}'", plugins.string());
  }
  return absl::OkStatus();
}

std::string TrtLibrary::Text() const {
  return fmt::format("TensorRT {}{} at '{}'", version_.Text(), lean_ ? " (lean)" : "", path_.string());
}

absl::StatusOr<nv::Runtime> TrtLibrary::CreateRuntime() const {
  LogCapture log;
  void* const shell = create_runtime_(TrtLogger(version_.major), version_.number());
  // Without a driver the library answers a small number.
  if (reinterpret_cast<std::uintptr_t>(shell) < nv::kLowestPointer) {
    return absl::InternalError(fmt::format("unable to create TensorRT runtime: {}",
                                           log.text().empty() ? "the library gave no reason" : log.text()));
  }
  const nv::Runtime runtime(*abi_, version_.number(), shell);
  if (!checked_.load(std::memory_order_relaxed)) {
    if (absl::Status status = SelfCheck(runtime); !status.ok()) {
      nv::DeleteShell(shell);
      return status;
    }
    checked_.store(true, std::memory_order_relaxed);
  }
  return runtime;
}

absl::Status TrtLibrary::SelfCheck(const nv::Runtime& runtime) const {
  const auto differs = [this](std::string_view what) {
    return absl::InternalError(
        fmt::format("unable to create TensorRT runtime: {} does not answer as its version should ({}); its binary "
                    "interface is not the one known here",
                    Text(), what));
  };
  if (runtime.logger() != TrtLogger(version_.major)) return differs("logger");
  const int threads = runtime.max_threads();
  if (threads != 1 || !runtime.set_max_threads(2) || runtime.max_threads() != 2 || !runtime.set_max_threads(1)) {
    return differs("number of threads");
  }
  if (runtime.host_code_allowed()) return differs("host code");
  runtime.set_host_code_allowed(true);
  const bool allowed = runtime.host_code_allowed();
  runtime.set_host_code_allowed(false);
  if (!allowed || runtime.host_code_allowed()) return differs("host code");
  TrtErrors errors;
  runtime.set_error_recorder(&errors);
  const bool same = runtime.error_recorder() == &errors;
  runtime.set_error_recorder(nullptr);
  if (!same) return differs("error recorder");
  return absl::OkStatus();
}

// ---- TrtLibraries -----------------------------------------------------------------------------------------------------

TrtLibraries::TrtLibraries(Scope& resident, const std::vector<std::filesystem::path>& named,
                           const std::filesystem::path& folder)
    : resident_(resident) {
  absl::MutexLock lock(&mutex_);
  const auto add = [this](const std::filesystem::path& path) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    auto candidate = std::make_unique<Candidate>();
    candidate->path = path;
    candidates_.push_back(std::move(candidate));
  };
  std::error_code error;
  for (const std::filesystem::path& path : named) {
    if (std::filesystem::is_directory(path, error)) {
      AddFolder(path);
    } else {
      add(path);
    }
  }
  if (!named.empty()) return;
  AddFolder(folder);
  for (const char* name : {"libnvinfer.so.11", "libnvinfer_lean.so.11", "libnvinfer.so.10", "libnvinfer_lean.so.10"}) {
    add(name);
  }
  AddPythonFolders();
}

void TrtLibraries::AddFolder(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> found;
  for (const std::filesystem::path& entry : EntriesOf(folder)) {
    if (IsLibraryName(entry.filename().string())) found.push_back(entry);
    // One more level, so that a folder may hold several versions.
    for (const std::filesystem::path& inner : EntriesOf(entry)) {
      if (IsLibraryName(inner.filename().string())) found.push_back(inner);
    }
  }
  std::sort(found.begin(), found.end());
  // One file under several names (a link for each part of the version) is one candidate.
  std::vector<std::filesystem::path> seen;
  for (const std::filesystem::path& path : found) {
    std::error_code error;
    const std::filesystem::path file = std::filesystem::canonical(path, error);
    if (error || std::find(seen.begin(), seen.end(), file) != seen.end()) continue;
    seen.push_back(file);
    auto candidate = std::make_unique<Candidate>();
    candidate->path = path;
    candidates_.push_back(std::move(candidate));
  }
}

void TrtLibraries::AddPythonFolders() {
  for (const char* root : {"/usr/local/lib", "/usr/lib"}) {
    for (const std::filesystem::path& entry : EntriesOf(root)) {
      if (entry.filename().string().rfind("python3", 0) != 0) continue;
      for (const char* packages : {"dist-packages", "site-packages"}) {
        for (const char* wheel : {"tensorrt_libs", "tensorrt_lean_libs"}) AddFolder(entry / packages / wheel);
      }
    }
  }
}

const TrtLibrary* TrtLibraries::Try(Candidate& candidate) {
  if (!candidate.tried) {
    absl::StatusOr<std::unique_ptr<TrtLibrary>> library = TrtLibrary::Open(resident_, candidate.path);
    // What could not be opened may be had the next time; what is no use stays none.
    candidate.tried = library.ok() || absl::IsUnimplemented(library.status());
    if (library.ok()) {
      candidate.library = *std::move(library);
    } else {
      candidate.error = library.status();
      LOG_VERBOSE(1, "no TensorRT there: {}", MessageOf(candidate.error));
    }
  }
  return candidate.library.get();
}

std::string TrtLibraries::Known() const {
  std::string text;
  for (const auto& candidate : candidates_) {
    if (candidate->library == nullptr) continue;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", candidate->library->Text());
  }
  if (!text.empty()) return text;
  for (const auto& candidate : candidates_) {
    if (candidate->error.ok()) continue;
    text += fmt::format("{}{}", text.empty() ? "none (" : "; ", MessageOf(candidate->error));
  }
  return text.empty() ? "none" : text + ")";
}

absl::Status TrtLibraries::OpenNamed() {
  absl::MutexLock lock(&mutex_);
  if (candidates_.empty()) return absl::NotFoundError("the folders named hold no libnvinfer");
  for (const auto& candidate : candidates_) {
    if (Try(*candidate) == nullptr) return candidate->error;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<const TrtLibrary*>> TrtLibraries::For(const TrtVersion& plan, bool newer_will_do) {
  absl::MutexLock lock(&mutex_);
  std::vector<const TrtLibrary*> exact;
  for (const auto& candidate : candidates_) {
    const int major = MajorInName(candidate->path);
    if (major != 0 && major != plan.major && !newer_will_do) continue;  // not opened for nothing
    const TrtLibrary* const library = Try(*candidate);
    if (library == nullptr || !(library->version() == plan)) continue;
    exact.push_back(library);
    if (!library->lean()) break;  // it runs all that a lean one runs
  }
  std::stable_sort(exact.begin(), exact.end(),
                   [](const TrtLibrary* a, const TrtLibrary* b) { return !a->lean() && b->lean(); });
  if (!exact.empty()) return exact;
  const TrtLibrary* best = nullptr;
  for (const auto& candidate : candidates_) {
    const TrtLibrary* const library = candidate->library.get();
    if (library == nullptr) continue;
    const bool fits = library->version().major == plan.major ||
                      (newer_will_do && library->version().number() > plan.number() && !library->lean());
    if (!fits) continue;
    const bool closer =
        best == nullptr || (library->version().number() == plan.number() && best->version().number() != plan.number());
    if (closer ||
        (best->version().number() != plan.number() && library->version().number() > best->version().number())) {
      best = library;
    }
  }
  if (best != nullptr) return std::vector<const TrtLibrary*>{best};
  return absl::NotFoundError(
      fmt::format("unable to create TensorRT engine: the plan was built by TensorRT {}, and this server has no library "
                  "of that version; found: {}. Name one with --backend-config=tensorrt,library=PATH",
                  plan.Text(), Known()));
}

}  // namespace tidemark
