#include "repository/config_text.h"

#include <fmt/format.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "base/status.h"

namespace tidemark {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr std::size_t kMaxConfigBytes = std::size_t{64} << 20;
constexpr int kMaxErrors = 50;
constexpr int kMaxDepth = 64;  // the message itself is six levels deep

// Insertions, deletions, substitutions and swaps of neighbours that lead from `a` to `b`.
std::size_t EditDistance(std::string_view a, std::string_view b) {
  const std::size_t width = b.size() + 1;
  std::vector<std::size_t> table((a.size() + 1) * width);
  const auto at = [&](std::size_t i, std::size_t j) -> std::size_t& { return table[i * width + j]; };
  for (std::size_t i = 0; i <= a.size(); ++i) at(i, 0) = i;
  for (std::size_t j = 0; j <= b.size(); ++j) at(0, j) = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitute = at(i - 1, j - 1) + (a[i - 1] == b[j - 1] ? 0 : 1);
      at(i, j) = std::min({at(i - 1, j) + 1, at(i, j - 1) + 1, substitute});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        at(i, j) = std::min(at(i, j), at(i - 2, j - 2) + 1);
      }
    }
  }
  return at(a.size(), b.size());
}

// The candidate nearest to `name`; empty when none is near enough to be what was meant.
std::string_view Nearest(std::string_view name, const std::vector<std::string_view>& candidates) {
  if (name.size() > 64) return {};
  std::string_view best;
  std::size_t best_distance = std::max<std::size_t>(name.size() / 3, 1) + 1;
  for (std::string_view candidate : candidates) {
    const std::size_t distance = EditDistance(name, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

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

std::string_view NearestField(const Descriptor& message, std::string_view name) {
  std::vector<std::string_view> names;
  for (int i = 0; i < message.field_count(); ++i) names.push_back(message.field(i)->name());
  return Nearest(name, names);
}

// Finds the message type of that full name below `root` (whose fields reach every type of the file).
const Descriptor* FindType(std::string_view full_name) {
  return inference::ModelConfig::descriptor()->file()->pool()->FindMessageTypeByName(std::string(full_name));
}

// What the parser does not know, in one of its messages: a field of a message type, or a value of an enum
// field.
struct UnknownName {
  std::string name;
  std::string_view nearest;
};

std::optional<UnknownName> FindUnknownName(std::string_view message) {
  const std::vector<std::string_view> quoted = Quoted(message);
  if (quoted.size() != 2) return std::nullopt;
  if (message.find("has no field named") != std::string_view::npos) {
    const Descriptor* type = FindType(quoted[0]);
    return UnknownName{.name = std::string(quoted[1]),
                       .nearest = type == nullptr ? std::string_view() : NearestField(*type, quoted[1])};
  }
  if (message.find("Unknown enumeration value of") == std::string_view::npos) return std::nullopt;
  std::vector<std::string_view> names;
  // The parser names the field, not its type: take the first enum field of that name.
  std::vector<const Descriptor*> todo = {inference::ModelConfig::descriptor()};
  for (std::size_t i = 0; i < todo.size() && names.empty() && i < 256; ++i) {
    for (int f = 0; f < todo[i]->field_count(); ++f) {
      const FieldDescriptor* field = todo[i]->field(f);
      if (field->message_type() != nullptr) todo.push_back(field->message_type());
      if (field->enum_type() == nullptr || field->name() != quoted[1]) continue;
      const EnumDescriptor* type = field->enum_type();
      for (int v = 0; v < type->value_count(); ++v) names.push_back(type->value(v)->name());
    }
  }
  return UnknownName{.name = std::string(quoted[0]), .nearest = Nearest(quoted[0], names)};
}

struct Position {
  int line = 0;
  int column = 0;
};

Position PositionAt(std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, offset);
  const std::size_t newline = before.rfind('\n');
  return {.line = static_cast<int>(std::count(before.begin(), before.end(), '\n')),
          .column = static_cast<int>(newline == std::string_view::npos ? offset : offset - newline - 1)};
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

// Keeps what the parser says. Unknown fields come as warnings, because only then does it go on to the next
// one.
class Collector : public google::protobuf::io::ErrorCollector {
 public:
  Collector(std::string_view text, std::string_view file) : text_(text), file_(file) {}

  void AddError(int line, int column, const std::string& message) override {
    if (line < 0 || count_ >= kMaxErrors) return Add(file_, message);  // what is cut needs no position
    std::size_t offset = OffsetOf(text_, line, column);
    std::string suggestion;
    if (const auto unknown = FindUnknownName(message)) {
      // The parser stands behind the name by then, perhaps on the next line.
      const std::size_t start = text_.rfind(unknown->name, offset);
      if (start != std::string_view::npos) offset = start;
      if (!unknown->nearest.empty()) suggestion = fmt::format(" Did you mean \"{}\"?", unknown->nearest);
    }
    AddAt(offset, message + suggestion);
  }
  void AddWarning(int line, int column, const std::string& message) override { AddError(line, column, message); }

  void AddAt(std::size_t offset, const std::string& message) {
    const Position at = PositionAt(text_, offset);
    Add(fmt::format("{}:{}:{}", file_, at.line + 1, at.column + 1), message);
  }
  void Add(const std::string& where, const std::string& message) {
    if (++count_ <= kMaxErrors) errors_ += fmt::format("\n{}: {}", where, message);
  }

  bool empty() const { return count_ == 0; }
  absl::Status ToStatus() const {
    const std::string more = count_ > kMaxErrors ? fmt::format("\n… and {} more", count_ - kMaxErrors) : std::string();
    return absl::InvalidArgumentError(fmt::format("failed to read text proto from {}{}{}", file_, errors_, more));
  }

 private:
  const std::string_view text_;
  const std::string file_;
  std::string errors_;
  int count_ = 0;
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

// Offset of a brace that opens a level too deep: the parser recurses, and must not do so without end.
std::optional<std::size_t> FindTooDeep(std::string_view text) {
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '#') {
      i = std::min(text.find('\n', i), text.size());
    } else if (c == '"' || c == '\'') {
      for (++i; i < text.size() && text[i] != c && text[i] != '\n'; ++i) {
        if (text[i] == '\\') ++i;
      }
    } else if (c == '{' || c == '<' || c == '[') {
      if (++depth > kMaxDepth) return i;
    } else if (c == '}' || c == '>' || c == ']') {
      --depth;
    }
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
  parser.SetRecursionLimit(kMaxDepth + 1);
  const bool parsed = parser.ParseFromString(std::string(text), &config);
  if (!errors.empty()) return errors.ToStatus();
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
  if (!status.ok()) return absl::InvalidArgumentError(status.message().ToString());
  if (const std::string field = FindInvalidString(config); !field.empty()) {
    return absl::InvalidArgumentError(fmt::format("'{}' is not valid UTF-8", field));
  }
  return config;
}

}  // namespace tidemark
