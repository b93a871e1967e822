// The auditor against a server that leaks on purpose, through the command line that users have.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "audit/child_process.h"
#include "audit/http_client.h"
#include "audit/model_files.h"
#include "cli/audit_command.h"

namespace tidemark {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr char kConfig[] =
    "# a comment with output { data_type: TYPE_BOOL }\n"
    "backend: \"identity\"\n"
    "input [ { name: \"INPUT0\" data_type: TYPE_FP32 dims: [ 16 ] } ]\n"
    "output [ { name: \"OUTPUT0\" data_type: TYPE_FP32 dims: [ 16 ] } ]\n";

class AuditTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "audit-test-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    fs::create_directories(Model() / "1");
    ASSERT_TRUE(audit::WriteFileAtomically(Model() / "config.pbtxt", kConfig).ok());
    ASSERT_TRUE(audit::WriteFileAtomically(Model() / "1" / "model.bin", std::string(4096, 'm')).ok());
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path Model() const { return folder_ / "repository" / "m"; }
  fs::path Output() const { return folder_ / "out"; }

  int Audit(std::vector<std::string> words) {
    for (const std::string& word :
         {"--repository=" + (folder_ / "repository").string(), std::string("--model=m"),
          "--output=" + Output().string(), std::string("--quiet"), std::string("--sample-interval-ms=1")}) {
      words.push_back(word);
    }
    std::vector<char*> args;
    args.reserve(words.size());
    for (std::string& word : words) args.push_back(word.data());
    return AuditMain(args);
  }

  int AuditSpawned(const std::string& server_options, std::vector<std::string> words = {}) {
    words.push_back(fmt::format("--spawn={} --repository {{repository}} --http-port {{http_port}} {}",
                                TIDEMARK_LEAKY_SERVER, server_options));
    return Audit(std::move(words));
  }

  nlohmann::json Results() const {
    const auto text = audit::ReadFile(Output() / "results.json");
    return text.ok() ? nlohmann::json::parse(*text) : nlohmann::json();
  }

  void ExpectModelUntouched() const {
    EXPECT_EQ(*audit::ReadFile(Model() / "config.pbtxt"), kConfig);
    EXPECT_EQ(*audit::ReadFile(Model() / "1" / "model.bin"), std::string(4096, 'm'));
    int entries = 0;
    for ([[maybe_unused]] const auto& entry : fs::recursive_directory_iterator(Model())) ++entries;
    EXPECT_EQ(entries, 3);
  }

  fs::path folder_;
};

TEST_F(AuditTest, LeakingServerIsFoundLeaking) {
  EXPECT_EQ(AuditSpawned("--leak-bytes 1048576"), 1);
  const auto results = Results();
  EXPECT_EQ(results["format"], "tidemark-audit");
  EXPECT_EQ(results["version"], 1);
  EXPECT_EQ(results["verdict"]["outcome"], "leak");
  const auto& judgement = results["verdict"]["judgements"][0];
  EXPECT_NEAR(judgement["growth_per_failed_cycle"].get<double>(), 1048576, 32768);
  EXPECT_GT(judgement["growth_low_95"].get<double>(), 900000);
  EXPECT_EQ(results["cycles"].size(), 3U + 6U + 1U);
  EXPECT_TRUE(fs::exists(Output() / "report.html"));
  EXPECT_TRUE(fs::exists(Output() / "server.log"));
  ExpectModelUntouched();
}

TEST_F(AuditTest, SmallLeakIsFoundByMoreCycles) {
  EXPECT_EQ(AuditSpawned("--leak-bytes 65536"), 1);
  EXPECT_GT(Results()["cycles"].size(), 10U);
}

TEST_F(AuditTest, TightServerIsFoundTight) {
  EXPECT_EQ(AuditSpawned("--leak-bytes 0"), 0);
  EXPECT_EQ(Results()["verdict"]["outcome"], "no_leak");
}

TEST_F(AuditTest, LeakedDescriptorsAreALeak) {
  EXPECT_EQ(AuditSpawned("--leak-descriptors 1"), 1);
  EXPECT_THAT(Results()["verdict"]["headline"].get<std::string>(), HasSubstr("descriptors"));
}

TEST_F(AuditTest, MemoryRetainedOnceIsNotCalledALeak) { EXPECT_EQ(AuditSpawned("--retain-bytes 8388608"), 2); }

TEST_F(AuditTest, DyingServerGivesNoVerdict) {
  EXPECT_EQ(AuditSpawned("--leak-bytes 1048576 --die-after 5"), 2);
  EXPECT_THAT(Results()["verdict"]["headline"].get<std::string>(), HasSubstr("died: exit code 3"));
}

TEST_F(AuditTest, ServerThatNeverStartsGivesNoVerdict) {
  EXPECT_EQ(AuditSpawned("--die-before-ready 7"), 2);
  EXPECT_THAT(Results()["verdict"]["headline"].get<std::string>(), HasSubstr("exit code 7"));
}

TEST_F(AuditTest, FailedLoadsThatSucceedGiveNoVerdict) {
  EXPECT_EQ(AuditSpawned("--accept-faults"), 2);
  EXPECT_THAT(Results()["verdict"]["headline"].get<std::string>(), HasSubstr("succeeded"));
}

TEST_F(AuditTest, OtherErrorsThanTheIntendedGiveNoVerdictAndAreShown) {
  EXPECT_EQ(AuditSpawned("--wrong-error 'the moon is full'"), 2);
  EXPECT_THAT(Results()["verdict"]["headline"].get<std::string>(), HasSubstr("the moon is full"));
  EXPECT_EQ(Results()["cycles"][3]["as_intended"], false);
  EXPECT_EQ(AuditSpawned("--wrong-error 'the moon is full'", {"--expect-error=moon"}), 0);
}

TEST_F(AuditTest, EveryFaultIsRefusedForItsOwnReason) {
  for (const char* fault : {"output-datatype", "output-shape", "input-datatype", "missing-input", "truncated-model",
                            "garbage-model", "missing-model", "unknown-backend", "config-syntax", "none"}) {
    EXPECT_EQ(AuditSpawned("", {fmt::format("--fault={}", fault)}), 0) << fault;
  }
  ExpectModelUntouched();
}

TEST_F(AuditTest, RunningServersFilesAreBrokenInPlaceAndPutBack) {
  const int port = *audit::PickFreePort();
  const auto time = fs::last_write_time(Model() / "config.pbtxt");
  auto server = *audit::ChildProcess::Start({TIDEMARK_LEAKY_SERVER, "--repository", (folder_ / "repository").string(),
                                             "--http-port", std::to_string(port), "--leak-bytes", "2097152"},
                                            folder_ / "server.log");
  EXPECT_EQ(Audit({fmt::format("--url=127.0.0.1:{}", port)}), 1);
  EXPECT_EQ(Results()["environment"]["server"]["pid"], server->pid());
  ExpectModelUntouched();
  EXPECT_EQ(fs::last_write_time(Model() / "config.pbtxt"), time);
  EXPECT_FALSE(server->WaitForExit(std::chrono::milliseconds(0))) << "a server that is not ours must go on running";
}

TEST_F(AuditTest, InterruptedAuditPutsFilesBackAndStopsItsServer) {
  // An endless audit in a process of its own, interrupted as soon as the broken configuration is in place.
  const pid_t audit = fork();
  if (audit == 0) {
    const int port = *audit::PickFreePort();
    auto server = *audit::ChildProcess::Start(
        {TIDEMARK_LEAKY_SERVER, "--repository", (folder_ / "repository").string(), "--http-port", std::to_string(port)},
        folder_ / "server.log");
    _exit(Audit({fmt::format("--url=127.0.0.1:{}", port), "--cycles=1000000"}));
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (*audit::ReadFile(Model() / "config.pbtxt") == kConfig && std::chrono::steady_clock::now() < deadline) {
    sched_yield();
  }
  kill(audit, SIGINT);
  int status = 0;
  ASSERT_EQ(waitpid(audit, &status, 0), audit);
  EXPECT_EQ(WEXITSTATUS(status), 2);
  EXPECT_THAT(Results()["verdict"]["headline"].get<std::string>(), HasSubstr("interrupted"));
  ExpectModelUntouched();
}

TEST_F(AuditTest, SelfTestPasses) {
  EXPECT_EQ(Audit({"--self-test", fmt::format("--self-test-server={}", TIDEMARK_LEAKY_SERVER)}), 0);
}

TEST_F(AuditTest, BadCommandLinesAreCouldNotTell) {
  EXPECT_EQ(Audit({}), 2);
  EXPECT_EQ(Audit({"--url=127.0.0.1:1", "--spawn=x {http_port} {repository}"}), 2);
  EXPECT_EQ(Audit({"--spawn=x"}), 2);
  EXPECT_EQ(Audit({"--url=127.0.0.1:1", "--fault=nonsense"}), 2);
  EXPECT_EQ(Audit({"--url=127.0.0.1:1", "--probe=gpu"}), 2);
  EXPECT_EQ(Audit({"--no-such-option"}), 2);
}

}  // namespace
}  // namespace tidemark
