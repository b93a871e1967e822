#pragma once

#include <string>
#include <string_view>

#include "audit/record.h"

namespace tidemark::audit {

// The memory line as inline SVG, coloured by the page's CSS classes: idle readings from left to right through the phases,
// the mark and its tolerance, failed cycles as crosses, loaded readings as hollow triangles. `quantity` is an index into
// record.quantities. Empty when there are no idle readings of it.
std::string MemoryChart(const Record& record, int quantity);

// Text for HTML or SVG: & < > " and ' escaped; bytes that are no UTF-8 replaced.
std::string Escape(std::string_view text);

}  // namespace tidemark::audit
