#pragma once

#include "audit/http_client.h"
#include "audit/record.h"

namespace tidemark::audit {

// This machine: host name, kernel, processor, memory, and the time.
void DescribeMachine(Environment& environment);

// What the server says of itself at /v2; stays empty for a server without server metadata.
void DescribeServer(RepositoryClient& client, Environment& environment);

}  // namespace tidemark::audit
