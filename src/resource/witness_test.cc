#include "resource/witness.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>

namespace tidemark {
namespace {

class FakeNvml final : public Nvml {
 public:
  absl::StatusOr<int> DeviceCount() override { return 3; }
  absl::StatusOr<std::string> Describe(int /*device*/) override { return std::string("fake"); }
  absl::StatusOr<std::int64_t> UsedBytes(int device) override {
    if (device == 2) return absl::UnavailableError("lost");
    return 1000 + device;
  }
  absl::StatusOr<std::vector<NvmlProcess>> Processes(int device) override {
    if (device == 1) return std::vector<NvmlProcess>{{getpid(), 700}, {1, 5}};
    return std::vector<NvmlProcess>{{getpid() + 1, 300}};
  }
  absl::StatusOr<NvmlVitals> Vitals(int device) override {
    ++vitals;
    if (device == 2) return absl::UnavailableError("lost");
    NvmlVitals found;
    found.uuid = device == 0 ? "GPU-a" : "GPU-b";
    found.used_bytes = 1000 + device;
    return found;
  }
  int vitals = 0;  // how often they were asked for
};

TEST(MemoryWitness, AProcessThatTheDriverDoesNotListIsSeenThroughTheWholeDevice) {
  const MemoryWitness witness(std::make_unique<FakeNvml>());
  const auto gpus = witness.Gpus();
  ASSERT_EQ(gpus.size(), 2U) << "a device that cannot be read is left out";
  EXPECT_FALSE(gpus[0].process_bytes.has_value());
  EXPECT_EQ(gpus[1].process_bytes, 700U);
  const auto bytes = witness.Bytes(std::map<DeviceId, int>{{0, 0}, {1, 0}, {2, 0}, {kHost, 0}});
  EXPECT_EQ(bytes.at(0), 1000);
  EXPECT_EQ(bytes.at(1), 700);
  EXPECT_FALSE(bytes.contains(2)) << "a device that cannot be read is left out";
  EXPECT_GT(bytes.at(kHost), 0);
  EXPECT_EQ(witness.Bytes(std::map<DeviceId, int>{{1, 0}}).size(), 2U) << "others are not asked";
}

// An unload waits for these figures, and power or utilization takes the driver milliseconds.
TEST(MemoryWitness, BytesAskForNothingElse) {
  auto nvml = std::make_unique<FakeNvml>();
  FakeNvml& asked = *nvml;
  MemoryWitness witness(std::move(nvml));
  witness.SetGpuOrder({"GPU-b", "GPU-a"});
  EXPECT_EQ(witness.Bytes(std::map<DeviceId, int>{{0, 0}}).at(0), 700);
  const int before = asked.vitals;
  EXPECT_EQ(witness.Bytes(std::map<DeviceId, int>{{0, 0}}).at(0), 700);
  EXPECT_EQ(asked.vitals, before);
  EXPECT_EQ(witness.Bytes(std::map<DeviceId, int>{{1, 0}}).at(1), 1000);
  EXPECT_FALSE(witness.Bytes(std::map<DeviceId, int>{{2, 0}}).contains(2));
}

TEST(MemoryWitness, DevicesAreNumberedAsCudaNumbersThem) {
  MemoryWitness witness(std::make_unique<FakeNvml>());
  witness.SetGpuOrder({"GPU-b"});
  const auto gpus = witness.Gpus();
  ASSERT_EQ(gpus.size(), 1U);
  EXPECT_EQ(gpus[0].device, 0);
  EXPECT_EQ(gpus[0].vitals.uuid, "GPU-b");
}

TEST(MemoryWitness, BothWaysOfAskingTheKernelAgree) {
  constexpr std::int64_t kSlack = 64 << 10;
  const MemoryWitness walks(nullptr);
  const std::unique_ptr<MemoryWitness> chosen = MemoryWitness::Create(/*gpus=*/false);
  // Before and after, as asking takes memory itself, under a sanitizer much.
  const auto before = walks.Anonymous();
  const auto found = chosen->Anonymous();
  const auto after = walks.Anonymous();
  ASSERT_TRUE(before.ok() && found.ok() && after.ok()) << before.status() << found.status() << after.status();
  EXPECT_GE(static_cast<std::int64_t>(*found), static_cast<std::int64_t>(std::min(*before, *after)) - kSlack);
  EXPECT_LE(static_cast<std::int64_t>(*found), static_cast<std::int64_t>(std::max(*before, *after)) + kSlack);
}

TEST(MemoryWitness, WithoutADriverThereAreNoGpus) {
  const MemoryWitness witness(nullptr);
  EXPECT_TRUE(witness.Gpus().empty());
  EXPECT_EQ(witness.Bytes(std::map<DeviceId, int>{{0, 0}}).size(), 1U) << "the host alone";
}

}  // namespace
}  // namespace tidemark
