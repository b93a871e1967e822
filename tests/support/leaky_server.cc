// A stand-alone server that speaks just enough of the model repository API to be audited, and leaks on purpose: the
// control of `tidemark audit`. It "serves" identity models: one input and one output of the same type and shape, some
// backend that exists, and a model file, in the highest version's directory, that begins with 'm' and has 4096 bytes.

#include <dlfcn.h>
#include <fmt/format.h>
#include <httplib.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "audit/model_files.h"
#include "base/status.h"
#include "base/text_format.h"

namespace {

namespace fs = std::filesystem;
using tidemark::RepeatedMessages;
using tidemark::TextField;

struct Settings {
  std::string repository;
  int http_port = 0;
  std::size_t leak_bytes = 0;         // with each failed load
  std::size_t retain_bytes = 0;       // once, with the first failed load
  std::size_t leak_descriptors = 0;   // with each failed load
  std::size_t leak_device_bytes = 0;  // on GPU 0 with each failed load
  int die_after = -1;                 // ends without an answer at this failed load, counted from 1
  int die_before_ready = 0;
  std::string wrong_error;     // what a failed load says instead of the reason
  bool accept_faults = false;  // loads succeed whatever the configuration says
};

// Anonymous memory that nobody will free.
void Leak(std::size_t bytes) {
  if (bytes == 0) return;
  auto* lost = static_cast<volatile char*>(std::malloc(bytes));
  for (std::size_t i = 0; lost != nullptr && i < bytes; i += 64) lost[i] = 'x';
}

// Memory on GPU 0 that nobody will free, through the driver's own library. Ends the process where there is none.
void LeakOnDevice(std::size_t bytes) {
  if (bytes == 0) return;
  using Init = int (*)(unsigned);
  using Retain = int (*)(void**, int);
  using Use = int (*)(void*);
  using Allocate = int (*)(std::uint64_t*, std::size_t);
  static void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  static void* context = nullptr;
  const auto symbol = [](const char* name) { return library == nullptr ? nullptr : dlsym(library, name); };
  const auto init = reinterpret_cast<Init>(symbol("cuInit"));
  const auto retain = reinterpret_cast<Retain>(symbol("cuDevicePrimaryCtxRetain"));
  const auto use = reinterpret_cast<Use>(symbol("cuCtxSetCurrent"));
  const auto allocate = reinterpret_cast<Allocate>(symbol("cuMemAlloc_v2"));
  std::uint64_t lost = 0;
  const bool leaked = init != nullptr && retain != nullptr && use != nullptr && allocate != nullptr && init(0) == 0 &&
                      (context != nullptr || retain(&context, 0) == 0) && use(context) == 0 &&
                      allocate(&lost, bytes) == 0;
  if (leaked) return;
  fmt::print(stderr, "cannot leak {} bytes on GPU 0\n", bytes);
  std::_Exit(4);
}

std::string Field(const TextField& tensor, std::string_view name, std::string_view text) {
  std::string value;
  for (const TextField& field : tensor.children) {
    if (field.name == name) value += std::string(text.substr(field.value_begin, field.end - field.value_begin));
  }
  return value;
}

class Models {
 public:
  explicit Models(const Settings& settings) : settings_(settings) {}

  // OK, or why the model cannot be loaded.
  absl::Status Check(const std::string& model) const {
    ASSIGN_OR_RETURN(const std::string text,
                     tidemark::audit::ReadFile(fs::path(settings_.repository) / model / "config.pbtxt"));
    ASSIGN_OR_RETURN(const auto fields, tidemark::ParseTextFormat(text));
    const auto inputs = RepeatedMessages(fields, "input");
    const auto outputs = RepeatedMessages(fields, "output");
    if (inputs.size() != 1 || outputs.size() != 1) {
      return absl::InvalidArgumentError(
          fmt::format("expected 1 input and 1 output, found {} and {}", inputs.size(), outputs.size()));
    }
    for (const TextField& field : fields) {
      if (field.name == "backend" && field.Scalar(text) != "identity") {
        return absl::InvalidArgumentError(fmt::format("unable to find backend library for '{}'", field.Scalar(text)));
      }
    }
    for (const char* property : {"data_type", "dims"}) {
      const std::string expected = Field(*inputs[0], property, text);
      const std::string found = Field(*outputs[0], property, text);
      if (expected != found) {
        return absl::InvalidArgumentError(
            fmt::format("unexpected {} {} for inference output 'OUTPUT0', expecting {}", property, found, expected));
      }
    }
    const fs::path file = fs::path(settings_.repository) / model / "1" / "model.bin";
    const auto content = tidemark::audit::ReadFile(file);
    if (!content.ok()) return absl::NotFoundError(fmt::format("no such file: {}", file.string()));
    if (content->size() != 4096 || content->front() != 'm') return absl::InternalError("the model file is corrupt");
    return absl::OkStatus();
  }

  void Load(const std::string& model, httplib::Response& response) {
    const absl::Status status = Check(model);
    if (status.ok() || settings_.accept_faults) {
      loaded_.insert(model);
      return;
    }
    ++failed_;
    if (failed_ == settings_.die_after) _exit(3);
    Leak(settings_.leak_bytes);
    LeakOnDevice(settings_.leak_device_bytes);
    if (failed_ == 1) Leak(settings_.retain_bytes);
    for (std::size_t i = 0; i < settings_.leak_descriptors; ++i) (void)!dup(STDIN_FILENO);
    const std::string reason = settings_.wrong_error.empty()
                                   ? fmt::format("load failed for model '{}': version 1 is at UNAVAILABLE state: {};\n",
                                                 model, tidemark::TritonStatusText(status))
                                   : settings_.wrong_error;
    response.status = 400;
    response.set_content(nlohmann::json{{"error", reason}}.dump(), "application/json");
  }

  void Unload(const std::string& model) { loaded_.erase(model); }

  std::string Index() const {
    nlohmann::json index = nlohmann::json::array();
    for (const auto& entry : fs::directory_iterator(settings_.repository)) {
      const std::string name = entry.path().filename().string();
      index.push_back(
          {{"name", name}, {"version", "1"}, {"state", loaded_.count(name) != 0 ? "READY" : "UNAVAILABLE"}});
    }
    return index.dump();
  }

 private:
  const Settings& settings_;
  std::set<std::string> loaded_;
  int failed_ = 0;
};

int Serve(const Settings& settings) {
  LeakOnDevice(settings.leak_device_bytes == 0 ? 0 : 1);  // a context, by which NVML knows this process
  httplib::Server server;
  server.new_task_queue = [] { return new httplib::ThreadPool(1); };  // owned by the server; one thread: no locking
  Models models(settings);
  const auto ok = [](const httplib::Request&, httplib::Response& response) { response.status = 200; };
  server.Get("/v2/health/ready", ok);
  server.Get("/v2/health/live", ok);
  server.Get("/v2", [](const httplib::Request&, httplib::Response& response) {
    response.set_content(R"({"name":"leaky","version":"1","extensions":["model_repository"]})", "application/json");
  });
  server.Post("/v2/repository/index", [&](const httplib::Request&, httplib::Response& response) {
    response.set_content(models.Index(), "application/json");
  });
  server.Post(
      R"(/v2/repository/models/([^/]+)/load)",
      [&](const httplib::Request& request, httplib::Response& response) { models.Load(request.matches[1], response); });
  server.Post(R"(/v2/repository/models/([^/]+)/unload)",
              [&](const httplib::Request& request, httplib::Response&) { models.Unload(request.matches[1]); });
  if (settings.die_before_ready != 0) return settings.die_before_ready;
  return server.listen("127.0.0.1", settings.http_port) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app("A server that leaks on purpose");
  app.add_option("--repository", settings.repository)->required();
  app.add_option("--http-port", settings.http_port)->required();
  app.add_option("--leak-bytes,--leak", settings.leak_bytes);
  app.add_option("--retain-bytes", settings.retain_bytes);
  app.add_option("--leak-descriptors", settings.leak_descriptors);
  app.add_option("--leak-device-bytes", settings.leak_device_bytes);
  app.add_option("--die-after", settings.die_after);
  app.add_option("--die-before-ready", settings.die_before_ready);
  app.add_option("--wrong-error", settings.wrong_error);
  app.add_flag("--accept-faults", settings.accept_faults);
  CLI11_PARSE(app, argc, argv);
  return Serve(settings);
}
