#include "tests/support/gpu_fakes/fake_gpu.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

namespace tidemark {

std::string FakeGpuFolder() { return TIDEMARK_FAKE_GPU; }

void OpenFakeGpu() {
  static const bool opened = [] {
    for (const char* name : {"libcuda.so.1", "libnvidia-ml.so.1", "libnvinfer.so.11", "libnvinfer.so.10"}) {
      if (dlopen((FakeGpuFolder() + "/" + name).c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr) continue;
      std::fprintf(stderr, "no fake %s: %s\n", name, dlerror());
      std::abort();
    }
    return true;
  }();
  (void)opened;
}

std::string FakeGpuLiveText() {
  char text[1024];
  ::FakeGpuLiveText(text, sizeof text);
  return text;
}

std::string FakeGpuViolationText() {
  char text[4096];
  ::FakeGpuViolations(text, sizeof text);
  return text;
}

}  // namespace tidemark
