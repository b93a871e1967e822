#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cfenv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/cleanup/cleanup.h"
#include "absl/synchronization/mutex.h"
#include "base/status.h"
#include "platform/platform.h"
#include "platform/shared_memory.h"

namespace tidemark {

// A thread that runs one body after the other; it is made with the platform and ends with it.
struct SpareThread {
  std::thread thread;
  std::string name;
  std::function<void()> body;  // set: it has one to run
  bool finished = false;       // the body has ended, and what belonged to it is gone
  absl::CondVar changed;       // of these, which the platform's mutex guards
};

class Platform::Thread {
 public:
  std::thread thread;            // ends with its body
  SpareThread* spare = nullptr;  // or this one runs it
};

namespace {

absl::Status ErrnoStatus(int error, std::string_view what) {
  const std::string text = fmt::format("{}: {}", what, std::error_code(error, std::generic_category()).message());
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(text);
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(text);
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case ENOSPC:
    case EAGAIN:
      return absl::ResourceExhaustedError(text);
    default:
      return absl::InternalError(text);
  }
}

// What stands in the name of every directory that MakeTempDirectory makes: PREFIX, process, this, six characters. Others may
// have folders of the same prefix in the temporary folder.
constexpr std::string_view kTempMark = "load";

bool IsTempName(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return false;
  name.remove_prefix(prefix.size());
  const std::size_t digits = name.find_first_not_of("0123456789");
  if (digits == 0 || digits == std::string_view::npos) return false;
  name.remove_prefix(digits);
  const std::string middle = fmt::format("-{}-", kTempMark);
  return name.starts_with(middle) && name.size() == middle.size() + 6 &&
         name.substr(middle.size())
                 .find_first_not_of("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") ==
             std::string_view::npos;
}

class LinuxPlatform final : public Platform {
 public:
  ~LinuxPlatform() override {
    {
      absl::MutexLock lock(&starter_mutex_);
      starter_ends_ = true;
    }
    if (starter_.joinable()) starter_.join();
    EndSpares();
  }

  absl::StatusOr<std::byte*> MapMemory(std::size_t bytes) override {
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return ErrnoStatus(errno, fmt::format("cannot map {} bytes of memory", bytes));
    if (bytes >= kHugePage) madvise(data, bytes, MADV_HUGEPAGE);  // advice only: its failure changes nothing
    return static_cast<std::byte*>(data);
  }

  absl::Status UnmapMemory(std::byte* data, std::size_t bytes) override {
    if (munmap(data, bytes) != 0) return ErrnoStatus(errno, fmt::format("cannot unmap {} bytes", bytes));
    return absl::OkStatus();
  }

  absl::StatusOr<MappedFile> MapFile(const std::filesystem::path& path) override {
    // O_NONBLOCK: opening a pipe that somebody put in the place of a model must not wait for its writer.
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return ErrnoStatus(errno, fmt::format("cannot open '{}'", path.string()));
    const absl::Cleanup close_fd = [fd] { close(fd); };
    struct stat info {};
    if (fstat(fd, &info) != 0) return ErrnoStatus(errno, fmt::format("cannot stat '{}'", path.string()));
    if (!S_ISREG(info.st_mode)) {
      return absl::InvalidArgumentError(fmt::format("'{}' is not a regular file", path.string()));
    }
    if (info.st_size == 0) return MappedFile{};
    const auto bytes = static_cast<std::size_t>(info.st_size);
    void* data = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) return ErrnoStatus(errno, fmt::format("cannot map '{}'", path.string()));
    return MappedFile{static_cast<const std::byte*>(data), bytes};
  }

  absl::Status UnmapFile(MappedFile file) override {
    if (file.data == nullptr) return absl::OkStatus();
    void* data = const_cast<std::byte*>(file.data);
    if (munmap(data, file.bytes) != 0) return ErrnoStatus(errno, "cannot unmap a file");
    return absl::OkStatus();
  }

  absl::StatusOr<SharedMapping> MapShared(const std::string& key, std::uint64_t offset, std::uint64_t bytes) override {
    return MapSharedObject(key, offset, bytes);
  }

  absl::Status UnmapShared(const SharedMapping& mapping) override { return UnmapSharedObject(mapping); }

  absl::Status CheckShared(const SharedMapping& mapping) const override { return CheckSharedObject(mapping); }

  absl::StatusOr<std::filesystem::path> MakeTempDirectory(std::string_view prefix) override {
    std::error_code error;
    const std::filesystem::path root = std::filesystem::temp_directory_path(error);
    if (error) return ErrnoStatus(error.value(), "no temporary folder");
    std::string name = (root / fmt::format("{}{}-{}-XXXXXX", prefix, getpid(), kTempMark)).string();
    if (mkdtemp(name.data()) == nullptr) return ErrnoStatus(errno, fmt::format("cannot make '{}'", name));
    int fd = -1;
    absl::Cleanup undo = [&name, &fd] {  // also when remembering it runs out of memory
      if (fd >= 0) close(fd);
      rmdir(name.c_str());
    };
    fd = open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0) {
      const int why = errno;
      return ErrnoStatus(why, fmt::format("cannot lock '{}'", name));
    }
    std::filesystem::path path(name);
    {
      const absl::MutexLock lock(&mutex_);
      temp_directories_.emplace(path, fd);
    }
    std::move(undo).Cancel();
    return path;
  }

  absl::Status RemoveTree(const std::filesystem::path& path) override {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    if (error) return ErrnoStatus(error.value(), fmt::format("cannot remove '{}'", path.string()));
    const absl::MutexLock lock(&mutex_);
    if (const auto it = temp_directories_.find(path); it != temp_directories_.end()) {
      close(it->second);
      temp_directories_.erase(it);
    }
    return absl::OkStatus();
  }

  void RemoveTempDirectories() noexcept override {
    const absl::MutexLock lock(&mutex_);
    std::error_code error;  // nothing more can be done about one
    for (const auto& [path, fd] : temp_directories_) std::filesystem::remove_all(path, error);
  }

  int RemoveStaleTempDirectories(std::string_view prefix) override {
    std::error_code error;
    int removed = 0;
    for (std::filesystem::directory_iterator it(std::filesystem::temp_directory_path(error), error), end;
         !error && it != end; it.increment(error)) {
      if (!IsTempName(it->path().filename().string(), prefix)) continue;
      const int fd = open(it->path().c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
      if (fd < 0) continue;
      const absl::Cleanup close_fd = [fd] { close(fd); };
      struct stat info {};
      if (fstat(fd, &info) != 0 || info.st_uid != geteuid() || flock(fd, LOCK_EX | LOCK_NB) != 0) continue;
      std::error_code ignored;
      std::filesystem::remove_all(it->path(), ignored);
      if (!ignored) ++removed;
    }
    return removed;
  }

  absl::StatusOr<void*> OpenLibrary(const std::filesystem::path& path) override {
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* why = dlerror();
      return absl::NotFoundError(
          fmt::format("cannot open library '{}': {}", path.string(), why != nullptr ? why : "unknown reason"));
    }
    return library;
  }

  absl::Status CloseLibrary(void* library) override {
    if (dlclose(library) != 0) return absl::InternalError("dlclose failed");
    return absl::OkStatus();
  }

  absl::StatusOr<void*> Symbol(void* library, const char* name) override {
    void* symbol = dlsym(library, name);
    if (symbol == nullptr) return absl::NotFoundError(fmt::format("the library has no symbol '{}'", name));
    return symbol;
  }

  absl::StatusOr<Thread*> StartThread(std::string_view name, std::function<void()> body) override {
    if (NiceOfThisThread() <= normal_nice_) return StartHere(name, std::move(body));
    // Not for threads of an engine's own, whose thread-locals must end with them.
    if (name == "instance") {
      if (Thread* const thread = StartOnSpare(name, body)) return thread;
    }
    // A new thread inherits the priority of whoever starts it, and may not raise it: a load must not start the threads
    // that serve requests. The starter, as old as the first lowering, does it.
    Order order;
    order.name = name;
    order.body = &body;
    {
      absl::MutexLock lock(&starter_mutex_);
      if (!starter_.joinable()) return StartHere(name, std::move(body));
      orders_.push_back(&order);
      starter_mutex_.Await(absl::Condition(&order.done));
    }
    return std::move(order.result);
  }

  absl::StatusOr<Thread*> StartHere(std::string_view name, std::function<void()> body) {
    auto thread = std::make_unique<Thread>();
    try {
      thread->thread = std::thread([text = std::string(name.substr(0, 15)), run = std::move(body)] {
        pthread_setname_np(pthread_self(), text.c_str());
        run();
      });
    } catch (const std::system_error& error) {
      return absl::ResourceExhaustedError(fmt::format("cannot start thread '{}': {}", name, error.what()));
    }
    return thread.release();
  }

  absl::Status JoinThread(Thread* thread) override {
    const std::unique_ptr<Thread> owned(thread);
    if (owned->spare != nullptr) return AwaitSpare(*owned->spare);
    if (owned->thread.get_id() == std::this_thread::get_id()) {
      owned->thread.detach();
      return absl::InternalError("a thread cannot join itself");
    }
    owned->thread.join();
    return absl::OkStatus();
  }

  absl::Status Foreign(std::string_view /*site*/, absl::FunctionRef<absl::Status()> create) override {
    return create();
  }

  void LowerThreadPriority() override {
    constexpr int kLowered = 10;
    {
      absl::MutexLock lock(&starter_mutex_);
      if (!starter_.joinable()) {
        try {
          starter_ = std::thread([this] { StartForOthers(); });
        } catch (const std::system_error&) {
          return;  // without a starter this thread's children would be lowered for ever
        }
      }
    }
    // Advice: without it loads only compete harder.
    setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), std::min(normal_nice_ + kLowered, 19));
  }

  void TrimHeap() override { malloc_trim(0); }

 private:
  static constexpr std::size_t kHugePage = 2U << 20;

  // A thread that a lowered thread wants. It is the starter's until `done`.
  struct Order {
    std::string_view name;
    std::function<void()>* body = nullptr;
    absl::StatusOr<Thread*> result = absl::UnknownError("not started");
    bool done = false;  // under the starter's mutex
  };

  static int NiceOfThisThread() { return getpriority(PRIO_PROCESS, static_cast<id_t>(gettid())); }

  // A spare thread runs the body; null when all are busy.
  Thread* StartOnSpare(std::string_view name, std::function<void()>& body) {
    auto thread = std::make_unique<Thread>();
    absl::MutexLock lock(&spare_mutex_);
    if (idle_spares_.empty()) return nullptr;
    SpareThread& spare = *idle_spares_.back();
    spare.name = std::string(name.substr(0, 15));
    spare.body = std::move(body);  // from here on nothing fails
    idle_spares_.pop_back();
    spare.finished = false;
    thread->spare = &spare;
    spare.changed.Signal();
    return thread.release();
  }

  absl::Status AwaitSpare(SpareThread& spare) {
    absl::MutexLock lock(&spare_mutex_);
    if (spare.thread.get_id() == std::this_thread::get_id()) return absl::InternalError("a thread cannot join itself");
    while (!spare.finished) spare.changed.Wait(&spare_mutex_);
    idle_spares_.push_back(&spare);  // it has room for all of them
    return absl::OkStatus();
  }

  void SpareMain(SpareThread& spare) {
    constexpr const char* kIdleName = "spare";
    pthread_setname_np(pthread_self(), kIdleName);
    const StackBelow stack;
    std::fenv_t floats;
    std::fegetenv(&floats);
    for (;;) {
      std::function<void()> body;
      {
        absl::MutexLock lock(&spare_mutex_);
        while (!spare.body && !spares_end_) spare.changed.Wait(&spare_mutex_);
        if (!spare.body) return;
        body = std::exchange(spare.body, nullptr);
        pthread_setname_np(pthread_self(), spare.name.c_str());
      }
      body();
      body = nullptr;
      std::fesetenv(&floats);  // an engine may have said how its thread rounds and treats denormals
      stack.Release();
      pthread_setname_np(pthread_self(), kIdleName);
      absl::MutexLock lock(&spare_mutex_);
      spare.finished = true;
      spare.changed.Signal();
    }
  }

  // The part of the calling thread's stack that nothing lies on.
  class StackBelow {
   public:
    StackBelow() {
      pthread_attr_t attributes;
      if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
      void* lowest = nullptr;
      std::size_t bytes = 0;
      if (pthread_attr_getstack(&attributes, &lowest, &bytes) == 0) lowest_ = static_cast<std::byte*>(lowest);
      pthread_attr_destroy(&attributes);
    }
    // As the C library does it for threads that end.
    void Release() const {
      constexpr std::size_t kKept = std::size_t{64} << 10;
      const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)) & ~(kKept - 1);
      const auto lowest = reinterpret_cast<std::uintptr_t>(lowest_);
      if (lowest_ == nullptr || here <= lowest + kKept) return;
      madvise(lowest_, here - kKept - lowest, MADV_DONTNEED);
    }

   private:
    std::byte* lowest_ = nullptr;
  };

  // At the beginning of the starter, so that they have its priority.
  void MakeSpares() {
    absl::MutexLock lock(&spare_mutex_);
    try {
      idle_spares_.reserve(kSpares);
      spares_.reserve(kSpares);
      for (int i = 0; i < kSpares; ++i) {
        auto spare = std::make_unique<SpareThread>();
        spare->thread = std::thread([this, self = spare.get()] { SpareMain(*self); });
        idle_spares_.push_back(spare.get());
        spares_.push_back(std::move(spare));
      }
    } catch (const std::exception&) {
      // Without them each load starts its threads.
    }
  }

  void EndSpares() {
    {
      absl::MutexLock lock(&spare_mutex_);
      spares_end_ = true;
      for (const auto& spare : spares_) spare->changed.SignalAll();
    }
    for (const auto& spare : spares_) spare->thread.join();
  }

  void StartForOthers() {
    pthread_setname_np(pthread_self(), "starter");
    MakeSpares();
    while (Order* const order = NextOrder()) {
      try {
        order->result = StartHere(order->name, std::move(*order->body));
      } catch (const std::bad_alloc&) {
        order->result = absl::ResourceExhaustedError(fmt::format("no memory to start thread '{}'", order->name));
      }
      absl::MutexLock lock(&starter_mutex_);  // whoever waits is told by the unlocking
      order->done = true;
    }
  }

  // Waits for one; null at the end.
  Order* NextOrder() {
    const auto wanted = [this]()
                            ABSL_EXCLUSIVE_LOCKS_REQUIRED(starter_mutex_) { return starter_ends_ || !orders_.empty(); };
    absl::MutexLock lock(&starter_mutex_);
    starter_mutex_.Await(absl::Condition(&wanted));
    if (orders_.empty()) return nullptr;
    Order* const order = orders_.front();
    orders_.pop_front();
    return order;
  }

  // Threads that loads need come and go with every load: so many are kept, in place of some ten microseconds for the start
  // and the end of each. They are as many before a load as after its unload.
  static constexpr int kSpares = 2;
  absl::Mutex spare_mutex_;
  bool spares_end_ ABSL_GUARDED_BY(spare_mutex_) = false;
  std::vector<SpareThread*> idle_spares_ ABSL_GUARDED_BY(spare_mutex_);
  std::vector<std::unique_ptr<SpareThread>> spares_;  // the starter's, then the destructor's

  const int normal_nice_ = NiceOfThisThread();
  absl::Mutex starter_mutex_;
  std::thread starter_;  // guarded by starter_mutex_ until the destructor
  bool starter_ends_ ABSL_GUARDED_BY(starter_mutex_) = false;
  std::deque<Order*> orders_ ABSL_GUARDED_BY(starter_mutex_);

  absl::Mutex mutex_;
  std::map<std::filesystem::path, int> temp_directories_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

void UseOneHeapArena() { mallopt(M_ARENA_MAX, 1); }

void KeepLibrary(void* library) noexcept {
  link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return;
  void* const again = dlopen(map->l_name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD | RTLD_NODELETE);
  if (again != nullptr) dlclose(again);
}

void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);  // without it fewer clients are served at one time
}

std::unique_ptr<Platform> CreateLinuxPlatform() { return std::make_unique<LinuxPlatform>(); }

}  // namespace tidemark
