#include "base/text_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/status.h"

namespace tidemark {
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

}  // namespace tidemark
