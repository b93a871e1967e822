#include "protocol/cloud_requests.h"

#include <gtest/gtest.h>

#include "base/status.h"

namespace tidemark {
namespace {

TEST(CloudRequestsTest, ALoadNamesAModelAndARepository) {
  const auto load = ParseSageMakerLoad(R"({"extra":[1],"url":"\/opt\/m","model_name":"abc"})");
  ASSERT_TRUE(load.ok()) << load.status();
  EXPECT_EQ(load->model_name, "abc");
  EXPECT_EQ(load->url, "/opt/m");
}

TEST(CloudRequestsTest, WhatIsMissingIsNamed) {
  const auto error = [](std::string_view body) {
    const auto load = ParseSageMakerLoad(body);
    EXPECT_EQ(load.status().code(), absl::StatusCode::kInvalidArgument) << body;
    return std::string(MessageOf(load.status()));
  };
  EXPECT_EQ(error(R"({"url":"/m"})"), "load model: member 'model_name' is missing or empty");
  EXPECT_EQ(error(R"({"model_name":"m","url":""})"), "load model: member 'url' is missing or empty");
  EXPECT_EQ(error(R"({"model_name":1,"url":"/m"})"), "load model: 'model_name' is no string");
  EXPECT_EQ(error("[]"), "load model: found no JSON object, expected {\"model_name\":…,\"url\":…}");
  for (const char* body : {"", "{", "{\"url\":\"x\"", "{} {}"}) error(body);
}

}  // namespace
}  // namespace tidemark
