#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "frontend/file_stamp.h"
#include "frontend/socket.h"

// Bytes over a connection, plain or TLS, for event loops: what HTTP/1.1 and HTTP/2 connections read from and write to.

// OpenSSL's own types, so that its headers stay in one file.
struct bio_method_st;
struct ssl_ctx_st;
struct ssl_st;

namespace tidemark {

struct TlsOptions {
  std::string certificate_path;   // PEM: the server's certificate, then its chain
  std::string key_path;           // PEM, not encrypted
  std::string root_path;          // PEM: whose client certificates are accepted; needed with `mutual`
  bool mutual = false;            // clients must have a certificate
  std::vector<std::string> alpn;  // what this server speaks, best first: "h2" or "http/1.1". Clients without ALPN pass
  std::chrono::milliseconds handshake_timeout{10'000};  // for whoever drives the handshake
};

// Certificates and settings of one listening service: TLS 1.2 with forward secrecy and TLS 1.3, no renegotiation, no
// compression, no early data. Outlives the transports. Thread-safe.
class TlsContext {
 private:
  struct Private {};  // only Create can name it

 public:
  // INVALID_ARGUMENT when a file cannot be read or used, or certificate and key do not belong together; the text names
  // the file and OpenSSL's reason.
  static absl::StatusOr<std::unique_ptr<TlsContext>> Create(TlsOptions options);
  TlsContext(Private, TlsOptions options);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  // Reads the files again, for connections from now on; those there are keep what they have. On an error (the same as
  // Create's) everything stays as it is. Reads disks: not on an event loop.
  absl::Status Reload();
  // True when a file is another one than at the last Create or Reload, even a failed one.
  bool FilesChanged() const;

  const TlsOptions& options() const { return options_; }

 private:
  friend class Transport;
  using Stamps = std::array<FileStamp, 3>;
  struct MethodDeleter {
    void operator()(bio_method_st* method) const;
  };

  absl::StatusOr<std::shared_ptr<ssl_ctx_st>> Build() const;
  Stamps StampFiles() const;
  std::shared_ptr<ssl_ctx_st> context() const;

  const TlsOptions options_;
  std::string alpn_;  // in the form of the wire
  std::unique_ptr<bio_method_st, MethodDeleter> method_;
  mutable absl::Mutex mutex_;
  std::shared_ptr<ssl_ctx_st> context_ ABSL_GUARDED_BY(mutex_);  // last owner: this, or OpenSSL's own counts
  Stamps stamps_ ABSL_GUARDED_BY(mutex_) = {};
};

// Owns a non-blocking stream socket and, when TLS was started on it, the session. Used by one thread (its loop's).
//
// A plain transport makes exactly one recv/readv/sendmsg a call. With edge-triggered epoll: register for EPOLLIN,
// EPOLLOUT and EPOLLRDHUP, and after any event first drive the handshake until it is done, then read and write as far as
// it goes; a read may become possible by EPOLLOUT, too (MayRead).
//
// Legal order with TLS: StartTls - Handshake until kDone - Read, Write - ShutdownWrite - destruction. Write may also come
// first (to refuse a client): it drives the handshake itself.
class Transport {
 public:
  enum class Handshake { kDone, kWait, kFailed };
  struct ReadResult {
    ssize_t bytes;  // > 0; 0: the end; -1: see errno, EAGAIN when there is nothing now
    bool drained;   // the socket had no more: the next event tells of more
  };

  explicit Transport(UniqueFd fd) : fd_(std::move(fd)) {}
  Transport(Transport&&) noexcept = default;
  Transport& operator=(Transport&&) noexcept = default;

  int fd() const { return fd_.get(); }
  bool secure() const { return tls_ != nullptr; }

  // Makes a server's end of TLS of it, before anything else. RESOURCE_EXHAUSTED when there is no memory.
  absl::Status StartTls(const TlsContext& context);
  // False for a plain transport.
  bool handshaking() const { return tls_ != nullptr && !tls_->established; }
  // One step. Bound the whole by options().handshake_timeout. After kFailed only destruction is left; kDone may have
  // bytes to Read already, without any further event.
  Handshake DoHandshake();
  // What ALPN chose; empty without ALPN.
  std::string_view alpn() const;

  // Fills `parts`, in order, as far as there are bytes; never blocks. An end without TLS's goodbye is an end.
  ReadResult Read(std::span<const iovec> parts) { return tls_ == nullptr ? ReadPlain(parts) : ReadTls(parts); }
  // Writes a beginning of `parts`: the number of bytes, or -1 with errno (EAGAIN: not now; the next call must begin
  // with the same bytes and have at least as many of them). At most 1024 parts.
  ssize_t Write(std::span<const iovec> parts) { return tls_ == nullptr ? WritePlain(parts) : WriteTls(parts); }
  // Whether a read can have become possible by these events of epoll.
  bool MayRead(std::uint32_t events) const;

  // Says goodbye (TLS) and ends the sending side.
  void ShutdownWrite();
  // Says goodbye (TLS), as far as the socket takes it, and closes the socket.
  void Close();

 private:
  struct TlsDeleter {
    void operator()(ssl_st* ssl) const;
  };
  struct Tls {
    std::unique_ptr<ssl_st, TlsDeleter> ssl;
    bool established = false;
    bool broken = false;            // nothing more can be sent
    bool read_wants_write = false;  // a read waits for room to send
    int fd = -1;
  };
  friend class TlsContext;

  ReadResult ReadPlain(std::span<const iovec> parts);
  ReadResult ReadTls(std::span<const iovec> parts);
  ssize_t WritePlain(std::span<const iovec> parts);
  ssize_t WriteTls(std::span<const iovec> parts);
  ssize_t WriteRecord(std::span<const iovec> parts, std::size_t part, std::size_t offset);
  // errno for a failed call of OpenSSL that returned `result`; 0 for an end.
  int ErrnoOf(int result, bool reading);
  void SayGoodbye();

  UniqueFd fd_;
  std::unique_ptr<Tls> tls_;  // null: plain
};

}  // namespace tidemark
