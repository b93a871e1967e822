#include "protocol/shared_memory_requests.h"

#include <gtest/gtest.h>

#include <string>

#include "base/status.h"

namespace tidemark {
namespace {

std::string SystemError(std::string_view body) {
  return std::string(MessageOf(ParseSystemMemoryRequest(body).status()));
}
std::string CudaError(std::string_view body) { return std::string(MessageOf(ParseCudaMemoryRequest(body).status())); }

TEST(SharedMemoryRequests, RegistrationsAreRead) {
  const auto system =
      ParseSystemMemoryRequest(R"({"byte_size":18446744073709551615,"more":[{}],"key":"/k","key":"x"})");
  ASSERT_TRUE(system.ok()) << system.status();
  EXPECT_EQ(system->key, "/k");
  EXPECT_EQ(system->offset, 0u);
  EXPECT_EQ(system->byte_size, 18446744073709551615u);
  const auto cuda = ParseCudaMemoryRequest(R"({"raw_handle":{"b64":"Zm9v"},"device_id":1,"byte_size":64})");
  ASSERT_TRUE(cuda.ok()) << cuda.status();
  EXPECT_EQ(cuda->raw_handle, "foo");
  EXPECT_EQ(cuda->device, 1);
}

TEST(SharedMemoryRequests, WhatIsMissingOrWrongIsNamed) {
  EXPECT_EQ(SystemError(""), "failed to parse the request JSON buffer: The document is empty. at 0");
  EXPECT_EQ(SystemError("{}"), "Shared memory register request has no 'key' field");
  EXPECT_EQ(SystemError(R"({"key":"/k"})"), "Shared memory register request has no 'byte_size' field");
  EXPECT_EQ(SystemError(R"({"key":1,"byte_size":1})"), "attempt to access JSON non-string as string");
  EXPECT_EQ(SystemError(R"({"key":"/k","byte_size":-1})"),
            "attempt to access JSON non-unsigned-integer as unsigned-integer");
  EXPECT_EQ(SystemError(R"({"key":"/k","byte_size":18446744073709551616})"),
            "attempt to access JSON non-unsigned-integer as unsigned-integer");
  EXPECT_EQ(SystemError(R"({"key":"/k","byte_size":1,"offset":1.5})"),
            "attempt to access JSON non-unsigned-integer as unsigned-integer");
  EXPECT_EQ(SystemError("[]"), "attempt to get members for non-object");
  EXPECT_EQ(CudaError("{}"), "Shared memory register request has no 'raw_handle' field");
  EXPECT_EQ(CudaError(R"({"raw_handle":{}})"), "attempt to access non-existing object member 'b64'");
  EXPECT_EQ(CudaError(R"({"raw_handle":"x"})"), "attempt to access JSON non-object as object");
  EXPECT_EQ(CudaError(R"({"raw_handle":{"b64":"Zm9v"}})"), "attempt to access non-existing object member 'byte_size'");
  EXPECT_EQ(CudaError(R"({"raw_handle":{"b64":"Zm9v"},"byte_size":1})"),
            "attempt to access non-existing object member 'device_id'");
  EXPECT_EQ(CudaError(R"({"raw_handle":{"b64":"*"},"byte_size":1,"device_id":0})"),
            "'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t");
  EXPECT_EQ(CudaError(R"({"raw_handle":{"b64":"Zm9v"},"byte_size":1,"device_id":4294967296})"),
            "there is no device 4294967296");
}

}  // namespace
}  // namespace tidemark
