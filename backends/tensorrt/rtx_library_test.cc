// A real library of the TensorRT family, on a machine without a GPU: loading, the version gate, logger and recorder, the
// runtime's slots, a failing deserialize, and a builder. TensorRT for RTX is another product with longer tables; what is
// called here agrees with those of TensorRT 11.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>

#include "backends/tensorrt/engine_builder.h"
#include "backends/tensorrt/nvinfer_library.h"
#include "backends/tensorrt/trt_callbacks.h"
#include "base/status.h"
#include "resource/ledger.h"
#include "resource/scope.h"
#include "tests/support/real_platform.h"

namespace tidemark {
namespace {

using testing::HasSubstr;

class RtxLibrary : public testing::Test {
 protected:
  void SetUp() override {
#ifdef TIDEMARK_SANITIZED
    GTEST_SKIP() << "a vendor's library that no sanitizer was built into";
#endif
    if (!std::filesystem::exists(path_))
      GTEST_SKIP() << path_ << " is not there: tools/setup.sh test fetches it (x86_64)";
  }

  void* Symbol(const char* name) {
    if (library_.library == nullptr) library_ = *scope_.OpenLibrary(path_, "TensorRT for RTX");
    return *scope_.Symbol(library_, name);
  }
  nv::Runtime MakeRuntime() {
    auto* create = reinterpret_cast<nv::CreateRuntime*>(Symbol("createInferRuntime_INTERNAL"));
    return {nv::kAbi11, 110201, create(TrtLogger(11), 110201)};
  }

  const std::filesystem::path path_ = TIDEMARK_RTX "/libtensorrt_rtx.so.1";
  std::unique_ptr<Platform> platform_ = CreateLinuxPlatform();
  Ledger ledger_;
  Scope scope_{ledger_, *platform_, "test"};
  Scope::Library library_;
};

TEST_F(RtxLibrary, VersionGateRefusesItByNameAndLeavesNothing) {
  const auto opened = TrtLibrary::Open(scope_, path_);
  ASSERT_FALSE(opened.ok());
  EXPECT_TRUE(absl::IsUnimplemented(opened.status())) << opened.status();
  EXPECT_THAT(std::string(MessageOf(opened.status())), HasSubstr("1.7.1.116"));
  EXPECT_EQ(ledger_.Totals().rows, 0u);
}

TEST_F(RtxLibrary, RuntimeSlotsAnswerAsTheTablesSay) {
  const nv::Runtime runtime = MakeRuntime();
  ASSERT_GE(reinterpret_cast<std::uintptr_t>(runtime.shell()), nv::kLowestPointer);
  EXPECT_EQ(runtime.logger(), TrtLogger(11));
  EXPECT_EQ(runtime.max_threads(), 1);
  EXPECT_TRUE(runtime.set_max_threads(2));
  EXPECT_EQ(runtime.max_threads(), 2);
  EXPECT_FALSE(runtime.host_code_allowed());
  runtime.set_host_code_allowed(true);
  EXPECT_TRUE(runtime.host_code_allowed());
  EXPECT_NE(runtime.plugin_registry(), nullptr);
  TrtErrors errors;
  EXPECT_EQ(runtime.error_recorder(), nullptr);
  runtime.set_error_recorder(&errors);
  EXPECT_EQ(runtime.error_recorder(), &errors);
  runtime.set_error_recorder(nullptr);
  nv::DeleteShell(runtime.shell());
}

TEST_F(RtxLibrary, FailingDeserializeIsNullAndSaysWhy) {
  const nv::Runtime runtime = MakeRuntime();
  TrtErrors errors;
  LogCapture log;
  runtime.set_error_recorder(&errors);
  const std::string nothing(4096, 'x');
  EXPECT_EQ(runtime.deserialize(nothing.data(), nothing.size()), nullptr);
  EXPECT_NE(errors.Text(log.text()), "");
  runtime.set_error_recorder(nullptr);
  nv::DeleteShell(runtime.shell());
}

TEST_F(RtxLibrary, BuilderMakesPlansThroughOurSlots) {
  EngineLibraries libraries;
  libraries.builder = path_;
  libraries.assume_major = 11;
  EngineSpec spec;
  for (const bool batch : {false, true}) {
    spec.batch = batch;
    for (const auto network : {EngineSpec::Network::kIdentity, EngineSpec::Network::kAddSub}) {
      spec.network = network;
      const absl::StatusOr<std::string> plan = BuildEngine(scope_, spec, libraries);
      ASSERT_TRUE(plan.ok()) << plan.status();
      EXPECT_EQ(plan->substr(1, 3), "trt") << "vtrt, where TensorRT itself writes ftrt";
    }
  }
}

TEST_F(RtxLibrary, BuilderTakesProfilesAndLimitsThroughOurSlots) {
  EngineLibraries libraries;
  libraries.builder = path_;
  libraries.assume_major = 11;
  EngineSpec spec;
  spec.network = EngineSpec::Network::kAddSub;
  spec.batch = true;
  spec.shapes = {*ParseProfileShape("INPUT0:1x16/4x16/8x16"), *ParseProfileShape("INPUT1:1x16/4x16/8x16"),
                 *ParseProfileShape("INPUT0:9x16/16x16/64x16"), *ParseProfileShape("INPUT1:9x16/16x16/64x16")};
  spec.workspace_bytes = 16 << 20;
  const absl::StatusOr<std::string> plan = BuildEngine(scope_, spec, libraries);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->substr(1, 3), "trt");
  // A profile that contradicts the network is refused by the library, and its words come back.
  spec.shapes = {*ParseProfileShape("INPUT0:1x17"), *ParseProfileShape("INPUT1:1x17")};
  const absl::StatusOr<std::string> refused = BuildEngine(scope_, spec, libraries);
  ASSERT_FALSE(refused.ok());
  EXPECT_TRUE(absl::IsInvalidArgument(refused.status())) << refused.status();
  EXPECT_GT(MessageOf(refused.status()).size(), std::string_view("TensorRT could not build the engine: ").size());
}

}  // namespace
}  // namespace tidemark
