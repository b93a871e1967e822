#include "protocol/reflection.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "proto/grpc_service.pb.h"
#include "proto/health.pb.h"
#include "proto/reflection.pb.h"
#include "proto/reflection_v1alpha.pb.h"

namespace tidemark {
namespace {

using google::protobuf::DescriptorPool;
using google::protobuf::FileDescriptor;

constexpr const char* kServices[] = {"grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection",
                                     "grpc.reflection.v1alpha.ServerReflection", "inference.GRPCInferenceService"};

// Generated code registers its files when it is first used: make sure of all.
const DescriptorPool& Files() {
  inference::ServerLiveRequest::descriptor();
  grpc::health::v1::HealthCheckRequest::descriptor();
  grpc::reflection::v1::ServerReflectionRequest::descriptor();
  grpc::reflection::v1alpha::ServerReflectionRequest::descriptor();
  return *DescriptorPool::generated_pool();
}

// The file and everything it imports, the file first.
void Collect(const FileDescriptor& file, std::set<const FileDescriptor*>& seen,
             std::vector<const FileDescriptor*>& out) {
  if (!seen.insert(&file).second) return;
  out.push_back(&file);
  for (int i = 0; i < file.dependency_count(); ++i) Collect(*file.dependency(i), seen, out);
}

template <typename Response>
void AddFile(const FileDescriptor* file, std::string_view what, std::string_view name, Response& response) {
  if (file == nullptr) {
    response.mutable_error_response()->set_error_code(static_cast<int>(absl::StatusCode::kNotFound));
    response.mutable_error_response()->set_error_message(fmt::format("there is no {} '{}'", what, name));
    return;
  }
  std::set<const FileDescriptor*> seen;
  std::vector<const FileDescriptor*> files;
  Collect(*file, seen, files);
  for (const FileDescriptor* each : files) {
    google::protobuf::FileDescriptorProto proto;
    each->CopyTo(&proto);
    proto.SerializeToString(response.mutable_file_descriptor_response()->add_file_descriptor_proto());
  }
}

template <typename Request, typename Response>
void Answer(const Request& request, Response& response) {
  response.set_valid_host(request.host());
  *response.mutable_original_request() = request;
  const DescriptorPool& files = Files();
  switch (request.message_request_case()) {
    case Request::kFileByFilename:
      return AddFile(files.FindFileByName(request.file_by_filename()), "file", request.file_by_filename(), response);
    case Request::kFileContainingSymbol:
      return AddFile(files.FindFileContainingSymbol(request.file_containing_symbol()), "symbol",
                     request.file_containing_symbol(), response);
    case Request::kFileContainingExtension:
      return AddFile<Response>(nullptr, "extension of", request.file_containing_extension().containing_type(),
                               response);
    case Request::kAllExtensionNumbersOfType: {
      const std::string& type = request.all_extension_numbers_of_type();
      if (files.FindMessageTypeByName(type) == nullptr) return AddFile<Response>(nullptr, "type", type, response);
      response.mutable_all_extension_numbers_response()->set_base_type_name(type);
      return;
    }
    case Request::kListServices:
      for (const char* service : kServices) response.mutable_list_services_response()->add_service()->set_name(service);
      return;
    case Request::MESSAGE_REQUEST_NOT_SET:
      break;
  }
  response.mutable_error_response()->set_error_code(static_cast<int>(absl::StatusCode::kInvalidArgument));
  response.mutable_error_response()->set_error_message("the request asks for nothing");
}

template <typename Request, typename Response>
absl::StatusOr<std::string> AnswerAs(std::span<const std::byte> message) {
  Request request;
  if (!request.ParseFromArray(message.data(), static_cast<int>(message.size()))) {
    return absl::InvalidArgumentError("the request is no ServerReflectionRequest");
  }
  Response response;
  Answer(request, response);
  return response.SerializeAsString();
}

}  // namespace

absl::StatusOr<std::string> AnswerReflection(ReflectionVersion version, std::span<const std::byte> message) {
  namespace reflection = grpc::reflection;
  if (version == ReflectionVersion::kV1) {
    return AnswerAs<reflection::v1::ServerReflectionRequest, reflection::v1::ServerReflectionResponse>(message);
  }
  return AnswerAs<reflection::v1alpha::ServerReflectionRequest, reflection::v1alpha::ServerReflectionResponse>(message);
}

}  // namespace tidemark
