#include "lifecycle/warmup.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <random>
#include <utility>

#include "base/status.h"
#include "repository/model_directory.h"
#include "repository/sequence_config.h"

namespace tidemark {
namespace {

// Gives `request` an input of `bytes` bytes of its own, zeroed.
absl::StatusOr<std::span<std::byte>> AddInput(InferenceRequest& request, std::string_view name, DataType data_type,
                                              const Shape& shape, std::size_t bytes, BufferPool& buffers) {
  RequestInput& input = request.inputs.emplace_back();
  input.name = std::string(name);
  input.data_type = data_type;
  input.shape = shape;
  ASSIGN_OR_RETURN(input.owned, buffers.Allocate(bytes));
  std::memset(input.owned.data(), 0, bytes);
  input.data = input.owned.bytes();
  return input.owned.bytes();
}

// Bytes of the zero tensor: an empty string is its four length bytes.
absl::StatusOr<std::size_t> ZeroBytes(DataType data_type, const Shape& shape, std::string_view name) {
  const std::optional<std::int64_t> bytes = data_type == DataType::kBytes
                                                ? TensorByteSize(DataType::kInt32, AsSpan(shape))
                                                : TensorByteSize(data_type, AsSpan(shape));
  if (!bytes) {
    return absl::InvalidArgumentError(
        fmt::format("warmup setting expects all variable-size dimensions are specified for input '{}'", name));
  }
  return static_cast<std::size_t>(*bytes);
}

absl::StatusOr<ScheduledRequest> Prepared(const ModelInfo& info, std::unique_ptr<InferenceRequest> request) {
  ScheduledRequest scheduled;
  RETURN_IF_ERROR(info.Prepare(*request, scheduled.tensors, scheduled.batch));
  scheduled.request = std::move(request);
  return scheduled;
}

void FillRandom(std::span<std::byte> bytes) {
  std::minstd_rand generator(1);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(generator() & 0x3F);  // finite in every float format
}

absl::Status FillFromFile(const std::filesystem::path& path, DataType data_type, InferenceRequest& request,
                          BufferPool& buffers) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, "warmup data"));
  RequestInput& input = request.inputs.back();
  if (data_type != DataType::kBytes && text.size() < input.data.size()) {
    return absl::InvalidArgumentError(
        fmt::format("{}warmup setting expects {} bytes, but the data provided from {}only has {} bytes",
                    request.Prefix(), input.data.size(), path.filename().string(), text.size()));
  }
  const std::size_t bytes = data_type == DataType::kBytes ? text.size() : input.data.size();
  ASSIGN_OR_RETURN(input.owned, buffers.Allocate(bytes));
  std::memcpy(input.owned.data(), text.data(), bytes);
  input.data = input.owned.bytes();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ScheduledRequest> MakeWarmupRequest(const ModelInfo& info, const inference::ModelWarmup& sample,
                                                   const std::filesystem::path& model_directory, BufferPool& buffers) {
  auto request = std::make_unique<InferenceRequest>();
  for (const auto& [name, setting] : sample.inputs()) {
    if (IsSequenceInput(info.config(), name)) continue;  // controls and states are the scheduler's
    Shape shape(setting.dims().begin(), setting.dims().end());
    if (info.max_batch_size() > 0) shape.insert(shape.begin(), 1);
    const auto data_type = static_cast<DataType>(setting.data_type());
    ASSIGN_OR_RETURN(const std::size_t bytes, ZeroBytes(data_type, shape, name));
    ASSIGN_OR_RETURN(const std::span<std::byte> data, AddInput(*request, name, data_type, shape, bytes, buffers));
    switch (setting.input_data_type_case()) {
      case inference::ModelWarmup::Input::kZeroData:
        break;
      case inference::ModelWarmup::Input::kRandomData:
        if (data_type != DataType::kBytes && data_type != DataType::kBool) FillRandom(data);
        break;
      case inference::ModelWarmup::Input::kInputDataFile: {
        const std::filesystem::path file = std::filesystem::path(setting.input_data_file()).lexically_normal();
        if (file.is_absolute() || (!file.empty() && *file.begin() == "..")) {
          return absl::InvalidArgumentError(
              fmt::format("warm-up file '{}' of input '{}' leads out of the model's 'warmup' folder",
                          setting.input_data_file(), name));
        }
        RETURN_IF_ERROR(FillFromFile(model_directory / "warmup" / file, data_type, *request, buffers));
        break;
      }
      default:
        return absl::InvalidArgumentError(
            fmt::format("{}warmup setting expects input '{}' to have input_data_type set", request->Prefix(), name));
    }
  }
  return Prepared(info, std::move(request));
}

absl::StatusOr<ScheduledRequest> MakeZeroRequest(const ModelInfo& info, BufferPool& buffers) {
  auto request = std::make_unique<InferenceRequest>();
  for (const TensorInfo& input : info.inputs()) {
    if (input.optional) continue;
    Shape shape = input.dims;
    std::replace(shape.begin(), shape.end(), std::int64_t{-1}, std::int64_t{1});
    ASSIGN_OR_RETURN(const std::size_t bytes, ZeroBytes(input.data_type, shape, input.name));
    RETURN_IF_ERROR(AddInput(*request, input.name, input.data_type, shape, bytes, buffers).status());
  }
  return Prepared(info, std::move(request));
}

}  // namespace tidemark
