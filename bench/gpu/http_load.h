#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tidemark::bench {

struct HttpLoad {
  int port = 0;
  std::string model;
  std::vector<std::string> inputs;
  std::vector<std::int64_t> shape;  // the same for all inputs
  std::string datatype = "FP32";    // or INT32
  int connections = 1;
  int threads = 4;
  double seconds = 4;
};

// Closed loop: each connection sends the same binary inference again as soon as it is answered. Returns requests,
// requests per second and latencies in microseconds as a JSON object.
std::string RunHttpLoad(const HttpLoad& load);

}  // namespace tidemark::bench
