#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "base/status.h"
#include "protocol/classification.h"
#include "protocol/http_infer.h"
#include "protocol/json_writer.h"

namespace tidemark {
namespace {

void AppendParameters(std::string& out, const Parameters& parameters) {
  out += ",\"parameters\":{";
  bool first = true;
  for (const auto& [key, value] : parameters) {
    if (!std::exchange(first, false)) out += ',';
    AppendJsonString(out, key);
    out += ':';
    if (const bool* flag = std::get_if<bool>(&value)) {
      AppendJsonBool(out, *flag);
    } else if (const std::int64_t* number = std::get_if<std::int64_t>(&value)) {
      AppendJsonInt(out, *number);
    } else if (const double* real = std::get_if<double>(&value)) {
      AppendJsonDouble(out, *real);
    } else {
      AppendJsonString(out, std::get<std::string>(value));
    }
  }
  out += '}';
}

absl::Status AppendData(std::string& out, const ResponseOutput& output) {
  const std::optional<std::int64_t> count = ElementCount(AsSpan(output.shape));
  out += ",\"data\":";
  if (output.data_type == DataType::kBytes) {
    if (!count || !AppendJsonStrings(out, output.data.bytes(), static_cast<std::uint64_t>(*count))) {
      return absl::InternalError(
          fmt::format("output tensor shape does not match size of output for '{}'", output.name));
    }
    return absl::OkStatus();
  }
  if (output.data_type == DataType::kInvalid) return absl::InvalidArgumentError("Invalid data type for output tensor");
  if (TensorByteSize(output.data_type, AsSpan(output.shape)) != static_cast<std::int64_t>(output.data.size())) {
    return absl::InternalError(fmt::format(
        "Failed to write 'data' field: output tensor shape does not match size of output for '{}'", output.name));
  }
  AppendJsonElements(out, output.data_type, output.data.bytes());
  return absl::OkStatus();
}

// What the client asked of this output; the default when it named none.
RequestedOutput AskedFor(const InferenceRequest& request, std::size_t place) {
  RequestedOutput asked;
  asked.binary = request.binary_data_output || request.raw;
  if (place < request.outputs.size()) {
    asked.binary = request.outputs[place].binary;
    asked.classification = request.outputs[place].classification;
  }
  return asked;
}

absl::Status AppendOutput(ResponseOutput& output, const RequestedOutput& asked, const ModelInfo& model,
                          BufferPool& pool, EncodedInfer& encoded) {
  if (asked.classification != 0) {
    RETURN_IF_ERROR(ClassifyOutput(output, model, asked.classification, pool));
  }
  std::string& out = encoded.json;
  out += "{\"name\":";
  AppendJsonString(out, output.name);
  out += ",\"datatype\":\"";
  out += ProtocolName(output.data_type);
  out += "\",\"shape\":";
  AppendJsonShape(out, AsSpan(output.shape));
  if (output.shared) {
    out += '}';  // the client knows where it is
    return absl::OkStatus();
  }
  if (asked.binary) {
    out += ",\"parameters\":{\"binary_data_size\":";
    AppendJsonUint(out, output.data.size());
    out += '}';
    encoded.tensor_bytes += output.data.size();
    encoded.tensors.push_back(std::move(output.data));
  } else {
    RETURN_IF_ERROR(AppendData(out, output));
  }
  out += '}';
  return absl::OkStatus();
}

}  // namespace

absl::Status EncodeInfer(InferenceRequest& request, const ModelInfo& model, BufferPool& pool, EncodedInfer& encoded) {
  std::string& out = encoded.json;
  out.clear();
  encoded.tensors.clear();
  encoded.tensor_bytes = 0;
  out += '{';
  if (!request.id.empty()) {
    out += "\"id\":";
    AppendJsonString(out, request.id);
    out += ',';
  }
  out += "\"model_name\":";
  AppendJsonString(out, model.name());
  out += ",\"model_version\":\"";
  out += model.version_text();
  out += '"';
  if (!request.response.parameters.empty()) AppendParameters(out, request.response.parameters);
  out += ",\"outputs\":[";
  std::size_t place = 0;
  for (ResponseOutput& output : request.response.outputs) {
    if (place != 0) out += ',';
    RETURN_IF_ERROR(AppendOutput(output, AskedFor(request, place), model, pool, encoded));
    ++place;
  }
  out += "]}";
  return absl::OkStatus();
}

}  // namespace tidemark
