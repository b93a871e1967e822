// Shared-memory regions under any keys, offsets and sizes: whatever is lent lies inside the object, and can be touched.

#include <fcntl.h>
#include <fmt/format.h>
#include <fuzzer/FuzzedDataProvider.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "frontend/shared_memory.h"
#include "protocol/shared_memory_requests.h"
#include "tests/support/real_platform.h"

namespace {

constexpr std::uint64_t kObjectBytes = 12345;

void Require(bool condition) {
  if (!condition) std::abort();
}

// The object that good keys name; gone at the end of the process.
struct Object {
  Object() : key(fmt::format("/tidemark_fuzz_{}", getpid())) {
    const int fd = shm_open(key.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
    Require(fd >= 0 && ftruncate(fd, static_cast<off_t>(kObjectBytes)) == 0);
    close(fd);
  }
  ~Object() { shm_unlink(key.c_str()); }
  const std::string key;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Object object;
  FuzzedDataProvider input(data, size);
  const std::unique_ptr<tidemark::Platform> platform = tidemark::CreateLinuxPlatform();
  tidemark::Ledger ledger;
  {
    tidemark::Scope scope(ledger, *platform, "fuzz");
    tidemark::SharedMemoryRegions regions(scope, {.allowed = true, .cuda = nullptr, .max_regions = 3});
    std::vector<tidemark::SharedMemoryLease> leases;
    while (input.remaining_bytes() > 0 && leases.size() < 64) {
      const std::string name = input.ConsumeBool() ? "a" : "b";
      const auto offset = input.ConsumeBool() ? input.ConsumeIntegral<std::uint64_t>()
                                              : input.ConsumeIntegralInRange<std::uint64_t>(0, kObjectBytes + 2);
      const auto bytes = input.ConsumeBool() ? input.ConsumeIntegral<std::uint64_t>()
                                             : input.ConsumeIntegralInRange<std::uint64_t>(0, kObjectBytes + 2);
      switch (input.ConsumeIntegralInRange(0, 4)) {
        case 0: {
          const bool fits = bytes > 0 && offset <= kObjectBytes && bytes <= kObjectBytes - offset;
          const absl::Status status = regions.RegisterSystem(name, object.key, offset, bytes);
          Require(!status.ok() || fits);
          break;
        }
        case 1:  // no key that the fuzzer makes up exists
          Require(!regions.RegisterSystem(name, input.ConsumeRandomLengthString(64), offset, bytes).ok());
          break;
        case 2:
          Require(regions.UnregisterSystem(input.ConsumeBool() ? name : "").ok());
          break;
        case 3: {
          const auto request = tidemark::ParseSystemMemoryRequest(input.ConsumeRandomLengthString(128));
          Require(!request.ok() || request->key != object.key);
          break;
        }
        default:
          if (auto lease = regions.Find(name, offset, bytes); lease.ok()) {
            Require(lease->bytes.size() == bytes && bytes <= kObjectBytes);
            if (bytes > 0) lease->bytes.front() = lease->bytes.back();
            leases.push_back(*std::move(lease));
          }
      }
    }
    for (const tidemark::SharedMemoryLease& lease : leases) {
      if (!lease.bytes.empty()) lease.bytes.back() = std::byte{1};
      Require(lease.region->Check().ok());
    }
  }
  Require(ledger.Rows().empty());
  return 0;
}
