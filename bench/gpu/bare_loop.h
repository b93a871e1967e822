#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tidemark::bench {

// Runs a plan without any server: copies from pinned memory, enqueueV3, copies back, waiting for each. Returns the
// figures as a JSON object. Ends the process with a message when something fails.
std::string BareLoop(const std::string& plan, const std::string& library, const std::string& cuda, bool quick);

// Loads and unloads a plan `count` times: milliseconds as a JSON object.
std::string BareLoads(const std::string& plan, const std::string& library, const std::string& cuda, int count);

// The loop alone, for these batches: `side` is the size of every free dimension but the first. Figures as above, without
// the costs of loading.
std::string BareRates(const std::string& plan, const std::string& library, const std::string& cuda,
                      const std::vector<std::int64_t>& batches, std::int64_t side, bool quick);

}  // namespace tidemark::bench
