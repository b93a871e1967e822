#include "protocol/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/status.h"
#include "protocol/json_cursor.h"
#include "protocol/json_reader.h"
#include "protocol/json_writer.h"

namespace tidemark {
namespace {

constexpr std::string_view kParameters = "parameters";
constexpr std::size_t kMaxParameters = 1024;

template <typename... Args>
absl::Status Invalid(fmt::format_string<Args...> text, Args&&... args) {
  return absl::InvalidArgumentError(fmt::format(text, std::forward<Args>(args)...));
}

// The shape of `count` elements under the model's dims: the fixed ones as they are, the innermost variable one what is
// left, the other variable ones 1. For no elements at all the innermost variable one is 0, the batch dimension excepted.
absl::StatusOr<Shape> DeduceShape(const TensorInfo& info, std::int64_t count, bool batched) {
  Shape shape = info.dims;
  if (count == 0) {
    const auto variable =
        std::find_if(shape.rbegin(), shape.rend() - (batched ? 1 : 0), [](auto dim) { return dim < 0; });
    if (variable == shape.rend() - (batched ? 1 : 0)) return Shape();
    *variable = 0;
    std::replace_if(
        shape.begin(), shape.end(), [](auto dim) { return dim < 0; }, 1);
    return shape;
  }
  std::int64_t rest = count;
  bool fits = true;
  for (const std::int64_t dim : shape) {
    if (dim < 0) continue;
    fits = fits && dim != 0 && rest % dim == 0;
    if (!fits) break;
    rest /= dim;
  }
  for (auto dim = shape.rbegin(); fits && dim != shape.rend(); ++dim) {
    if (*dim < 0) *dim = std::exchange(rest, 1);
  }
  if (fits && rest == 1) return shape;
  return Invalid("The schema can not convert input '{}' to tensor with proper shape", info.name);
}

// Walks over the object once. What is malformed wins over every other error; else the first one counts.
class GenerateReader {
 public:
  GenerateReader(std::string_view body, const ModelInfo& model, const JsonLimits& limits, BufferPool& pool,
                 InferenceRequest& request)
      : cursor_(body), model_(model), limits_(limits), pool_(pool), request_(request) {}

  absl::Status Read() {
    absl::Status first;
    if (cursor_.Peek() != JsonKind::kObject) {
      cursor_.SkipValue();
      first = Invalid("attempt to get members for non-object");
    } else {
      first = ReadMembers(true);
    }
    if (!cursor_.Finish()) return cursor_.Error();
    return first;
  }

 private:
  absl::Status ReadMembers(bool top) {
    absl::Status first;
    cursor_.EnterObject();
    std::string_view key;
    while (cursor_.NextMember(key)) {
      if (first.ok()) {
        first = ReadMember(std::string(key), top);
      } else {
        cursor_.SkipValue();
      }
    }
    return first;
  }

  absl::Status ReadMember(const std::string& key, bool top) {
    if (top && key == kParameters) return ReadNested();
    if (top && key == "id") RETURN_IF_ERROR(ReadId());
    if (const TensorInfo* input = model_.FindInput(key); input != nullptr) return ReadInput(*input);
    return ReadParameter(key);
  }

  // The id is also an ordinary member: the cursor stays in front of it.
  absl::Status ReadId() {
    if (cursor_.Peek() != JsonKind::kString) {
      cursor_.SkipValue();
      return Invalid("Unable to parse 'id': attempt to access JSON non-string as string");
    }
    const char* const begin = cursor_.position();
    std::string_view text;
    if (cursor_.ReadString(text)) {
      request_.id.assign(text);
      cursor_.Seek(begin);
    }
    return absl::OkStatus();
  }

  absl::Status ReadNested() {
    if (model_.FindInput(kParameters) != nullptr) {
      cursor_.SkipValue();
      return Invalid("Keyword 'parameters' for nested schema also given as input tensor name");
    }
    if (cursor_.Peek() != JsonKind::kObject) {
      cursor_.SkipValue();
      return Invalid("Expected JSON object for keyword: 'parameters': attempt to access JSON non-object as object");
    }
    const absl::Status status = ReadMembers(false);
    if (status.ok()) return status;
    return absl::Status(status.code(), fmt::format("Converting keyword: 'parameters': {}", MessageOf(status)));
  }

  absl::Status ReadParameter(const std::string& key) {
    Parameter value;
    const JsonKind kind = cursor_.Peek();
    if (kind == JsonKind::kString) {
      std::string_view text;
      if (!cursor_.ReadString(text)) return absl::OkStatus();
      value = std::string(text);
    } else if (kind == JsonKind::kTrue || kind == JsonKind::kFalse) {
      bool flag = false;
      cursor_.ReadBool(flag);
      value = flag;
    } else if (kind == JsonKind::kNumber) {
      JsonNumber number;
      if (!cursor_.ReadNumber(number)) return absl::OkStatus();
      const std::optional<std::int64_t> whole = number.AsInt64();
      value = whole ? Parameter(*whole) : Parameter(number.AsDouble());
    } else {
      cursor_.SkipValue();
      return Invalid("parameter '{}' has invalid type. It should be either 'int', 'bool', or 'string'.", key);
    }
    if (key.starts_with("triton_")) {
      return Invalid(
          "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified.");
    }
    if (request_.parameters.size() >= kMaxParameters) {
      return Invalid("too many request parameters, at most {} are allowed", kMaxParameters);
    }
    request_.parameters.emplace_back(key, std::move(value));
    return absl::OkStatus();
  }

  // Elements of the array at the cursor, which ends behind it.
  std::int64_t CountElements() {
    std::int64_t count = 0;
    cursor_.EnterArray();
    while (cursor_.NextElement()) {
      cursor_.SkipValue();
      ++count;
    }
    return count;
  }

  absl::Status CheckSize(const TensorInfo& info, std::int64_t count) const {
    const std::size_t element = std::max<std::size_t>(ElementByteSize(info.data_type), 1);
    std::int64_t bytes = 0;
    if (__builtin_mul_overflow(count, static_cast<std::int64_t>(element), &bytes)) {
      return Invalid("input '{}' has too many elements of datatype {}", info.name, ProtocolName(info.data_type));
    }
    if (static_cast<std::uint64_t>(bytes) > limits_.bytes - std::min(input_bytes_, limits_.bytes)) {
      return Invalid(
          "request size of {} bytes with input '{}' of size {} bytes exceeds the maximum allowed input size of {}. Use "
          "--http-max-input-size to increase the limit.",
          input_bytes_, info.name, bytes, limits_.bytes);
    }
    return absl::OkStatus();
  }

  absl::Status ReadInput(const TensorInfo& info) {
    const JsonKind kind = cursor_.Peek();
    const char* const begin = cursor_.position();
    const bool array = kind == JsonKind::kArray;
    std::int64_t count = 1;
    if (array) {
      count = CountElements();
    } else {
      cursor_.SkipValue();
    }
    if (cursor_.failed()) return absl::OkStatus();
    const std::string_view text(begin, static_cast<std::size_t>(cursor_.position() - begin));
    RETURN_IF_ERROR(CheckSize(info, count));
    RequestInput& input = request_.inputs.emplace_back();
    input.name = info.name;
    input.data_type = info.data_type;
    ASSIGN_OR_RETURN(input.shape, DeduceShape(info, count, model_.max_batch_size() > 0));
    const std::string wrapped = array ? std::string() : fmt::format("[{}]", text);
    JsonCursor elements(array ? text : std::string_view(wrapped));
    RETURN_IF_ERROR(ReadJsonTensor(elements, info.data_type, info.name, count, limits_, pool_, input.owned));
    input.data = input.owned.bytes();
    input_bytes_ += input.data.size();
    return absl::OkStatus();
  }

  JsonCursor cursor_;
  const ModelInfo& model_;
  const JsonLimits& limits_;
  BufferPool& pool_;
  InferenceRequest& request_;
  std::size_t input_bytes_ = 0;
};

std::string ParameterJson(const Parameter& value) {
  std::string out;
  if (const bool* flag = std::get_if<bool>(&value)) {
    AppendJsonBool(out, *flag);
  } else if (const std::int64_t* number = std::get_if<std::int64_t>(&value)) {
    AppendJsonInt(out, *number);
  } else if (const double* real = std::get_if<double>(&value)) {
    AppendJsonDouble(out, *real);
  } else {
    AppendJsonString(out, std::get<std::string>(value));
  }
  return out;
}

// A lone element is a scalar, anything else a flat array.
absl::StatusOr<std::string> OutputJson(const ResponseOutput& output) {
  std::string out;
  const std::optional<std::int64_t> count = ElementCount(AsSpan(output.shape));
  if (output.data_type == DataType::kInvalid) return absl::InvalidArgumentError("Invalid data type for output tensor");
  const bool whole = count && (output.data_type == DataType::kBytes
                                   ? AppendJsonStrings(out, output.data.bytes(), static_cast<std::uint64_t>(*count))
                                   : TensorByteSize(output.data_type, AsSpan(output.shape)) ==
                                         static_cast<std::int64_t>(output.data.size()));
  if (!whole) {
    return absl::InternalError(fmt::format("output tensor shape does not match size of output for '{}'", output.name));
  }
  if (output.data_type != DataType::kBytes) AppendJsonElements(out, output.data_type, output.data.bytes());
  return *count == 1 ? out.substr(1, out.size() - 2) : out;
}

}  // namespace

absl::Status DecodeGenerate(std::string_view body, const ModelInfo& model, const JsonLimits& limits, BufferPool& pool,
                            InferenceRequest& request) {
  return GenerateReader(body, model, limits, pool, request).Read();
}

absl::Status AppendGenerated(std::string& out, std::string_view id, const ModelInfo& model,
                             const InferenceResponse& response) {
  std::map<std::string_view, std::string> members;
  const auto put_string = [&members](std::string_view key, std::string_view text) {
    AppendJsonString(members[key], text);
  };
  if (!id.empty()) put_string("id", id);
  put_string("model_name", model.name());
  put_string("model_version", model.version_text());
  for (const auto& [key, value] : response.parameters) members[key] = ParameterJson(value);
  for (const ResponseOutput& output : response.outputs) {
    ASSIGN_OR_RETURN(members[output.name], OutputJson(output));
  }
  out += '{';
  bool first = true;
  for (const auto& [key, value] : members) {
    if (!std::exchange(first, false)) out += ',';
    AppendJsonString(out, key);
    out += ':';
    out += value;
  }
  out += '}';
  return absl::OkStatus();
}

}  // namespace tidemark
