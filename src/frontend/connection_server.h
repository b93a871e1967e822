#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "frontend/event_loop.h"
#include "frontend/socket.h"

namespace tidemark {

// One accepted connection, of whatever protocol. Belongs to its loop's thread.
class ServedConnection {
 public:
  virtual ~ServedConnection() = default;

  // Registers with the loop. When it fails the connection can only be cut.
  virtual absl::Status Start() = 0;
  // Tells the client that there are too many connections, `limit` being allowed, and closes.
  virtual void Refuse(std::size_t limit) = 0;
  // No new requests; closes when those in flight are answered.
  virtual void Drain() = 0;
  // Closes now.
  virtual void Cut() = 0;

 private:
  friend class ConnectionServer;
  std::size_t slot_ = 0;
};

// Makes the connections of one loop and holds what they share. Belongs to the loop's thread; outlives its connections.
class ConnectionFactory {
 public:
  virtual ~ConnectionFactory() = default;
  virtual std::unique_ptr<ServedConnection> Make(UniqueFd fd) = 0;
  // Every connection made so far is drained next, later ones are to be drained from their beginning.
  virtual void BeginDrain() = 0;
};

struct ListenOptions {
  std::optional<std::uint16_t> port;  // nothing: no TCP; 0: any free port
  std::string address = "0.0.0.0";
  // False: fail when another process (of the same user) listens on the port with SO_REUSEPORT, as Triton's default does.
  bool reuse_port = false;
  std::string unix_path;            // empty: no UNIX-domain socket
  std::size_t connections = 10000;  // all loops together; beyond it they are refused
};

// Listens, accepts, and spreads connections over event loops so that their numbers differ by at most one at the moment
// of an accept; a connection stays on its loop. What connections do is the factories' business.
//
// Legal order: Create (binds, so that errors come early) - Start - StopAccepting - Stop - destruction. The loops outlive
// the server. Public calls are thread-safe and, but for Stop, do not block; none is made on a loop.
class ConnectionServer {
 private:
  struct Private {};  // only Create can name it

 public:
  // Makes the factory of `loop`. Its connections call `on_closed` as the last thing they do on their loop; they are
  // destroyed after the current event.
  using OnClosed = std::function<void(ServedConnection*)>;
  using MakeFactory = std::function<std::unique_ptr<ConnectionFactory>(EventLoop* loop, OnClosed on_closed)>;

  static absl::StatusOr<std::unique_ptr<ConnectionServer>> Create(ListenOptions options, std::vector<EventLoop*> loops,
                                                                  const MakeFactory& make_factory);
  explicit ConnectionServer(Private);
  // Calls Stop(0) if that was not done.
  ~ConnectionServer();
  ConnectionServer(const ConnectionServer&) = delete;
  ConnectionServer& operator=(const ConnectionServer&) = delete;

  // Begins to accept. The loops may be started before or after.
  void Start();
  // The bound TCP port; 0 without TCP.
  std::uint16_t port() const;

  // Closes the listening sockets: new connections are refused, open ones live on.
  void StopAccepting();
  // StopAccepting, drains the connections for `deadline`, then cuts the rest. Returns when none is left: true when all
  // ended by themselves. The loops must be running, or not run again.
  bool Stop(std::chrono::milliseconds deadline);

  // Open connections, all loops.
  std::size_t connections() const;
  // The most that were open at one time since the last call.
  std::size_t TakePeak();

 private:
  struct Shared;
  class Shard;

  void OnEachShard(void (Shard::*step)());

  std::shared_ptr<Shared> shared_;  // last owner: the server, or a task still in a loop's mailbox
  std::vector<std::shared_ptr<Shard>> shards_;
};

}  // namespace tidemark
