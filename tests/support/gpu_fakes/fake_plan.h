#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

namespace tidemark::testing {

// Writes plans that the fake libnvinfer runs. The beginning is that of a real plan (magic, size, version), so that
// what the product reads there is tested as well; then follow lines of text, and zeros for the weights.
//
//   op NAME                    identity (each output copies the input of the same position), addsub, nonzero, reshape
//   tensor NAME in|out TYPE DIMS   TYPE is TensorRT's number; DIMS "-1,16", "" for a scalar
//   host NAME                  the tensor lives on the host and is a shape input
//   format NAME F VECTOR_DIM COMPONENTS BYTES   the tensor's format
//   profile I NAME MIN OPT MAX     dims of an input in a profile; without any, one profile of the fixed dims
//   values I NAME MIN OPT MAX      the same for a host shape input
//   weights B / persistent B / scratch B / temporary B   bytes
//   aux N                      auxiliary streams
//   uncapturable 1             enqueueV3 breaks a graph capture, as a loop with a data-dependent trip count does
class FakePlan {
 public:
  enum Type {
    kFloat = 0,
    kHalf = 1,
    kInt8 = 2,
    kInt32 = 3,
    kBool = 4,
    kUint8 = 5,
    kFp8 = 6,
    kBf16 = 7,
    kInt64 = 8,
    kInt4 = 9
  };

  explicit FakePlan(std::string op) { Line("op " + op); }

  FakePlan& Input(const std::string& name, int type, const std::string& dims) {
    return Line("tensor " + name + " in " + std::to_string(type) + " " + dims);
  }
  FakePlan& Output(const std::string& name, int type, const std::string& dims) {
    return Line("tensor " + name + " out " + std::to_string(type) + " " + dims);
  }
  FakePlan& Host(const std::string& name) { return Line("host " + name); }
  FakePlan& Format(const std::string& name, int format, int dim, int components, int bytes) {
    return Line("format " + name + " " + std::to_string(format) + " " + std::to_string(dim) + " " +
                std::to_string(components) + " " + std::to_string(bytes));
  }
  FakePlan& Profile(int index, const std::string& name, const std::string& min, const std::string& opt,
                    const std::string& max) {
    return Line("profile " + std::to_string(index) + " " + name + " " + min + " " + opt + " " + max);
  }
  FakePlan& Values(int index, const std::string& name, const std::string& min, const std::string& opt,
                   const std::string& max) {
    return Line("values " + std::to_string(index) + " " + name + " " + min + " " + opt + " " + max);
  }
  FakePlan& Weights(std::size_t bytes) {
    weights_ = bytes;
    return Line("weights " + std::to_string(bytes));
  }
  FakePlan& Bytes(const std::string& what, std::size_t bytes) { return Line(what + " " + std::to_string(bytes)); }
  // The version that the plan says it was built with.
  FakePlan& Version(int major, int minor, int patch, int build) {
    const int parts[] = {major, minor, patch, build};
    for (int i = 0; i < 4; ++i) version_[i] = static_cast<char>(parts[i]);
    return *this;
  }

  std::string Build() const {
    std::string plan(kHeader, '\0');
    std::memcpy(plan.data(), "ftrt", 4);
    plan[8] = 2;
    std::memcpy(plan.data() + 24, version_, 4);
    plan += text_ + "end\n";
    plan.append(weights_, '\0');
    const std::uint64_t size = plan.size();
    std::memcpy(plan.data() + 16, &size, sizeof size);
    return plan;
  }

  static constexpr std::size_t kHeader = 64;

  // OUTPUT = INPUT, FP32, [elements].
  static FakePlan Identity(std::int64_t elements, const std::string& input = "INPUT",
                           const std::string& output = "OUTPUT") {
    FakePlan plan("identity");
    plan.Input(input, kFloat, std::to_string(elements)).Output(output, kFloat, std::to_string(elements));
    return plan;
  }
  // OUTPUT0 = INPUT0 + INPUT1, OUTPUT1 = INPUT0 - INPUT1, FP32 [-1,16], batch 1 to 64.
  static FakePlan AddSub() {
    FakePlan plan("addsub");
    for (const char* name : {"INPUT0", "INPUT1"})
      plan.Input(name, kFloat, "-1,16").Profile(0, name, "1,16", "8,16", "64,16");
    return plan.Output("OUTPUT0", kFloat, "-1,16").Output("OUTPUT1", kFloat, "-1,16");
  }
  // INPUT [-1,16] of the type, copied, batch 1 to 64.
  static FakePlan Typed(int type) {
    FakePlan plan("identity");
    return plan.Input("INPUT", type, "-1,16")
        .Output("OUTPUT", type, "-1,16")
        .Profile(0, "INPUT", "1,16", "8,16", "64,16");
  }
  // INPUT FP32 [-1] -> OUTPUT INT64 [1,-1]: where INPUT is not zero.
  static FakePlan NonZero() {
    FakePlan plan("nonzero");
    return plan.Input("INPUT", kFloat, "-1").Output("OUTPUT", kInt64, "1,-1").Profile(0, "INPUT", "1", "64", "1024");
  }
  // INPUT FP32 [-1,4] and SHAPE INT64 [2] on the host -> OUTPUT [-1,-1].
  static FakePlan Reshape() {
    FakePlan plan("reshape");
    return plan.Input("INPUT", kFloat, "-1,4")
        .Input("SHAPE", kInt64, "2")
        .Host("SHAPE")
        .Output("OUTPUT", kFloat, "-1,-1")
        .Profile(0, "INPUT", "1,4", "8,4", "64,4")
        .Values(0, "SHAPE", "1,1", "8,4", "256,256");
  }
  // Two profiles, batch 1 to 8 and 9 to 64.
  static FakePlan TwoProfiles() {
    FakePlan plan("identity");
    return plan.Input("INPUT", kFloat, "-1,16")
        .Output("OUTPUT", kFloat, "-1,16")
        .Profile(0, "INPUT", "1,16", "4,16", "8,16")
        .Profile(1, "INPUT", "9,16", "16,16", "64,16");
  }

 private:
  FakePlan& Line(const std::string& line) {
    text_ += line + "\n";
    return *this;
  }

  std::string text_;
  std::size_t weights_ = 0;
  char version_[4] = {11, 2, 1, 2};
};

}  // namespace tidemark::testing
