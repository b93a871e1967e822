#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace tidemark::testing {

// Writes OpenVINO IR (version 11) for tests. Types are the engine's element types ("f32"); -1 is a dynamic dimension.
// Every call adds one layer and answers its number.
class IrModel {
 public:
  using Dims = std::vector<std::int64_t>;

  int Parameter(std::string_view name, std::string_view type, Dims dims);
  int Constant(std::string_view type, Dims dims, const std::vector<float>& values);  // f32 only
  // A node with one output. `attributes` as XML ('auto_broadcast="numpy"').
  int Node(std::string_view op, std::string_view attributes, std::vector<int> inputs, std::string_view name,
           std::string_view type, Dims dims);
  void Result(int layer);

  std::string Xml() const;
  // model.xml and model.bin; makes the directory.
  void Write(const std::filesystem::path& directory) const;

 private:
  struct Layer {
    std::string xml_head;  // up to the ports
    std::vector<int> inputs;
    bool has_output = true;
    std::string name;
    std::string type;
    Dims dims;
  };
  int Add(Layer layer);

  std::vector<Layer> layers_;
  std::string weights_;
};

}  // namespace tidemark::testing
