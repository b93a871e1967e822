#include "platform/shared_memory.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <limits>
#include <system_error>

#include "absl/base/call_once.h"
#include "absl/cleanup/cleanup.h"
#include "base/status.h"

namespace tidemark {
namespace {

struct Guarded {
  std::atomic<bool> taken{false};
  std::atomic<bool> damaged{false};
  std::atomic<std::uintptr_t> begin{0};  // 0: nothing here
  std::atomic<std::uintptr_t> end{0};
};

// Process-wide, as the signal is.
std::array<Guarded, kMaxGuardedMappings> guarded;
struct sigaction before {};
absl::once_flag handler_set;

std::string TextOf(int error) { return std::error_code(error, std::generic_category()).message(); }

// Only async-signal-safe calls; mmap is a plain system call.
void OnBusError(int signal, siginfo_t* info, void* context) {
  const int kept = errno;
  const auto at = reinterpret_cast<std::uintptr_t>(info->si_addr);
  for (Guarded& slot : guarded) {
    const std::uintptr_t begin = slot.begin.load(std::memory_order_acquire);
    const std::uintptr_t end = slot.end.load(std::memory_order_acquire);
    if (begin == 0 || at < begin || at >= end) continue;
    void* const there = mmap(reinterpret_cast<void*>(begin), end - begin, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    if (there == MAP_FAILED) break;
    slot.damaged.store(true, std::memory_order_release);
    errno = kept;
    return;
  }
  errno = kept;
  if ((before.sa_flags & SA_SIGINFO) != 0 && before.sa_sigaction != nullptr) {
    before.sa_sigaction(signal, info, context);
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(signal);
  } else {
    struct sigaction standard {};
    standard.sa_handler = SIG_DFL;
    sigaction(SIGBUS, &standard, nullptr);  // the access is repeated, and ends the process as it always did
  }
}

void SetHandler() {
  struct sigaction action {};
  action.sa_sigaction = &OnBusError;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, &before);
}

int TakeSlot() {
  for (int i = 0; i < kMaxGuardedMappings; ++i) {
    if (!guarded[static_cast<std::size_t>(i)].taken.exchange(true)) return i;
  }
  return -1;
}

Guarded& SlotOf(const SharedMapping& mapping) { return guarded[static_cast<std::size_t>(mapping.guard)]; }

// The name inside /dev/shm, or nothing when the key would lead elsewhere.
absl::StatusOr<std::string> ObjectName(const std::string& key) {
  constexpr std::size_t kLongestName = 255;
  const std::size_t from = key.find_first_not_of('/');
  const std::string name = from == std::string::npos ? "" : key.substr(from);
  if (name.empty() || name == "." || name == ".." || name.size() > kLongestName ||
      name.find('/') != std::string::npos || name.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError("not the name of a shared-memory object");
  }
  return "/" + name;
}

}  // namespace

absl::StatusOr<SharedMapping> MapSharedObject(const std::string& key, std::uint64_t offset, std::uint64_t bytes) {
  absl::call_once(handler_set, SetHandler);
  ASSIGN_OR_RETURN(const std::string name, ObjectName(key));
  const int fd = shm_open(name.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK, 0);
  if (fd < 0) return absl::NotFoundError(TextOf(errno));
  absl::Cleanup close_fd = [fd] { close(fd); };
  struct stat info {};
  if (fstat(fd, &info) != 0) return absl::InternalError(TextOf(errno));
  if (!S_ISREG(info.st_mode)) return absl::InvalidArgumentError("not the name of a shared-memory object");
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (bytes == 0 || offset > size || bytes > size - offset) {
    return absl::OutOfRangeError(
        fmt::format("offset {} and byte_size {} of an object of {} bytes", offset, bytes, size));
  }
  SharedMapping mapping;
  mapping.guard = TakeSlot();
  if (mapping.guard < 0) {
    return absl::ResourceExhaustedError(fmt::format("more than {} mappings", kMaxGuardedMappings));
  }
  absl::Cleanup free_slot = [&mapping] { SlotOf(mapping).taken.store(false); };
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::uint64_t lead = offset % page;
  mapping.mapped = lead + bytes;
  mapping.base =
      mmap(nullptr, mapping.mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset - lead));
  if (mapping.base == MAP_FAILED) return absl::ResourceExhaustedError(TextOf(errno));
  mapping.data = static_cast<std::byte*>(mapping.base) + lead;
  mapping.bytes = bytes;
  mapping.fd = fd;
  mapping.end = offset + bytes;
  Guarded& slot = SlotOf(mapping);
  const auto begin = reinterpret_cast<std::uintptr_t>(mapping.base);
  slot.damaged.store(false);
  slot.end.store((begin + mapping.mapped + page - 1) / page * page, std::memory_order_release);
  slot.begin.store(begin, std::memory_order_release);
  std::move(free_slot).Cancel();
  std::move(close_fd).Cancel();
  return mapping;
}

absl::Status UnmapSharedObject(const SharedMapping& mapping) {
  Guarded& slot = SlotOf(mapping);
  slot.begin.store(0, std::memory_order_release);
  const bool unmapped = munmap(mapping.base, mapping.mapped) == 0;
  const int why = errno;
  slot.taken.store(false);
  close(mapping.fd);
  return unmapped ? absl::OkStatus() : absl::InternalError(TextOf(why));
}

absl::Status CheckSharedObject(const SharedMapping& mapping) {
  struct stat info {};
  if (fstat(mapping.fd, &info) != 0) return absl::InternalError(TextOf(errno));
  if (static_cast<std::uint64_t>(info.st_size) < mapping.end) {
    return absl::FailedPreconditionError(
        fmt::format("the object was cut to {} bytes, {} were registered", info.st_size, mapping.end));
  }
  if (SlotOf(mapping).damaged.load(std::memory_order_acquire)) {
    return absl::FailedPreconditionError(
        "a part of the object could not be reached: it was cut, or its memory is full");
  }
  return absl::OkStatus();
}

}  // namespace tidemark
