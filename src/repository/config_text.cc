#include "repository/config_text.h"

#include <fmt/format.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "base/status.h"
#include "repository/config_edit.h"
#include "repository/config_finding.h"

namespace tidemark {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr std::size_t kMaxConfigBytes = std::size_t{64} << 20;
constexpr std::size_t kMaxErrors = 50;
constexpr std::size_t kMaxDepth = 64;  // the message itself is six levels deep

// The texts between double quotes, in order.
std::vector<std::string_view> Quoted(std::string_view text) {
  std::vector<std::string_view> parts;
  for (std::size_t at = text.find('"'); at != std::string_view::npos;) {
    const std::size_t end = text.find('"', at + 1);
    if (end == std::string_view::npos) break;
    parts.push_back(text.substr(at + 1, end - at - 1));
    at = text.find('"', end + 1);
  }
  return parts;
}

std::vector<std::string_view> FieldNames(const Descriptor& message) {
  std::vector<std::string_view> names;
  for (int i = 0; i < message.field_count(); ++i) names.push_back(message.field(i)->name());
  return names;
}

std::vector<std::string_view> ValueNames(const EnumDescriptor& type) {
  std::vector<std::string_view> names;
  for (int v = 0; v < type.value_count(); ++v) {
    if (type.value(v)->name() != "TYPE_INVALID") names.push_back(type.value(v)->name());
  }
  return names;
}

std::string Upper(std::string_view text) {
  std::string upper(text);
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; });
  return upper;
}

bool EqualsInAnyCase(std::string_view a, std::string_view b) { return Upper(a) == Upper(b); }

// What people write for TYPE_…: numpy's, ONNX's and the protocol's names.
std::string_view NearestValue(std::string_view name, const EnumDescriptor& type) {
  const std::string upper = Upper(name);
  std::string_view bare = upper;
  if (type.name() == "DataType") {
    if (bare.starts_with("TYPE_")) bare.remove_prefix(5);
    constexpr std::pair<std::string_view, std::string_view> kOthers[] = {
        {"FLOAT", "TYPE_FP32"},    {"FLOAT32", "TYPE_FP32"},  {"DOUBLE", "TYPE_FP64"},  {"FLOAT64", "TYPE_FP64"},
        {"FLOAT16", "TYPE_FP16"},  {"HALF", "TYPE_FP16"},     {"BYTES", "TYPE_STRING"}, {"STR", "TYPE_STRING"},
        {"OBJECT", "TYPE_STRING"}, {"BFLOAT16", "TYPE_BF16"}, {"INT", "TYPE_INT32"},    {"LONG", "TYPE_INT64"},
        {"BOOLEAN", "TYPE_BOOL"}};
    for (const auto& [other, ours] : kOthers) {
      if (bare == other) return ours;
    }
  }
  for (int v = 0; v < type.value_count(); ++v) {
    const std::string& known = type.value(v)->name();
    if (known == upper || known.ends_with(fmt::format("_{}", bare))) return known;
  }
  return NearestName(upper, ValueNames(type));
}

// The type of the field that a path ends in; null when the path is not one of ModelConfig's.
const FieldDescriptor* FieldOfPath(std::string_view path) {
  const Descriptor* type = inference::ModelConfig::descriptor();
  const FieldDescriptor* field = nullptr;
  while (!path.empty()) {
    if (type == nullptr) return nullptr;
    const std::size_t stop = path.find_first_of(".[");
    field = type->FindFieldByName(std::string(path.substr(0, stop)));
    if (field == nullptr) return nullptr;
    type = field->is_map() ? field->message_type()->map_value()->message_type() : field->message_type();
    path.remove_prefix(std::min(stop, path.size()));
    if (path.starts_with('[')) path.remove_prefix(std::min(path.find(']'), path.size() - 1) + 1);
    if (path.starts_with('.')) path.remove_prefix(1);
  }
  return field;
}

std::string OneOf(const std::vector<std::string_view>& names, std::string_view nearest) {
  if (!nearest.empty() && names.size() > 4) return std::string(nearest);
  return fmt::format("one of {}", fmt::join(names, ", "));
}

// The offset that the tokenizer means: it counts a tab as the way to the next multiple of eight.
std::size_t OffsetOf(std::string_view text, int line, int column) {
  std::size_t at = 0;
  for (int i = 0; i < line; ++i) {
    const std::size_t newline = text.find('\n', at);
    if (newline == std::string_view::npos) return text.size();
    at = newline + 1;
  }
  for (int seen = 0; seen < column && at < text.size() && text[at] != '\n'; ++at) {
    seen += text[at] == '\t' ? 8 - seen % 8 : 1;
  }
  return at;
}

// Offsets of the brackets that are open at the end, outermost first; stops at the first that opens a level too deep, which
// is then the last. With `pairs` also at the first that is closed by a bracket of another kind.
std::vector<std::size_t> OpenBrackets(std::string_view text, std::size_t limit, bool pairs) {
  std::vector<std::size_t> open;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '#') {
      i = std::min(text.find('\n', i), text.size());
    } else if (c == '"' || c == '\'') {
      for (++i; i < text.size() && text[i] != c && text[i] != '\n'; ++i) {
        if (text[i] == '\\') ++i;
      }
    } else if (c == '{' || c == '<' || c == '[') {
      open.push_back(i);
      if (open.size() > limit) return open;
    } else if ((c == '}' || c == '>' || c == ']') && !open.empty()) {
      const char opener = text[open.back()];
      if (pairs && c != (opener == '{' ? '}' : opener == '<' ? '>' : ']')) return open;
      open.pop_back();
    }
  }
  return open;
}

// A brace that opens a level too deep: the parser recurses, and must not do so without end.
std::optional<std::size_t> FindTooDeep(std::string_view text) {
  const std::vector<std::size_t> open = OpenBrackets(text, kMaxDepth, false);
  if (open.size() <= kMaxDepth) return std::nullopt;
  return open.back();
}

std::optional<std::size_t> FindUnclosed(std::string_view text) {
  const std::vector<std::size_t> open = OpenBrackets(text, kMaxDepth, true);
  if (open.empty()) return std::nullopt;
  return open.back();
}

bool IsWord(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

bool IsNumber(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Keeps what the parser says. Unknown fields come as warnings, because only then does it go on to the next
// one.
class Collector final : public google::protobuf::io::ErrorCollector {
 public:
  Collector(std::string_view text, std::string_view file) : text_(text), file_(file) {}

  void AddError(int line, int column, const std::string& message) override {
    if (line < 0 || findings_.size() >= kMaxErrors) {  // what is cut needs no position
      Keep(message).file = file_;
      return;
    }
    const std::size_t offset = OffsetOf(text_, line, column);
    const std::vector<std::string_view> quoted = Quoted(message);
    const bool field = message.find("has no field named") != std::string::npos && quoted.size() == 2;
    const bool value = message.find("Unknown enumeration value of") != std::string::npos && quoted.size() == 2;
    const bool boolean = message.find("Invalid value for boolean field") != std::string::npos && quoted.size() == 2;
    if (!field && !value && !boolean) return ExplainToken(AddAt(offset, message));
    // The parser stands behind the name by now: look for it backwards.
    const std::string_view name = value ? quoted[0] : quoted[1];
    std::size_t at = text_.rfind(name, offset);
    if (at == std::string_view::npos) at = offset;
    Finding& finding = AddAt(at, message);
    if (boolean) {
      ExplainToken(finding);
    } else if (field) {
      ExplainField(quoted[0], name, finding);
    } else {
      ExplainValue(name, finding);
    }
  }
  void AddWarning(int line, int column, const std::string& message) override { AddError(line, column, message); }

  // Says what the last error may come from: a bracket that nobody closes.
  void ExplainUnclosed() {
    if (findings_.empty() || !findings_.back().fix.empty()) return;
    if (const std::optional<std::size_t> open = FindUnclosed(text_)) {
      const TextPosition at = PositionOf(text_, *open);
      findings_.back().Advise(
          fmt::format("the '{}' of line {}, column {} is not closed", text_[*open], at.line, at.column));
    }
  }

  Finding& AddAt(std::size_t offset, const std::string& message) {
    Finding& finding = Keep(message);
    const TextPosition at = PositionOf(text_, offset);
    if (!places_) places_.emplace(text_);
    finding.field = places_->PathAt(offset);
    finding.file = file_;
    finding.line = at.line;
    finding.column = at.column;
    return finding;
  }

  bool empty() const { return findings_.empty(); }
  absl::Status ToStatus() const {
    std::string text = fmt::format("failed to read text proto from {}", file_);
    for (const Finding& finding : findings_) {
      text += fmt::format("\n{}:", finding.file);
      if (finding.line > 0) text += fmt::format("{}:{}:", finding.line, finding.column);
      text += " " + finding.message;
    }
    if (more_ > 0) text += fmt::format("\n… and {} more", more_);
    return WithFindings(absl::InvalidArgumentError(text), findings_);
  }

 private:
  Finding& Keep(const std::string& message) {
    if (findings_.size() >= kMaxErrors) {
      ++more_;
      spare_ = Finding();
      return spare_;
    }
    findings_.emplace_back().message = message;
    return findings_.back();
  }

  // A value of the wrong kind: quotes that lack or that are too many, "yes" for true.
  void ExplainToken(Finding& finding) {
    const FieldDescriptor* field = FieldOfPath(finding.field);
    if (field == nullptr) return;
    const std::string& message = finding.message;
    if (message.find("is specified multiple times") != std::string::npos) {
      finding.Says("a second value", fmt::format("'{}' once", field->name())).Advise("keep one of them");
      return;
    }
    std::string token = Quoted(message).empty() ? std::string() : std::string(Quoted(message).back());
    const std::size_t got = message.find("got: ");
    if (got != std::string::npos) token = message.substr(got + 5);
    if (token.empty()) return;
    const bool quoted = token.size() > 1 && (token.front() == '"' || token.front() == '\'') && got != std::string::npos;
    const std::string bare = quoted ? token.substr(1, token.size() - 2) : token;
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      finding.Says(token, "a string in quotes");
      if (!quoted && IsWord(bare)) finding.SetTo(QuotedText(bare));
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_BOOL) {
      const std::string upper = Upper(bare);
      finding.Says(token, "true or false");
      if (upper == "YES" || upper == "ON" || upper == "TRUE" || upper == "1") finding.SetTo("true");
      if (upper == "NO" || upper == "OFF" || upper == "FALSE" || upper == "0") finding.SetTo("false");
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
      const std::string_view nearest = NearestValue(bare, *field->enum_type());
      finding.Says(token, OneOf(ValueNames(*field->enum_type()), nearest));
      if (!nearest.empty()) finding.SetTo(std::string(nearest));
    } else if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      finding.Says(token, fmt::format("a number ({})", field->cpp_type_name()));
      if (quoted && IsNumber(bare)) finding.SetTo(bare);
    }
  }

  void ExplainField(std::string_view type_name, std::string_view name, Finding& finding) {
    const Descriptor* type =
        inference::ModelConfig::descriptor()->file()->pool()->FindMessageTypeByName(std::string(type_name));
    if (type == nullptr) return;
    ExplainUnknownField(*type, name, finding);
    if (!finding.fix.empty()) finding.message += fmt::format(" Did you mean \"{}\"?", finding.fix);
  }

  void ExplainValue(std::string_view name, Finding& finding) {
    const FieldDescriptor* field = FieldOfPath(finding.field);
    if (field == nullptr || field->enum_type() == nullptr) return;
    ExplainUnknownValue(*field->enum_type(), name, finding);
    if (!finding.fix.empty()) finding.message += fmt::format(" Did you mean \"{}\"?", finding.fix);
  }

 public:
  static void ExplainUnknownField(const Descriptor& type, std::string_view name, Finding& finding) {
    const std::vector<std::string_view> names = FieldNames(type);
    const std::string_view nearest = NearestName(name, names);
    finding.Says(fmt::format("'{}'", name),
                 nearest.empty() ? fmt::format("a field of {}", type.name()) : fmt::format("'{}'", nearest));
    if (!nearest.empty()) {
      finding.RenameTo(std::string(nearest));
    } else {
      finding.Advise(fmt::format("its fields are {}", fmt::join(names, ", ")));
      if (names.size() > 12) finding.fix.clear();
    }
  }

  static void ExplainUnknownValue(const EnumDescriptor& type, std::string_view name, Finding& finding) {
    const std::string_view nearest = NearestValue(name, type);
    finding.Says(std::string(name), OneOf(ValueNames(type), nearest));
    if (!nearest.empty()) finding.SetTo(std::string(nearest));
  }

 private:
  const std::string_view text_;
  const std::string file_;
  std::optional<ConfigPlaces> places_;  // made for the first error
  std::vector<Finding> findings_;
  Finding spare_;
  int more_ = 0;
};

// Offset of the first byte that is not part of valid UTF-8; nullopt when there is none.
std::optional<std::size_t> FindInvalidUtf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = [&](std::size_t at) { return at < text.size() ? static_cast<unsigned char>(text[at]) : 0U; };
    const unsigned lead = byte(i);
    const std::size_t length = lead < 0x80                   ? 1
                               : lead >= 0xC2 && lead < 0xE0 ? 2
                               : (lead & 0xF0U) == 0xE0      ? 3
                               : lead >= 0xF0 && lead < 0xF5 ? 4
                                                             : 0;
    if (length == 0) return i;
    for (std::size_t k = 1; k < length; ++k) {
      if ((byte(i + k) & 0xC0U) != 0x80U) return i;
    }
    const unsigned second = byte(i + 1);
    if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) || (lead == 0xF0 && second < 0x90) ||
        (lead == 0xF4 && second > 0x8F)) {
      return i;
    }
    i += length;
  }
  return std::nullopt;
}

// The path of a string field that holds invalid UTF-8 (through an escape like "\377"); empty when there is
// none.
std::string FindInvalidString(const Message& message) {
  const Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const int count = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
        const std::string value = field->is_repeated() ? reflection.GetRepeatedString(message, field, i)
                                                       : reflection.GetString(message, field);
        if (FindInvalidUtf8(value)) return field->name();
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        const std::string inner =
            FindInvalidString(field->is_repeated() ? reflection.GetRepeatedMessage(message, field, i)
                                                   : reflection.GetMessage(message, field));
        if (!inner.empty()) return fmt::format("{}.{}", field->name(), inner);
      }
    }
  }
  return {};
}

// Fields and enum values of a JSON configuration that the message does not have. Knows the names in snake case and camel
// case, as protobuf does.
void FindUnknownNames(const nlohmann::json& value, const Descriptor& type, const std::string& path, Findings& out);

void FindUnknownNames(const nlohmann::json& value, const FieldDescriptor& field, const std::string& path,
                      Findings& out) {
  if (field.enum_type() != nullptr && value.is_string()) {
    const std::string name = value.get<std::string>();
    for (int v = 0; v < field.enum_type()->value_count(); ++v) {
      if (EqualsInAnyCase(field.enum_type()->value(v)->name(), name)) return;
    }
    Collector::ExplainUnknownValue(*field.enum_type(), name, out.Add(path, "'{}' is not a value of '{}'", name, path));
  } else if (field.message_type() != nullptr && value.is_object()) {
    FindUnknownNames(value, *field.message_type(), path, out);
  }
}

void FindUnknownNames(const nlohmann::json& value, const Descriptor& type, const std::string& path, Findings& out) {
  for (const auto& [key, member] : value.items()) {
    const std::string where = path.empty() ? key : fmt::format("{}.{}", path, key);
    const FieldDescriptor* field = type.FindFieldByName(key);
    for (int i = 0; field == nullptr && i < type.field_count(); ++i) {
      if (type.field(i)->json_name() == key) field = type.field(i);
    }
    if (field == nullptr) {
      Collector::ExplainUnknownField(type, key, out.Add(where, "'{}' is not a field of {}", key, type.name()));
    } else if (field->is_map() && member.is_object()) {
      for (const auto& [entry, inner] : member.items()) {
        FindUnknownNames(inner, *field->message_type()->map_value(), fmt::format("{}[{}]", where, entry), out);
      }
    } else if (field->is_repeated() && member.is_array()) {
      for (std::size_t i = 0; i < member.size(); ++i) {
        FindUnknownNames(member[i], *field, fmt::format("{}[{}]", where, i), out);
      }
    } else {
      FindUnknownNames(member, *field, where, out);
    }
  }
}

}  // namespace

absl::StatusOr<inference::ModelConfig> ParseConfigText(std::string_view text, std::string_view file) {
  Collector errors(text, file);
  const auto fail_at = [&](std::size_t offset, const std::string& what) {
    errors.AddAt(offset, what);
    return errors.ToStatus();
  };
  if (text.size() > kMaxConfigBytes) {
    return fail_at(0, fmt::format("the file has {} bytes, more than 64 MiB", text.size()));
  }
  if (const auto bad = FindInvalidUtf8(text)) {
    return fail_at(*bad, fmt::format("byte 0x{:02x} is not valid UTF-8", static_cast<unsigned char>(text[*bad])));
  }
  if (const auto deep = FindTooDeep(text))
    return fail_at(*deep, fmt::format("nested deeper than {} levels", kMaxDepth));

  inference::ModelConfig config;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  parser.AllowUnknownField(true);
  parser.SetRecursionLimit(static_cast<int>(kMaxDepth) + 1);
  const bool parsed = parser.ParseFromString(std::string(text), &config);
  if (!errors.empty()) {
    errors.ExplainUnclosed();
    return errors.ToStatus();
  }
  if (!parsed) return fail_at(0, "not a model configuration in protobuf text format");
  if (const std::string field = FindInvalidString(config); !field.empty()) {
    errors.AddError(-1, 0, fmt::format("'{}' is not valid UTF-8", field));
    return errors.ToStatus();
  }
  return config;
}

absl::StatusOr<inference::ModelConfig> ParseConfigJson(std::string_view json) {
  if (json.size() > kMaxConfigBytes) {
    return absl::InvalidArgumentError(fmt::format("the configuration has {} bytes, more than 64 MiB", json.size()));
  }
  if (const auto bad = FindInvalidUtf8(json)) {
    return absl::InvalidArgumentError(fmt::format("byte {} is not valid UTF-8", *bad));
  }
  inference::ModelConfig config;
  google::protobuf::util::JsonParseOptions options;
  options.case_insensitive_enum_parsing = true;
  const auto status = google::protobuf::util::JsonStringToMessage(
      google::protobuf::StringPiece(json.data(), json.size()), &config, options);
  if (!status.ok()) {
    Findings unknown;
    const nlohmann::json document = nlohmann::json::parse(json, nullptr, false);
    if (document.is_object()) FindUnknownNames(document, *inference::ModelConfig::descriptor(), "", unknown);
    std::vector<Finding> findings = std::move(unknown).Take();
    if (findings.size() > kMaxErrors) findings.resize(kMaxErrors);
    if (findings.empty()) return absl::InvalidArgumentError(status.message().ToString());
    findings.front().message = status.message().ToString();  // protobuf's words come first
    return StatusOf(findings);
  }
  if (const std::string field = FindInvalidString(config); !field.empty()) {
    return absl::InvalidArgumentError(fmt::format("'{}' is not valid UTF-8", field));
  }
  return config;
}

}  // namespace tidemark
