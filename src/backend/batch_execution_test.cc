#include "backend/batch_execution.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <list>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "tests/support/real_platform.h"

namespace tidemark {
namespace {

using testing::ElementsAre;

class MemorySink final : public OutputSink {
 public:
  bool Wants(std::size_t index) const override { return index != unwanted; }
  absl::StatusOr<std::span<std::byte>> Allocate(std::size_t index, DataType /*data_type*/,
                                                std::span<const std::int64_t> shape, std::size_t bytes) override {
    if (index == refused) return absl::InvalidArgumentError("no place");
    shapes[index] = Shape(shape.begin(), shape.end());
    data[index].resize(bytes);
    return std::as_writable_bytes(std::span(data[index]));
  }
  std::size_t unwanted = SIZE_MAX;
  std::size_t refused = SIZE_MAX;
  std::map<std::size_t, Shape> shapes;
  std::map<std::size_t, std::string> data;
};

class BatchExecutionTest : public testing::Test {
 protected:
  struct Request {
    std::vector<std::string> data;
    std::vector<InputTensor> inputs;
    MemorySink sink;
    CancelFlag cancel;
    Execution execution;
  };

  Request& Add(std::vector<std::string> data, std::int64_t rows, DataType type = DataType::kUint8,
               std::int64_t width = 2) {
    Request& request = requests_.emplace_back();
    request.data = std::move(data);
    for (std::size_t i = 0; i < request.data.size(); ++i) {
      InputTensor& input = request.inputs.emplace_back();
      input.index = i;
      input.data_type = type;
      input.shape = {rows, width};
      input.data = std::as_bytes(std::span(request.data[i]));
    }
    request.execution.inputs = request.inputs;
    request.execution.outputs = &request.sink;
    request.execution.cancel = &request.cancel;
    request.execution.buffers = &buffers_;
    pointers_.push_back(&request.execution);
    return request;
  }
  // Copies input i to output i and keeps what it saw of the first input.
  void Run(bool stacks = true) {
    ExecuteAsBatch(pointers_, stacks, [this](Execution& execution) {
      execution.infer_start_nanos = 7;
      const std::span<const std::byte> first = execution.inputs[0].data;
      seen_.emplace_back(reinterpret_cast<const char*>(first.data()), first.size());
      execution.status = step_ ? step_(execution) : absl::OkStatus();
      for (const InputTensor& input : execution.inputs) {
        if (!execution.status.ok() || !execution.outputs->Wants(input.index)) continue;
        const auto out =
            execution.outputs->Allocate(input.index, input.data_type, AsSpan(input.shape), input.data.size());
        std::memcpy(out->data(), input.data.data(), input.data.size());
      }
    });
  }

  std::unique_ptr<Platform> platform_ = CreateLinuxPlatform();
  BufferPool buffers_{*platform_};
  std::list<Request> requests_;
  std::vector<Execution*> pointers_;
  std::vector<std::string> seen_;
  std::function<absl::Status(Execution&)> step_;
};

TEST_F(BatchExecutionTest, RowsGoInBehindEachOtherAndComeBackToTheirRequests) {
  Request& a = Add({"aaAA", "1234"}, 2);
  Request& b = Add({"bb", "56"}, 1);
  b.sink.unwanted = 1;
  Run();
  EXPECT_THAT(seen_, ElementsAre("aaAAbb"));
  EXPECT_TRUE(a.execution.status.ok() && b.execution.status.ok());
  EXPECT_EQ(a.sink.data[0], "aaAA");
  EXPECT_EQ(a.sink.data[1], "1234");
  EXPECT_EQ(a.sink.shapes[1], (Shape{2, 2}));
  EXPECT_EQ(b.sink.data[0], "bb");
  EXPECT_FALSE(b.sink.data.contains(1));
  EXPECT_EQ(b.execution.infer_start_nanos, 7);
}

TEST_F(BatchExecutionTest, StringsAreCutByTheirLengths) {
  const std::string one("\1\0\0\0x", 5), none("\0\0\0\0", 4), two("\2\0\0\0yz", 6);
  Request& a = Add({one + none}, 2, DataType::kBytes, 1);
  Request& b = Add({two}, 1, DataType::kBytes, 1);
  Run();
  EXPECT_EQ(seen_.size(), 1u);
  EXPECT_EQ(a.sink.data[0], one + none);
  EXPECT_EQ(b.sink.data[0], two);
}

TEST_F(BatchExecutionTest, WhatDoesNotFitTogetherRunsOneByOne) {
  Add({"aa"}, 1);
  Add({"bbb"}, 1, DataType::kUint8, 3);
  Run();
  EXPECT_THAT(seen_, ElementsAre("aa", "bbb"));
}

TEST_F(BatchExecutionTest, ModelsWithoutBatchDimensionRunOneByOne) {
  Add({"aa"}, 1);
  Add({"bb"}, 1);
  Run(false);
  EXPECT_THAT(seen_, ElementsAre("aa", "bb"));
}

TEST_F(BatchExecutionTest, FailedRequestFailsAlone) {
  Request& a = Add({"aa"}, 1);
  Request& b = Add({"!!"}, 1);
  step_ = [](Execution& execution) {
    const std::span<const std::byte> data = execution.inputs[0].data;
    const bool bad =
        std::string(reinterpret_cast<const char*>(data.data()), data.size()).find('!') != std::string::npos;
    return bad ? absl::InvalidArgumentError("bad") : absl::OkStatus();
  };
  Run();
  EXPECT_TRUE(a.execution.status.ok());
  EXPECT_EQ(a.sink.data[0], "aa");
  EXPECT_EQ(MessageOf(b.execution.status), "bad");
}

TEST_F(BatchExecutionTest, RequestWithoutPlaceForAnOutputLeavesTheNextOnesTheirOwnRows) {
  Request& a = Add({"aa", "12"}, 1);
  Request& b = Add({"bb", "34"}, 1);
  a.sink.refused = 0;
  Run();
  EXPECT_EQ(MessageOf(a.execution.status), "no place");
  EXPECT_FALSE(a.sink.data.contains(1));
  EXPECT_TRUE(b.execution.status.ok());
  EXPECT_EQ(b.sink.data[0], "bb");
  EXPECT_EQ(b.sink.data[1], "34") << "another client's answer";
}

TEST_F(BatchExecutionTest, IsCancelledWhenNobodyWaitsAnyMore) {
  Add({"aa"}, 1);
  Add({"bb"}, 1);
  step_ = [this](Execution& whole) {
    requests_.front().cancel.Cancel();
    EXPECT_FALSE(whole.cancel->cancelled());
    requests_.back().cancel.Cancel();
    EXPECT_TRUE(whole.cancel->cancelled());
    return absl::CancelledError("stopped");
  };
  Run();
  EXPECT_EQ(seen_.size(), 1u);
  for (const Request& request : requests_) EXPECT_TRUE(absl::IsCancelled(request.execution.status));
}

TEST_F(BatchExecutionTest, DeadlineIsTheLatestAndOnlyIfAllHaveOne) {
  Add({"aa"}, 1).execution.deadline_nanos = 5;
  Add({"bb"}, 1).execution.deadline_nanos = 9;
  std::int64_t deadline = -1;
  step_ = [&](Execution& whole) {
    deadline = whole.deadline_nanos;
    return absl::OkStatus();
  };
  Run();
  EXPECT_EQ(deadline, 9);
  requests_.back().execution.deadline_nanos = 0;
  Run();
  EXPECT_EQ(deadline, 0);
}

TEST_F(BatchExecutionTest, OutputWithoutTheBatchDimensionIsAnErrorByName) {
  Add({"aa"}, 1);
  Add({"bb"}, 1);
  ExecuteAsBatch(pointers_, true, [](Execution& execution) {
    const Shape shape{1, 4};
    EXPECT_TRUE(execution.outputs->Allocate(0, DataType::kUint8, AsSpan(shape), 4).ok());
  });
  EXPECT_EQ(MessageOf(requests_.front().execution.status),
            "output 0 of a batch of 2 has shape [1,4]: its first dimension is not the batch");
}

}  // namespace
}  // namespace tidemark
