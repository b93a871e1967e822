#include "frontend/event_loop.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>

#include "absl/synchronization/notification.h"

namespace tidemark {
namespace {

struct Counter : EventLoop::Handler {
  std::function<void(std::uint32_t)> f;
  void OnEvents(std::uint32_t events) override { f(events); }
};

TEST(EventLoopTest, TasksOfOtherThreadsRunInOrderBeforeStop) {
  auto loop = EventLoop::Create().value();
  std::vector<int> seen;
  std::thread thread([&] { loop->Run(); });
  for (int i = 0; i < 1000; ++i) {
    loop->Post([&seen, i] { seen.push_back(i); });
  }
  loop->Stop();
  thread.join();
  ASSERT_EQ(seen.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(seen[static_cast<std::size_t>(i)], i);
  EXPECT_FALSE(loop->running());
}

TEST(EventLoopTest, LoopThatLooksForAwaitedPostsLosesNone) {
  constexpr int kPosts = 20000;
  // From never asleep to hardly awake: each post meets the loop looking, going to sleep or asleep.
  for (const std::int64_t poll_nanos : {0, 1, 1'000, 1'000'000}) {
    auto loop = EventLoop::Create(nullptr, poll_nanos).value();
    loop->Await(1);
    std::atomic<int> done{0};
    std::thread thread([&] { loop->Run(); });
    std::array<std::thread, 2> posters;
    for (std::thread& poster : posters) {
      poster = std::thread([&] {
        for (int i = 0; i < kPosts; ++i) {
          absl::Notification ran;
          loop->Post([&] {
            done.fetch_add(1);
            ran.Notify();
          });
          ran.WaitForNotification();
        }
      });
    }
    for (std::thread& poster : posters) poster.join();
    loop->Stop();
    thread.join();
    EXPECT_EQ(done.load(), 2 * kPosts) << poll_nanos;
  }
}

TEST(EventLoopTest, LoopThatLooksForPostsStillServesItsSockets) {
  auto loop = EventLoop::Create(nullptr, 60'000'000'000).value();  // longer than the test may take
  loop->Await(1);
  std::array<int, 2> pipe_fds;
  ASSERT_EQ(pipe(pipe_fds.data()), 0);
  Counter counter;
  absl::Notification seen;
  counter.f = [&](std::uint32_t) { seen.Notify(); };
  ASSERT_TRUE(loop->Add(pipe_fds[0], EPOLLIN | EPOLLET, &counter).ok());
  std::thread thread([&] { loop->Run(); });
  ASSERT_EQ(write(pipe_fds[1], "x", 1), 1);
  seen.WaitForNotification();
  loop->Stop();
  thread.join();
  close(pipe_fds[0]);
  close(pipe_fds[1]);
}

TEST(EventLoopTest, MailboxOutlivesItsLoopAndDropsTasks) {
  auto loop = EventLoop::Create().value();
  const std::shared_ptr<LoopMailbox> mailbox = loop->mailbox();
  const auto token = std::make_shared<int>(1);
  loop->Post([token] {});
  EXPECT_EQ(token.use_count(), 2);
  loop.reset();
  EXPECT_EQ(token.use_count(), 1);
  EXPECT_FALSE(mailbox->Post([token] {}));
  EXPECT_EQ(token.use_count(), 1);
}

TEST(EventLoopTest, ClosedLoopKeepsNothingThatWasPosted) {
  auto loop = EventLoop::Create().value();
  const auto token = std::make_shared<int>(1);
  loop->Post([token] {});
  loop->Close();
  EXPECT_EQ(token.use_count(), 1);
  EXPECT_FALSE(loop->Post([token] {}));
  EXPECT_EQ(token.use_count(), 1);
}

TEST(EventLoopTest, TimersFireInOrderAndNotEarly) {
  std::int64_t time = 0;
  auto loop = EventLoop::Create([&time] { return time; }).value();
  std::vector<int> fired;
  std::vector<std::unique_ptr<EventLoop::Timer>> timers;
  for (int i = 0; i < 50; ++i) {
    timers.push_back(std::make_unique<EventLoop::Timer>(loop.get(), [&fired, i] { fired.push_back(i); }));
    timers.back()->Set(1000 - i * 10);
  }
  timers[10]->Set(2000);  // later: lazily
  timers[20]->Set(5);     // earlier
  timers[30]->Clear();
  timers.erase(timers.begin() + 40);
  const auto round = [&](std::int64_t now) {
    time = now;
    fired.clear();
    loop->Stop();
    loop->Run();
  };
  round(4);
  EXPECT_TRUE(fired.empty());
  round(5);
  EXPECT_EQ(fired, std::vector<int>({20}));
  round(529);
  EXPECT_EQ(fired, std::vector<int>({49, 48}));
  round(1999);
  ASSERT_EQ(fired.size(), 50u - 6u);
  EXPECT_TRUE(std::is_sorted(fired.rbegin(), fired.rend()));
  round(2000);
  EXPECT_EQ(fired, std::vector<int>({10}));
}

TEST(EventLoopTest, RemovedHandlerGetsNoEventOfTheSameRound) {
  auto loop = EventLoop::Create().value();
  std::array<std::array<int, 2>, 2> pipes;
  std::array<Counter, 2> handlers;
  int events = 0;
  for (std::size_t i = 0; i < 2; ++i) {
    ASSERT_EQ(pipe(pipes[i].data()), 0);
    handlers[i].f = [&, i](std::uint32_t) {
      ++events;
      loop->Remove(pipes[1 - i][0], &handlers[1 - i]);
      loop->Remove(pipes[i][0], &handlers[i]);
      loop->Stop();
    };
    ASSERT_TRUE(loop->Add(pipes[i][0], EPOLLIN, &handlers[i]).ok());
    ASSERT_EQ(write(pipes[i][1], "x", 1), 1);
  }
  loop->Run();
  EXPECT_EQ(events, 1);
  for (const auto& ends : pipes) {
    close(ends[0]);
    close(ends[1]);
  }
}

}  // namespace
}  // namespace tidemark
