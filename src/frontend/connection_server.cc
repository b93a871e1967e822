#include "frontend/connection_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "base/log.h"
#include "base/status.h"

namespace tidemark {

// What the loops share.
struct ConnectionServer::Shared {
  std::size_t limit = 0;
  std::uint16_t port = 0;
  std::vector<std::atomic<std::size_t>> counts;  // connections of each loop, those on their way to it included
  absl::Mutex mutex;
  std::size_t total ABSL_GUARDED_BY(mutex) = 0;
  std::size_t peak ABSL_GUARDED_BY(mutex) = 0;  // of total, since it was asked for

  explicit Shared(std::size_t loops) : counts(loops) {}

  std::size_t Fewest() const {
    std::size_t best = 0;
    for (std::size_t i = 1; i < counts.size(); ++i) {
      if (counts[i].load(std::memory_order_relaxed) < counts[best].load(std::memory_order_relaxed)) best = i;
    }
    return best;
  }
};

// One loop's listening sockets and connections. Belongs to the loop's thread.
class ConnectionServer::Shard : public std::enable_shared_from_this<ConnectionServer::Shard> {
 public:
  Shard(std::shared_ptr<Shared> shared, std::size_t index, EventLoop* loop, const MakeFactory& make_factory)
      : shared_(std::move(shared)),
        index_(index),
        loop_(loop),
        factory_(make_factory(loop, [this](ServedConnection* connection) { OnClosed(connection); })) {}

  EventLoop* loop() const { return loop_; }

  // Before Start, any thread.
  void AddTcp(UniqueFd fd) { tcp_ = std::make_unique<Acceptor>(this, std::move(fd)); }
  void AddUnix(std::shared_ptr<UnixListener> listener) {
    unix_ = std::make_unique<Acceptor>(this, std::move(listener));
  }
  void SetPeers(std::vector<std::weak_ptr<Shard>> peers) { peers_ = std::move(peers); }

  void Listen() {
    for (Acceptor* acceptor : {tcp_.get(), unix_.get()}) {
      if (acceptor != nullptr) acceptor->Start();
    }
  }
  // Connections that the kernel has completed already are served.
  void StopListening() {
    for (std::unique_ptr<Acceptor>* acceptor : {&tcp_, &unix_}) {
      if (*acceptor != nullptr) (*acceptor)->AcceptAll();
      acceptor->reset();
    }
  }
  void BeginStop() {
    StopListening();
    factory_->BeginDrain();
    ForEach([](ServedConnection* connection) { connection->Drain(); });
  }
  void Cut() {
    ForEach([](ServedConnection* connection) { connection->Cut(); });
  }
  void Forget() { closed_.clear(); }

  // A connection from this loop's or another's acceptor; it is counted already.
  void Adopt(UniqueFd fd, bool refuse) {
    std::unique_ptr<ServedConnection> owned = factory_->Make(std::move(fd));
    ServedConnection* connection = owned.get();
    connection->slot_ = connections_.size();
    connections_.push_back(std::move(owned));
    if (const absl::Status status = connection->Start(); !status.ok()) {
      LOG_WARNING("a connection was dropped: {}", MessageOf(status));
      return connection->Cut();
    }
    if (refuse) connection->Refuse(shared_->limit);
  }

 private:
  // One listening socket in this loop.
  class Acceptor : public EventLoop::Handler {
   public:
    Acceptor(Shard* shard, UniqueFd fd)
        : shard_(shard), owned_(std::move(fd)), fd_(owned_.get()), retry_(shard->loop_, [this] { Start(); }) {}
    Acceptor(Shard* shard, std::shared_ptr<UnixListener> listener)
        : shard_(shard), unix_(std::move(listener)), fd_(unix_->fd()), retry_(shard->loop_, [this] { Start(); }) {}
    ~Acceptor() override { Pause(); }

    void Start() {
      // One of several loops is woken for a shared socket.
      const std::uint32_t events = unix_ != nullptr ? std::uint32_t{EPOLLIN} | EPOLLEXCLUSIVE : std::uint32_t{EPOLLIN};
      if (const absl::Status status = shard_->loop_->Add(fd_, events, this); !status.ok()) {
        LOG_ERROR("cannot accept connections: {}", MessageOf(status));
        return RetryLater();
      }
      added_ = true;
    }
    void OnEvents(std::uint32_t) override { AcceptAll(); }
    void AcceptAll();

   private:
    void Pause() {
      if (std::exchange(added_, false)) shard_->loop_->Remove(fd_, this);
    }
    void RetryLater() { retry_.Set(shard_->loop_->now() + kRetryNanos); }
    static constexpr std::int64_t kRetryNanos = 50'000'000;

    Shard* const shard_;
    UniqueFd owned_;
    std::shared_ptr<UnixListener> unix_;  // last owner: the last loop that stops to listen
    const int fd_;
    bool added_ = false;
    EventLoop::Timer retry_;
  };

  void Place(UniqueFd fd);
  void OnClosed(ServedConnection* connection);

  template <typename F>
  void ForEach(F f) {
    std::vector<ServedConnection*> all;  // f may remove
    for (const auto& connection : connections_) all.push_back(connection.get());
    for (ServedConnection* connection : all) f(connection);
  }

  const std::shared_ptr<Shared> shared_;  // last owner: see ConnectionServer
  const std::size_t index_;
  EventLoop* const loop_;
  const std::unique_ptr<ConnectionFactory> factory_;
  std::vector<std::weak_ptr<Shard>> peers_;
  std::unique_ptr<Acceptor> tcp_;
  std::unique_ptr<Acceptor> unix_;
  std::vector<std::unique_ptr<ServedConnection>> connections_;
  std::vector<std::unique_ptr<ServedConnection>> closed_;  // destroyed when nobody is inside them
};

void ConnectionServer::Shard::Acceptor::AcceptAll() {
  constexpr int kBurst = 64;  // then established connections get a turn
  for (int i = 0; i < kBurst; ++i) {
    UniqueFd fd(accept4(fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.valid()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        // The socket stays readable: without a pause the loop would spin.
        LOG_ERROR("cannot accept a connection: {}", ErrnoText(errno));
        Pause();
        RetryLater();
      }
      return;
    }
    if (unix_ == nullptr) {
      const int on = 1;
      setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    }
    shard_->Place(std::move(fd));
  }
}

void ConnectionServer::Shard::Place(UniqueFd fd) {
  bool refuse = false;
  {
    constexpr std::size_t kRefusals = 128;  // connections beyond the limit that are told so; further ones are cut
    absl::MutexLock lock(&shared_->mutex);
    if (shared_->total >= shared_->limit + kRefusals) return;
    refuse = ++shared_->total > shared_->limit;
    shared_->peak = std::max(shared_->peak, shared_->total);
  }
  const std::size_t fewest = shared_->Fewest();
  const bool move =
      shared_->counts[index_].load(std::memory_order_relaxed) > shared_->counts[fewest].load(std::memory_order_relaxed);
  const std::size_t target = move ? fewest : index_;
  shared_->counts[target].fetch_add(1, std::memory_order_relaxed);
  if (target == index_) return Adopt(std::move(fd), refuse);
  const std::shared_ptr<Shard> peer = peers_[target].lock();
  if (peer == nullptr ||
      !peer->loop_->Post([peer, fd = std::move(fd), refuse]() mutable { peer->Adopt(std::move(fd), refuse); })) {
    shared_->counts[target].fetch_sub(1, std::memory_order_relaxed);
    absl::MutexLock lock(&shared_->mutex);
    --shared_->total;
  }
}

void ConnectionServer::Shard::OnClosed(ServedConnection* connection) {
  const std::size_t slot = connection->slot_;
  closed_.push_back(std::move(connections_[slot]));
  if (slot + 1 != connections_.size()) {
    connections_[slot] = std::move(connections_.back());
    connections_[slot]->slot_ = slot;
  }
  connections_.pop_back();
  if (closed_.size() == 1) {
    loop_->Post([self = shared_from_this()] { self->closed_.clear(); });
  }
  shared_->counts[index_].fetch_sub(1, std::memory_order_relaxed);
  absl::MutexLock lock(&shared_->mutex);
  --shared_->total;
}

ConnectionServer::ConnectionServer(Private /*only Create*/) {}

absl::StatusOr<std::unique_ptr<ConnectionServer>> ConnectionServer::Create(ListenOptions options,
                                                                           std::vector<EventLoop*> loops,
                                                                           const MakeFactory& make_factory) {
  if (loops.empty()) return absl::InvalidArgumentError("a server needs at least one event loop");
  auto server = std::make_unique<ConnectionServer>(Private());
  server->shared_ = std::make_shared<Shared>(loops.size());
  server->shared_->limit = options.connections;
  for (std::size_t i = 0; i < loops.size(); ++i) {
    server->shards_.push_back(std::make_shared<Shard>(server->shared_, i, loops[i], make_factory));
  }
  for (const auto& shard : server->shards_) {
    shard->SetPeers({server->shards_.begin(), server->shards_.end()});
  }
  if (options.port.has_value()) {
    std::uint16_t port = *options.port;
    PortUse use = options.reuse_port ? PortUse::kShared : PortUse::kExclusive;
    for (const auto& shard : server->shards_) {
      ASSIGN_OR_RETURN(UniqueFd fd, ListenTcp(options.address, port, use));
      ASSIGN_OR_RETURN(port, LocalPort(fd.get()));
      use = PortUse::kShared;
      shard->AddTcp(std::move(fd));
    }
    server->shared_->port = port;
  }
  if (!options.unix_path.empty()) {
    ASSIGN_OR_RETURN(UnixListener listener, UnixListener::Create(options.unix_path));
    const auto shared = std::make_shared<UnixListener>(std::move(listener));
    for (const auto& shard : server->shards_) shard->AddUnix(shared);
  }
  return server;
}

ConnectionServer::~ConnectionServer() { Stop(std::chrono::milliseconds(0)); }

void ConnectionServer::Start() {
  for (const auto& shard : shards_) {
    shard->loop()->Post([shard] { shard->Listen(); });
  }
}

std::uint16_t ConnectionServer::port() const { return shared_->port; }

std::size_t ConnectionServer::connections() const {
  absl::MutexLock lock(&shared_->mutex);
  return shared_->total;
}

std::size_t ConnectionServer::TakePeak() {
  absl::MutexLock lock(&shared_->mutex);
  return std::exchange(shared_->peak, shared_->total);
}

void ConnectionServer::StopAccepting() {
  for (const auto& shard : shards_) {
    shard->loop()->Post([shard] { shard->StopListening(); });
  }
}

// Runs `step` on every loop and returns when all did; here, where a loop's thread has ended.
void ConnectionServer::OnEachShard(void (Shard::*step)()) {
  for (const auto& shard : shards_) {
    const auto done = std::make_shared<absl::Notification>();  // last owner: this call or the task
    shard->loop()->Post([shard, step, done] {
      (shard.get()->*step)();
      done->Notify();
    });
    while (!done->WaitForNotificationWithTimeout(absl::Milliseconds(5))) {
      if (shard->loop()->running()) continue;
      if (!done->HasBeenNotified()) (shard.get()->*step)();
      break;
    }
  }
}

bool ConnectionServer::Stop(std::chrono::milliseconds deadline) {
  const auto none_left = [this](absl::Duration timeout) {
    const auto none = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return shared_->total == 0; };
    absl::MutexLock lock(&shared_->mutex);
    return shared_->mutex.AwaitWithTimeout(absl::Condition(&none), timeout);
  };
  OnEachShard(&Shard::BeginStop);
  const bool ended = none_left(absl::FromChrono(deadline));
  // More than one round when a connection was on its way between two loops.
  while (!none_left(absl::ZeroDuration())) OnEachShard(&Shard::Cut);
  OnEachShard(&Shard::Forget);
  return ended;
}

}  // namespace tidemark
