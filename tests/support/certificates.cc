#include "tests/support/certificates.h"

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>

namespace tidemark {
namespace {

void Require(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "certificates: %s failed\n", what);
  ERR_print_errors_fp(stderr);
  std::abort();
}

using Bio = std::unique_ptr<BIO, OpenSslFree<&BIO_free_all>>;

std::string Text(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return {data, static_cast<std::size_t>(size)};
}

void AddExtension(X509* certificate, const TestCertificate* /*issuer*/, int nid, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, certificate, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value);
  Require(extension != nullptr, "X509V3_EXT_conf_nid");
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

std::atomic<long> next_serial{1};

}  // namespace

TestCertificate::TestCertificate(const std::string& name, const TestCertificate* issuer)
    : name_(name), key_(EVP_EC_gen("P-256")), certificate_(X509_new()) {
  Require(key_ != nullptr && certificate_ != nullptr, "EVP_EC_gen");
  X509* const certificate = certificate_.get();
  X509_set_version(certificate, X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), next_serial++);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -43200);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 43200);
  X509_set_pubkey(certificate, key_.get());
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  const X509* const by = issuer == nullptr ? certificate : issuer->certificate_.get();
  X509_set_issuer_name(certificate, X509_get_subject_name(by));
  AddExtension(certificate, issuer, NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1");
  if (issuer == nullptr) AddExtension(certificate, issuer, NID_basic_constraints, "critical,CA:TRUE");
  Require(X509_sign(certificate, issuer == nullptr ? key_.get() : issuer->key_.get(), EVP_sha256()) > 0, "X509_sign");
}

std::string TestCertificate::certificate_pem() const {
  const Bio bio(BIO_new(BIO_s_mem()));
  Require(PEM_write_bio_X509(bio.get(), certificate_.get()) == 1, "PEM_write_bio_X509");
  return Text(bio.get());
}

std::string TestCertificate::key_pem() const {
  const Bio bio(BIO_new(BIO_s_mem()));
  Require(PEM_write_bio_PrivateKey(bio.get(), key_.get(), nullptr, nullptr, 0, nullptr, nullptr) == 1,
          "PEM_write_bio_PrivateKey");
  return Text(bio.get());
}

void WriteFile(const std::filesystem::path& path, std::string_view text) {
  const std::filesystem::path draft = path.string() + ".draft";
  std::ofstream(draft, std::ios::binary) << text;
  std::filesystem::rename(draft, path);
}

TestTlsClient::TestTlsClient(int fd, const Options& options) : context_(SSL_CTX_new(TLS_client_method())) {
  std::signal(SIGPIPE, SIG_IGN);
  SSL_CTX* const context = context_.get();
  SSL_CTX_set_max_proto_version(context, options.max_version);
  SSL_CTX_set_min_proto_version(context, TLS1_VERSION);
  SSL_CTX_set_security_level(context, 0);  // so that old versions may be offered
  const auto load = [](const std::string& pem) {
    return Bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  };
  if (options.trusted != nullptr) {
    const std::string pem = options.trusted->certificate_pem();
    const Bio bio = load(pem);
    const std::unique_ptr<X509, OpenSslFree<&X509_free>> root(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context), root.get());
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  }
  if (options.certificate != nullptr) {
    const std::string pem = options.certificate->certificate_pem();
    const Bio bio = load(pem);
    const std::unique_ptr<X509, OpenSslFree<&X509_free>> own(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
    SSL_CTX_use_certificate(context, own.get());
    const std::string key_pem = options.certificate->key_pem();
    const Bio key_bio = load(key_pem);
    const std::unique_ptr<EVP_PKEY, OpenSslFree<&EVP_PKEY_free>> key(
        PEM_read_bio_PrivateKey(key_bio.get(), nullptr, nullptr, nullptr));
    SSL_CTX_use_PrivateKey(context, key.get());
  }
  ssl_.reset(SSL_new(context));
  Require(ssl_ != nullptr && SSL_set_fd(ssl_.get(), fd) == 1, "SSL_set_fd");
  std::string wire;
  for (const std::string& name : options.alpn) {
    wire += static_cast<char>(name.size());
    wire += name;
  }
  if (!wire.empty()) {
    SSL_set_alpn_protos(ssl_.get(), reinterpret_cast<const unsigned char*>(wire.data()),
                        static_cast<unsigned int>(wire.size()));
  }
  SSL_set_connect_state(ssl_.get());
}

bool TestTlsClient::Handshake() { return SSL_do_handshake(ssl_.get()) == 1; }

bool TestTlsClient::Write(std::string_view data) {
  while (!data.empty()) {
    std::size_t sent = 0;
    if (SSL_write_ex(ssl_.get(), data.data(), data.size(), &sent) != 1) return false;
    data.remove_prefix(sent);
  }
  return true;
}

std::string TestTlsClient::Read(std::size_t size) {
  std::string text(size, '\0');
  std::size_t total = 0;
  while (total < size) {
    std::size_t got = 0;
    if (SSL_read_ex(ssl_.get(), text.data() + total, size - total, &got) != 1) break;
    total += got;
  }
  text.resize(total);
  return text;
}

std::string TestTlsClient::ReadSome() {
  std::string text(1 << 16, '\0');
  std::size_t got = 0;
  if (SSL_read_ex(ssl_.get(), text.data(), text.size(), &got) != 1) got = 0;
  text.resize(got);
  return text;
}

void TestTlsClient::Shutdown() { SSL_shutdown(ssl_.get()); }

std::string TestTlsClient::alpn() const {
  const unsigned char* name = nullptr;
  unsigned int size = 0;
  SSL_get0_alpn_selected(ssl_.get(), &name, &size);
  return {reinterpret_cast<const char*>(name), size};
}

std::string TestTlsClient::peer_name() const {
  const std::unique_ptr<X509, OpenSslFree<&X509_free>> peer(SSL_get1_peer_certificate(ssl_.get()));
  char name[128] = "";
  if (peer != nullptr) X509_NAME_get_text_by_NID(X509_get_subject_name(peer.get()), NID_commonName, name, sizeof(name));
  return name;
}

int TestTlsClient::version() const { return SSL_version(ssl_.get()); }

}  // namespace tidemark
