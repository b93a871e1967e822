#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <map>

#include "audit/child_process.h"
#include "audit/http_client.h"
#include "audit/model_files.h"
#include "audit/probe.h"
#include "audit/process_tree.h"
#include "audit/scenario.h"
#include "base/status.h"

namespace tidemark::audit {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

class ProcessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "process-test-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  void Write(const fs::path& path, const std::string& text) const {
    fs::create_directories((folder_ / path).parent_path());
    std::ofstream(folder_ / path) << text;
  }
  void AddProcess(int pid, const std::string& name, int parent, int group, char state = 'S') const {
    Write(std::to_string(pid) + "/stat", std::to_string(pid) + " (" + name + ") " + state + " " +
                                             std::to_string(parent) + " " + std::to_string(group) +
                                             " 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 9 0 " + std::to_string(1000 + pid) +
                                             " 123 45\n");
  }

  fs::path folder_;
};

TEST_F(ProcessTest, StatIsReadWhateverTheProcessIsCalled) {
  AddProcess(7, "evil) R 1 (name", 3, 4);
  const auto stat = ProcReader(folder_).ReadStat(7);
  ASSERT_TRUE(stat.ok());
  EXPECT_EQ(stat->parent, 3);
  EXPECT_EQ(stat->group, 4);
  EXPECT_EQ(stat->state, 'S');
  EXPECT_EQ(stat->start_ticks, 1007U);
}

TEST_F(ProcessTest, TreeHasDescendantsAndGroupButNoZombiesAndNoStrangers) {
  AddProcess(10, "server", 1, 10);
  AddProcess(11, "worker", 10, 10);
  AddProcess(12, "grandchild", 11, 99);
  AddProcess(13, "zombie", 10, 10, 'Z');
  AddProcess(14, "orphan of the group", 1, 10);
  AddProcess(20, "stranger", 1, 20);
  const ProcReader reader(folder_);
  EXPECT_THAT(*reader.ReadTree(10, 10), UnorderedElementsAre(10, 11, 12, 14));
  EXPECT_THAT(*reader.ReadTree(10, 0), UnorderedElementsAre(10, 11, 12));
  EXPECT_TRUE(absl::IsNotFound(reader.ReadTree(13, 0).status()));
  EXPECT_TRUE(absl::IsNotFound(reader.ReadTree(15, 0).status()));
}

TEST_F(ProcessTest, MemoryComesFromTheRollupElseFromStatus) {
  Write("5/smaps_rollup",
        "00-ff ---p 0 00:00 0 [rollup]\nRss:  2000 kB\nPss_Anon: 7 kB\nAnonymous:   300 kB\n"
        "AnonHugePages: 5 kB\n");
  Write("6/status", "Name:\tx\nVmRSS:\t 50 kB\nRssAnon:\t 20 kB\n");
  const ProcReader reader(folder_);
  EXPECT_EQ(reader.ReadMemory(5)->anonymous, 300 * 1024);
  EXPECT_EQ(reader.ReadMemory(5)->rss, 2000 * 1024);
  EXPECT_EQ(reader.ReadMemory(6)->anonymous, 20 * 1024);
  EXPECT_FALSE(reader.ReadMemory(8).ok());
}

TEST_F(ProcessTest, ListenerIsFoundByItsSocketAndWorkersThatInheritedItAreNot) {
  Write("net/tcp",
        "  sl  local_address rem_address   st\n"
        "   0: 00000000:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 555 1\n"
        "   1: 0100007F:1F41 00000000:0000 01 00000000:00000000 00:00000000 00000000     0        0 556 1\n");
  AddProcess(30, "server", 1, 30);
  AddProcess(31, "worker", 30, 30);
  for (const int pid : {30, 31}) {
    fs::create_directories(folder_ / std::to_string(pid) / "fd");
    fs::create_symlink("socket:[555]", folder_ / std::to_string(pid) / "fd" / "3");
  }
  const ProcReader reader(folder_);
  EXPECT_EQ(*reader.FindListener(8000), 30);
  EXPECT_TRUE(absl::IsNotFound(reader.FindListener(8001).status()));  // connected, but not listening
}

TEST_F(ProcessTest, RealListenerOfThisTestIsThisTest) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  EXPECT_EQ(*ProcReader().FindListener(ntohs(address.sin_port)), getpid());
  close(fd);
}

#ifndef TIDEMARK_SANITIZED  // a sanitizer's own memory would be measured
TEST_F(ProcessTest, ProbeSeesMemoryOfTheTreeAsItIsTouchedAndFreed) {
  const ProcReader reader;
  const auto probe = MakeProcessProbe(&reader, {});
  const Target target{getpid(), 0, reader.ReadStat(getpid())->start_ticks};
  constexpr std::size_t kBytes = 64 << 20;
  const std::int64_t before = (*probe->Read(target))[0];
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  std::memset(memory, 1, kBytes);
  EXPECT_NEAR(static_cast<double>((*probe->Read(target))[0] - before), static_cast<double>(kBytes), 4 << 20);
  munmap(memory, kBytes);
  EXPECT_NEAR(static_cast<double>((*probe->Read(target))[0]), static_cast<double>(before), 4 << 20);
  const Target another{getpid(), 0, target.start_ticks + 1};
  EXPECT_TRUE(absl::IsNotFound(probe->Read(another).status())) << "the same number is not the same process";
}
#endif

class FakeNvml final : public Nvml {
 public:
  absl::StatusOr<int> DeviceCount() override { return 1; }
  absl::StatusOr<std::string> Describe(int) override { return "fake"; }
  absl::StatusOr<std::int64_t> UsedBytes(int) override { return 1000; }
  absl::StatusOr<std::vector<NvmlProcess>> Processes(int) override { return processes; }
  std::vector<NvmlProcess> processes;
};

TEST_F(ProcessTest, GpuProbeJudgesTheServersProcessesOrElseTheDevice) {
  AddProcess(10, "server", 1, 10);
  AddProcess(11, "worker", 10, 10);
  const ProcReader reader(folder_);
  const Target target{10, 0, 1010};
  for (const bool listed : {true, false}) {
    auto nvml = std::make_unique<FakeNvml>();
    nvml->processes = {{99, 7}};
    if (listed) nvml->processes.push_back({11, 300});
    const auto probe = MakeGpuProbe(&reader, std::move(nvml), 0, {});
    EXPECT_FALSE(probe->OnFirstLoad(target).empty());
    EXPECT_THAT(*probe->Read(target), ElementsAre(listed ? 300 : 0, 1000));
    EXPECT_EQ(probe->quantities()[0].judged, listed);
    EXPECT_EQ(probe->quantities()[1].judged, !listed);
  }
}

TEST_F(ProcessTest, CommandsAreSplitAsAShellDoes) {
  EXPECT_THAT(*SplitCommand("a  'b c' \"d \\\" e\" f\\ g ''"), ElementsAre("a", "b c", "d \" e", "f g", ""));
  EXPECT_FALSE(SplitCommand("a 'b").ok());
  EXPECT_FALSE(SplitCommand("  ").ok());
}

TEST_F(ProcessTest, OptionsThatTheAuditNeedsAreAddedForKnownServersOnly) {
  Options options;
  options.spawn = "/opt/tritonserver --model-repository={repository} --http-port {http_port}";
  EXPECT_THAT(*SpawnCommand(options, "/r", 7, true),
              ElementsAre("/opt/tritonserver", "--model-repository=/r", "--http-port", "7",
                          "--model-control-mode=explicit", "--disable-auto-complete-config"));
  options.spawn += " --model-control-mode=poll";
  EXPECT_EQ(SpawnCommand(options, "/r", 7, false)->size(), 5U);
  options.spawn = "env A=b /x/tidemark serve --repository {repository} --port {http_port}";
  EXPECT_EQ(SpawnCommand(options, "/r", 7, true)->size(), 10U);
  options.spawn = "ovms {repository} {http_port} {grpc_port}";
  EXPECT_EQ(SpawnCommand(options, "/r", 7, true)->size(), 4U);
}

TEST_F(ProcessTest, ChildsEndAndOutputAreSeen) {
  auto child = *ChildProcess::Start({"/bin/sh", "-c", "echo out; echo err >&2; exit 3"}, folder_ / "log");
  ASSERT_TRUE(child->WaitForExit(milliseconds(30000)));
  EXPECT_EQ(*child->ExitText(), "exit code 3");
  EXPECT_EQ(*ReadFile(folder_ / "log"), "out\nerr\n");
  EXPECT_TRUE(absl::IsNotFound(ChildProcess::Start({"/no/such/program"}, folder_ / "log").status()));
}

TEST_F(ProcessTest, ChildThatIgnoresSigtermIsKilledWithItsGroup) {
  int alive[2];  // its writing end is held by the child and by its helper, until both are gone
  ASSERT_EQ(pipe(alive), 0);
  auto child = *ChildProcess::Start({"/bin/sh", "-c", "trap '' TERM; cat /dev/zero >/dev/null & echo ready; wait"},
                                    folder_ / "log");
  close(alive[1]);
  while (ReadFile(folder_ / "log")->empty() && !child->WaitForExit(milliseconds(1))) {
  }
  EXPECT_THAT(child->Stop(milliseconds(50)), testing::HasSubstr("signal 9"));
  char byte = 0;
  EXPECT_EQ(read(alive[0], &byte, 1), 0);
  close(alive[0]);
}

TEST_F(ProcessTest, BrokenFilesComeBackWithTheirTimes) {
  Write("m/config.pbtxt", "good");
  Write("m/1/model.bin", "0123456789");
  const auto time = fs::last_write_time(folder_ / "m/config.pbtxt") - std::chrono::hours(5);
  fs::last_write_time(folder_ / "m/config.pbtxt", time);
  {
    auto files = *ModelFiles::Open(folder_ / "m");
    ASSERT_TRUE(files->Break(files->ConfigPath(), "bad").ok());
    ASSERT_TRUE(files->Break(*files->FindModelFile(), std::nullopt).ok());
    EXPECT_EQ(*ReadFile(folder_ / "m/config.pbtxt"), "bad");
    EXPECT_FALSE(fs::exists(folder_ / "m/1/model.bin"));
    ASSERT_TRUE(files->Mend().ok());
    EXPECT_EQ(*ReadFile(folder_ / "m/config.pbtxt"), "good");
    EXPECT_GT(fs::last_write_time(folder_ / "m/config.pbtxt"), time) << "servers notice changes by the time";
    ASSERT_TRUE(files->Break(files->ConfigPath(), "worse").ok());
  }
  EXPECT_EQ(*ReadFile(folder_ / "m/config.pbtxt"), "good");
  EXPECT_EQ(fs::last_write_time(folder_ / "m/config.pbtxt"), time);
  EXPECT_EQ(*ReadFile(folder_ / "m/1/model.bin"), "0123456789");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "m"), fs::directory_iterator()), 2);
}

TEST_F(ProcessTest, WhatAKilledAuditLeftIsMendedByTheNext) {
  Write("m/config.pbtxt", "good");
  Write("n/1/model.bin", "x");
  for (const char* model : {"m", "n"}) {  // m has a configuration to break, n gets one made
    const pid_t killed = fork();
    if (killed == 0) {
      auto files = *ModelFiles::Open(folder_ / model);
      (void)files->Break(files->ConfigPath(), "bad");
      _exit(0);  // no destructors: as after SIGKILL
    }
    waitpid(killed, nullptr, 0);
    EXPECT_EQ(*ReadFile(folder_ / model / "config.pbtxt"), "bad");
    EXPECT_EQ((*ModelFiles::Open(folder_ / model))->mended_at_open(), 1);
  }
  EXPECT_EQ(*ReadFile(folder_ / "m/config.pbtxt"), "good");
  EXPECT_FALSE(fs::exists(folder_ / "n/config.pbtxt"));
}

TEST_F(ProcessTest, ModelFileIsTheNamedOneElseModelElseTheLargestOfTheHighestVersion) {
  Write("m/1/model.onnx", "1");
  Write("m/12/saved/graph.bin", "4444");
  Write("m/12/saved/small.bin", "4");
  Write("m/3/model.onnx", "3");
  auto files = *ModelFiles::Open(folder_ / "m");
  EXPECT_EQ(*files->FindModelFile(), folder_ / "m/12/saved/graph.bin");
  Write("m/12/model.py", "22");
  Write("m/12/__pycache__/model.pyc", "55555");
  EXPECT_EQ(*files->FindModelFile(), folder_ / "m/12/model.py");
  Write("m/12/other.bin", "x");
  Write("m/config.pbtxt", "default_model_filename: \"other.bin\"");
  EXPECT_EQ(*files->FindModelFile(), folder_ / "m/12/other.bin");
}

TEST_F(ProcessTest, AddressesAreUnderstoodOrRefusedWithAReason) {
  EXPECT_EQ(ParseEndpoint("http://a:81/")->port, 81);
  EXPECT_EQ(ParseEndpoint("a")->port, 8000);
  EXPECT_EQ(ParseEndpoint("[::1]:9")->host, "::1");
  for (const char* bad : {"", ":1", "a:", "a:x", "a:70000", "https://a:1", "a:1/v2", "[::1"}) {
    EXPECT_FALSE(ParseEndpoint(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace tidemark::audit
