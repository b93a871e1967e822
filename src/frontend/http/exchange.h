#pragma once

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"
#include "frontend/event_loop.h"
#include "frontend/http/message.h"

namespace tidemark {

class HttpConnection;

// One request on its way to an answer: what the connection and the sender share. A connection uses the same one again
// when nobody else holds it.
class HttpExchange {
 public:
  HttpExchange(std::shared_ptr<LoopMailbox> mailbox, HttpConnection* connection)
      : mailbox_(std::move(mailbox)), connection_(connection) {}
  HttpExchange(const HttpExchange&) = delete;
  HttpExchange& operator=(const HttpExchange&) = delete;

 private:
  friend class HttpConnection;
  friend class ResponseSender;
  friend class ResponseStream;

  // A streamed answer on its way from its writer to the loop.
  struct Stream {
    std::string pending;     // framed, not yet taken by the loop
    std::size_t unsent = 0;  // taken, not yet handed to the kernel
    bool chunked = true;
    bool ended = false;  // nothing follows `pending`
    bool cut = false;    // the connection is to be closed as it stands
    bool woken = false;  // the loop is going to look
  };

  // Makes the loop look at `stream_`; at once on its own thread.
  static void WakeStream(std::shared_ptr<HttpExchange> exchange);

  const std::shared_ptr<LoopMailbox> mailbox_;  // last owner: see LoopMailbox

  // Of the loop's thread. Null once the connection is closed.
  HttpConnection* connection_;

  // Of the handler and whoever it gives them to, from Handle to Send; of the loop's thread otherwise.
  HttpRequest request_;
  std::string spare_;
  HttpResponse response_;  // on its way from another thread to the loop
  // The bytes that request_ has views into, when the connection died first.
  std::unique_ptr<char[]> kept_input_;

  mutable absl::Mutex mutex_;
  bool sent_ ABSL_GUARDED_BY(mutex_) = false;
  bool gone_ ABSL_GUARDED_BY(mutex_) = false;
  std::size_t stream_limit_ ABSL_GUARDED_BY(mutex_) = 0;  // HttpLimits::stream_bytes
  Stream stream_ ABSL_GUARDED_BY(mutex_);
  absl::AnyInvocable<void()> on_disconnect_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tidemark
