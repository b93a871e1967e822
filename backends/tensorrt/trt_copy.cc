#include "backends/tensorrt/trt_copy.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/status.h"

namespace tidemark {

absl::StatusOr<std::unique_ptr<TrtCopier>> TrtCopier::Create(Gpus& gpus, Scope& scope, DeviceId device,
                                                             cuda::Stream stream, const Options& options) {
  auto copier = std::make_unique<TrtCopier>(Private(), gpus, device, stream, options);
  if (!options.stage_in && !options.stage_out) return copier;
  constexpr std::size_t kPage = 4096;
  const std::size_t chunks = std::clamp<std::size_t>(options.staging_bytes / kSmallChunkBytes, 2, kMostChunks);
  copier->chunk_count_ = chunks;
  copier->chunk_bytes_ = (options.staging_bytes / chunks + kPage - 1) / kPage * kPage;
  ASSIGN_OR_RETURN(const PinnedMemory ring,
                   gpus.AllocatePinned(scope, device, copier->chunk_bytes_ * chunks, "staging"));
  for (std::size_t i = 0; i < chunks; ++i) {
    Chunk& chunk = copier->chunks_[i];
    chunk.data = ring.data + i * copier->chunk_bytes_;
    chunk.parts.reserve(16);
    ASSIGN_OR_RETURN(const GpuEvent event, gpus.CreateEvent(scope, device, /*blocking=*/false, "copy event"));
    chunk.event = event.event;
  }
  if (copier->chunk_bytes_ >= 2 * kSmallChunkBytes) {
    ASSIGN_OR_RETURN(copier->helper_, CopyHelper::Create(scope));
  }
  return copier;
}

void TrtCopier::Copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (helper_ != nullptr) return helper_->Copy(to, from, bytes);
  if (bytes > 0) std::memcpy(to, from, bytes);
}

absl::StatusOr<TrtCopier::Chunk*> TrtCopier::Take() {
  Chunk& chunk = chunks_[next_];
  next_ = (next_ + 1) % chunk_count_;
  RETURN_IF_ERROR(Empty(chunk));
  return &chunk;
}

absl::Status TrtCopier::Empty(Chunk& chunk) {
  if (!chunk.busy) return absl::OkStatus();
  chunk.busy = false;
  const absl::Status status = gpus_.Check(device_, gpus_.api().synchronize_event(chunk.event), "wait for a copy");
  const std::byte* from = chunk.data;
  for (const Part& part : chunk.parts) {
    if (status.ok() && part.to != nullptr) Copy(part.to, from, part.bytes);
    from += part.bytes;
  }
  chunk.parts.clear();
  return status;
}

absl::Status TrtCopier::SendIn(Chunk& chunk, cuda::Pointer to, std::size_t bytes) {
  RETURN_IF_ERROR(gpus_.Check(device_, gpus_.api().copy_to_device(to, chunk.data, bytes, stream_), "copy an input"));
  chunk.busy = true;
  return gpus_.Check(device_, gpus_.api().record_event(chunk.event, stream_), "record an event");
}

absl::Status TrtCopier::In(cuda::Pointer to, std::span<const std::span<const std::byte>> pieces) {
  if (!options_.stage_in) {
    for (const std::span<const std::byte>& piece : pieces) {
      if (piece.empty()) continue;
      RETURN_IF_ERROR(
          gpus_.Check(device_, gpus_.api().copy_to_device(to, piece.data(), piece.size(), stream_), "copy an input"));
      to += piece.size();
    }
    return absl::OkStatus();
  }
  Chunk* chunk = nullptr;
  std::size_t used = 0;
  for (std::span<const std::byte> piece : pieces) {
    while (!piece.empty()) {
      if (chunk == nullptr) {
        ASSIGN_OR_RETURN(chunk, Take());
        used = 0;
      }
      const std::size_t bytes = std::min(piece.size(), chunk_bytes_ - used);
      Copy(chunk->data + used, piece.data(), bytes);
      piece = piece.subspan(bytes);
      used += bytes;
      if (used < chunk_bytes_) continue;
      RETURN_IF_ERROR(SendIn(*chunk, to, used));
      to += used;
      chunk = nullptr;
    }
  }
  return chunk == nullptr ? absl::OkStatus() : SendIn(*chunk, to, used);
}

absl::Status TrtCopier::Out(cuda::Pointer from, std::span<const Piece> pieces) {
  if (!options_.stage_out) {
    for (const Piece& piece : pieces) {
      if (piece.to != nullptr && piece.bytes != 0) {
        RETURN_IF_ERROR(
            gpus_.Check(device_, gpus_.api().copy_to_host(piece.to, from, piece.bytes, stream_), "copy an output"));
      }
      from += piece.bytes;
    }
    return absl::OkStatus();
  }
  std::size_t total = 0;
  for (const Piece& piece : pieces) total += piece.bytes;
  std::size_t index = 0;
  std::size_t offset = 0;  // within pieces[index]
  while (total > 0) {
    ASSIGN_OR_RETURN(Chunk* const chunk, Take());
    const std::size_t bytes = std::min(total, chunk_bytes_);
    for (std::size_t filled = 0; filled < bytes;) {
      const Piece& piece = pieces[index];
      const std::size_t part = std::min(piece.bytes - offset, bytes - filled);
      if (part > 0) chunk->parts.push_back({piece.to == nullptr ? nullptr : piece.to + offset, part});
      filled += part;
      offset += part;
      if (offset == piece.bytes) {
        ++index;
        offset = 0;
      }
    }
    if (absl::Status status =
            gpus_.Check(device_, gpus_.api().copy_to_host(chunk->data, from, bytes, stream_), "copy an output");
        !status.ok()) {
      chunk->parts.clear();
      return status;
    }
    chunk->busy = true;
    RETURN_IF_ERROR(gpus_.Check(device_, gpus_.api().record_event(chunk->event, stream_), "record an event"));
    from += bytes;
    total -= bytes;
  }
  return absl::OkStatus();
}

absl::Status TrtCopier::Drain() {
  absl::Status status;
  for (std::size_t i = 0; i < chunk_count_; ++i) {
    // From the oldest on, so that the bus works while the CPU copies.
    const absl::Status emptied = Empty(chunks_[(next_ + i) % chunk_count_]);
    if (status.ok()) status = emptied;
  }
  return status;
}

}  // namespace tidemark
