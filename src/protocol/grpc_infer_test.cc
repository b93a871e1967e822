#include "protocol/grpc_infer.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "inference/registry.h"
#include "proto/grpc_service.pb.h"
#include "tests/support/real_platform.h"
#include "tests/support/response_outputs.h"

namespace tidemark {
namespace {

using inference::ModelInferRequest;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

constexpr char kModel[] = R"(name: "simple" max_batch_size: 8
  input { name: "A" data_type: TYPE_INT32 dims: [ 4 ] }
  output { name: "Y" data_type: TYPE_FP32 dims: [ 3 ] }
  output { name: "T" data_type: TYPE_STRING dims: [ -1 ] })";

// Memory of the test's own as regions "r" (64 bytes).
class Regions : public SharedMemoryFinder, public SharedMemoryRegion {
 public:
  absl::StatusOr<SharedMemoryLease> Find(std::string_view region, std::uint64_t offset, std::uint64_t bytes) override {
    if (region != "r") return absl::NotFoundError("Unable to find shared memory region: 'x'");
    asked.emplace_back(offset, bytes);
    if (offset > memory.size() || bytes > memory.size() - offset) return absl::InvalidArgumentError("outside");
    SharedMemoryLease lease;
    lease.bytes = std::span(memory).subspan(offset, bytes);
    lease.region = std::shared_ptr<const SharedMemoryRegion>(std::shared_ptr<void>(), this);
    return lease;
  }
  absl::Status Check() const override { return absl::OkStatus(); }
  absl::Status Read(std::span<const std::byte> region, std::span<std::byte> host) const override {
    std::memcpy(host.data(), region.data(), host.size());
    return absl::OkStatus();
  }
  absl::Status Write(std::span<const std::byte>, std::span<std::byte>) const override { return absl::OkStatus(); }

  std::vector<std::byte> memory = std::vector<std::byte>(64);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> asked;
};

class GrpcInfer : public testing::Test {
 protected:
  // The error's text; "" when it is good.
  std::string Read(std::string_view wire, std::size_t step) {
    reader_.Begin(wire.size());
    status_ = absl::OkStatus();
    for (std::size_t at = 0; at < wire.size() && status_.ok(); at += step) {
      const std::string_view piece = wire.substr(at, step);
      status_ = reader_.Add(std::as_bytes(std::span(piece)));
    }
    if (status_.ok()) status_ = reader_.Finish();
    if (status_.ok()) status_ = ReadInferEnvelope(reader_.envelope(), envelope_);
    return std::string(MessageOf(status_));
  }
  std::string Decode(const ModelInferRequest& message, std::size_t step = 1 << 20) {
    wire_ = message.SerializeAsString();
    request_.Clear();
    flags_ = {};
    if (std::string error = Read(wire_, step); !error.empty()) return error;
    status_ = DecodeGrpcInfer(envelope_, reader_.raw(), &regions_, pool_, request_, flags_);
    return std::string(MessageOf(status_));
  }
  static ModelInferRequest Message(const std::string& text) {
    ModelInferRequest message;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message)) << text;
    return message;
  }
  // A request with one typed tensor.
  std::string DecodeTyped(const std::string& type, const std::string& contents) {
    return Decode(Message("model_name: 'm' inputs { name: 'A' datatype: '" + type + "' shape: 1 contents { " +
                          contents + " } }"));
  }
  template <typename T>
  std::vector<T> Values(std::size_t input = 0) const {
    const std::span<const std::byte> data = request_.inputs[input].data;
    std::vector<T> values(data.size() / sizeof(T));
    std::memcpy(values.data(), data.data(), data.size());
    return values;
  }
  void AddOutput(std::size_t index, DataType type, Shape shape, std::string_view bytes) {
    tidemark::AddOutput(request_.response, model_, pool_, index, type, std::move(shape), bytes);
  }
  static std::string Body(const GrpcMessage& message) {
    std::string wire;
    for (std::size_t i = 0; i < message.pieces(); ++i) {
      const std::span<const std::byte> piece = message.piece(i);
      wire.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    }
    EXPECT_GE(wire.size(), GrpcMessage::kPrefix);
    return wire.substr(GrpcMessage::kPrefix);
  }

  static inference::ModelConfig Config() {
    inference::ModelConfig config;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(kModel, &config));
    return config;
  }

  std::unique_ptr<Platform> platform_ = CreateLinuxPlatform();
  BufferPool pool_{*platform_};
  ModelInfo model_{Config(), 3, std::map<std::string, std::vector<std::string>>{{"Y", {"cat", "dog"}}}};
  Regions regions_;
  std::string wire_;
  InferMessageReader reader_{pool_};
  InferEnvelope envelope_;
  InferenceRequest request_;
  GrpcInferFlags flags_;
  absl::Status status_;
};

TEST_F(GrpcInfer, WholeRequestIsReadWhateverThePieces) {
  ModelInferRequest message = Message(R"(model_name: "m" model_version: "2" id: "7"
    parameters { key: "sequence_id" value { int64_param: 5 } } parameters { key: "sequence_start" value { bool_param: true } }
    parameters { key: "sequence_end" value { bool_param: true } } parameters { key: "priority" value { uint64_param: 2 } }
    parameters { key: "timeout" value { int64_param: 9 } }
    parameters { key: "triton_enable_empty_final_response" value { bool_param: true } }
    parameters { key: "k" value { string_param: "v" } } parameters { key: "d" value { double_param: 0.5 } }
    inputs { name: "A" datatype: "INT32" shape: [ 1, 4 ] } inputs { name: "S" datatype: "BYTES" shape: [ 1, 1 ] }
    outputs { name: "Y" parameters { key: "classification" value { int64_param: 2 } } } outputs { name: "T" })");
  message.add_raw_input_contents(std::string(16, 'a'));
  message.add_raw_input_contents(std::string("\1\0\0\0x", 5));
  for (const std::size_t step : {1U, 2U, 3U, 7U, 64U, 1000U}) {
    ASSERT_EQ(Decode(message, step), "") << step;
    EXPECT_EQ(envelope_.model_name, "m");
    EXPECT_EQ(envelope_.model_version, "2");
    EXPECT_EQ(request_.id, "7");
    EXPECT_EQ(std::get<std::uint64_t>(request_.sequence_id), 5u);
    EXPECT_TRUE(request_.sequence_start && request_.sequence_end && flags_.empty_final_response);
    EXPECT_EQ(request_.priority, 2u);
    EXPECT_EQ(request_.timeout_us, 9u);
    EXPECT_EQ(request_.deadline_nanos, 0) << "the time-out of a request bounds its wait in the queue and nothing else";
    ASSERT_EQ(request_.inputs.size(), 2u);
    EXPECT_EQ(request_.inputs[0].name, "A");
    EXPECT_EQ(request_.inputs[0].shape, (Shape{1, 4}));
    EXPECT_EQ(request_.inputs[0].data.size(), 16u);
    EXPECT_EQ(request_.inputs[1].data_type, DataType::kBytes);
    EXPECT_EQ(request_.inputs[1].data.size(), 5u);
    ASSERT_EQ(request_.outputs.size(), 2u);
    EXPECT_EQ(request_.outputs[0].classification, 2u);
    EXPECT_EQ(request_.parameters.size(), 2u);
  }
}

TEST_F(GrpcInfer, RawContentsAreAlignedAndNeverCopied) {
  ModelInferRequest message = Message("model_name: 'm' inputs { name: 'A' datatype: 'UINT8' shape: 100 }");
  message.add_raw_input_contents(std::string(100, 'a'));
  const std::string wire = message.SerializeAsString();
  ASSERT_EQ(Read(wire, 13), "");
  ASSERT_EQ(reader_.raw().size(), 1u);
  const std::byte* const place = reader_.raw()[0].data();
  ASSERT_TRUE(DecodeGrpcInfer(envelope_, reader_.raw(), nullptr, pool_, request_, flags_).ok());
  EXPECT_EQ(request_.inputs[0].data.data(), place);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(place) % 64, 0u);
}

TEST_F(GrpcInfer, EveryTypedArrayIsRead) {
  EXPECT_EQ(DecodeTyped("BOOL", "bool_contents: [ true, false ]"), "");
  EXPECT_THAT(Values<std::uint8_t>(), ElementsAre(1, 0));
  EXPECT_EQ(DecodeTyped("INT8", "int_contents: [ -128, 127 ]"), "");
  EXPECT_THAT(Values<std::int8_t>(), ElementsAre(-128, 127));
  EXPECT_EQ(DecodeTyped("INT16", "int_contents: [ -32768, 32767 ]"), "");
  EXPECT_THAT(Values<std::int16_t>(), ElementsAre(-32768, 32767));
  EXPECT_EQ(DecodeTyped("INT32", "int_contents: [ -1, 7 ]"), "");
  EXPECT_THAT(Values<std::int32_t>(), ElementsAre(-1, 7));
  EXPECT_EQ(DecodeTyped("INT64", "int64_contents: [ -9223372036854775808 ]"), "");
  EXPECT_THAT(Values<std::int64_t>(), ElementsAre(std::numeric_limits<std::int64_t>::min()));
  EXPECT_EQ(DecodeTyped("UINT8", "uint_contents: [ 255 ]"), "");
  EXPECT_THAT(Values<std::uint8_t>(), ElementsAre(255));
  EXPECT_EQ(DecodeTyped("UINT16", "uint_contents: [ 65535 ]"), "");
  EXPECT_THAT(Values<std::uint16_t>(), ElementsAre(65535));
  EXPECT_EQ(DecodeTyped("UINT32", "uint_contents: [ 4294967295 ]"), "");
  EXPECT_THAT(Values<std::uint32_t>(), ElementsAre(4294967295u));
  EXPECT_EQ(DecodeTyped("UINT64", "uint64_contents: [ 18446744073709551615 ]"), "");
  EXPECT_THAT(Values<std::uint64_t>(), ElementsAre(std::numeric_limits<std::uint64_t>::max()));
  EXPECT_EQ(DecodeTyped("FP32", "fp32_contents: [ 0.5, -inf ]"), "");
  EXPECT_THAT(Values<float>(), ElementsAre(0.5F, -std::numeric_limits<float>::infinity()));
  EXPECT_EQ(DecodeTyped("FP64", "fp64_contents: [ 1e300 ]"), "");
  EXPECT_THAT(Values<double>(), ElementsAre(1e300));
  EXPECT_EQ(DecodeTyped("BYTES", R"(bytes_contents: [ "ab", "", "\000" ])"), "");
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(request_.inputs[0].data.data()), request_.inputs[0].data.size()),
            std::string("\2\0\0\0ab\0\0\0\0\1\0\0\0\0", 15));
}

TEST_F(GrpcInfer, UnpackedArraysAndThoseInPiecesAreRead) {
  // int_contents twice packed and once not; protobuf writers may do so.
  const std::string contents("\x12\x02\x01\x02\x10\x03\x12\x01\x04", 9);
  const std::string input =
      std::string("\x0A\x01") + "A" + "\x12\x05INT32\x18\x04\x2A" + static_cast<char>(contents.size()) + contents;
  const std::string wire = std::string("\x0A\x01m\x2A") + static_cast<char>(input.size()) + input;
  ASSERT_EQ(Read(wire, 1), "");
  ASSERT_TRUE(DecodeGrpcInfer(envelope_, reader_.raw(), nullptr, pool_, request_, flags_).ok());
  EXPECT_THAT(Values<std::int32_t>(), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(request_.inputs[0].shape, (Shape{4}));
}

TEST_F(GrpcInfer, SecondArrayOfATensorIsRefused) {
  EXPECT_EQ(DecodeTyped("INT32", "int_contents: 1 fp32_contents: 1"),
            "unexpected explicit tensor data for input tensor 'A' for model 'm', binary data was already supplied.");
  EXPECT_EQ(DecodeTyped("FP32", "int_contents: 1 fp32_contents: 1"),
            "unexpected explicit tensor data for input tensor 'A' for model 'm' of type 'INT32', expected datatype "
            "'FP32'");
}

TEST_F(GrpcInfer, NarrowIntegersOutsideTheirRangeAreNamed) {
  EXPECT_THAT(DecodeTyped("INT8", "int_contents: [ 1, 128 ]"), HasSubstr("128"));
  EXPECT_THAT(DecodeTyped("UINT16", "uint_contents: [ 65536 ]"), HasSubstr("65536"));
  EXPECT_EQ(status_.code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(GrpcInfer, RegionsGoWhereTheyPoint) {
  ModelInferRequest message = Message(R"(model_name: "m" inputs { name: "A" datatype: "INT32" shape: 4
      parameters { key: "shared_memory_region" value { string_param: "r" } }
      parameters { key: "shared_memory_byte_size" value { int64_param: 16 } }
      parameters { key: "shared_memory_offset" value { int64_param: 8 } } }
    outputs { name: "Y" parameters { key: "shared_memory_region" value { string_param: "r" } }
      parameters { key: "shared_memory_byte_size" value { int64_param: 12 } } })");
  ASSERT_EQ(Decode(message), "");
  EXPECT_EQ(request_.inputs[0].data.data(), regions_.memory.data() + 8);
  EXPECT_EQ(request_.outputs[0].destination.bytes.size(), 12u);
  EXPECT_THAT(regions_.asked, ElementsAre(std::pair<std::uint64_t, std::uint64_t>{8, 16},
                                          std::pair<std::uint64_t, std::uint64_t>{0, 12}));
  auto& parameters = *message.mutable_inputs(0)->mutable_parameters();
  parameters["shared_memory_region"].set_string_param("x");
  EXPECT_EQ(Decode(message), "Unable to find shared memory region: 'x'");
  EXPECT_EQ(status_.code(), absl::StatusCode::kNotFound);
  parameters["shared_memory_region"].set_string_param("r");
  for (const std::int64_t bad : {std::int64_t{-1}, std::numeric_limits<std::int64_t>::min()}) {
    parameters["shared_memory_offset"].set_int64_param(bad);
    EXPECT_NE(Decode(message), "") << bad;
  }
}

TEST_F(GrpcInfer, MalformedMessagesAreRefusedByName) {
  using std::string_literals::operator""s;
  for (const std::string& wire :
       {"\x0A"s, "\x0A\x05m"s, "\x80"s, "\0\0"s, "\x3A\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\1"s,
        "\x3A\xFF\xFF\xFF\xFF\x0F"s, "\x0B"s, "\x08"s + std::string(10, '\xFF'), "\x0D\1"s}) {
    for (const std::size_t step : {std::size_t{1}, wire.size()}) {
      EXPECT_THAT(Read(wire, step), StartsWith("the request is no ModelInferRequest: "));
      EXPECT_EQ(status_.code(), absl::StatusCode::kInvalidArgument);
    }
  }
  EXPECT_EQ(Read("\x0A\1\xFF"s, 3), "the request is no ModelInferRequest: 'model_name' is no UTF-8");
  EXPECT_EQ(Read("", 1), "");
}

TEST_F(GrpcInfer, UnknownFieldsAreIgnored) {
  ModelInferRequest message = Message("model_name: 'm' inputs { name: 'A' datatype: 'INT32' shape: 1 }");
  message.add_raw_input_contents("1234");
  const std::string wire = message.SerializeAsString() + std::string("\xA2\x06\x03xyz\xA8\x06\x07\xB1\x06", 11) +
                           std::string(8, 'z') + std::string("\xBD\x06", 2) + std::string(4, 'z');
  ASSERT_EQ(Read(wire, 1), "");
  ASSERT_TRUE(DecodeGrpcInfer(envelope_, reader_.raw(), nullptr, pool_, request_, flags_).ok());
  EXPECT_EQ(request_.inputs[0].data.size(), 4u);
}

TEST_F(GrpcInfer, ReaderGivesItsMemoryBack) {
  ModelInferRequest message = Message("model_name: 'm'");
  message.add_raw_input_contents(std::string(1 << 20, 'x'));
  ASSERT_EQ(Read(message.SerializeAsString(), 4096), "");
  EXPECT_GT(pool_.used_bytes(), std::size_t{1} << 20);
  reader_.Clear();
  EXPECT_EQ(pool_.used_bytes(), 0u);
}

TEST_F(GrpcInfer, AnswersAreWhatProtobufReads) {
  request_.id = "7";
  request_.response.parameters = {{"s", std::string("v")}, {"n", std::int64_t{-3}}, {"f", 1.5}, {"b", true}};
  AddOutput(0, DataType::kFp32, {1, 3}, std::string(12, 'y'));
  AddOutput(1, DataType::kBytes, {1, 0}, "");
  GrpcMessage message;
  ASSERT_TRUE(EncodeGrpcInfer(request_, request_.response, model_, pool_, message).ok());
  inference::ModelInferResponse answer;
  ASSERT_TRUE(answer.ParseFromString(Body(message)));
  EXPECT_EQ(answer.model_name(), "simple");
  EXPECT_EQ(answer.model_version(), "3");
  EXPECT_EQ(answer.id(), "7");
  EXPECT_EQ(answer.parameters().at("s").string_param(), "v");
  EXPECT_EQ(answer.parameters().at("n").int64_param(), -3);
  EXPECT_EQ(answer.parameters().at("f").double_param(), 1.5);
  EXPECT_TRUE(answer.parameters().at("b").bool_param());
  ASSERT_EQ(answer.outputs_size(), 2);
  EXPECT_EQ(answer.outputs(0).datatype(), "FP32");
  EXPECT_THAT(answer.outputs(0).shape(), ElementsAre(1, 3));
  ASSERT_EQ(answer.raw_output_contents_size(), 2) << "one for each output, empty ones too";
  EXPECT_EQ(answer.raw_output_contents(0), std::string(12, 'y'));
}

TEST_F(GrpcInfer, StreamAnswersTellWhetherTheyAreTheLast) {
  for (const bool final : {false, true}) {
    request_.Clear();
    AddOutput(0, DataType::kFp32, {1, 3}, std::string(12, 'y'));
    GrpcMessage message;
    ASSERT_TRUE(EncodeStreamInfer(request_, request_.response, model_, pool_, final, message).ok());
    inference::ModelStreamInferResponse answer;
    ASSERT_TRUE(answer.ParseFromString(Body(message)));
    EXPECT_EQ(answer.error_message(), "");
    EXPECT_EQ(answer.infer_response().parameters().at("triton_final_response").bool_param(), final);
    EXPECT_EQ(answer.infer_response().raw_output_contents(0).size(), 12u);
  }
  inference::ModelStreamInferResponse last;
  ASSERT_TRUE(last.ParseFromString(Body(EncodeStreamFinal("i", "m", "2"))));
  EXPECT_TRUE(last.infer_response().parameters().at("triton_final_response").bool_param());
  EXPECT_EQ(last.infer_response().model_version(), "2");
}

TEST_F(GrpcInfer, StreamErrorsSayMoreAfterAnExecution) {
  inference::ModelStreamInferResponse answer;
  ASSERT_TRUE(answer.ParseFromString(
      Body(EncodeStreamError({.text = "no", .id = "i", .executed = false, .model_name = "m", .model_version = ""}))));
  EXPECT_EQ(answer.error_message(), "no");
  EXPECT_EQ(answer.infer_response().id(), "i");
  EXPECT_EQ(answer.infer_response().model_name(), "");
  EXPECT_EQ(answer.infer_response().parameters_size(), 0);
  ASSERT_TRUE(answer.ParseFromString(
      Body(EncodeStreamError({.text = "no", .id = "i", .executed = true, .model_name = "m", .model_version = ""}))));
  EXPECT_EQ(answer.infer_response().model_name(), "m");
  EXPECT_TRUE(answer.infer_response().parameters().at("triton_final_response").bool_param());
}

}  // namespace
}  // namespace tidemark
