#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "inference/model_info.h"
#include "inference/request.h"
#include "inference/shared_memory.h"
#include "protocol/grpc_message.h"
#include "resource/buffer_pool.h"

// ModelInferRequest and ModelInferResponse of the gRPC protocol (protocol digest 2.2 to 2.5), read and written by hand: a
// raw tensor goes from the socket into its own aligned buffer and from there to the engine, and an output's buffer back to
// the socket. proto/grpc_service.proto has the numbers. Errors are INVALID_ARGUMENT with Triton's texts unless said
// otherwise.

namespace tidemark {

// Takes the bytes of one serialised ModelInferRequest as they arrive. Everything but `raw_input_contents` is gathered in
// one piece, the envelope; each of those goes into a buffer of its own. Reusable: Begin starts anew. Not thread-safe.
class InferMessageReader {
 public:
  explicit InferMessageReader(BufferPool& pool) : pool_(pool) {}

  // `most`: bytes that the message can have; nothing beyond is allocated.
  void Begin(std::size_t most);
  // RESOURCE_EXHAUSTED when the pool is empty; INVALID_ARGUMENT for what is no protobuf message.
  absl::Status Add(std::span<const std::byte> bytes);
  // After the last byte.
  absl::Status Finish() const;

  // After Finish, until the next Begin.
  std::span<const std::byte> envelope() const { return {envelope_.data(), envelope_size_}; }
  std::vector<Buffer>& raw() { return raw_; }

  // Gives all memory back.
  void Clear();

 private:
  enum class Stage : std::uint8_t { kTag, kLength, kVarint, kEnvelope, kRaw, kSkip };

  absl::Status HeadDone();
  absl::Status LengthDone();
  absl::Status Reserve(std::size_t more);
  absl::Status Keep(std::span<const std::byte> bytes);

  static constexpr std::size_t kMaxRaw = 4096;  // entries kept: no model has as many inputs

  BufferPool& pool_;
  Stage stage_ = Stage::kTag;
  std::size_t most_ = 0;  // bytes that may still come
  std::size_t left_ = 0;  // of the field in hand
  std::uint64_t varint_ = 0;
  unsigned varint_bytes_ = 0;
  std::uint64_t tag_ = 0;
  Buffer envelope_;
  std::size_t envelope_size_ = 0;
  std::vector<Buffer> raw_;
  std::size_t raw_filled_ = 0;  // of the last one
};

// The envelope taken apart: views into it.
struct InferEnvelope {
  std::string_view model_name;
  std::string_view model_version;
  std::string_view id;
  absl::InlinedVector<std::span<const std::byte>, 4> parameters;  // map entries
  absl::InlinedVector<std::span<const std::byte>, 4> inputs;
  absl::InlinedVector<std::span<const std::byte>, 4> outputs;
};
// INVALID_ARGUMENT when it is malformed or a string in it is no UTF-8.
absl::Status ReadInferEnvelope(std::span<const std::byte> bytes, InferEnvelope& envelope);

// What a request asks of the front end and not of the model.
struct GrpcInferFlags {
  bool empty_final_response = false;  // triton_enable_empty_final_response
};

// Fills `request`, which is clear but for its model handle, from an envelope and the raw contents, which are moved out of
// `raw`. Nothing points into the envelope afterwards. `regions` may be null: then there are none. RESOURCE_EXHAUSTED when
// the pool is empty.
absl::Status DecodeGrpcInfer(const InferEnvelope& envelope, std::span<Buffer> raw, SharedMemoryFinder* regions,
                             BufferPool& pool, InferenceRequest& request, GrpcInferFlags& flags);

// Writes a good response as a ModelInferResponse; output buffers are moved into the message. `request` says what was asked
// for. INVALID_ARGUMENT when the message would pass gRPC's 2 GiB.
absl::Status EncodeGrpcInfer(const InferenceRequest& request, InferenceResponse& response, const ModelInfo& model,
                             BufferPool& pool, GrpcMessage& message);

// The same wrapped in a ModelStreamInferResponse, with parameter triton_final_response.
absl::Status EncodeStreamInfer(const InferenceRequest& request, InferenceResponse& response, const ModelInfo& model,
                               BufferPool& pool, bool final, GrpcMessage& message);

// What a stream says of a request that failed. Before execution only the id is told, afterwards also the model as it was
// asked for, and that this was the last response.
struct StreamError {
  std::string_view text;
  std::string_view id;
  bool executed = false;
  std::string_view model_name;
  std::string_view model_version;
};
GrpcMessage EncodeStreamError(const StreamError& error);

// The empty last response of a decoupled model to a request that wanted one.
GrpcMessage EncodeStreamFinal(std::string_view id, std::string_view model_name, std::string_view model_version);

}  // namespace tidemark
