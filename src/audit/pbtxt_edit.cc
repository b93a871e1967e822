#include "audit/pbtxt_edit.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/status.h"

namespace tidemark::audit {
namespace {

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
