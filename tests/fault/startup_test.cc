// The start of a server: for n = 0, 1, 2, … the n-th thing that it asks the platform for (every thread of it) is refused,
// once and from then on. It ends with the reason, and half a server goes without a hang and leaves nothing. What goes past
// the platform, sockets and other descriptors, is refused in tests/integration/test_startup.py.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/status.h"
#include "server/options.h"
#include "server/server.h"
#include "tests/support/fault_platform.h"
#include "tests/support/model_directory.h"
#include "tests/support/process_state.h"

namespace tidemark {
namespace {

class Startup : public testing::Test {
 protected:
  // A server with everything that takes something: poll thread, tracer, gRPC, metrics, control doors, a socket of each kind.
  ServerOptions Options() {
    std::vector<std::string> text = {
        "--model-repository=" + folder_.repository().string(),
        "--model-control-mode=poll",
        "--repository-poll-secs=3600",
        "--http-address=127.0.0.1",
        "--http-port=0",
        "--http-unix-socket=" + (folder_.path() / "http.sock").string(),
        "--http-thread-count=2",
        "--control-access=http:127.0.0.1:0,grpc:127.0.0.1:0",
        "--grpc-address=127.0.0.1",
        "--grpc-port=0",
        "--metrics-port=0",
        "--cuda-library=none",
        "--cache-config=local,size=1048576",
        "--rate-limit=execution_count",
        "--trace-config=mode=opentelemetry",
        "--trace-config=opentelemetry,url=http://127.0.0.1:1/v1/traces",
    };
    std::vector<char*> arguments;
    for (std::string& argument : text) arguments.push_back(argument.data());
    absl::StatusOr<ServerOptions> options = ParseServerOptions(arguments);
    EXPECT_TRUE(options.ok()) << options.status();
    return *std::move(options);
  }

  TestFolder folder_;
  std::unique_ptr<Platform> real_ = CreateLinuxPlatform();
  FaultPlatform platform_{*real_};
};

TEST_F(Startup, WhateverIsRefusedTheServerEndsWithTheReasonAndLeavesNothing) {
  constexpr int kTooMany = 100;
  constexpr int kThreads = 13;
  for (const int warm : {1, 0}) {  // what is made once in a process
    ASSERT_TRUE(Server::Create(Options(), {}, &platform_).ok());
    ASSERT_GE(platform_.acquisitions(), kThreads) << warm;
    platform_.Disarm();
  }
  for (const Fault fault : {Fault::kOnce, Fault::kFromThenOn}) {
    const ProcessState before = ReadProcessState();
    int n = 0;
    for (; n < kTooMany; ++n) {
      SCOPED_TRACE(fmt::format("n = {}", n));
      platform_.Arm(fault, n);
      {
        const absl::StatusOr<std::unique_ptr<Server>> server = Server::Create(Options(), {}, &platform_);
        if (!platform_.fired()) {
          EXPECT_TRUE(server.ok()) << server.status();
          break;
        }
        ASSERT_FALSE(server.ok()) << "it runs without something that it asked for";
        EXPECT_THAT(std::string(MessageOf(server.status())), testing::HasSubstr("injected failure"));
      }
      EXPECT_EQ(Difference(before, ReadProcessStateWithThreads(before.threads)), "");
      EXPECT_EQ(EntriesOf(folder_.tmp()), 0);
    }
    EXPECT_GE(n, kThreads);
    EXPECT_LT(n, kTooMany);
    RecordProperty("acquisitions", n);
  }
}

}  // namespace
}  // namespace tidemark
