#pragma once

#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

// Certificates made at test time, and a blocking TLS client. For tests only: errors end the test program.

namespace tidemark {

template <auto free>
struct OpenSslFree {
  template <typename T>
  void operator()(T* object) const {
    free(object);
  }
};

// A certificate and its key, P-256, valid for a day around now.
class TestCertificate {
 public:
  // Signed by `issuer`, or by itself: then it may issue others. Every one is good for "localhost" and 127.0.0.1.
  explicit TestCertificate(const std::string& name, const TestCertificate* issuer = nullptr);

  std::string certificate_pem() const;
  std::string key_pem() const;
  std::string name() const { return name_; }

 private:
  std::string name_;
  std::unique_ptr<EVP_PKEY, OpenSslFree<&EVP_PKEY_free>> key_;
  std::unique_ptr<X509, OpenSslFree<&X509_free>> certificate_;
};

// A new file with this text, moved into its place.
void WriteFile(const std::filesystem::path& path, std::string_view text);

// A client's end of TLS over a connected, blocking socket, which it does not own.
class TestTlsClient {
 public:
  struct Options {
    const TestCertificate* trusted = nullptr;      // null: the server is not verified
    const TestCertificate* certificate = nullptr;  // of the client
    std::vector<std::string> alpn;
    int max_version = TLS1_3_VERSION;
  };
  TestTlsClient(int fd, const Options& options);

  // The rest returns what OpenSSL says: false, or a short count, once something went wrong.
  bool Handshake();
  bool Write(std::string_view data);
  // Up to `size` bytes; fewer at the end.
  std::string Read(std::size_t size);
  // As much as one call gives; empty at the end.
  std::string ReadSome();
  void Shutdown();
  std::string alpn() const;
  std::string peer_name() const;
  int version() const;

 private:
  std::unique_ptr<SSL_CTX, OpenSslFree<&SSL_CTX_free>> context_;
  std::unique_ptr<SSL, OpenSslFree<&SSL_free>> ssl_;
};

}  // namespace tidemark
