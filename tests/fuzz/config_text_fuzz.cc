#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "repository/config_normalize.h"
#include "repository/config_text.h"
#include "repository/config_validate.h"

// Arbitrary bytes as config.pbtxt and as a configuration override: parsing, completion and validation must
// end without a crash, and what was accepted must come back the same from its own JSON form.

namespace {

void Check(bool ok, const char* claim) {
  if (ok) return;
  std::fprintf(stderr, "broken claim: %s\n", claim);
  std::abort();
}

void Exercise(inference::ModelConfig config) {
  const tidemark::VersionListing listing{.files = {"model.onnx"}, .directories = {}};
  const absl::Status completed = tidemark::CompleteBackendFields("m", listing, &config);
  tidemark::NormalizeConfig(&config);
  const std::string once = config.SerializeAsString();
  tidemark::NormalizeConfig(&config);
  Check(config.SerializeAsString().size() == once.size(), "normalising twice changes nothing");
  (void)tidemark::ValidateConfig(config);
  (void)tidemark::ValidateModelIo(config);
  tidemark::NormalizeInstanceGroups({}, &config);
  (void)tidemark::ValidateInstanceGroups(config, {});
  (void)tidemark::ValidateWarmup(config);

  const std::string json = tidemark::ConfigJson(config);
  const auto again = tidemark::ParseConfigJson(json);
  Check(again.ok(), "the JSON form of an accepted configuration is accepted");
  Check(tidemark::ConfigJson(*again) == json, "the JSON form is stable");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 65536) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto config = tidemark::ParseConfigText(text, "config.pbtxt"); config.ok()) Exercise(*config);
  if (const auto config = tidemark::ParseConfigJson(text); config.ok()) Exercise(*config);
  return 0;
}
