#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "tests/support/core_harness.h"

namespace tidemark {

// One engine under test: how to get it and how to write a model for it that copies INPUT0 to OUTPUT0 (4 x
// FP32). A list of these is what suites run over; an engine whose library is missing fails them loudly.
struct TestEngine {
  std::string name;
  BackendFactory factory = nullptr;
  std::string file;  // artifact in the version's folder
  std::string contents;
  std::function<int(int instances)> at_least;  // acquisitions of a load, warm-up included
  bool on_gpu = false;                         // one of the fake GPU libraries

  std::string Config(int instances) const;
  bool reads_a_model() const { return !contents.empty() && file != "model.fake"; }
  void AddModel(TestFolder& folder, std::string_view model, int instances) const;
  // A load request that brings the whole model along.
  LoadOverrides Overrides() const;
  CoreHarness::Options Options() const;
};

inline void PrintTo(const TestEngine& engine, std::ostream* out) { *out << engine.name; }

// The fake engine, identity, onnxruntime, openvino (which no sanitizer can host), and TensorRT 11 and 10 on fake GPU
// libraries.
std::vector<TestEngine> AllEngines();

}  // namespace tidemark
