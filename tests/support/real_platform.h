#pragma once

// The way by which tests of folders that may not see `platform` get a real one to build their scopes and pools on
// (docs/architecture.md, "Who may include whom").
#include "platform/platform.h"
