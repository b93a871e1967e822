#include "audit/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

namespace tidemark::audit {
namespace {

// Cuts a UTF-8 text to at most `columns` code points.
std::string Cut(std::string_view text, std::size_t columns) {
  std::size_t points = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0) == 0x80) continue;
    if (points++ == columns) return std::string(text.substr(0, i));
  }
  return std::string(text);
}

}  // namespace

Progress::Progress(std::FILE* out, bool plain) : out_(out) {
  bar_ = out_ != nullptr && !plain && isatty(fileno(out_)) == 1;
}

void Progress::Step(std::string_view what) {
  ++done_;
  what_ = std::string(what);
  if (out_ == nullptr) return;
  if (bar_) {
    Draw();
  } else {
    fmt::print(out_, "{}\n", what);
    std::fflush(out_);
  }
}

void Progress::Line(std::string_view text) {
  if (out_ == nullptr) return;
  Clear();
  fmt::print(out_, "{}\n", text);
  std::fflush(out_);
  if (bar_ && done_ > 0) Draw();
}

void Progress::Clear() {
  if (!drawn_) return;
  fmt::print(out_, "\r\x1b[K");
  std::fflush(out_);
  drawn_ = false;
}

void Progress::Draw() {
  winsize size{};
  const std::size_t columns = ioctl(fileno(out_), TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col : 80;
  constexpr int kCells = 24;
  const int total = std::max(total_, done_);
  const int filled = kCells * done_ / std::max(total, 1);
  std::string bar;
  for (int i = 0; i < kCells; ++i) bar += i < filled ? "█" : "░";
  const std::string line = fmt::format("{} {:3}%  {}", bar, 100 * done_ / std::max(total, 1), what_);
  fmt::print(out_, "\r\x1b[K{}", Cut(line, columns - 1));
  std::fflush(out_);
  drawn_ = true;
}

}  // namespace tidemark::audit
