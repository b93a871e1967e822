#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/tensorrt/copy_helper.h"
#include "resource/gpu.h"

namespace tidemark {

// Moves tensors between pageable host memory and one GPU on one stream, through a ring of page-locked chunks: while one
// chunk goes over the bus the CPU fills (or empties) the next, large ones with two threads. Everything is taken in Create, on the instance's scope;
// one thread at a time.
class TrtCopier {
 private:
  struct Private {};  // only a member function can name it

 public:
  struct Options {
    std::size_t staging_bytes = 0;  // of the whole ring
    bool stage_in = true;           // false: the driver copies from pageable memory by itself
    bool stage_out = true;
  };
  static absl::StatusOr<std::unique_ptr<TrtCopier>> Create(Gpus& gpus, Scope& scope, DeviceId device,
                                                           cuda::Stream stream, const Options& options);
  TrtCopier(Private, Gpus& gpus, DeviceId device, cuda::Stream stream, const Options& options)
      : gpus_(gpus), device_(device), stream_(stream), options_(options) {}

  bool stages_out() const { return options_.stage_out; }

  // Puts the pieces, one behind the other, at `to`. The pieces must stay until the stream has come that far.
  absl::Status In(cuda::Pointer to, std::span<const std::span<const std::byte>> pieces);

  // Fetches what lies at `from` into the pieces; one without data is passed over (`skip` bytes of it are there on the
  // device all the same). Chunks are emptied by Drain, or when the ring is full.
  struct Piece {
    std::byte* to = nullptr;  // null: not wanted
    std::size_t bytes = 0;
    bool on_device = false;  // `to` is memory of the GPU: not a piece for Out
  };
  absl::Status Out(cuda::Pointer from, std::span<const Piece> pieces);
  // Waits for the copies of Out and puts the last chunks where they belong. Called after everything of one execution,
  // also when it failed.
  absl::Status Drain();

 private:
  // A chunk stays in the processor's cache between the copy by the CPU and that over the bus; many small copies over the
  // bus would cost more than they bring.
  static constexpr std::size_t kMostChunks = 8;
  static constexpr std::size_t kSmallChunkBytes = std::size_t{256} << 10;
  struct Part {
    std::byte* to = nullptr;
    std::size_t bytes = 0;
  };
  struct Chunk {
    std::byte* data = nullptr;
    cuda::Event event = nullptr;
    bool busy = false;        // a copy was put on the stream and not waited for
    std::vector<Part> parts;  // of Out: where its bytes go
  };

  // The next chunk of the ring, free.
  absl::StatusOr<Chunk*> Take();
  absl::Status Empty(Chunk& chunk);
  void Copy(std::byte* to, const std::byte* from, std::size_t bytes);
  absl::Status SendIn(Chunk& chunk, cuda::Pointer to, std::size_t bytes);

  Gpus& gpus_;
  const DeviceId device_;
  const cuda::Stream stream_;
  const Options options_;
  std::size_t chunk_bytes_ = 0;
  std::shared_ptr<CopyHelper> helper_;  // null: chunks are small; last owner: its thread's entry on the scope
  std::size_t chunk_count_ = 1;
  std::array<Chunk, kMostChunks> chunks_;
  std::size_t next_ = 0;
};

}  // namespace tidemark
