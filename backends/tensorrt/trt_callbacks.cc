#include "backends/tensorrt/trt_callbacks.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/log.h"
#include "base/status.h"

namespace tidemark {
namespace {

constexpr std::uint64_t kAlignment = 512;  // what device memory has

thread_local LogCapture* log_capture = nullptr;
thread_local TrtAllocator::AllocateFor* allocate_for = nullptr;

void WriteLibraryLog(nv::Severity severity, const char* text) noexcept {
  try {
    const std::string line = Printable(text != nullptr ? text : "");
    switch (severity) {
      case nv::Severity::kInternalError:
      case nv::Severity::kError:
        if (log_capture != nullptr) {
          log_capture->Add(line);
        } else {
          LOG_ERROR("TensorRT: {}", line);
        }
        break;
      case nv::Severity::kWarning:
        LOG_WARNING("TensorRT: {}", line);
        break;
      case nv::Severity::kInfo:
        LOG_VERBOSE(1, "TensorRT: {}", line);
        break;
      default:
        LOG_VERBOSE(2, "TensorRT: {}", line);
    }
  } catch (const std::exception&) {
    // Without memory for a line there is no line.
  }
}

class Logger11 final : public nv::Logger11 {
 public:
  void log(nv::Severity severity, const char* text) noexcept override { WriteLibraryLog(severity, text); }
};
class Logger10 final : public nv::Logger10 {
 public:
  void log(nv::Severity severity, const char* text) noexcept override { WriteLibraryLog(severity, text); }
};

void* ToAddress(cuda::Pointer pointer) { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(pointer)); }

}  // namespace

void* TrtLogger(int major) {
  static Logger11* const logger_11 = std::make_unique<Logger11>().release();
  static Logger10* const logger_10 = std::make_unique<Logger10>().release();
  if (major < 11) return logger_10;
  return logger_11;
}

std::string Printable(std::string_view text) {
  std::string printable;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f) {
      printable += c;
    } else if (c == '\n' || c == '\t') {
      printable += ' ';
    } else {
      printable += fmt::format("\\x{:02x}", byte);
    }
  }
  while (!printable.empty() && printable.back() == ' ') printable.pop_back();
  return printable;
}

LogCapture::LogCapture() : previous_(std::exchange(log_capture, this)) {}
LogCapture::~LogCapture() { log_capture = previous_; }

void LogCapture::Add(std::string_view text) noexcept {
  try {
    if (!text_.empty()) text_ += "; ";
    text_ += text;
  } catch (const std::exception&) {
    // Without memory it stays as it is.
  }
}

// ---- TrtErrors --------------------------------------------------------------------------------------------------------

std::int32_t TrtErrors::getNbErrors() const noexcept {
  absl::MutexLock lock(&mutex_);
  return static_cast<std::int32_t>(errors_.size());
}

nv::ErrorCode TrtErrors::getErrorCode(std::int32_t index) const noexcept {
  absl::MutexLock lock(&mutex_);
  const auto i = static_cast<std::size_t>(index);
  return index >= 0 && i < errors_.size() ? errors_[i].code : nv::ErrorCode::kSuccess;
}

const char* TrtErrors::getErrorDesc(std::int32_t index) const noexcept {
  absl::MutexLock lock(&mutex_);
  const auto i = static_cast<std::size_t>(index);
  return index >= 0 && i < errors_.size() ? errors_[i].text.c_str() : "";
}

bool TrtErrors::hasOverflowed() const noexcept {
  absl::MutexLock lock(&mutex_);
  return overflowed_;
}

void TrtErrors::clear() noexcept {
  absl::MutexLock lock(&mutex_);
  errors_.clear();
  overflowed_ = false;
}

bool TrtErrors::reportError(nv::ErrorCode code, const char* text) noexcept {
  try {
    absl::MutexLock lock(&mutex_);
    if (errors_.size() == kKept) {
      overflowed_ = true;
    } else {
      errors_.push_back({code, Printable(text != nullptr ? text : "")});
    }
  } catch (const std::exception&) {
    // Without memory for it the error is still in what the call returns.
  }
  return true;
}

std::int32_t TrtErrors::incRefCount() noexcept {
  absl::MutexLock lock(&mutex_);
  return ++references_;
}

std::int32_t TrtErrors::decRefCount() noexcept {
  absl::MutexLock lock(&mutex_);
  return --references_;
}

std::string TrtErrors::Text(std::string_view otherwise) const {
  absl::MutexLock lock(&mutex_);
  std::string text;
  for (const Error& error : errors_) {
    if (!text.empty()) text += "; ";
    text += error.text;
  }
  return text.empty() ? std::string(otherwise) : text;
}

bool TrtErrors::Has(nv::ErrorCode code) const {
  absl::MutexLock lock(&mutex_);
  return std::any_of(errors_.begin(), errors_.end(), [&](const Error& error) { return error.code == code; });
}

// ---- TrtAllocator -----------------------------------------------------------------------------------------------------

TrtAllocator::AllocateFor::AllocateFor(Scope& scope, std::string_view site)
    : previous_(std::exchange(allocate_for, this)), scope_(scope), site_(site) {}
TrtAllocator::AllocateFor::~AllocateFor() { allocate_for = previous_; }

void* TrtAllocator::allocate(std::uint64_t bytes, std::uint64_t alignment, std::uint32_t flags) noexcept {
  return allocateAsync(bytes, alignment, flags, nullptr);
}

void* TrtAllocator::allocateAsync(std::uint64_t bytes, std::uint64_t alignment, std::uint32_t /*flags*/,
                                  void* /*stream*/) noexcept {
  if (bytes == 0 || alignment > kAlignment) return nullptr;
  Scope* const scope = allocate_for != nullptr ? &allocate_for->scope_ : &scope_;
  const std::string_view site = allocate_for != nullptr ? allocate_for->site_ : "TensorRT";
  try {
    const absl::StatusOr<GpuMemory> memory = gpus_.Allocate(*scope, device_, bytes, site);
    absl::MutexLock lock(&mutex_);
    if (!memory.ok()) {
      refusal_ = memory.status();
      return nullptr;
    }
    try {
      blocks_[ToAddress(memory->address)] = {scope, memory->handle};
    } catch (const std::exception&) {
      scope->Release(memory->handle);
      throw;
    }
    return ToAddress(memory->address);
  } catch (const std::exception& error) {
    absl::MutexLock lock(&mutex_);
    refusal_ = absl::ResourceExhaustedError(error.what());
    return nullptr;
  }
}

void* TrtAllocator::reallocate(void* /*block*/, std::uint64_t /*alignment*/, std::uint64_t /*bytes*/) noexcept {
  return nullptr;  // the old block stays
}

bool TrtAllocator::deallocate(void* block) noexcept { return deallocateAsync(block, nullptr); }

bool TrtAllocator::deallocateAsync(void* block, void* /*stream*/) noexcept {
  if (block == nullptr) return true;
  Block found;
  {
    absl::MutexLock lock(&mutex_);
    const auto it = blocks_.find(block);
    if (it == blocks_.end()) return false;
    found = it->second;
    blocks_.erase(it);
  }
  found.scope->Release(found.handle);  // waits for the device, so that the stream is done with it
  return true;
}

absl::Status TrtAllocator::TakeRefusal() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(refusal_, absl::OkStatus());
}

// ---- TrtTemporaries ---------------------------------------------------------------------------------------------------

void* TrtTemporaries::allocate(std::uint64_t bytes, std::uint64_t alignment, std::uint32_t flags) noexcept {
  return allocateAsync(bytes, alignment, flags, nullptr);
}

void* TrtTemporaries::allocateAsync(std::uint64_t bytes, std::uint64_t alignment, std::uint32_t /*flags*/,
                                    void* /*stream*/) noexcept {
  if (bytes == 0 || alignment > kAlignment) return nullptr;
  try {
    absl::MutexLock lock(&mutex_);
    Block* best = nullptr;
    for (Block& block : blocks_) {
      if (block.used || block.memory.bytes < bytes) continue;
      if (best == nullptr || block.memory.bytes < best->memory.bytes) best = &block;
    }
    if (best == nullptr) {
      if (capturing_) return nullptr;
      absl::StatusOr<GpuMemory> memory = gpus_.Allocate(scope_, device_, bytes, "temporary memory");
      if (!memory.ok()) {
        refusal_ = memory.status();
        return nullptr;
      }
      try {
        blocks_.push_back({*memory, false});
      } catch (const std::exception&) {
        scope_.Release(memory->handle);
        throw;
      }
      best = &blocks_.back();
    }
    best->used = true;
    return ToAddress(best->memory.address);
  } catch (const std::exception&) {
    return nullptr;
  }
}

void* TrtTemporaries::reallocate(void* /*block*/, std::uint64_t /*alignment*/, std::uint64_t /*bytes*/) noexcept {
  return nullptr;
}

bool TrtTemporaries::deallocate(void* block) noexcept { return deallocateAsync(block, nullptr); }

bool TrtTemporaries::deallocateAsync(void* block, void* /*stream*/) noexcept {
  if (block == nullptr) return true;
  absl::MutexLock lock(&mutex_);
  for (Block& known : blocks_) {
    if (ToAddress(known.memory.address) != block) continue;
    known.used = false;
    return true;
  }
  return false;
}

void TrtTemporaries::set_capturing(bool capturing) {
  absl::MutexLock lock(&mutex_);
  capturing_ = capturing;
}

absl::Status TrtTemporaries::TakeRefusal() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(refusal_, absl::OkStatus());
}

// ---- TrtOutputMemory --------------------------------------------------------------------------------------------------

absl::Status TrtOutputMemory::Reserve(std::size_t bytes) {
  while (!outgrown_.empty()) {
    scope_.Release(outgrown_.back());
    outgrown_.pop_back();
  }
  if (bytes <= memory_.bytes) return absl::OkStatus();
  scope_.Release(std::exchange(memory_, GpuMemory()).handle);
  ASSIGN_OR_RETURN(memory_, gpus_.Allocate(scope_, device_, bytes, "output buffer"));
  return absl::OkStatus();
}

void* TrtOutputMemory::reallocateOutput(const char* name, void* current, std::uint64_t bytes,
                                        std::uint64_t alignment) noexcept {
  return reallocateOutputAsync(name, current, bytes, alignment, nullptr);
}

// `current` is not looked at: it may be an address that another allocator freed long ago.
void* TrtOutputMemory::reallocateOutputAsync(const char* /*name*/, void* /*current*/, std::uint64_t bytes,
                                             std::uint64_t alignment, void* /*stream*/) noexcept {
  if (alignment > kAlignment) return nullptr;
  if (bytes <= memory_.bytes) return ToAddress(memory_.address);
  try {
    outgrown_.reserve(outgrown_.size() + 1);
    absl::StatusOr<GpuMemory> memory = gpus_.Allocate(scope_, device_, bytes, "output buffer");
    if (!memory.ok()) {
      refusal_ = memory.status();
      return nullptr;
    }
    if (memory_.handle != nullptr) outgrown_.push_back(memory_.handle);
    memory_ = *memory;
    return ToAddress(memory_.address);
  } catch (const std::exception& error) {
    refusal_ = absl::ResourceExhaustedError("an exception while output memory was taken");
    return nullptr;
  }
}

void TrtOutputMemory::notifyShape(const char* /*name*/, const nv::Dims& shape) noexcept { shape_ = shape; }

absl::Status TrtOutputMemory::TakeRefusal() { return std::exchange(refusal_, absl::OkStatus()); }

}  // namespace tidemark
