// ModelInferRequest: arbitrary bytes give the same for every split; what protobuf reads, ours reads, with the same values,
// and what ours writes protobuf reads; tensors in a shared-memory region lie inside it.

#include <fcntl.h>
#include <fmt/format.h>
#include <google/protobuf/stubs/logging.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "frontend/shared_memory.h"
#include "inference/registry.h"
#include "proto/grpc_service.pb.h"
#include "protocol/grpc_infer.h"
#include "tests/support/real_platform.h"

namespace {

using tidemark::BufferPool;

constexpr std::uint64_t kRegionBytes = 4096;

void Check(bool ok, std::string_view claim) {
  if (ok) return;
  std::fprintf(stderr, "broken claim: %.*s\n", static_cast<int>(claim.size()), claim.data());
  std::abort();
}

// A registry with the one region "r" over an object of its own.
struct Memory {
  Memory() : key(fmt::format("/tidemark_fuzz_grpc_{}", getpid())) {
    const int fd = shm_open(key.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
    Check(fd >= 0 && ftruncate(fd, kRegionBytes) == 0, "there is an object");
    close(fd);
    Check(regions.RegisterSystem("r", key, 0, kRegionBytes).ok(), "it can be registered");
    shm_unlink(key.c_str());
    auto lease = regions.Find("r", 0, kRegionBytes);
    Check(lease.ok(), "it is found");
    bytes = lease->bytes;
  }
  bool Holds(std::span<const std::byte> part) const {
    return part.data() >= bytes.data() && part.data() + part.size() <= bytes.data() + bytes.size();
  }

  const std::string key;
  std::unique_ptr<tidemark::Platform> platform = tidemark::CreateLinuxPlatform();
  BufferPool pool{*platform};
  tidemark::Ledger ledger;
  tidemark::Scope scope{ledger, *platform, "fuzz"};
  tidemark::SharedMemoryRegions regions{scope, {.allowed = true, .cuda = nullptr, .max_regions = 3}};
  std::span<const std::byte> bytes;
};

struct Result {
  std::string error;
  std::string envelope;
  std::vector<std::string> raw;
  bool operator==(const Result&) const = default;
};

std::string Text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

absl::Status Feed(tidemark::InferMessageReader& reader, std::string_view wire, std::size_t step) {
  reader.Begin(wire.size());
  for (std::size_t at = 0; at < wire.size(); at += step) {
    const std::string_view piece = wire.substr(at, step);
    if (absl::Status status = reader.Add(std::as_bytes(std::span(piece))); !status.ok()) return status;
  }
  return reader.Finish();
}

Result Read(std::string_view wire, std::size_t step, BufferPool& pool) {
  tidemark::InferMessageReader reader(pool);
  Result result;
  if (const absl::Status status = Feed(reader, wire, step); !status.ok()) {
    result.error = tidemark::MessageOf(status);
    return result;
  }
  result.envelope = Text(reader.envelope());
  for (const tidemark::Buffer& raw : reader.raw()) result.raw.push_back(Text(raw.bytes()));
  return result;
}

// The inputs as outputs of an answer, which protobuf must read.
void Answer(tidemark::InferenceRequest& request, const tidemark::ModelInfo& model, BufferPool& pool) {
  std::size_t bytes = 0;
  for (const tidemark::RequestInput& input : request.inputs) {
    tidemark::ResponseOutput& output = request.response.outputs.emplace_back();
    output.index = 0;
    output.name = input.name;
    output.data_type = input.data_type;
    output.shape = input.shape;
    output.data = *pool.Allocate(input.data.size());
    if (!input.data.empty()) std::memcpy(output.data.data(), input.data.data(), input.data.size());
    bytes += input.data.size();
  }
  request.response.parameters = request.parameters;
  request.outputs.clear();
  tidemark::GrpcMessage message;
  Check(EncodeStreamInfer(request, request.response, model, pool, true, message).ok(), "an answer can be written");
  std::string wire;
  for (std::size_t i = 0; i < message.pieces(); ++i) wire += Text(message.piece(i));
  Check(wire.size() == message.size(), "the announced size is the size");
  inference::ModelStreamInferResponse answer;
  Check(answer.ParseFromString(wire.substr(tidemark::GrpcMessage::kPrefix)), "protobuf reads the answer");
  Check(answer.infer_response().id() == request.id, "the id comes back");
  std::size_t answered = 0;
  for (const std::string& raw : answer.infer_response().raw_output_contents()) answered += raw.size();
  Check(answered == bytes, "the tensors come back");
  Check(answer.infer_response().parameters_size() >= 1, "with the final flag");
}

// What a message in protobuf's own writing gives, compared with what it says.
void Compare(const inference::ModelInferRequest& message, Memory& memory) {
  static const tidemark::ModelInfo model(inference::ModelConfig(), 1,
                                         std::map<std::string, std::vector<std::string>>());
  const std::string wire = message.SerializeAsString();
  tidemark::InferMessageReader reader(memory.pool);
  Check(Feed(reader, wire, wire.size() + 1).ok(), "what protobuf writes is read");
  tidemark::InferEnvelope envelope;
  Check(ReadInferEnvelope(reader.envelope(), envelope).ok(), "its envelope is read");
  Check(envelope.model_name == message.model_name() && envelope.id == message.id() &&
            envelope.model_version == message.model_version(),
        "its texts are the same");
  Check(envelope.inputs.size() == static_cast<std::size_t>(message.inputs_size()), "it has as many inputs");
  tidemark::InferenceRequest request;
  tidemark::GrpcInferFlags flags;
  const absl::Status status = DecodeGrpcInfer(envelope, reader.raw(), &memory.regions, memory.pool, request, flags);
  Check(status.ok() || !tidemark::MessageOf(status).empty(), "a refusal says why");
  if (!status.ok()) return;
  Check(request.inputs.size() == static_cast<std::size_t>(message.inputs_size()), "all inputs are there");
  int next_raw = 0;
  for (int i = 0; i < message.inputs_size(); ++i) {
    const auto& said = message.inputs(i);
    const tidemark::RequestInput& input = request.inputs[static_cast<std::size_t>(i)];
    Check(input.name == said.name(), "the input's name is the same");
    Check(std::equal(input.shape.begin(), input.shape.end(), said.shape().begin(), said.shape().end()),
          "the input's shape is the same");
    if (input.region) {
      Check(memory.Holds(input.data), "a leased tensor lies in its region");
    } else if (said.has_contents()) {
      if (said.datatype() == "INT64") {
        Check(input.data.size() == 8u * static_cast<std::size_t>(said.contents().int64_contents_size()),
              "a typed tensor has all elements");
      }
    } else if (!said.parameters().contains("shared_memory_region")) {
      Check(Text(input.data) == message.raw_input_contents(next_raw++), "a raw tensor is the same");
    }
  }
  for (const tidemark::RequestedOutput& output : request.outputs) {
    if (output.destination) Check(memory.Holds(output.destination.bytes), "an output's place lies in its region");
  }
  Answer(request, model, memory.pool);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1 || size > 16384) return 0;
  static Memory memory;
  static const auto loud = google::protobuf::SetLogHandler(nullptr);  // it tells every bad string
  static_cast<void>(loud);
  const std::size_t step = data[0] % 64 + 1u;
  const std::string_view wire(reinterpret_cast<const char*>(data + 1), size - 1);
  const Result whole = Read(wire, wire.size() + 1, memory.pool);
  const Result pieces = Read(wire, step, memory.pool);
  Check(whole == pieces, "the split does not matter");
  if (whole.error.empty()) {
    tidemark::InferEnvelope envelope;
    if (ReadInferEnvelope(std::as_bytes(std::span(whole.envelope)), envelope).ok()) {
      tidemark::InferenceRequest request;
      tidemark::GrpcInferFlags flags;
      tidemark::InferMessageReader reader(memory.pool);
      Check(Feed(reader, wire, step).ok() && ReadInferEnvelope(reader.envelope(), envelope).ok(), "it is read again");
      static_cast<void>(DecodeGrpcInfer(envelope, reader.raw(), &memory.regions, memory.pool, request, flags));
    }
  }
  inference::ModelInferRequest message;
  if (message.ParseFromArray(wire.data(), static_cast<int>(wire.size()))) {
    message.DiscardUnknownFields();
    Compare(message, memory);
  }
  Check(memory.pool.used_bytes() == 0, "all memory comes back");
  return 0;
}
