#include "frontend/tls.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "base/status.h"

namespace tidemark {
namespace {

constexpr std::size_t kRecordBytes = 16 * 1024;  // most of one TLS record
constexpr long kLongestPeerChain = 64 * 1024;    // bytes of a client's certificates
constexpr std::size_t kMostOfOneWrite = 256 * 1024;

// The reason of the oldest error in OpenSSL's queue of this thread; the queue is empty afterwards.
std::string TakeReason() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  if (reason != nullptr) return reason;
  if (code != 0 && ERR_SYSTEM_ERROR(code)) return ErrnoText(ERR_GET_REASON(code));
  return code == 0 ? "no reason given" : fmt::format("OpenSSL error {:#x}", code);
}

absl::Status FileError(std::string_view what, const std::string& path) {
  return absl::InvalidArgumentError(fmt::format("TLS: cannot use {} '{}': {}", what, path, TakeReason()));
}

// The socket as OpenSSL sees it. Its own kind of BIO writes with write(), which raises SIGPIPE.
int BioRead(BIO* bio, char* data, int size) {
  BIO_clear_retry_flags(bio);
  ssize_t got = 0;
  do {
    got = recv(*static_cast<int*>(BIO_get_data(bio)), data, static_cast<std::size_t>(size), 0);
  } while (got < 0 && errno == EINTR);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) BIO_set_retry_read(bio);
  return static_cast<int>(got);
}

int BioWrite(BIO* bio, const char* data, int size) {
  BIO_clear_retry_flags(bio);
  ssize_t sent = 0;
  do {
    sent = send(*static_cast<int*>(BIO_get_data(bio)), data, static_cast<std::size_t>(size), MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

long BioControl(BIO* /*bio*/, int command, long /*number*/, void* /*pointer*/) {
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

int ChooseAlpn(SSL* /*ssl*/, const unsigned char** out, unsigned char* out_size, const unsigned char* offered,
               unsigned int offered_size, void* argument) {
  const auto& ours = *static_cast<const std::string*>(argument);
  unsigned char* chosen = nullptr;
  const int result = SSL_select_next_proto(&chosen, out_size, reinterpret_cast<const unsigned char*>(ours.data()),
                                           static_cast<unsigned int>(ours.size()), offered, offered_size);
  if (result != OPENSSL_NPN_NEGOTIATED) return SSL_TLSEXT_ERR_ALERT_FATAL;
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

}  // namespace

void TlsContext::MethodDeleter::operator()(bio_method_st* method) const { BIO_meth_free(method); }

TlsContext::TlsContext(Private /*only Create*/, TlsOptions options) : options_(std::move(options)) {
  for (const std::string& name : options_.alpn) {
    alpn_ += static_cast<char>(name.size());
    alpn_ += name;
  }
}

TlsContext::~TlsContext() = default;

absl::StatusOr<std::unique_ptr<TlsContext>> TlsContext::Create(TlsOptions options) {
  if (options.certificate_path.empty() || options.key_path.empty()) {
    return absl::InvalidArgumentError("TLS needs a certificate and its key");
  }
  if (options.mutual && options.root_path.empty()) {
    return absl::InvalidArgumentError("mutual TLS needs the root certificates of its clients");
  }
  auto tls = std::make_unique<TlsContext>(Private(), std::move(options));
  tls->method_.reset(BIO_meth_new(BIO_TYPE_SOURCE_SINK, "tidemark socket"));
  if (tls->method_ == nullptr) return absl::ResourceExhaustedError("TLS: no memory");
  BIO_meth_set_read(tls->method_.get(), &BioRead);
  BIO_meth_set_write(tls->method_.get(), &BioWrite);
  BIO_meth_set_ctrl(tls->method_.get(), &BioControl);
  RETURN_IF_ERROR(tls->Reload());
  return tls;
}

absl::StatusOr<std::shared_ptr<ssl_ctx_st>> TlsContext::Build() const {
  ERR_clear_error();
  const std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_server_method()), &SSL_CTX_free);
  if (context == nullptr) return absl::ResourceExhaustedError(fmt::format("TLS: {}", TakeReason()));
  SSL_CTX* const ctx = context.get();
  SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
  SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE |
                               SSL_OP_PRIORITIZE_CHACHA | SSL_OP_IGNORE_UNEXPECTED_EOF);
  // Idle connections keep no buffers; a write that waits may be tried again from other memory.
  SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_read_ahead(ctx, 1);
  SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);  // sessions live in the clients' tickets
  static constexpr unsigned char kSession[] = "tidemark";
  SSL_CTX_set_session_id_context(ctx, kSession, sizeof(kSession) - 1);
  SSL_CTX_set_max_cert_list(ctx, kLongestPeerChain);
  if (SSL_CTX_set_cipher_list(ctx, "ECDHE+AESGCM:ECDHE+CHACHA20") != 1) {
    return absl::InternalError(fmt::format("TLS: no cipher suites: {}", TakeReason()));
  }
  if (SSL_CTX_use_certificate_chain_file(ctx, options_.certificate_path.c_str()) != 1) {
    return FileError("certificate", options_.certificate_path);
  }
  // An encrypted key would ask on the terminal.
  SSL_CTX_set_default_passwd_cb(ctx, [](char*, int, int, void*) { return 0; });
  if (SSL_CTX_use_PrivateKey_file(ctx, options_.key_path.c_str(), SSL_FILETYPE_PEM) != 1) {
    return FileError("key", options_.key_path);
  }
  if (SSL_CTX_check_private_key(ctx) != 1) {
    return absl::InvalidArgumentError(fmt::format("TLS: certificate '{}' and key '{}' do not belong together: {}",
                                                  options_.certificate_path, options_.key_path, TakeReason()));
  }
  if (options_.mutual) {
    STACK_OF(X509_NAME)* const names = SSL_load_client_CA_file(options_.root_path.c_str());
    if (names == nullptr || SSL_CTX_load_verify_file(ctx, options_.root_path.c_str()) != 1) {
      sk_X509_NAME_pop_free(names, &X509_NAME_free);
      return FileError("root certificates", options_.root_path);
    }
    SSL_CTX_set_client_CA_list(ctx, names);  // takes them
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  }
  if (!alpn_.empty()) SSL_CTX_set_alpn_select_cb(ctx, &ChooseAlpn, const_cast<std::string*>(&alpn_));
  return context;
}

TlsContext::Stamps TlsContext::StampFiles() const {
  return {StampOf(options_.certificate_path), StampOf(options_.key_path), StampOf(options_.root_path)};
}

absl::Status TlsContext::Reload() {
  const Stamps stamps = StampFiles();  // before reading: what changes meanwhile is seen next time
  absl::StatusOr<std::shared_ptr<ssl_ctx_st>> context = Build();
  absl::MutexLock lock(&mutex_);
  stamps_ = stamps;
  RETURN_IF_ERROR(context.status());
  context_ = *std::move(context);
  return absl::OkStatus();
}

bool TlsContext::FilesChanged() const {
  const Stamps now = StampFiles();
  absl::MutexLock lock(&mutex_);
  return now != stamps_;
}

std::shared_ptr<ssl_ctx_st> TlsContext::context() const {
  absl::MutexLock lock(&mutex_);
  return context_;
}

void Transport::TlsDeleter::operator()(ssl_st* ssl) const { SSL_free(ssl); }

absl::Status Transport::StartTls(const TlsContext& context) {
  ERR_clear_error();
  auto tls = std::make_unique<Tls>();
  tls->fd = fd_.get();
  const std::shared_ptr<SSL_CTX> ctx = context.context();
  tls->ssl.reset(SSL_new(ctx.get()));
  BIO* const bio = tls->ssl == nullptr ? nullptr : BIO_new(context.method_.get());
  if (bio == nullptr) return absl::ResourceExhaustedError(fmt::format("TLS: no memory: {}", TakeReason()));
  BIO_set_data(bio, &tls->fd);
  BIO_set_init(bio, 1);
  SSL_set_bio(tls->ssl.get(), bio, bio);  // takes it
  SSL_set_accept_state(tls->ssl.get());
  tls_ = std::move(tls);
  return absl::OkStatus();
}

Transport::Handshake Transport::DoHandshake() {
  if (!handshaking()) return Handshake::kDone;
  ERR_clear_error();
  errno = 0;
  const int result = SSL_do_handshake(tls_->ssl.get());
  if (result == 1) {
    tls_->established = true;
    return Handshake::kDone;
  }
  return ErrnoOf(result, /*reading=*/false) == EAGAIN ? Handshake::kWait : Handshake::kFailed;
}

std::string_view Transport::alpn() const {
  if (tls_ == nullptr) return {};
  const unsigned char* name = nullptr;
  unsigned int size = 0;
  SSL_get0_alpn_selected(tls_->ssl.get(), &name, &size);
  return {reinterpret_cast<const char*>(name), size};
}

bool Transport::MayRead(std::uint32_t events) const {
  std::uint32_t wanted = EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR;
  if (tls_ != nullptr && tls_->read_wants_write) wanted |= EPOLLOUT;
  return (events & wanted) != 0;
}

int Transport::ErrnoOf(int result, bool reading) {
  const int system_error = errno;
  switch (SSL_get_error(tls_->ssl.get(), result)) {
    case SSL_ERROR_WANT_WRITE:
      if (reading) tls_->read_wants_write = true;
      return EAGAIN;
    case SSL_ERROR_WANT_READ:
      return EAGAIN;
    case SSL_ERROR_ZERO_RETURN:
      return 0;
    case SSL_ERROR_SYSCALL:
      if (reading && system_error == 0) return 0;
      tls_->broken = true;
      return system_error == 0 || system_error == EAGAIN ? ECONNRESET : system_error;
    default:
      tls_->broken = true;
      ERR_clear_error();
      return EPROTO;
  }
}

Transport::ReadResult Transport::ReadPlain(std::span<const iovec> parts) {
  ssize_t got = 0;
  std::size_t wanted = 0;
  for (const iovec& part : parts) wanted += part.iov_len;
  do {
    got = parts.size() == 1 ? recv(fd_.get(), parts[0].iov_base, parts[0].iov_len, 0)
                            : readv(fd_.get(), parts.data(), static_cast<int>(parts.size()));
  } while (got < 0 && errno == EINTR);
  return {got, got > 0 && static_cast<std::size_t>(got) < wanted};
}

Transport::ReadResult Transport::ReadTls(std::span<const iovec> parts) {
  if (tls_->broken) {
    errno = EPROTO;
    return {-1, false};
  }
  tls_->read_wants_write = false;
  std::size_t total = 0;
  for (const iovec& part : parts) {
    for (std::size_t offset = 0; offset < part.iov_len;) {
      ERR_clear_error();
      errno = 0;
      std::size_t got = 0;
      const int result =
          SSL_read_ex(tls_->ssl.get(), static_cast<char*>(part.iov_base) + offset, part.iov_len - offset, &got);
      if (result == 1) {
        tls_->established = true;
        offset += got;
        total += got;
        continue;
      }
      const int error = ErrnoOf(result, /*reading=*/true);
      // An end or a failure behind bytes is told by the next call.
      if (total > 0) return {static_cast<ssize_t>(total), error == EAGAIN};
      if (error == 0) return {0, false};
      errno = error;
      return {-1, error == EAGAIN};
    }
  }
  return {static_cast<ssize_t>(total), false};
}

ssize_t Transport::WritePlain(std::span<const iovec> parts) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());
  message.msg_iovlen = parts.size();
  ssize_t sent = 0;
  do {
    sent = sendmsg(fd_.get(), &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent;
}

// One record's worth from `offset` of parts[part] on: straight from there when it has that much, else gathered. What is
// tried again after EAGAIN has the same size, as OpenSSL wants, because the caller begins at the same place.
ssize_t Transport::WriteRecord(std::span<const iovec> parts, std::size_t part, std::size_t offset) {
  std::array<char, kRecordBytes> gathered;
  const char* data = static_cast<const char*>(parts[part].iov_base) + offset;
  std::size_t size = std::min(parts[part].iov_len - offset, kRecordBytes);
  if (size < kRecordBytes && part + 1 < parts.size()) {
    std::memcpy(gathered.data(), data, size);
    for (std::size_t next = part + 1; next < parts.size() && size < kRecordBytes; ++next) {
      const std::size_t more = std::min(parts[next].iov_len, kRecordBytes - size);
      if (more > 0) std::memcpy(gathered.data() + size, parts[next].iov_base, more);
      size += more;
    }
    data = gathered.data();
  }
  if (size == 0) return 0;
  ERR_clear_error();
  errno = 0;
  std::size_t sent = 0;
  const int result = SSL_write_ex(tls_->ssl.get(), data, size, &sent);
  if (result == 1) {
    tls_->established = true;
    return static_cast<ssize_t>(sent);
  }
  const int error = ErrnoOf(result, /*reading=*/false);
  errno = error == 0 ? EPIPE : error;
  return -1;
}

ssize_t Transport::WriteTls(std::span<const iovec> parts) {
  if (tls_->broken) {
    errno = EPIPE;
    return -1;
  }
  std::size_t total = 0;
  std::size_t part = 0;
  std::size_t offset = 0;
  while (part < parts.size() && total < kMostOfOneWrite) {
    if (offset == parts[part].iov_len) {
      ++part;
      offset = 0;
      continue;
    }
    const ssize_t sent = WriteRecord(parts, part, offset);
    if (sent < 0) return total > 0 ? static_cast<ssize_t>(total) : -1;
    total += static_cast<std::size_t>(sent);
    for (std::size_t left = static_cast<std::size_t>(sent); left > 0;) {
      const std::size_t taken = std::min(left, parts[part].iov_len - offset);
      left -= taken;
      offset += taken;
      if (offset == parts[part].iov_len && left > 0) {
        ++part;
        offset = 0;
      }
    }
  }
  return static_cast<ssize_t>(total);
}

void Transport::SayGoodbye() {
  if (tls_ == nullptr || !tls_->established || tls_->broken || !fd_.valid()) return;
  if ((SSL_get_shutdown(tls_->ssl.get()) & SSL_SENT_SHUTDOWN) != 0) return;
  ERR_clear_error();
  SSL_shutdown(tls_->ssl.get());
  ERR_clear_error();
}

void Transport::ShutdownWrite() {
  SayGoodbye();
  shutdown(fd_.get(), SHUT_WR);
}

void Transport::Close() {
  SayGoodbye();
  tls_.reset();
  fd_.Reset();
}

}  // namespace tidemark
