#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "frontend/http/compression.h"
#include "frontend/http/message.h"
#include "inference/model_info.h"
#include "inference/request.h"
#include "protocol/http_infer.h"
#include "resource/buffer_pool.h"

namespace tidemark {

class InferCallPool;

// One inference over HTTP, from the decoded request to the sent answer. Used again by later requests, with its memory.
struct InferCall {
  std::unique_ptr<InferenceRequest> request;
  ResponseSender sender;
  ContentCoding coding = ContentCoding::kIdentity;  // of the answer
  std::string_view binary_type;                     // HttpRequest::binary_type
  const ModelInfo* model = nullptr;                 // lives as long as the request's model handle
  BufferPool* buffers = nullptr;
  EncodedInfer encoded;
  std::shared_ptr<InferCallPool> home;  // where it goes back to; set while it is out

  // Encodes and sends the answer, drops the model handle and goes home. Any thread; what it does not do there, the
  // connection's loop does.
  static void Complete(std::unique_ptr<InferCall> call, std::unique_ptr<InferenceRequest> request);

 private:
  static void Finish(std::unique_ptr<InferCall> call, std::unique_ptr<InferenceRequest> request);
};

// Calls that are not in use. Thread-safe.
class InferCallPool {
 public:
  static std::unique_ptr<InferCall> Take(const std::shared_ptr<InferCallPool>& pool);
  // Clears the call and keeps it, or lets it go when enough are kept.
  static void GiveBack(std::unique_ptr<InferCall> call);

 private:
  static constexpr std::size_t kKept = 256;

  absl::Mutex mutex_;
  std::vector<std::unique_ptr<InferCall>> free_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tidemark
