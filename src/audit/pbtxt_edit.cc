#include "audit/pbtxt_edit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/status.h"

namespace tidemark::audit {
namespace {

constexpr int kMaxDepth = 100;

bool IsWordChar(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '-' || c == '+';
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  absl::StatusOr<std::vector<TextField>> ParseAll() {
    std::vector<TextField> fields;
    RETURN_IF_ERROR(ParseFields('\0', 0, fields));
    return fields;
  }

 private:
  absl::Status Error(std::string_view what) const {
    const std::string_view before = text_.substr(0, pos_);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const std::size_t line_start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
    return absl::InvalidArgumentError(
        fmt::format("model configuration, line {}, column {}: {}", line, pos_ - line_start + 1, what));
  }

  void SkipSpace() {
    while (pos_ < text_.size()) {
      if (std::isspace(static_cast<unsigned char>(text_[pos_])) != 0) {
        ++pos_;
      } else if (text_[pos_] == '#') {
        while (pos_ < text_.size() && text_[pos_] != '\n') ++pos_;
      } else {
        return;
      }
    }
  }

  // The next character that is neither blank nor comment; 0 at the end.
  char Peek() {
    SkipSpace();
    return pos_ < text_.size() ? text_[pos_] : '\0';
  }

  bool Take(char c) {
    if (Peek() != c || pos_ >= text_.size()) return false;
    ++pos_;
    return true;
  }

  absl::Status ParseFields(char close, int depth, std::vector<TextField>& fields) {
    if (depth > kMaxDepth) return Error("nested too deeply");
    while (true) {
      while (Take(',') || Take(';')) {
      }
      const char next = Peek();
      if (next == '\0' && pos_ >= text_.size()) {
        return close == '\0' ? absl::OkStatus() : Error(fmt::format("expected '{}' before the end", close));
      }
      if (close != '\0' && next == close) {
        ++pos_;
        return absl::OkStatus();
      }
      TextField field;
      field.begin = pos_;
      RETURN_IF_ERROR(ParseName(field.name));
      const bool colon = Take(':');
      RETURN_IF_ERROR(ParseValue(colon, depth, field));
      fields.push_back(std::move(field));
    }
  }

  absl::Status ParseName(std::string& name) {
    const std::size_t begin = pos_;
    if (text_[pos_] == '[') {  // extension or Any
      while (pos_ < text_.size() && text_[pos_] != ']') ++pos_;
      if (pos_ < text_.size()) ++pos_;
    } else {
      while (pos_ < text_.size() && IsWordChar(text_[pos_])) ++pos_;
    }
    if (pos_ == begin) return Error(fmt::format("expected a field name, found '{}'", text_[pos_]));
    name = std::string(text_.substr(begin, pos_ - begin));
    return absl::OkStatus();
  }

  absl::Status ParseValue(bool scalar_allowed, int depth, TextField& field) {
    const char next = Peek();
    field.value_begin = pos_;
    if (next == '{' || next == '<') {
      ++pos_;
      field.kind = TextField::Kind::kMessage;
      RETURN_IF_ERROR(ParseFields(next == '{' ? '}' : '>', depth + 1, field.children));
    } else if (next == '[') {
      ++pos_;
      field.kind = TextField::Kind::kList;
      RETURN_IF_ERROR(ParseList(scalar_allowed, depth + 1, field.children));
    } else if (!scalar_allowed) {
      return Error(fmt::format("expected ':' or a message after '{}'", field.name));
    } else {
      RETURN_IF_ERROR(ParseScalar());
    }
    field.end = pos_;
    return absl::OkStatus();
  }

  absl::Status ParseList(bool scalar_allowed, int depth, std::vector<TextField>& items) {
    if (depth > kMaxDepth) return Error("nested too deeply");
    if (Take(']')) return absl::OkStatus();
    while (true) {
      TextField item;
      Peek();
      item.begin = pos_;
      RETURN_IF_ERROR(ParseValue(scalar_allowed, depth, item));
      items.push_back(std::move(item));
      if (Take(']')) return absl::OkStatus();
      if (!Take(',')) return Error("expected ',' or ']' in a list");
      if (Take(']')) return absl::OkStatus();  // a comma too many, which hand-written files have
    }
  }

  absl::Status ParseScalar() {
    const char first = Peek();
    if (first == '"' || first == '\'') {
      std::size_t end = pos_;
      while (Peek() == '"' || Peek() == '\'') {
        RETURN_IF_ERROR(ParseString());
        end = pos_;
      }
      pos_ = end;
      return absl::OkStatus();
    }
    const std::size_t begin = pos_;
    while (pos_ < text_.size() && IsWordChar(text_[pos_])) ++pos_;
    if (pos_ == begin) return Error("expected a value");
    return absl::OkStatus();
  }

  absl::Status ParseString() {
    const char quote = text_[pos_++];
    while (pos_ < text_.size() && text_[pos_] != quote && text_[pos_] != '\n') {
      pos_ += text_[pos_] == '\\' ? 2 : 1;
    }
    if (pos_ >= text_.size() || text_[pos_] != quote) return Error("unclosed string");
    ++pos_;
    return absl::OkStatus();
  }

  std::string_view text_;
  std::size_t pos_ = 0;
};

const TextField* Child(const TextField& message, std::string_view name) {
  const auto it = std::find_if(message.children.begin(), message.children.end(),
                               [name](const TextField& field) { return field.name == name; });
  return it == message.children.end() ? nullptr : &*it;
}

std::string Spliced(std::string_view text, std::size_t begin, std::size_t end, std::string_view replacement) {
  return fmt::format("{}{}{}", text.substr(0, begin), replacement, text.substr(end));
}

absl::Status NoTensor(std::string_view field, std::string_view what) {
  return absl::FailedPreconditionError(fmt::format("the configuration has no {} {}", field, what));
}

}  // namespace

std::string TextField::Scalar(std::string_view text) const {
  const std::string_view value = text.substr(value_begin, end - value_begin);
  if (value.empty() || (value.front() != '"' && value.front() != '\'')) return std::string(value);
  std::string joined;
  for (std::size_t i = 0; i < value.size(); ++i) {
    const char quote = value[i];
    if (quote == '#') {
      while (i < value.size() && value[i] != '\n') ++i;
      continue;
    }
    if (quote != '"' && quote != '\'') continue;  // blanks between adjacent strings
    for (++i; i < value.size() && value[i] != quote; ++i) {
      joined += value[i];
      if (value[i] == '\\' && i + 1 < value.size()) joined += value[++i];
    }
  }
  return joined;
}

absl::StatusOr<std::vector<TextField>> ParseTextFormat(std::string_view text) { return Parser(text).ParseAll(); }

std::vector<const TextField*> RepeatedMessages(const std::vector<TextField>& fields, std::string_view name) {
  std::vector<const TextField*> messages;
  for (const TextField& field : fields) {
    if (field.name != name) continue;
    if (field.kind == TextField::Kind::kMessage) messages.push_back(&field);
    if (field.kind != TextField::Kind::kList) continue;
    for (const TextField& item : field.children) {
      if (item.kind == TextField::Kind::kMessage) messages.push_back(&item);
    }
  }
  return messages;
}

absl::StatusOr<std::string> ChangeFirstDatatype(std::string_view text, std::string_view field) {
  ASSIGN_OR_RETURN(const auto fields, ParseTextFormat(text));
  for (const TextField* tensor : RepeatedMessages(fields, field)) {
    const TextField* type = Child(*tensor, "data_type");
    if (type == nullptr) break;
    const std::string now = type->Scalar(text);
    const bool is_int32 = now == "TYPE_INT32" || now == "8";  // the enumeration's number is allowed, too
    return Spliced(text, type->value_begin, type->end, is_int32 ? "TYPE_FP32" : "TYPE_INT32");
  }
  return NoTensor(field, "with a data_type");
}

absl::StatusOr<std::string> AppendDimension(std::string_view text, std::string_view field) {
  ASSIGN_OR_RETURN(const auto fields, ParseTextFormat(text));
  for (const TextField* tensor : RepeatedMessages(fields, field)) {
    const TextField* last = nullptr;
    for (const TextField& child : tensor->children) {
      if (child.name == "dims") last = &child;
    }
    if (last == nullptr) break;
    if (last->kind != TextField::Kind::kList) return Spliced(text, last->end, last->end, " dims: 3");
    const std::string_view extra = last->children.empty() ? "3" : ", 3";
    const std::size_t place = last->children.empty() ? last->value_begin + 1 : last->children.back().end;
    return Spliced(text, place, place, extra);
  }
  return NoTensor(field, "with dims");
}

absl::StatusOr<std::string> RemoveFirst(std::string_view text, std::string_view field) {
  ASSIGN_OR_RETURN(const auto fields, ParseTextFormat(text));
  for (const TextField& candidate : fields) {
    if (candidate.name != field) continue;
    if (candidate.kind == TextField::Kind::kMessage || candidate.children.size() == 1) {
      return Spliced(text, candidate.begin, candidate.end, "");
    }
    if (candidate.kind != TextField::Kind::kList || candidate.children.empty()) continue;
    return Spliced(text, candidate.children[0].begin, candidate.children[1].begin, "");
  }
  return NoTensor(field, "to remove");
}

absl::StatusOr<std::string> ReplaceBackend(std::string_view text, std::string_view name) {
  ASSIGN_OR_RETURN(const auto fields, ParseTextFormat(text));
  std::string edited(text);
  for (auto it = fields.rbegin(); it != fields.rend(); ++it) {  // from the back: earlier offsets stay true
    if (it->name == "backend" || it->name == "platform") edited = Spliced(edited, it->begin, it->end, "");
  }
  return fmt::format("backend: \"{}\"\n{}", name, edited);
}

std::string BreakSyntax(std::string_view text) {
  return fmt::format("{}\ninput [ {{ this is no model configuration\n", text);
}

}  // namespace tidemark::audit
