#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "repository/model_directory.h"

namespace tidemark {
namespace fs = std::filesystem;
namespace {

constexpr int kMaxDepth = 32;

// FNV-1a, 64 bits.
class Digest {
 public:
  void Add(std::string_view bytes) {
    for (const char c : bytes) AddByte(static_cast<unsigned char>(c));
    AddByte(0xFF);  // ends a name: never part of UTF-8
  }
  void Add(std::uint64_t number) {
    for (int i = 0; i < 8; ++i) AddByte(static_cast<unsigned char>(number >> (8 * i)));
  }
  std::uint64_t value() const { return value_; }

 private:
  void AddByte(unsigned char byte) { value_ = (value_ ^ byte) * 0x100000001B3ULL; }

  std::uint64_t value_ = 0xCBF29CE484222325ULL;
};

std::uint64_t Nanoseconds(const timespec& time) {
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000ULL + static_cast<std::uint64_t>(time.tv_nsec);
}

using DirectoryId = std::pair<std::uint64_t, std::uint64_t>;  // device, inode

std::vector<std::string> NamesIn(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(directory, error); !error && it != fs::directory_iterator(); it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Adds what can be seen of `path` and of all below it. `above` are the directories on the way here: a
// symbolic link back to one of them is not followed. What vanishes meanwhile counts as absent.
void AddTree(const fs::path& path, std::string_view name, std::set<DirectoryId>* above, Digest* digest) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return;
  digest->Add(name);
  digest->Add(static_cast<std::uint64_t>(info.st_mode & S_IFMT));
  digest->Add(static_cast<std::uint64_t>(info.st_ino));
  if (!S_ISDIR(info.st_mode)) {
    // A directory's own times change with every file that comes or goes; its list of names says so already.
    digest->Add(Nanoseconds(info.st_mtim));
    digest->Add(Nanoseconds(info.st_ctim));
    digest->Add(static_cast<std::uint64_t>(info.st_size));
    return;
  }
  const DirectoryId id{info.st_dev, info.st_ino};
  if (above->size() >= kMaxDepth || !above->insert(id).second) return;
  for (const std::string& inner : NamesIn(path)) AddTree(path / inner, inner, above, digest);
  above->erase(id);
  digest->Add("..");
}

bool IsVersionName(std::string_view name, std::int64_t* version) {
  if (name.size() > 1 && name.front() == '0') return false;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), *version);
  return error == std::errc() && end == name.data() + name.size() && *version >= 0;
}

}  // namespace

bool ModelStamp::SameVersionFiles(const ModelStamp& other, std::int64_t version) const {
  const auto ours = versions.find(version);
  const auto theirs = other.versions.find(version);
  return shared == other.shared && ours != versions.end() && theirs != other.versions.end() &&
         ours->second == theirs->second;
}

ModelStamp StampOf(const fs::path& directory) {
  ModelStamp stamp;
  Digest config;
  Digest shared;
  for (const std::string& name : NamesIn(directory)) {
    std::set<DirectoryId> above;
    std::int64_t version = 0;
    if (name == "config.pbtxt" || name == "configs") {
      AddTree(directory / name, name, &above, &config);
    } else if (std::error_code error; IsVersionName(name, &version) && fs::is_directory(directory / name, error)) {
      Digest digest;
      AddTree(directory / name, name, &above, &digest);
      stamp.versions[version] = digest.value();
    } else {
      AddTree(directory / name, name, &above, &shared);
    }
  }
  stamp.config = config.value();
  stamp.shared = shared.value();
  return stamp;
}

}  // namespace tidemark
