#pragma once

#include <filesystem>

#include "backend/backend_registry.h"

namespace tidemark {

// The engines that this program has, for whoever builds a registry: the server and `tidemark check`.
void AddEngines(BackendRegistry& registry);

// Where the engines' libraries are unless an option says otherwise: beside the program.
std::filesystem::path DefaultEngineDirectory();

}  // namespace tidemark
