#pragma once

#include <cstddef>
#include <string>

#include "tests/support/gpu_fakes/fake_gpu_control.h"

namespace tidemark {

// Opens the fake libraries of the build tree, once, so that whoever opens "libcuda.so.1", "libnvinfer.so.11" or another
// of them by its plain name in this process gets the fake. (A loaded library is found by its name; a sanitizer's dlopen
// looks into no run path.) Aborts when one is missing.
void OpenFakeGpu();
// The folder they lie in, for LD_LIBRARY_PATH of another process or an option.
std::string FakeGpuFolder();

std::string FakeGpuLiveText();
std::string FakeGpuViolationText();

}  // namespace tidemark
