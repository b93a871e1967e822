#include "backend/ragged_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <list>
#include <map>

#include "backend/batch_execution.h"
#include "base/status.h"
#include "google/protobuf/text_format.h"
#include "tests/support/real_platform.h"

namespace tidemark {
namespace {

using testing::ElementsAre;

constexpr std::string_view kRagged =
    "max_batch_size: 8 input { name: 'R' data_type: TYPE_FP32 dims: -1 allow_ragged_batch: true } ";

std::string Made(std::string_view kind, std::string_view type = "TYPE_INT32") {
  return fmt::format("batch_input {{ kind: {} target_name: 'T' data_type: {} source_input: 'R' }} ", kind, type);
}

class MemorySink final : public OutputSink {
 public:
  bool Wants(std::size_t /*index*/) const override { return true; }
  absl::StatusOr<std::span<std::byte>> Allocate(std::size_t index, DataType /*data_type*/,
                                                std::span<const std::int64_t> shape, std::size_t bytes) override {
    shapes[index] = Shape(shape.begin(), shape.end());
    data[index].resize(bytes / sizeof(float));
    return std::as_writable_bytes(std::span(data[index]));
  }
  std::map<std::size_t, Shape> shapes;
  std::map<std::size_t, std::vector<float>> data;
};

class RaggedPlanTest : public testing::Test {
 protected:
  struct Request {
    std::vector<std::vector<float>> data;
    std::vector<InputTensor> inputs;
    MemorySink sink;
    Execution execution;
  };

  static RaggedPlan Plan(const std::string& text) {
    inference::ModelConfig config;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config)) << text;
    return RaggedPlan(config);
  }
  // A request with these shapes; the elements of its first input are 10 * number of the request + 0, 1, ….
  Request& Add(std::vector<Shape> shapes) {
    Request& request = requests_.emplace_back();
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      std::vector<float>& data = request.data.emplace_back();
      for (std::int64_t k = 0; k < *ElementCount(AsSpan(shapes[i])); ++k) {
        data.push_back(static_cast<float>(10 * static_cast<std::int64_t>(requests_.size()) + k));
      }
      InputTensor& input = request.inputs.emplace_back();
      input.index = i;
      input.data_type = DataType::kFp32;
      input.shape = shapes[i];
    }
    for (std::size_t i = 0; i < shapes.size(); ++i) request.inputs[i].data = std::as_bytes(std::span(request.data[i]));
    request.execution.inputs = request.inputs;
    request.execution.outputs = &request.sink;
    request.execution.buffers = &buffers_;
    pointers_.push_back(&request.execution);
    return request;
  }
  // The made tensor of the batch.
  template <typename T = std::int32_t>
  std::vector<T> Numbers(const RaggedPlan& plan, Shape& shape) {
    std::vector<InputTensor> inputs;
    std::vector<Buffer> memory;
    EXPECT_TRUE(plan.Make(pointers_, buffers_, inputs, memory).ok());
    EXPECT_EQ(inputs.size(), 1U);
    EXPECT_EQ(inputs[0].index, 1U);
    EXPECT_EQ(inputs[0].name, "T");
    shape = inputs[0].shape;
    std::vector<T> values(inputs[0].data.size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), inputs[0].data.data(), inputs[0].data.size());
    return values;
  }

  std::unique_ptr<Platform> platform_ = CreateLinuxPlatform();
  BufferPool buffers_{*platform_};
  std::list<Request> requests_;
  std::vector<Execution*> pointers_;
};

TEST_F(RaggedPlanTest, CountsAreByRequest) {
  for (const std::int64_t elements : {2, 4, 1, 3}) Add({{1, elements}});
  Shape shape;
  const std::string ragged(kRagged);
  EXPECT_THAT(Numbers(Plan(ragged + Made("BATCH_ELEMENT_COUNT")), shape), ElementsAre(2, 4, 1, 3));
  EXPECT_EQ(shape, (Shape{4}));
  EXPECT_THAT(Numbers<float>(Plan(ragged + Made("BATCH_ACCUMULATED_ELEMENT_COUNT", "TYPE_FP32")), shape),
              ElementsAre(2.0F, 6.0F, 7.0F, 10.0F));
  EXPECT_THAT(Numbers(Plan(ragged + Made("BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO")), shape),
              ElementsAre(0, 2, 6, 7, 10));
  EXPECT_EQ(shape, (Shape{5}));
  EXPECT_THAT(Numbers(Plan(ragged + Made("BATCH_MAX_ELEMENT_COUNT_AS_SHAPE")), shape), ElementsAre(0, 0, 0, 0));
  EXPECT_EQ(shape, (Shape{4}));
}

TEST_F(RaggedPlanTest, ShapesAreByItem) {
  Add({{2, 1, 2}});
  Add({{1, 1, 2}});
  Add({{1, 2, 2}});
  const std::string ragged = "max_batch_size: 8 input { name: 'R' data_type: TYPE_FP32 dims: [-1, -1] } ";
  Shape shape;
  EXPECT_THAT(Numbers(Plan(ragged + Made("BATCH_ITEM_SHAPE")), shape), ElementsAre(1, 2, 1, 2, 1, 2, 2, 2));
  EXPECT_EQ(shape, (Shape{4, 2}));
  EXPECT_THAT(Numbers(Plan(ragged + Made("BATCH_ITEM_SHAPE_FLATTEN")), shape), ElementsAre(1, 2, 1, 2, 1, 2, 2, 2));
  EXPECT_EQ(shape, (Shape{8}));
}

TEST_F(RaggedPlanTest, AModelWithoutAnyOfItHasAnEmptyPlan) {
  EXPECT_TRUE(Plan("input { name: 'R' data_type: TYPE_FP32 dims: -1 }").empty());
  EXPECT_FALSE(Plan(std::string(kRagged)).empty());
  EXPECT_FALSE(Plan(Made("BATCH_ELEMENT_COUNT")).empty());
}

TEST_F(RaggedPlanTest, RaggedInputsGoInFlatAndScatteredOutputsComeBackInTheirShapes) {
  Request& a = Add({{1, 2}, {1, 1}});
  Request& b = Add({{2, 2}, {2, 1}});
  Request& c = Add({{1, 1}, {1, 1}});
  const RaggedPlan plan =
      Plan(std::string(kRagged) + "input { name: 'N' data_type: TYPE_FP32 dims: 1 } " +
           "output { name: 'O' data_type: TYPE_FP32 dims: -1 } " +
           "output { name: 'P' data_type: TYPE_FP32 dims: 1 } " + Made("BATCH_ACCUMULATED_ELEMENT_COUNT") +
           "batch_output { target_name: 'O' kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: 'R' }");
  int runs = 0;
  ExecuteRagged(pointers_, plan, [&](Execution& whole) {
    ++runs;
    EXPECT_EQ(whole.inputs.size(), 3U);
    EXPECT_EQ(whole.inputs[0].shape, (Shape{7}));
    EXPECT_EQ(whole.inputs[1].shape, (Shape{4, 1}));
    EXPECT_EQ(whole.inputs[2].index, 2U);
    EXPECT_EQ(whole.inputs[2].shape, (Shape{3}));
    for (const std::size_t i : {std::size_t{0}, std::size_t{1}}) {
      const InputTensor& input = whole.inputs[i];
      const auto out = whole.outputs->Allocate(i, DataType::kFp32, AsSpan(input.shape), input.data.size());
      std::memcpy(out->data(), input.data.data(), input.data.size());
    }
  });
  EXPECT_EQ(runs, 1);
  EXPECT_THAT(a.sink.data[0], ElementsAre(10, 11));
  EXPECT_EQ(a.sink.shapes[0], (Shape{1, 2}));
  EXPECT_THAT(b.sink.data[0], ElementsAre(20, 21, 22, 23));
  EXPECT_EQ(b.sink.shapes[0], (Shape{2, 2}));
  EXPECT_THAT(c.sink.data[0], ElementsAre(30));
  EXPECT_THAT(b.sink.data[1], ElementsAre(20, 21));
  EXPECT_EQ(b.sink.shapes[1], (Shape{2, 1}));
  EXPECT_TRUE(c.execution.status.ok());
}

TEST_F(RaggedPlanTest, OneRequestAloneIsFlatToo) {
  Request& only = Add({{1, 3}});
  const RaggedPlan plan = Plan(std::string(kRagged) + "output { name: 'O' data_type: TYPE_FP32 dims: 1 } " +
                               Made("BATCH_ELEMENT_COUNT", "TYPE_FP32"));
  ExecuteRagged(pointers_, plan, [&](Execution& whole) {
    EXPECT_EQ(whole.inputs[0].shape, (Shape{3}));
    const Shape shape{1, 1};
    const auto out = whole.outputs->Allocate(0, DataType::kFp32, AsSpan(shape), sizeof(float));
    std::memcpy(out->data(), whole.inputs[1].data.data(), sizeof(float));
  });
  EXPECT_TRUE(only.execution.status.ok()) << only.execution.status;
  EXPECT_THAT(only.sink.data[0], ElementsAre(3));
}

TEST_F(RaggedPlanTest, AFailedRequestFailsAlone) {
  Request& good = Add({{1, 2}});
  Request& bad = Add({{1, 5}});
  ExecuteRagged(pointers_, Plan(std::string(kRagged)), [&](Execution& whole) {
    if (whole.inputs[0].shape[0] >= 5) whole.status = absl::InvalidArgumentError("too long");
  });
  EXPECT_TRUE(good.execution.status.ok());
  EXPECT_EQ(MessageOf(bad.execution.status), "too long");
}

TEST_F(RaggedPlanTest, AFlatOutputThatIsTooShortIsAnError) {
  Request& a = Add({{1, 2}});
  Request& b = Add({{1, 2}});
  const RaggedPlan plan =
      Plan(std::string(kRagged) + "output { name: 'O' data_type: TYPE_FP32 dims: -1 } " +
           "batch_output { target_name: 'O' kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: 'R' }");
  ExecuteRagged(pointers_, plan, [&](Execution& whole) {
    const Shape shape{3};
    EXPECT_TRUE(whole.outputs->Allocate(0, DataType::kFp32, AsSpan(shape), 3 * sizeof(float)).ok());
  });
  EXPECT_TRUE(a.execution.status.ok());
  EXPECT_TRUE(absl::IsInternal(b.execution.status));
}

}  // namespace
}  // namespace tidemark
