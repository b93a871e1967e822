#include "tests/support/fault_platform.h"

#include <utility>

#include "base/status.h"

namespace tidemark {

void FaultPlatform::Arm(Fault fault, std::int64_t n, std::function<void()> cancel) {
  absl::MutexLock lock(&mutex_);
  fault_ = fault;
  target_ = n;
  count_ = 0;
  fired_ = false;
  cancel_ = std::move(cancel);
}

bool FaultPlatform::fired() const {
  absl::MutexLock lock(&mutex_);
  return fired_;
}

std::int64_t FaultPlatform::acquisitions() const {
  absl::MutexLock lock(&mutex_);
  return count_;
}

void FaultPlatform::FailReleases(bool memory, bool others) {
  absl::MutexLock lock(&mutex_);
  fail_memory_ = memory;
  fail_others_ = others;
}

absl::Status FaultPlatform::Meet(std::string_view what) {
  Fault fault = Fault::kNone;
  std::int64_t number = 0;
  std::function<void()> cancel;
  {
    absl::MutexLock lock(&mutex_);
    number = count_++;
    if (number == target_ || (number > target_ && fault_ == Fault::kFromThenOn)) fault = fault_;
    if (fault == Fault::kNone) return absl::OkStatus();
    fired_ = true;
    cancel = cancel_;
  }
  switch (fault) {
    case Fault::kThrow:
      throw InjectedException();
    case Fault::kCancel:
      cancel();
      return absl::OkStatus();
    default:
      return absl::ResourceExhaustedError(fmt::format("{} of acquisition {} ({})", kText, number, what));
  }
}

absl::Status FaultPlatform::Released(absl::Status status, bool memory) {
  absl::MutexLock lock(&mutex_);
  if (status.ok() && (memory ? fail_memory_ : fail_others_))
    return absl::InternalError("injected failure of a release");
  return status;
}

absl::StatusOr<std::byte*> FaultPlatform::MapMemory(std::size_t bytes) {
  RETURN_IF_ERROR(Meet("memory"));
  return real_.MapMemory(bytes);
}

absl::Status FaultPlatform::UnmapMemory(std::byte* data, std::size_t bytes) {
  return Released(real_.UnmapMemory(data, bytes), true);
}

absl::StatusOr<MappedFile> FaultPlatform::MapFile(const std::filesystem::path& path) {
  RETURN_IF_ERROR(Meet("file mapping"));
  return real_.MapFile(path);
}

absl::Status FaultPlatform::UnmapFile(MappedFile file) { return Released(real_.UnmapFile(file), false); }

absl::StatusOr<SharedMapping> FaultPlatform::MapShared(const std::string& key, std::uint64_t offset,
                                                       std::uint64_t bytes) {
  RETURN_IF_ERROR(Meet("shared memory"));
  return real_.MapShared(key, offset, bytes);
}

absl::Status FaultPlatform::UnmapShared(const SharedMapping& mapping) {
  return Released(real_.UnmapShared(mapping), false);
}

absl::StatusOr<std::filesystem::path> FaultPlatform::MakeTempDirectory(std::string_view prefix) {
  RETURN_IF_ERROR(Meet("temporary directory"));
  return real_.MakeTempDirectory(prefix);
}

absl::Status FaultPlatform::RemoveTree(const std::filesystem::path& path) {
  return Released(real_.RemoveTree(path), false);
}

absl::StatusOr<void*> FaultPlatform::OpenLibrary(const std::filesystem::path& path) {
  RETURN_IF_ERROR(Meet("library"));
  return real_.OpenLibrary(path);
}

absl::Status FaultPlatform::CloseLibrary(void* library) { return Released(real_.CloseLibrary(library), false); }

absl::StatusOr<Platform::Thread*> FaultPlatform::StartThread(std::string_view name, std::function<void()> body) {
  RETURN_IF_ERROR(Meet("thread"));
  return real_.StartThread(name, std::move(body));
}

absl::Status FaultPlatform::JoinThread(Thread* thread) { return Released(real_.JoinThread(thread), false); }

absl::Status FaultPlatform::Foreign(std::string_view site, absl::FunctionRef<absl::Status()> create) {
  RETURN_IF_ERROR(Meet(site));
  return real_.Foreign(site, create);
}

}  // namespace tidemark
