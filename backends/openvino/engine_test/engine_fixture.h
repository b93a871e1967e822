#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backend/backend.h"
#include "backends/openvino/engine_test/ir_model.h"
#include "base/cancel.h"
#include "resource/ledger.h"
#include "resource/scope.h"
#include "tests/support/fault_platform.h"

namespace tidemark::testing {

// A tensor as bytes.
struct Value {
  DataType data_type = DataType::kInvalid;
  Shape shape;
  std::string bytes;

  template <typename Number>
  static Value Of(DataType type, Shape shape, const std::vector<Number>& numbers) {
    return {type, std::move(shape),
            std::string(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number))};
  }
  template <typename Number>
  std::vector<Number> As() const {
    std::vector<Number> numbers(bytes.size() / sizeof(Number));
    bytes.copy(reinterpret_cast<char*>(numbers.data()), bytes.size());
    return numbers;
  }
};

// Keeps outputs in buffers of exactly the size asked for, and when each was asked for.
class TestSink final : public OutputSink {
 public:
  explicit TestSink(std::vector<bool> wanted) : wanted_(std::move(wanted)) {}
  bool Wants(std::size_t index) const override { return index < wanted_.size() && wanted_[index]; }
  absl::StatusOr<std::span<std::byte>> Allocate(std::size_t index, DataType data_type,
                                                std::span<const std::int64_t> shape, std::size_t bytes) override;
  const std::map<std::size_t, Value>& values();

 private:
  const std::vector<bool> wanted_;
  std::map<std::size_t, std::vector<std::byte>> memory_;
  std::map<std::size_t, Value> values_;
};

// One loaded model; destruction unloads it.
struct Loaded {
  std::unique_ptr<Scope> scope;
  std::unique_ptr<BackendModel> model;
  std::unique_ptr<Scope> instance_scope;
  std::unique_ptr<BackendInstance> instance;
  ~Loaded() {
    instance.reset();
    instance_scope.reset();
    model.reset();
    scope.reset();
  }
};

// The real engine, opened once for the whole program; a folder for each test.
class EngineTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  // A configuration from text, with backend and name filled in.
  static inference::ModelConfig Config(const std::string& text);
  absl::StatusOr<std::unique_ptr<Loaded>> Load(const inference::ModelConfig& config, CancelFlag* cancel = nullptr);
  // The load must go well.
  std::unique_ptr<Loaded> MustLoad(const inference::ModelConfig& config);
  // The load must fail and leave no row.
  absl::Status LoadError(const inference::ModelConfig& config, CancelFlag* cancel = nullptr);

  struct Answer {
    absl::Status status;
    std::map<std::size_t, Value> outputs;
    std::unique_ptr<TestSink> sink;  // the memory that the instance was given
  };
  static Answer Run(Loaded& loaded, const std::vector<Value>& inputs, CancelFlag* cancel = nullptr,
                    std::int64_t deadline_nanos = 0, std::vector<bool> wanted = {true, true});

  static Ledger& ledger();
  // Of all loads; unarmed it is the real one.
  static FaultPlatform& platform();
  static Backend& backend();

  std::filesystem::path directory_;  // of the model; the version is 1
  std::filesystem::path version() const { return directory_ / "1"; }
};

}  // namespace tidemark::testing
