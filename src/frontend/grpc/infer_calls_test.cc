#include "frontend/grpc/infer_calls.h"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <memory>
#include <span>
#include <string>

#include "protocol/grpc_control.h"
#include "tests/support/core_harness.h"

namespace tidemark {
namespace {

// Calls whose connection is gone already, so that their answers go nowhere, with decoders that work when they are told to.
class InferCallsTest : public testing::Test {
 protected:
  InferCallsTest() {
    core_.script.warms_up_unasked = false;
    core_.script.on_execute = [this](const Execution&, std::string_view) {
      ++executions_;
      return absl::OkStatus();
    };
    core_.folder.AddModel("m", CopyConfig("fake"));
    EXPECT_TRUE(core_.Start().ok());
    EXPECT_TRUE(core_.Load("m").ok());
    context_.registry = &core_.registry;
    context_.lifecycle = core_.lifecycle.get();
    context_.buffers = &core_.buffers;
    context_.tracer = &tracer_;
    context_.requests = std::make_shared<InferRequestPool>();
    context_.decode = [this](absl::AnyInvocable<void()> task) { tasks_.push_back(std::move(task)); };
  }

  static std::string Message(std::size_t more_bytes) {
    inference::ModelInferRequest request;
    request.set_model_name("m");
    (*request.mutable_parameters())["long"].set_string_param(std::string(more_bytes, 'x'));
    auto* input = request.add_inputs();
    input->set_name("INPUT0");
    input->set_datatype("FP32");
    input->add_shape(4);
    for (const float value : {1.0F, 2.0F, 3.0F, 4.0F}) input->mutable_contents()->add_fp32_contents(value);
    return request.SerializeAsString();
  }
  static void Send(GrpcCall& call, const std::string& message) {
    ASSERT_TRUE(call.BeginMessage(message.size()).ok());
    ASSERT_TRUE(call.Add(std::as_bytes(std::span(message))).ok());
    const absl::Status status = call.EndMessage();
    ASSERT_TRUE(status.ok()) << status;
  }
  void Decode() {
    ASSERT_FALSE(tasks_.empty());
    absl::AnyInvocable<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    task();
  }
  // All requests have ended when the unload is answered.
  void ExpectExecutions(int expected) {
    EXPECT_TRUE(tasks_.empty());
    EXPECT_TRUE(core_.Unload("m").ok());
    EXPECT_EQ(executions_, expected);
    EXPECT_EQ(core_.buffers.used_bytes(), 0u);
  }

  static constexpr std::size_t kLarge = 100'000;
  CoreHarness core_;
  std::atomic<int> executions_{0};
  Tracer tracer_{Tracer::Options()};
  InferContext context_;
  std::deque<absl::AnyInvocable<void()>> tasks_;
};

TEST_F(InferCallsTest, AStreamReadsNoFurtherWhileALargeMessageIsDecoded) {
  const auto call = MakeStreamInferCall(context_, {}, GrpcResponder());
  Send(*call, Message(10));
  EXPECT_TRUE(tasks_.empty()) << "small ones are bound at once";
  EXPECT_TRUE(call->Ready());
  for (int i = 0; i < 2; ++i) {
    Send(*call, Message(kLarge));
    EXPECT_EQ(tasks_.size(), 1u);
    EXPECT_FALSE(call->Ready());
    Decode();
    EXPECT_TRUE(call->Ready());
  }
  ExpectExecutions(3);
}

TEST_F(InferCallsTest, AStreamThatIsCancelledMeanwhileExecutesNothing) {
  auto call = MakeStreamInferCall(context_, {}, GrpcResponder());
  Send(*call, Message(kLarge));
  call->Cancel();
  call.reset();
  Decode();
  ExpectExecutions(0);
}

TEST_F(InferCallsTest, ALargeMessageThatIsNoneEndsItsStream) {
  const auto call = MakeStreamInferCall(context_, {}, GrpcResponder());
  Send(*call, std::string("\x0a\x80\x80\x08", 4) + std::string(std::size_t{1} << 17, '\xff'));  // a name of no UTF-8
  Send(*call, Message(kLarge));  // a connection would have waited
  Decode();
  Decode();
  ExpectExecutions(0);
}

TEST_F(InferCallsTest, ALargeRequestOfACallThatIsGoneIsDropped) {
  auto call = MakeInferCall(context_, {}, GrpcResponder());
  Send(*call, Message(kLarge));
  call->Cancel();
  call.reset();
  Decode();
  ExpectExecutions(0);
}

TEST_F(InferCallsTest, WithoutDecodersEverythingIsBoundAtOnce) {
  context_.decode = nullptr;
  const auto call = MakeStreamInferCall(context_, {}, GrpcResponder());
  Send(*call, Message(kLarge));
  EXPECT_TRUE(call->Ready());
  ExpectExecutions(1);
}

}  // namespace
}  // namespace tidemark
