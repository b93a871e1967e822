#include "platform/cuda.h"

#include <fmt/format.h>

#include "base/status.h"

namespace tidemark::cuda {

absl::StatusOr<Api> ResolveApi(absl::FunctionRef<absl::StatusOr<void*>(const char* name)> symbol) {
  Api api;
#define TIDEMARK_CUDA_RESOLVE(member, name, ...)                  \
  {                                                               \
    ASSIGN_OR_RETURN(void* const address, symbol(name));          \
    api.member = reinterpret_cast<decltype(api.member)>(address); \
  }
  TIDEMARK_CUDA_FUNCTIONS(TIDEMARK_CUDA_RESOLVE)
#undef TIDEMARK_CUDA_RESOLVE
  return api;
}

bool IsSticky(Result result) {
  switch (result) {
    case 4:    // deinitialised
    case 214:  // uncorrectable memory error
    case 220:  // uncorrectable NVLink error
    case 226:  // contained memory error
    case 700:  // illegal address
    case 702:  // launch timed out
    case 709:  // the context is destroyed
    case 710:  // assertion on the device
    case 714:  // hardware stack error
    case 715:  // illegal instruction
    case 716:  // misaligned address
    case 717:  // invalid address space
    case 718:  // invalid program counter
    case 719:  // launch failed
      return true;
    default:
      return false;
  }
}

std::string ErrorText(const Api& api, Result result) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (api.error_name(result, &name) != kSuccess) name = nullptr;
  if (api.error_string(result, &text) != kSuccess) text = nullptr;
  return fmt::format("{} ({})", name != nullptr ? name : fmt::format("CUDA error {}", result),
                     text != nullptr ? text : "the driver does not know it");
}

absl::Status StatusOf(const Api& api, Result result, std::string_view what) {
  if (result == kSuccess) return absl::OkStatus();
  const std::string text = fmt::format("{}: {}", what, ErrorText(api, result));
  if (result == kOutOfMemory) return absl::ResourceExhaustedError(text);
  if (IsSticky(result)) return absl::UnavailableError(text);
  return absl::InternalError(text);
}

}  // namespace tidemark::cuda
