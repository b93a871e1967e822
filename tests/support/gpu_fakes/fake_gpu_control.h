#pragma once

#include <cstddef>
#include <cstdint>

// How a test looks into and steers the fake GPU libraries (libcudart, libcuda, libnvinfer, libnvidia-ml), which all keep
// their state in one shared library. Plain C, so that it can be linked or looked up. Thread-safe.
//
// The environment steers a process that a test cannot reach: FAKE_GPU_STATE names a file through which the NVML of one
// process sees the device memory of others; FAKE_GPU_DEVICES and FAKE_GPU_MEMORY (bytes) describe the machine;
// FAKE_GPU_FAIL is a list of "entry:n:once|always[:error]" separated by ';', as FakeGpuFail takes them.
extern "C" {

// From now on the n-th call (from 0) of `entry` fails, that one alone or it and every later one. `entry` is the name of
// a library function or method ("cudaMalloc", "createExecutionContext"), or "*" for any call that can fail and takes
// something or enqueues something. `error` is the CUDA error code to answer, 0 for the entry's usual one.
void FakeGpuFail(const char* entry, std::int64_t n, int once, int error);
// No failures any more; calls since the last FakeGpuFail of that entry are forgotten, a sticky error is healed.
void FakeGpuHeal();
// 1 when a failure that was asked for has happened since.
int FakeGpuFired();

// From now on every CUDA call answers this error, as after an illegal access.
void FakeGpuSetSticky(int error);

// Live objects or bytes of a kind: device_blocks, device_bytes, pinned_blocks, pinned_bytes, streams, events, graphs,
// graph_execs, pools, runtimes, engines, contexts, host_memories, inspectors, builders, networks, parsers, …
std::int64_t FakeGpuLive(const char* kind);
// "contexts=1 device_blocks=2 …" of all kinds that are not zero; returns the length that was needed.
std::size_t FakeGpuLiveText(char* text, std::size_t bytes);
// Calls of an entry point since the process began.
std::int64_t FakeGpuCalls(const char* entry);

// How often a rule was broken (wrong order of destruction, two threads in one context, memory of the wrong kind, a
// block freed twice or while in use, a wrong device), and what was said about it, one a line.
std::int64_t FakeGpuViolations(char* text, std::size_t bytes);
void FakeGpuForgetViolations();

// With `on`, work that is put on a stream runs only when somebody waits for it or asks for its state: exposes buffers
// that are used or freed too early.
void FakeGpuDeferred(int on);
// Devices of the machine (0 to 2), and bytes of each.
void FakeGpuMachine(int devices, std::uint64_t bytes);
// What NVML would list for this process on that device.
std::uint64_t FakeGpuProcessBytes(int device);
}
