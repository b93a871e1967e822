#pragma once

#include <string>

namespace tidemark::bench {

// Runs a plan without any server: copies from pinned memory, enqueueV3, copies back, waiting for each. Returns the
// figures as a JSON object. Ends the process with a message when something fails.
std::string BareLoop(const std::string& plan, const std::string& library, const std::string& cuda, bool quick);

}  // namespace tidemark::bench
