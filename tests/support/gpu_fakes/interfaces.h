#pragma once

#include <cstdint>

// The interfaces that a user of TensorRT implements, as this test double derives them from the published tables: the
// order of the virtual functions is the contract. Versioned interfaces have the language at slot 0, the name at 1, the
// destructors at 2 and 3, and their own functions from 4 on.
namespace fake_trt {

struct Dims {
  std::int32_t count = 0;
  std::int64_t d[8] = {};
};
static_assert(sizeof(Dims) == 72);

struct InterfaceInfo {
  const char* kind;
  std::int32_t major;
  std::int32_t minor;
};

class Versioned {
 public:
  virtual std::int32_t getAPILanguage() const noexcept = 0;
  virtual InterfaceInfo getInterfaceInfo() const noexcept = 0;
  virtual ~Versioned() = default;
};

class Logger11 : public Versioned {
 public:
  virtual void log(std::int32_t severity, const char* text) noexcept = 0;
};
class Logger10 {
 public:
  virtual void log(std::int32_t severity, const char* text) noexcept = 0;
  virtual ~Logger10() = default;
};

class ErrorRecorder : public Versioned {
 public:
  virtual std::int32_t getNbErrors() const noexcept = 0;
  virtual std::int32_t getErrorCode(std::int32_t index) const noexcept = 0;
  virtual const char* getErrorDesc(std::int32_t index) const noexcept = 0;
  virtual bool hasOverflowed() const noexcept = 0;
  virtual void clear() noexcept = 0;
  virtual bool reportError(std::int32_t code, const char* text) noexcept = 0;
  virtual std::int32_t incRefCount() noexcept = 0;
  virtual std::int32_t decRefCount() noexcept = 0;
};

class GpuAllocator : public Versioned {
 public:
  virtual void* allocate(std::uint64_t bytes, std::uint64_t alignment, std::uint32_t flags) noexcept = 0;
  virtual void* reallocate(void* block, std::uint64_t alignment, std::uint64_t bytes) noexcept = 0;
  virtual bool deallocate(void* block) noexcept = 0;
  virtual void* allocateAsync(std::uint64_t bytes, std::uint64_t alignment, std::uint32_t flags,
                              void* stream) noexcept = 0;
  virtual bool deallocateAsync(void* block, void* stream) noexcept = 0;
};

class OutputAllocator : public Versioned {
 public:
  virtual void* reallocateOutput(const char* name, void* current, std::uint64_t bytes,
                                 std::uint64_t alignment) noexcept = 0;
  virtual void* reallocateOutputAsync(const char* name, void* current, std::uint64_t bytes, std::uint64_t alignment,
                                      void* stream) = 0;
  virtual void notifyShape(const char* name, const Dims& dims) noexcept = 0;
};

class StreamReaderV2 : public Versioned {
 public:
  virtual std::int64_t read(void* destination, std::int64_t bytes, void* stream) noexcept = 0;
  virtual bool seek(std::int64_t offset, std::int32_t where) noexcept = 0;
};

}  // namespace fake_trt
