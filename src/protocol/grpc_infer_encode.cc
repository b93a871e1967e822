#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>
#include <variant>

#include "base/status.h"
#include "protocol/classification.h"
#include "protocol/grpc_infer.h"
#include "protocol/protobuf_wire.h"

namespace tidemark {
namespace {

constexpr std::string_view kFinal = "triton_final_response";
constexpr std::size_t kMost = std::numeric_limits<std::int32_t>::max();

// Fields of ModelInferResponse.
constexpr std::uint32_t kModelName = 1;
constexpr std::uint32_t kModelVersion = 2;
constexpr std::uint32_t kId = 3;
constexpr std::uint32_t kParameters = 4;
constexpr std::uint32_t kOutputs = 5;
constexpr std::uint32_t kRawContents = 6;
// Fields of ModelStreamInferResponse.
constexpr std::uint32_t kErrorMessage = 1;
constexpr std::uint32_t kInferResponse = 2;
constexpr std::size_t kWrap = 16;  // tag and length of infer_response, at most

void AppendNonEmpty(std::string& out, std::uint32_t field, std::string_view text) {
  if (!text.empty()) AppendTextField(out, field, text);
}

void AppendParameter(std::string& out, std::string_view key, const Parameter& value) {
  std::string choice;
  if (const bool* flag = std::get_if<bool>(&value)) {
    AppendNumberField(choice, 1, *flag ? 1 : 0);
  } else if (const std::int64_t* number = std::get_if<std::int64_t>(&value)) {
    AppendNumberField(choice, 2, static_cast<std::uint64_t>(*number));
  } else if (const double* real = std::get_if<double>(&value)) {
    AppendTag(choice, 4, WireType::kFixed64);
    const auto bits = std::bit_cast<std::uint64_t>(*real);
    char bytes[sizeof(bits)];
    std::memcpy(bytes, &bits, sizeof(bits));
    choice.append(bytes, sizeof(bits));
  } else {
    AppendTextField(choice, 3, std::get<std::string>(value));
  }
  std::string entry;
  AppendTextField(entry, 1, key);
  AppendTextField(entry, 2, choice);
  AppendTextField(out, kParameters, entry);
}

void AppendHead(std::string& out, std::string_view model_name, std::string_view model_version, std::string_view id) {
  AppendNonEmpty(out, kModelName, model_name);
  AppendNonEmpty(out, kModelVersion, model_version);
  AppendNonEmpty(out, kId, id);
}

void AppendOutput(std::string& out, const ResponseOutput& output) {
  const std::string_view type = ProtocolName(output.data_type);
  std::size_t dims = 0;
  for (const std::int64_t dim : output.shape) dims += VarintSize(static_cast<std::uint64_t>(dim));
  std::size_t size = 2 + VarintSize(output.name.size()) + output.name.size() + type.size();
  size += 1;  // tag of the name
  if (dims != 0) size += 1 + VarintSize(dims) + dims;
  AppendLengthHead(out, kOutputs, size);
  AppendTextField(out, 1, output.name);
  AppendTextField(out, 2, type);
  if (dims == 0) return;
  AppendLengthHead(out, 3, dims);
  for (const std::int64_t dim : output.shape) AppendVarint(out, static_cast<std::uint64_t>(dim));
}

absl::Status ClassifyOutputs(const InferenceRequest& request, InferenceResponse& response, const ModelInfo& model,
                             BufferPool& pool) {
  for (std::size_t place = 0; place < response.outputs.size() && place < request.outputs.size(); ++place) {
    if (request.outputs[place].classification == 0) continue;
    RETURN_IF_ERROR(ClassifyOutput(response.outputs[place], model, request.outputs[place].classification, pool));
  }
  return absl::OkStatus();
}

absl::Status AppendResponse(const InferenceRequest& request, InferenceResponse& response, const ModelInfo& model,
                            BufferPool& pool, std::optional<bool> final, GrpcMessage& message) {
  RETURN_IF_ERROR(ClassifyOutputs(request, response, model, pool));
  std::string& out = message.text();
  AppendHead(out, model.name(), model.version_text(), request.id);
  for (const auto& [key, value] : response.parameters) AppendParameter(out, key, value);
  if (final) AppendParameter(out, kFinal, *final);
  for (const ResponseOutput& output : response.outputs) AppendOutput(out, output);
  for (ResponseOutput& output : response.outputs) {
    AppendLengthHead(out, kRawContents, output.data.size());
    if (output.data.size() != 0) message.Append(std::move(output.data));
  }
  if (message.body_bytes() > kMost - kWrap) {
    return absl::InvalidArgumentError(
        fmt::format("Response has byte size {} which exceeds gRPC's byte size limit {}.", message.body_bytes(), kMost));
  }
  return absl::OkStatus();
}

// Puts the tag and length of infer_response in front of what was written.
void WrapInStream(GrpcMessage& message) {
  std::string head;
  AppendLengthHead(head, kInferResponse, message.body_bytes());
  message.Finish(head);
}

}  // namespace

absl::Status EncodeGrpcInfer(const InferenceRequest& request, InferenceResponse& response, const ModelInfo& model,
                             BufferPool& pool, GrpcMessage& message) {
  message.Begin();
  RETURN_IF_ERROR(AppendResponse(request, response, model, pool, std::nullopt, message));
  message.Finish();
  return absl::OkStatus();
}

absl::Status EncodeStreamInfer(const InferenceRequest& request, InferenceResponse& response, const ModelInfo& model,
                               BufferPool& pool, bool final, GrpcMessage& message) {
  message.Begin(kWrap);
  RETURN_IF_ERROR(AppendResponse(request, response, model, pool, final, message));
  WrapInStream(message);
  return absl::OkStatus();
}

GrpcMessage EncodeStreamError(const StreamError& error) {
  std::string inner;
  if (error.executed) {
    AppendHead(inner, error.model_name, error.model_version, error.id);
    AppendParameter(inner, kFinal, true);
  } else {
    AppendHead(inner, {}, {}, error.id);
  }
  std::string outer;
  AppendTextField(outer, kErrorMessage, error.text);
  AppendTextField(outer, kInferResponse, inner);
  return GrpcMessage::OfText(outer);
}

GrpcMessage EncodeStreamFinal(std::string_view id, std::string_view model_name, std::string_view model_version) {
  GrpcMessage message;
  message.Begin(kWrap);
  AppendHead(message.text(), model_name, model_version, id);
  AppendParameter(message.text(), kFinal, true);
  WrapInStream(message);
  return message;
}

}  // namespace tidemark
