// What 100,000 floats cost as the `data` of an infer request and response, against simdjson's DOM and nlohmann's, in the
// same run. Prints milliseconds (medians of 31 interleaved rounds) and ratios.

#include <simdjson.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "protocol/json_cursor.h"
#include "protocol/json_reader.h"
#include "protocol/json_writer.h"
#include "tests/support/real_platform.h"

namespace {

constexpr std::int64_t kCount = 100'000;

double MillisOf(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

int main() {
  const std::unique_ptr<tidemark::Platform> platform = tidemark::CreateLinuxPlatform();
  tidemark::BufferPool pool(*platform);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(kCount);
  for (float& value : values) value = normal(random);
  const auto bytes = std::as_bytes(std::span(values));
  std::string text;
  tidemark::AppendJsonElements(text, tidemark::DataType::kFp32, bytes);
  const simdjson::padded_string padded(text);
  simdjson::dom::parser parser;
  std::vector<float> sink(kCount);
  std::string answer;

  const std::map<std::string, std::function<void()>> works = {
      {"read: ours",
       [&] {
         tidemark::JsonCursor cursor(text);
         tidemark::Buffer out;
         if (!tidemark::ReadJsonTensor(cursor, tidemark::DataType::kFp32, "X", kCount, 1 << 30, pool, out).ok())
           std::abort();
       }},
      {"read: simdjson DOM",
       [&] {
         std::size_t i = 0;
         for (const double value : parser.parse(padded).get_array()) sink[i++] = static_cast<float>(value);
       }},
      {"read: nlohmann",
       [&] {
         std::size_t i = 0;
         for (const auto& value : nlohmann::json::parse(text)) sink[i++] = value.get<float>();
       }},
      {"write: ours",
       [&] {
         answer.clear();  // the server keeps the string's memory, too
         tidemark::AppendJsonElements(answer, tidemark::DataType::kFp32, bytes);
       }},
      {"write: nlohmann", [&] { (void)nlohmann::json(values).dump(); }},
  };
  std::map<std::string, std::vector<double>> times;
  for (int round = 0; round < 31; ++round) {
    for (const auto& [name, work] : works) times[name].push_back(MillisOf(work));
  }
  const auto median = [&](const std::string& name) {
    std::vector<double>& all = times[name];
    std::nth_element(all.begin(), all.begin() + 15, all.end());
    return all[15];
  };
  for (const auto& [name, work] : works) {
    const double ours = median(name.substr(0, name.find(':')) + ": ours");
    std::printf("%-20s %7.2f ms  %5.2f x ours\n", name.c_str(), median(name), median(name) / ours);
  }
  std::printf("%zu bytes of text\n", text.size());
  return 0;
}
