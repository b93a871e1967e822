#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>

namespace tidemark {

// What tells that a file was replaced or written: compared, not read. A file that is missing has a stamp of its own.
// Symbolic links are followed, so that a mounted Kubernetes secret changes with its target.
struct FileStamp {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::int64_t size = -1;
  std::int64_t seconds = 0;
  std::int64_t nanos = 0;

  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};

inline FileStamp StampOf(const std::string& path) {
  struct stat status {};
  if (path.empty() || stat(path.c_str(), &status) != 0) return {};
  return {status.st_dev, status.st_ino, status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
}

}  // namespace tidemark
