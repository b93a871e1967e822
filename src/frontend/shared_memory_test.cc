#include "frontend/shared_memory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "tests/support/real_platform.h"

namespace tidemark {
namespace {

using ::testing::HasSubstr;

// A shared-memory object of the test's own, with one byte value all over.
class Object {
 public:
  Object(std::size_t bytes, char fill) : key_(fmt::format("/tidemark_test_{}_{}", getpid(), ++count_)) {
    fd_ = shm_open(key_.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
    const std::string text(bytes, fill);
    EXPECT_EQ(write(fd_, text.data(), bytes), static_cast<ssize_t>(bytes));
  }
  ~Object() {
    close(fd_);
    shm_unlink(key_.c_str());
  }
  const std::string& key() const { return key_; }
  void Cut(off_t bytes) { EXPECT_EQ(ftruncate(fd_, bytes), 0); }
  std::string Read(std::size_t bytes, off_t at) const {
    std::string text(bytes, '\0');
    EXPECT_EQ(pread(fd_, text.data(), bytes, at), static_cast<ssize_t>(bytes));
    return text;
  }

 private:
  static inline std::atomic<int> count_{0};
  const std::string key_;
  int fd_ = -1;
};

// A GPU that is ordinary memory.
class FakeCuda final : public CudaSharedMemory {
 public:
  absl::StatusOr<std::byte*> Open(Scope& scope, std::span<const std::byte, kCudaHandleBytes> /*handle*/, int device,
                                  std::uint64_t byte_size) override {
    if (device != 0) return absl::UnavailableError("there is no device 1");
    if (byte_size > memory.size()) return absl::InvalidArgumentError("the allocation is smaller");
    const auto create = [this] {
      ++open;
      return absl::OkStatus();
    };
    RETURN_IF_ERROR(scope
                        .Acquire(ResourceKind::kEngineObject, device, 0, "ipc", create,
                                 [this] {
                                   --open;
                                   return absl::OkStatus();
                                 })
                        .status());
    return memory.data();
  }
  absl::Status CopyToHost(std::span<const std::byte> from, std::span<std::byte> to, int /*device*/) override {
    std::copy(from.begin(), from.end(), to.begin());
    return absl::OkStatus();
  }
  absl::Status CopyToDevice(std::span<const std::byte> from, std::span<std::byte> to, int /*device*/) override {
    std::copy(from.begin(), from.end(), to.begin());
    return absl::OkStatus();
  }
  int open = 0;
  std::array<std::byte, 256> memory{};
};

class SharedMemoryTest : public ::testing::Test {
 protected:
  std::unique_ptr<Platform> platform_ = CreateLinuxPlatform();
  Ledger ledger_;
  Scope scope_{ledger_, *platform_, "shared-memory"};
  FakeCuda cuda_;
  SharedMemoryRegions regions_{scope_, {.allowed = true, .cuda = &cuda_, .max_regions = 4}};
  const std::array<std::byte, kCudaHandleBytes> handle_{};
};

std::string Text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST_F(SharedMemoryTest, LeaseSeesAndWritesTheClientsBytes) {
  const Object object(8192, 'a');
  ASSERT_TRUE(regions_.RegisterSystem("r", object.key(), 4000, 1000).ok());  // no page boundary
  const absl::StatusOr<SharedMemoryLease> lease = regions_.Find("r", 10, 20);
  ASSERT_TRUE(lease.ok()) << lease.status();
  EXPECT_EQ(Text(lease->bytes), std::string(20, 'a'));
  std::fill(lease->bytes.begin(), lease->bytes.end(), std::byte{'b'});
  EXPECT_EQ(object.Read(22, 4009), "a" + std::string(20, 'b') + "a");
}

TEST_F(SharedMemoryTest, RowLivesUntilTheLastLease) {
  const Object object(4096, 'a');
  ASSERT_TRUE(regions_.RegisterSystem("r", object.key(), 0, 4096).ok());
  ASSERT_EQ(ledger_.RowsOf("shared-memory").size(), 1U);
  EXPECT_EQ(ledger_.RowsOf("shared-memory")[0].bytes, 4096U);
  EXPECT_EQ(ledger_.RowsOf("shared-memory")[0].owner, "shared-memory/r");
  absl::StatusOr<SharedMemoryLease> lease = regions_.Find("r", 0, 4096);
  ASSERT_TRUE(lease.ok());
  EXPECT_TRUE(regions_.UnregisterSystem("r").ok());
  EXPECT_EQ(MessageOf(regions_.Find("r", 0, 1).status()), "Unable to find shared memory region: 'r'");
  EXPECT_EQ(Text(lease->bytes.first(3)), "aaa");
  EXPECT_TRUE(lease->region->Check().ok());
  // The name is free at once, while the old mapping is still in use.
  EXPECT_TRUE(regions_.RegisterSystem("r", object.key(), 0, 100).ok());
  EXPECT_EQ(ledger_.RowsOf("shared-memory").size(), 2U);
  lease = absl::UnknownError("dropped");
  EXPECT_EQ(ledger_.RowsOf("shared-memory").size(), 1U);
  EXPECT_TRUE(regions_.UnregisterSystem("").ok());
  EXPECT_TRUE(ledger_.RowsOf("shared-memory").empty());
}

TEST_F(SharedMemoryTest, BoundsOfARegistrationAreTheObjects) {
  const Object object(4096, 'a');
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  const std::pair<std::uint64_t, std::uint64_t> wrong[] = {{0, 4097},    {4096, 1}, {4095, 2},
                                                           {1, kMax},    {kMax, 1}, {kMax - 4095, 4096},
                                                           {kMax, kMax}, {0, 0},    {4096, kMax - 4095}};
  for (const auto& [offset, bytes] : wrong) {
    const absl::Status status = regions_.RegisterSystem("r", object.key(), offset, bytes);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(MessageOf(status)),
                HasSubstr("failed to register shared memory region 'r': invalid args (offset"));
  }
  EXPECT_TRUE(ledger_.RowsOf("shared-memory").empty());
}

TEST_F(SharedMemoryTest, BoundsOfAUseAreTheRegions) {
  const Object object(8192, 'a');
  ASSERT_TRUE(regions_.RegisterSystem("r", object.key(), 0, 100).ok());
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  const auto text = [&](std::uint64_t offset, std::uint64_t bytes) {
    const absl::StatusOr<SharedMemoryLease> lease = regions_.Find("r", offset, bytes);
    return lease.ok() ? "OK" : std::string(MessageOf(lease.status()));
  };
  EXPECT_EQ(text(0, 100), "OK");
  EXPECT_EQ(text(99, 1), "OK");
  EXPECT_EQ(text(100, 0), "Invalid offset for shared memory region: 'r'");
  EXPECT_EQ(text(kMax, 1), "Invalid offset for shared memory region: 'r'");
  EXPECT_EQ(text(99, 2), "Invalid offset + byte size for shared memory region: 'r'");
  EXPECT_EQ(text(0, kMax), "Invalid offset + byte size for shared memory region: 'r'");
  EXPECT_EQ(text(1, kMax),
            "Integer overflow detected: byte_size (18446744073709551615) + offset (1) exceeds maximum value "
            "(18446744073709551615) for region 'r'");
}

TEST_F(SharedMemoryTest, KeysCannotLeaveTheirFolder) {
  const std::vector<std::string> keys = {"..",
                                         "/..",
                                         ".",
                                         "/.",
                                         "../etc/passwd",
                                         "/../etc/passwd",
                                         "/../../etc/passwd",
                                         "a/b",
                                         "/a/../../etc/passwd",
                                         "./x",
                                         "/./x",
                                         "//../etc/passwd",
                                         "x/",
                                         "..//etc/passwd",
                                         "%2e%2e/etc/passwd",
                                         std::string("a\0b", 3),
                                         std::string(256, 'k'),
                                         "\\..\\x",
                                         "/proc/self/mem"};
  for (const std::string& key : keys) {
    const absl::Status status = regions_.RegisterSystem("r", key, 0, 1);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << key;
    EXPECT_THAT(std::string(MessageOf(status)),
                HasSubstr(fmt::format("Unable to open shared memory region: '{}'", key)));
  }
  for (const std::string key : {"", "/", "///"}) {
    EXPECT_EQ(MessageOf(regions_.RegisterSystem("r", key, 0, 1)),
              fmt::format("cannot register shared memory region 'r' - invalid shm key '{}'", key));
  }
  EXPECT_EQ(
      MessageOf(regions_.RegisterSystem("r", "/triton_python_backend_shm_region_1", 0, 1)),
      "cannot register shared memory region 'r' with key '/triton_python_backend_shm_region_1' as the key contains "
      "the reserved prefix 'triton_python_backend_shm_region_'");
}

TEST_F(SharedMemoryTest, OnlyPlainObjectsAreOpened) {
  const std::string name = fmt::format("tidemark_test_{}_link", getpid());
  const std::filesystem::path path = std::filesystem::path("/dev/shm") / name;
  std::filesystem::create_symlink("/etc/passwd", path);
  EXPECT_EQ(regions_.RegisterSystem("r", name, 0, 1).code(), absl::StatusCode::kInvalidArgument);
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  EXPECT_EQ(regions_.RegisterSystem("r", name, 0, 1).code(), absl::StatusCode::kInvalidArgument);
  std::filesystem::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(regions_.RegisterSystem("r", name, 0, 1).code(), absl::StatusCode::kInvalidArgument);
  std::filesystem::remove(path);
}

TEST_F(SharedMemoryTest, CutObjectIsRefusedAndHarmsNobody) {
  Object object(64 << 10, 'a');
  ASSERT_TRUE(regions_.RegisterSystem("r", object.key(), 0, 64 << 10).ok());
  ASSERT_TRUE(regions_.RegisterSystem("same", object.key(), 0, 4096).ok());
  const absl::StatusOr<SharedMemoryLease> lease = regions_.Find("r", 0, 64 << 10);
  ASSERT_TRUE(lease.ok());
  object.Cut(4096);
  // In use while it is cut: zeros, and the check before the answer says so.
  EXPECT_EQ(Text(lease->bytes.subspan(32 << 10, 2)), std::string(2, '\0'));
  lease->bytes[60 << 10] = std::byte{1};
  const absl::Status check = lease->region->Check();
  EXPECT_EQ(check.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(MessageOf(check)), HasSubstr("the object was cut to 4096 bytes, 65536 were registered"));
  EXPECT_EQ(regions_.Find("r", 0, 1).status().code(), absl::StatusCode::kInvalidArgument);
  // Growing it again does not bring the mapping back.
  object.Cut(64 << 10);
  EXPECT_EQ(regions_.Find("r", 0, 1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Text(regions_.Find("same", 0, 2)->bytes), "aa");
  EXPECT_TRUE(regions_.UnregisterSystem("r").ok());
  EXPECT_TRUE(regions_.RegisterSystem("r", object.key(), 0, 64 << 10).ok());
  EXPECT_TRUE(regions_.Find("r", 0, 64 << 10).ok());
}

TEST_F(SharedMemoryTest, NamesAreOneSpaceForBothKinds) {
  const Object object(4096, 'a');
  ASSERT_TRUE(regions_.RegisterSystem("r", object.key(), 0, 16).ok());
  ASSERT_TRUE(regions_.RegisterCuda("c", handle_, 0, 16).ok());
  for (const std::string name : {"r", "c"}) {
    const absl::Status again = regions_.RegisterSystem(name, object.key(), 0, 16);
    EXPECT_EQ(again.code(), absl::StatusCode::kAlreadyExists);
    EXPECT_EQ(MessageOf(again), fmt::format("shared memory region '{}' already in manager", name));
    EXPECT_EQ(regions_.RegisterCuda(name, handle_, 0, 16).code(), absl::StatusCode::kAlreadyExists);
  }
  EXPECT_EQ(MessageOf(regions_.SystemStatus("c").status()),
            "The region named 'c' is registered as CUDA shared memory, not system shared memory");
  EXPECT_EQ(MessageOf(regions_.CudaStatus("r").status()),
            "The region named 'r' is registered as system shared memory, not CUDA shared memory");
  EXPECT_EQ(MessageOf(regions_.SystemStatus("x").status()), "Unable to find system shared memory region: 'x'");
  EXPECT_EQ(MessageOf(regions_.CudaStatus("x").status()), "Unable to find cuda shared memory region: 'x'");
  EXPECT_EQ(regions_.SystemStatus("")->size(), 1U);
  EXPECT_EQ(regions_.SystemStatus("")->front().key, object.key());
  EXPECT_EQ(regions_.UnregisterSystem("c").code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(regions_.UnregisterSystem("").ok());
  EXPECT_EQ(regions_.CudaStatus("")->size(), 1U);
  EXPECT_TRUE(regions_.UnregisterCuda("c").ok());
  EXPECT_TRUE(regions_.UnregisterCuda("c").ok()) << "unregistering what is not there is no error";
  EXPECT_EQ(cuda_.open, 0);
}

TEST_F(SharedMemoryTest, CudaMemoryIsReadAndWrittenThroughItsDoor) {
  ASSERT_TRUE(regions_.RegisterCuda("c", handle_, 0, 256).ok());
  const absl::StatusOr<SharedMemoryLease> lease = regions_.Find("c", 8, 4);
  ASSERT_TRUE(lease.ok());
  EXPECT_EQ(lease->device, 0);
  const std::array<std::byte, 4> host = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};
  EXPECT_TRUE(lease->region->Write(host, lease->bytes).ok());
  EXPECT_EQ(cuda_.memory[11], std::byte{4});
  EXPECT_THAT(std::string(MessageOf(regions_.RegisterCuda("d", handle_, 0, 257))),
              HasSubstr("failed to register shared memory region 'd': invalid args"));
  EXPECT_THAT(
      std::string(MessageOf(regions_.RegisterCuda("d", handle_, 1, 1))),
      HasSubstr("failed to register CUDA shared memory region: 'd', GPUs not supported (there is no device 1)"));
  EXPECT_EQ(MessageOf(regions_.RegisterCuda("d", std::span(handle_).first(63), 0, 1)),
            "'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t");
}

TEST_F(SharedMemoryTest, RegionsAreLimited) {
  const Object object(4096, 'a');
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(regions_.RegisterSystem(std::to_string(i), object.key(), 0, 16).ok());
  EXPECT_EQ(regions_.RegisterSystem("5", object.key(), 0, 16).code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(SharedMemoryTest, NothingIsRegisteredUnlessAllowed) {
  SharedMemoryRegions off(scope_, {});
  const Object object(4096, 'a');
  for (const absl::Status& status : {off.RegisterSystem("r", object.key(), 0, 1), off.RegisterCuda("r", handle_, 0, 1),
                                     off.UnregisterSystem("r"), off.UnregisterCuda("")}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    EXPECT_EQ(MessageOf(status),
              "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.");
  }
  EXPECT_TRUE(off.SystemStatus("")->empty());
}

TEST_F(SharedMemoryTest, UsersAndRegistrationsOfManyThreadsDoNotMeet) {
  Object object(64 << 10, 'a');
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const std::string name = std::to_string(t % 2);
      for (int i = 0; i < 200; ++i) {
        static_cast<void>(regions_.RegisterSystem(name, object.key(), 0, 64 << 10));
        const absl::StatusOr<SharedMemoryLease> lease = regions_.Find(name, 0, 64 << 10);
        static_cast<void>(regions_.UnregisterSystem(name));
        if (lease.ok() && Text(lease->bytes.subspan(60000, 1)) == "a") ++good;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(good, 0);
  EXPECT_TRUE(ledger_.RowsOf("shared-memory").empty());
}

}  // namespace
}  // namespace tidemark
