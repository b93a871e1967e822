#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace tidemark::audit {

// Tells how far an audit is: one bar that is drawn over on a terminal, plain lines elsewhere. Used by one thread.
class Progress {
 public:
  // Writes to `out`, which must outlive it; null: silent. The bar is chosen when `out` is a terminal and `plain` is
  // false.
  Progress(std::FILE* out, bool plain);
  ~Progress() { Clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void SetTotal(int steps) { total_ = steps; }
  // One step is done. `what` is shown beside the bar, or as a line.
  void Step(std::string_view what);
  // A line that stays, bar or not.
  void Line(std::string_view text);
  // Removes the bar.
  void Clear();

 private:
  void Draw();

  std::FILE* out_;
  bool bar_ = false;
  bool drawn_ = false;
  int done_ = 0;
  int total_ = 0;
  std::string what_;
};

}  // namespace tidemark::audit
