#include "repository/config_edit.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <tuple>
#include <utility>

#include "proto/model_config.pb.h"

namespace tidemark {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

constexpr std::size_t kMaxBytes = std::size_t{4} << 20;  // of a text that is worth the memory of its places

struct Segment {
  std::string name;
  std::optional<std::string> index;  // a number or a map's key
};

std::vector<Segment> SplitPath(std::string_view path) {
  std::vector<Segment> segments;
  while (!path.empty()) {
    const std::size_t stop = path.find_first_of(".[");
    Segment segment{.name = std::string(path.substr(0, stop)), .index = std::nullopt};
    path.remove_prefix(std::min(stop, path.size()));
    if (path.starts_with('[')) {
      const std::size_t close = std::min(path.find(']'), path.size());
      segment.index = std::string(path.substr(1, close - 1));
      path.remove_prefix(std::min(close + 1, path.size()));
    }
    if (path.starts_with('.')) path.remove_prefix(1);
    segments.push_back(std::move(segment));
  }
  return segments;
}

// One value of a field, and the field (with its name) that it is written in.
struct Element {
  const TextField* field = nullptr;
  const TextField* value = nullptr;  // == field unless it stands in a list
};

std::vector<Element> ElementsOf(const std::vector<TextField>& fields, std::string_view name) {
  std::vector<Element> elements;
  for (const TextField& field : fields) {
    if (field.name != name) continue;
    if (field.kind == TextField::Kind::kList) {
      for (const TextField& item : field.children) elements.push_back({&field, &item});
    } else {
      elements.push_back({&field, &field});
    }
  }
  return elements;
}

const TextField* ChildOf(const TextField& message, std::string_view name) {
  for (const TextField& child : message.children) {
    if (child.name == name) return &child;
  }
  return nullptr;
}

// The key of a map's entry as text; nothing when it is none.
std::optional<std::string> KeyOf(const TextField& entry, std::string_view text) {
  if (entry.kind != TextField::Kind::kMessage) return std::nullopt;
  const TextField* key = ChildOf(entry, "key");
  if (key == nullptr) return std::nullopt;
  return key->Scalar(text);
}

const Element* Pick(const std::vector<Element>& elements, const Segment& segment, std::string_view text) {
  if (elements.empty()) return nullptr;
  if (!segment.index) return &elements.front();
  for (const Element& element : elements) {
    if (KeyOf(*element.value, text) == *segment.index) return &element;
  }
  if (KeyOf(*elements.front().value, text)) return nullptr;
  std::size_t number = 0;
  const std::string& index = *segment.index;
  const auto [end, error] = std::from_chars(index.data(), index.data() + index.size(), number);
  if (error != std::errc() || end != index.data() + index.size() || number >= elements.size()) return nullptr;
  return &elements[number];
}

std::size_t PointOf(const TextField& field) {
  return field.kind == TextField::Kind::kMessage ? field.begin : field.value_begin;
}

// "name: value" for a scalar or a list, "name { … }" for a message.
std::string FieldText(std::string_view name, std::string_view value) {
  return fmt::format("{}{} {}", name, value.starts_with('{') ? "" : ":", value);
}

std::string IndentOf(std::string_view text, std::size_t offset) {
  const std::size_t newline = text.substr(0, offset).rfind('\n');
  const std::size_t start = newline == std::string_view::npos ? 0 : newline + 1;
  std::size_t end = start;
  while (end < text.size() && (text[end] == ' ' || text[end] == '\t')) ++end;
  return std::string(text.substr(start, end - start));
}

bool IsBlank(char c) { return c == ' ' || c == '\t'; }

// Without a field, and without its line when nothing else stands there.
TextEdit Removal(std::string_view text, std::size_t begin, std::size_t end) {
  std::size_t from = begin;
  std::size_t to = end;
  while (to < text.size() && IsBlank(text[to])) ++to;
  if (to < text.size() && (text[to] == ',' || text[to] == ';')) ++to;
  while (from > 0 && IsBlank(text[from - 1])) --from;
  std::size_t rest = to;
  while (rest < text.size() && IsBlank(text[rest])) ++rest;
  const bool starts_line = from == 0 || text[from - 1] == '\n';
  const bool ends_line = rest == text.size() || text[rest] == '\n';
  if (starts_line && ends_line) return {from, std::min(rest + 1, text.size()), ""};
  return {begin, to, ""};
}

// Without one element of a list, and without one of the commas around it.
TextEdit ElementRemoval(std::string_view text, const TextField& list, const TextField& item) {
  const auto at = static_cast<std::size_t>(&item - list.children.data());
  if (at + 1 < list.children.size()) return {item.begin, list.children[at + 1].begin, ""};
  if (at > 0) return {list.children[at - 1].end, item.end, ""};
  return Removal(text, list.begin, list.end);
}

}  // namespace

TextPosition PositionOf(std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, offset);
  const std::size_t newline = before.rfind('\n');
  const std::size_t column = newline == std::string_view::npos ? before.size() : before.size() - newline - 1;
  return {.line = static_cast<int>(std::count(before.begin(), before.end(), '\n')) + 1,
          .column = static_cast<int>(column) + 1};
}

struct ConfigPlaces::Match {
  const TextField* around = nullptr;  // innermost message that is there; null: the file
  std::vector<Element> found;         // of the last name; one with an index, all without
  std::vector<Segment> missing;       // names from the first that is not there
  bool indexed = false;
};

ConfigPlaces::ConfigPlaces(std::string_view text) : text_(text) {
  if (text.size() > kMaxBytes) return;
  if (auto fields = ParseTextFormat(text); fields.ok()) fields_ = *std::move(fields);
}

ConfigPlaces::Match ConfigPlaces::Resolve(std::string_view path) const {
  Match match;
  const std::vector<Segment> segments = SplitPath(path);
  const std::vector<TextField>* fields = &fields_;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const std::vector<Element> elements = ElementsOf(*fields, segments[i].name);
    const Element* element = Pick(elements, segments[i], text_);
    const bool last = i + 1 == segments.size();
    const bool list = last && !segments[i].index && !ElementsOf(*fields, segments[i].name).empty();
    if (element == nullptr) {
      // `dims: []` is there, though it has no element.
      const auto empty = std::find_if(fields->begin(), fields->end(),
                                      [&](const TextField& field) { return field.name == segments[i].name; });
      if (last && !segments[i].index && empty != fields->end()) {
        match.found.push_back({&*empty, &*empty});
        return match;
      }
      match.missing.assign(segments.begin() + static_cast<std::ptrdiff_t>(i), segments.end());
      return match;
    }
    if (list) {
      for (const TextField& field : *fields) {
        if (field.name == segments[i].name) match.found.push_back({&field, &field});
      }
      return match;
    }
    if (last) {
      match.found.push_back(*element);
      match.indexed = true;
      return match;
    }
    match.around = element->value;
    if (KeyOf(*element->value, text_)) {
      if (const TextField* value = ChildOf(*element->value, "value"); value != nullptr) match.around = value;
    }
    fields = &match.around->children;
  }
  return match;
}

std::size_t ConfigPlaces::OffsetOf(std::string_view path) const {
  const Match match = Resolve(path);
  if (!match.found.empty()) return PointOf(*match.found.front().value);
  return match.around == nullptr ? 0 : match.around->begin;
}

std::string ConfigPlaces::PathAt(std::size_t offset) const {
  std::string path;
  const std::vector<TextField>* fields = &fields_;
  const Descriptor* type = inference::ModelConfig::descriptor();
  for (;;) {
    const auto hit = std::find_if(fields->begin(), fields->end(),
                                  [&](const TextField& field) { return field.begin <= offset && offset < field.end; });
    if (hit == fields->end()) return path;
    int index = 0;  // values of that name before it
    for (auto it = fields->begin(); it != hit; ++it) {
      if (it->name != hit->name) continue;
      index += it->kind == TextField::Kind::kList ? static_cast<int>(it->children.size()) : 1;
    }
    path += (path.empty() ? "" : ".") + hit->name;
    const TextField* inside = &*hit;
    if (hit->kind == TextField::Kind::kList) {
      const auto item = std::find_if(hit->children.begin(), hit->children.end(), [&](const TextField& candidate) {
        return candidate.begin <= offset && offset < candidate.end;
      });
      if (item == hit->children.end()) return path;  // between the elements
      index += static_cast<int>(item - hit->children.begin());
      inside = &*item;
    }
    const FieldDescriptor* known = type == nullptr ? nullptr : type->FindFieldByName(hit->name);
    type = known == nullptr ? nullptr : known->message_type();
    const std::optional<std::string> key = KeyOf(*inside, text_);
    if (known != nullptr && known->is_map() && key) {
      path += fmt::format("[{}]", *key);
      const TextField* value = ChildOf(*inside, "value");
      type = known->message_type()->map_value()->message_type();
      if (value == nullptr || offset < value->begin || offset >= value->end) return path;
      inside = value;
    } else if (known != nullptr ? known->is_repeated() : index > 0) {
      path += fmt::format("[{}]", index);
    }
    fields = &inside->children;
  }
}

TextEdit ConfigPlaces::Insertion(const TextField* message, std::string_view field_text) const {
  if (message == nullptr) {
    const bool open = !text_.empty() && text_.back() != '\n';
    return {text_.size(), text_.size(), fmt::format("{}{}\n", open ? "\n" : "", field_text)};
  }
  const std::size_t close = message->end - 1;  // of the brace
  const std::string_view inside = text_.substr(message->value_begin, close - message->value_begin);
  if (inside.find('\n') == std::string_view::npos) {
    const bool blank = close > 0 && IsBlank(text_[close - 1]);
    return {close, close, fmt::format("{}{} ", blank ? "" : " ", field_text)};
  }
  const std::string indent = message->children.empty() ? IndentOf(text_, message->begin) + "  "
                                                       : IndentOf(text_, message->children.back().begin);
  std::size_t at = close;
  while (at > 0 && IsBlank(text_[at - 1])) --at;
  if (at > 0 && text_[at - 1] == '\n') return {at, at, fmt::format("{}{}\n", indent, field_text)};
  return {close, close, fmt::format("\n{}{}\n{}", indent, field_text, IndentOf(text_, message->begin))};
}

void ConfigPlaces::AddEdits(const Finding& finding, std::vector<TextEdit>& edits) const {
  const Match match = Resolve(finding.field);
  switch (finding.repair) {
    case Repair::kNone:
      return;
    case Repair::kRename:
      if (match.found.empty()) return;
      edits.push_back({match.found.front().field->begin,
                       match.found.front().field->begin + match.found.front().field->name.size(), finding.fix});
      return;
    case Repair::kRemove:
      for (const Element& element : match.found) {
        edits.push_back(element.field == element.value ? Removal(text_, element.field->begin, element.field->end)
                                                       : ElementRemoval(text_, *element.field, *element.value));
      }
      return;
    case Repair::kInsert: {
      const bool direct = match.missing.size() <= 1;
      if (direct) edits.push_back(Insertion(match.around, finding.fix));
      return;
    }
    case Repair::kSet:
      break;
  }
  if (!match.found.empty()) {
    edits.push_back({match.found.front().value->value_begin, match.found.front().value->end, finding.fix});
    for (std::size_t i = 1; i < match.found.size(); ++i) {
      edits.push_back(Removal(text_, match.found[i].field->begin, match.found[i].field->end));
    }
    return;
  }
  std::string text = finding.fix;
  for (auto it = match.missing.rbegin(); it != match.missing.rend(); ++it) {
    if (it->index) return;
    text = it == match.missing.rbegin() ? FieldText(it->name, text) : fmt::format("{} {{ {} }}", it->name, text);
  }
  edits.push_back(Insertion(match.around, text));
}

std::vector<TextEdit> ConfigPlaces::EditsFor(const std::vector<Finding>& findings) const {
  std::vector<TextEdit> edits;
  for (const Finding& finding : findings) {
    std::vector<TextEdit> wanted;
    AddEdits(finding, wanted);
    const bool free = std::none_of(wanted.begin(), wanted.end(), [&](const TextEdit& edit) {
      return std::any_of(edits.begin(), edits.end(), [&](const TextEdit& other) {
        const bool same = edit.begin == other.begin && edit.end == other.end && edit.text == other.text;
        return same || (edit.begin < other.end && other.begin < edit.end);
      });
    });
    if (free) edits.insert(edits.end(), wanted.begin(), wanted.end());
  }
  std::stable_sort(edits.begin(), edits.end(), [](const TextEdit& a, const TextEdit& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  return edits;
}

std::string ApplyEdits(std::string_view text, const std::vector<TextEdit>& edits) {
  std::string out;
  std::size_t at = 0;
  for (const TextEdit& edit : edits) {
    out += text.substr(at, edit.begin - at);
    out += edit.text;
    at = edit.end;
  }
  return out + std::string(text.substr(at));
}

std::size_t OffsetBefore(const std::vector<TextEdit>& edits, std::size_t offset) {
  std::size_t before = 0;  // both texts agree up to here …
  std::size_t after = 0;   // … and here
  for (const TextEdit& edit : edits) {
    const std::size_t start = after + (edit.begin - before);
    if (offset < start) return before + (offset - after);
    if (offset < start + edit.text.size()) return edit.begin;
    before = edit.end;
    after = start + edit.text.size();
  }
  return before + (offset - after);
}

void LocateFindings(std::string_view text, std::string_view file, std::vector<Finding>* findings) {
  if (findings->empty()) return;
  const ConfigPlaces places(text);
  for (Finding& finding : *findings) {
    if (!finding.file.empty()) continue;
    const TextPosition at = PositionOf(text, places.OffsetOf(finding.field));
    finding.file = std::string(file);
    finding.line = at.line;
    finding.column = at.column;
  }
}

}  // namespace tidemark
