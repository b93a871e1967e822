// The fake GPU libraries, called through the product's own declarations: two independent readings of TensorRT's tables
// must agree. And the controls: what the fakes are there to catch, they catch.

#include "tests/support/gpu_fakes/fake_gpu.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "backends/tensorrt/nvinfer_abi.h"
#include "platform/cuda.h"
#include "tests/support/gpu_fakes/fake_plan.h"

namespace tidemark {
namespace {

using nv::CallSlot;
using nv::ImplOf;
using testing::FakePlan;
using ::testing::HasSubstr;

std::vector<std::string>& Texts() {
  static std::vector<std::string> texts;
  return texts;
}

class Log11 final : public nv::Logger11 {
 public:
  void log(nv::Severity, const char* text) noexcept override { Texts().emplace_back(text); }
};
class Log10 final : public nv::Logger10 {
 public:
  void log(nv::Severity, const char* text) noexcept override { Texts().emplace_back(text); }
};

// One major's library and tables, its objects on the way.
class FakeNvinfer : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    OpenFakeGpu();
    FakeGpuMachine(1, 8ULL << 30);
    FakeGpuHeal();
    FakeGpuForgetViolations();
    Texts().clear();
    before_ = FakeGpuLiveText();
    library_ = dlopen(fmt::format("libnvinfer.so.{}", GetParam()).c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << dlerror();
    cuda_ = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    api_ = *cuda::ResolveApi([&](const char* name) -> absl::StatusOr<void*> {
      void* symbol = dlsym(cuda_, name);
      if (symbol == nullptr) return absl::NotFoundError(name);
      return symbol;
    });
    ASSERT_EQ(api_.init(0), 0);
    cuda::Context context = nullptr;
    ASSERT_EQ(api_.retain_context(&context, 0), 0);
    ASSERT_EQ(api_.set_context(context), 0);
  }
  void TearDown() override {
    api_.release_context(0);
    EXPECT_EQ(FakeGpuLiveText(), before_);
    EXPECT_EQ(FakeGpuViolationText(), expected_violations_);
    FakeGpuForgetViolations();
    FakeGpuHeal();
  }

  const nv::Abi& abi() const { return GetParam() == 11 ? nv::kAbi11 : nv::kAbi10; }
  FakePlan& Versioned(FakePlan& plan) const { return GetParam() == 11 ? plan : plan.Version(10, 6, 0, 26); }

  void* MakeRuntime() {
    auto* create = reinterpret_cast<nv::CreateRuntime*>(dlsym(library_, "createInferRuntime_INTERNAL"));
    return create(GetParam() == 11 ? static_cast<void*>(&log11_) : static_cast<void*>(&log10_), 0);
  }
  void* Deserialize(void* runtime, FakePlan plan) {
    const std::string bytes = Versioned(plan).Build();
    return CallSlot<void*>(ImplOf(runtime), abi().runtime.deserialize.index, static_cast<const void*>(bytes.data()),
                           static_cast<std::uint64_t>(bytes.size()));
  }
  void* MakeContext(void* engine) {
    return CallSlot<void*>(ImplOf(engine), abi().engine.create_context.index, nv::Strategy::kUserManaged);
  }

  void* library_ = nullptr;
  void* cuda_ = nullptr;
  cuda::Api api_;
  Log11 log11_;
  Log10 log10_;
  std::string before_;
  std::string expected_violations_;
};

TEST_P(FakeNvinfer, RunsAPlanThroughTheProductsTables) {
  void* runtime = MakeRuntime();
  void* engine = Deserialize(runtime, FakePlan::AddSub());
  ASSERT_NE(engine, nullptr);
  void* table = ImplOf(engine);
  ASSERT_EQ(CallSlot<std::int32_t>(table, abi().engine.tensors.index), 4);
  EXPECT_STREQ(CallSlot<const char*>(table, abi().engine.tensor_name.index, 2), "OUTPUT0");
  EXPECT_EQ(CallSlot<nv::IoMode>(table, abi().engine.tensor_mode.index, "OUTPUT0"), nv::IoMode::kOutput);
  const auto most = CallSlot<nv::Dims>(table, abi().engine.profile_shape.index, "INPUT0", 0, nv::Selector::kMax);
  EXPECT_EQ(most.rank, 2);
  EXPECT_EQ(most.d[0], 64);
  void* context = MakeContext(engine);
  ASSERT_NE(context, nullptr);
  void* run = ImplOf(context);
  EXPECT_EQ(&CallSlot<const void*&>(run, abi().context.engine.index), engine);

  cuda::Stream stream = nullptr;
  ASSERT_EQ(api_.create_stream(&stream, 1, 0), 0);
  cuda::Pointer blocks[4];
  std::vector<float> a(32, 3), b(32, 5), sum(32), difference(32);
  const char* names[] = {"INPUT0", "INPUT1", "OUTPUT0", "OUTPUT1"};
  const nv::Dims shape{2, {2, 16}};
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(api_.allocate(&blocks[i], 128), 0);
    ASSERT_TRUE(CallSlot<bool>(run, abi().context.set_address.index, names[i], reinterpret_cast<void*>(blocks[i])));
    if (i < 2) {
      ASSERT_TRUE(CallSlot<bool>(run, abi().context.set_input_shape.index, names[i], &shape));
    }
  }
  EXPECT_EQ(CallSlot<std::int32_t>(run, abi().context.infer_shapes.index, 0, static_cast<const char**>(nullptr)), 0);
  FakeGpuDeferred(1);
  api_.copy_to_device(blocks[0], a.data(), 128, stream);
  api_.copy_to_device(blocks[1], b.data(), 128, stream);
  EXPECT_TRUE(CallSlot<bool>(run, abi().context.enqueue.index, stream));
  api_.copy_to_host(sum.data(), blocks[2], 128, stream);
  api_.copy_to_host(difference.data(), blocks[3], 128, stream);
  EXPECT_EQ(sum[0], 0) << "deferred: nothing runs before somebody waits";
  ASSERT_EQ(api_.synchronize_stream(stream), 0);
  FakeGpuDeferred(0);
  EXPECT_EQ(sum, std::vector<float>(32, 8));
  EXPECT_EQ(difference, std::vector<float>(32, -2));
  for (const cuda::Pointer block : blocks) api_.free(block);
  api_.destroy_stream(stream);
  nv::DeleteShell(context);
  nv::DeleteShell(engine);
  nv::DeleteShell(runtime);
}

TEST_P(FakeNvinfer, ForeignPlansAreRefusedWithAText) {
  void* runtime = MakeRuntime();
  const std::string nothing(100, 'x');
  EXPECT_EQ(CallSlot<void*>(ImplOf(runtime), abi().runtime.deserialize.index, static_cast<const void*>(nothing.data()),
                            std::uint64_t{100}),
            nullptr);
  FakePlan other = FakePlan::Identity(4);
  const std::string bytes = other.Version(11, 1, 0, 106).Build();
  EXPECT_EQ(CallSlot<void*>(ImplOf(runtime), abi().runtime.deserialize.index, static_cast<const void*>(bytes.data()),
                            static_cast<std::uint64_t>(bytes.size())),
            nullptr);
  ASSERT_EQ(Texts().size(), 2u);
  EXPECT_THAT(Texts()[0], HasSubstr("kEXPECTED_MAGIC_TAG"));
  EXPECT_THAT(Texts()[1], HasSubstr("expecting library version"));
  nv::DeleteShell(runtime);
}

TEST_P(FakeNvinfer, MemoryFreedTwiceIsSeen) {
  void* runtime = MakeRuntime();
  void* engine = Deserialize(runtime, FakePlan::Identity(4));
  cuda::Pointer block = 0;
  ASSERT_EQ(api_.allocate(&block, 16), 0);
  EXPECT_EQ(api_.free(block), 0);
  EXPECT_NE(api_.free(block), 0);
  expected_violations_ = "free of memory that is none of ours, or freed twice\n";
  nv::DeleteShell(engine);
  nv::DeleteShell(runtime);
}

TEST_P(FakeNvinfer, WithoutADriverARuntimeIsASmallNumber) {
  FakeGpuMachine(0, 8ULL << 30);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(MakeRuntime()), 0x228u);
  FakeGpuMachine(1, 8ULL << 30);
}

TEST_P(FakeNvinfer, TheNthCallFailsAsAskedAndMemoryBalances) {
  FakeGpuFail("createExecutionContext", 1, 1, 0);
  void* runtime = MakeRuntime();
  void* engine = Deserialize(runtime, FakePlan::Identity(4));
  void* first = MakeContext(engine);
  EXPECT_NE(first, nullptr);
  EXPECT_FALSE(FakeGpuFired());
  EXPECT_EQ(MakeContext(engine), nullptr);
  EXPECT_TRUE(FakeGpuFired());
  void* third = MakeContext(engine);
  EXPECT_NE(third, nullptr);
  EXPECT_GT(FakeGpuProcessBytes(0), 518ULL << 20);
  for (void* object : {first, third, engine, runtime}) nv::DeleteShell(object);
}

TEST_P(FakeNvinfer, NvmlSeesWholeStepsAndAFlushBringsTheMarkBack) {
  const std::uint64_t mark = [&] {
    cuda::Pointer block = 0;
    EXPECT_EQ(api_.allocate(&block, 1ULL << 42), cuda::kOutOfMemory);
    return FakeGpuProcessBytes(0);
  }();
  void* runtime = MakeRuntime();
  void* engine = Deserialize(runtime, FakePlan::Identity(4));
  void* context = MakeContext(engine);
  cuda::Pointer block = 0;
  ASSERT_EQ(api_.allocate(&block, (2 << 20) + 1), 0);
  EXPECT_EQ((FakeGpuProcessBytes(0) - mark) % (2 << 20), 0u);
  api_.free(block);
  for (void* object : {context, engine, runtime}) nv::DeleteShell(object);
  EXPECT_EQ(FakeGpuProcessBytes(0), mark + (2 << 20)) << "the driver keeps a little";
  EXPECT_EQ(api_.allocate(&block, 1ULL << 42), cuda::kOutOfMemory);
  EXPECT_EQ(FakeGpuProcessBytes(0), mark);
}

INSTANTIATE_TEST_SUITE_P(Majors, FakeNvinfer, ::testing::Values(11, 10),
                         [](const auto& test) { return fmt::format("TensorRT{}", test.param); });

}  // namespace
}  // namespace tidemark
