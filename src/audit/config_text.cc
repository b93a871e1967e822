#include "audit/config_text.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

namespace tidemark::audit {
namespace {

using Json = nlohmann::json;

std::string Quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\{:03o}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

// Text fields are quoted, enumerations and 64-bit numbers (which JSON may carry as text) are not.
bool IsTextField(std::string_view key) {
  static constexpr std::array<std::string_view, 8> kText = {
      "name",           "platform",     "backend", "default_model_filename",
      "label_filename", "string_value", "profile", "host_policy"};
  for (const std::string_view text : kText) {
    if (key == text) return true;
  }
  return false;
}

void Write(std::string& out, const std::string& key, const Json& value, int indent) {
  const std::string pad(static_cast<std::size_t>(indent) * 2, ' ');
  if (value.is_null()) return;
  if (value.is_object()) {
    out += fmt::format("{}{} {{\n", pad, key);
    for (const auto& [name, child] : value.items()) Write(out, name, child, indent + 1);
    out += fmt::format("{}}}\n", pad);
  } else if (value.is_array()) {
    for (const Json& item : value) Write(out, key, item, indent);
  } else if (value.is_string()) {
    const auto text = value.get<std::string>();
    if (!text.empty()) out += fmt::format("{}{}: {}\n", pad, key, IsTextField(key) ? Quoted(text) : text);
  } else {
    out += fmt::format("{}{}: {}\n", pad, key, value.dump());
  }
}

// Only the named members of each object in `list`.
Json Chosen(const Json& list, std::initializer_list<const char*> names) {
  Json chosen = Json::array();
  if (!list.is_array()) return chosen;
  for (const Json& item : list) {
    Json copy = Json::object();
    for (const char* name : names) {
      if (item.is_object() && item.contains(name)) copy[name] = item[name];
    }
    chosen.push_back(std::move(copy));
  }
  return chosen;
}

}  // namespace

absl::StatusOr<std::string> ConfigTextFromJson(std::string_view text) {
  const Json config = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object() || !config.contains("name")) {
    return absl::InvalidArgumentError(
        fmt::format("expected a model configuration as JSON, found: {}", text.substr(0, 200)));
  }
  std::string out = "# Written by tidemark audit from the server's own answer.\n";
  for (const char* key : {"name", "platform", "backend", "default_model_filename", "max_batch_size"}) {
    if (config.contains(key)) Write(out, key, config[key], 0);
  }
  const Json none = Json::array();
  const auto list = [&](const char* key) -> const Json& { return config.contains(key) ? config[key] : none; };
  Write(out, "input",
        Chosen(list("input"),
               {"name", "data_type", "format", "dims", "reshape", "is_shape_tensor", "allow_ragged_batch", "optional"}),
        0);
  Write(out, "output",
        Chosen(list("output"), {"name", "data_type", "dims", "reshape", "label_filename", "is_shape_tensor"}), 0);
  Write(out, "instance_group", Chosen(list("instance_group"), {"kind", "count", "gpus"}), 0);
  if (config.contains("parameters") && config["parameters"].is_object()) {
    for (const auto& [key, value] : config["parameters"].items()) {
      out += fmt::format("parameters {{\n  key: {}\n", Quoted(key));
      Write(out, "value", value, 1);
      out += "}\n";
    }
  }
  return out;
}

}  // namespace tidemark::audit
