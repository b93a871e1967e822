#pragma once

#include <fmt/format.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>
#include <string_view>

namespace tidemark {

// A folder of its own for one test: repositories below it, and a temporary folder that TMPDIR is set to. Gone
// with it.
class TestFolder {
 public:
  TestFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "tm-test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
    std::filesystem::create_directory(path_ / "tmp");
    std::filesystem::create_directory(path_ / "repository");
    if (const char* before = getenv("TMPDIR"); before != nullptr) tmpdir_before_ = before;
    setenv("TMPDIR", (path_ / "tmp").c_str(), 1);
  }
  ~TestFolder() {
    if (tmpdir_before_.empty()) {
      unsetenv("TMPDIR");
    } else {
      setenv("TMPDIR", tmpdir_before_.c_str(), 1);
    }
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  std::filesystem::path repository() const { return path_ / "repository"; }
  std::filesystem::path tmp() const { return path_ / "tmp"; }
  const std::filesystem::path& path() const { return path_; }

  // A new file, moved into its place: whoever looks meanwhile sees the old one or the whole new one, and the new one has
  // another inode, so that it is noticed although the clock of the file system may not have moved since the last one.
  static void Write(const std::filesystem::path& file, std::string_view text) {
    std::filesystem::create_directories(file.parent_path());
    const std::filesystem::path draft = file.parent_path() / fmt::format(".{}.draft", file.filename().string());
    std::ofstream(draft, std::ios::binary) << text;
    std::filesystem::rename(draft, file);
  }

  // A model with this config.pbtxt and these versions, each holding one file (Triton wants a version not to
  // be empty for most engines; the fake engine maps it).
  void AddModel(std::string_view name, std::string_view config, std::initializer_list<int> versions = {1},
                std::string_view file = "model.fake", std::string_view contents = "weights") {
    const std::filesystem::path model = repository() / std::string(name);
    std::filesystem::create_directories(model);
    Write(model / "config.pbtxt", config);
    for (const int version : versions) Write(model / fmt::format("{}", version) / std::string(file), contents);
  }
  void RemoveModel(std::string_view name) { std::filesystem::remove_all(repository() / std::string(name)); }

 private:
  std::filesystem::path path_;
  std::string tmpdir_before_;
};

// config.pbtxt of a model that copies INPUT0 (4 x FP32) to OUTPUT0.
inline std::string CopyConfig(std::string_view backend, int instances = 1, std::string_view more = "") {
  return fmt::format(
      "backend: \"{}\"\ninput {{ name: \"INPUT0\" data_type: TYPE_FP32 dims: [ 4 ] }}\n"
      "output {{ name: \"OUTPUT0\" data_type: TYPE_FP32 dims: [ 4 ] }}\n"
      "instance_group {{ kind: KIND_CPU count: {} }}\n{}\n",
      backend, instances, more);
}

}  // namespace tidemark
