// Names and versions of models and files from a client: what is accepted stays below the folder it is looked up in, and
// what a path is taken apart into are pieces of that path.

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "frontend/http/route_match.h"
#include "frontend/model_queries.h"
#include "lifecycle/lifecycle.h"
#include "repository/model_repository.h"

namespace {

namespace fs = std::filesystem;

void Require(bool condition) {
  if (!condition) std::abort();
}

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\n\v\f\r";
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

void CheckRoute(std::string_view path) {
  const tidemark::RouteMatch match = tidemark::MatchRoute(path);
  for (const std::string_view part : {match.model, match.version, match.repository, match.region}) {
    Require(part.find('/') == std::string_view::npos);
    Require(part.empty() || (part.data() >= path.data() && part.data() + part.size() <= path.data() + path.size()));
  }
  Require(match.version.find_first_not_of("0123456789") == std::string_view::npos);
  const absl::StatusOr<std::int64_t> version = tidemark::ParseModelVersion(match.version);
  Require(!version.ok() || *version >= (match.version.empty() ? -1 : 0));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  CheckRoute(text);
  CheckRoute("/v2/models/" + text);
  CheckRoute("/v2/repository/models/" + text + "/load");
  CheckRoute("/v2/models/m/versions/" + text + "/infer");
  static_cast<void>(tidemark::ParseModelVersion(text));

  const fs::path root = "/srv/models";
  if (tidemark::ValidateLoadName(text).ok()) {
    const std::string name(Trim(text));
    Require((root / name).lexically_normal().parent_path() == root);
    Require(std::string(fs::path(name).c_str()) == name);  // no zero byte ends it early
  }
  tidemark::LoadOverrides overrides;
  overrides.config_json = "{}";
  overrides.files[text] = "";
  if (tidemark::ValidateOverridePaths(overrides).ok()) {
    const std::string below = (root / text).lexically_normal().string();
    Require(below.starts_with(root.string() + "/") && below.find('\0') == std::string::npos);
  }
  return 0;
}
