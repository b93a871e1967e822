#pragma once

#include <string>

#include "audit/record.h"

namespace tidemark::audit {

// Judges one quantity of a record from the medians of its idle readings:
//   leak            growth per failed cycle is above the threshold (lower end of the 95 % interval, and Theil-Sen's
//                   slope; from 12 cycles on in their second half, too) and the final level is above the mark by more than the tolerance
//   could not tell  only one of the two holds; or the readings scatter by more than the tolerance; or some are missing
//   no leak         neither holds
// The step from the mark to the first failed cycle is left out of the growth: what an error path needs once (unwinder
// tables, message buffers, a new arena) is no growth. It is not left out of the level.
Judgement Judge(const Record& record, int quantity);

// True when the growth so far is above the threshold but the level is still within the tolerance: more failed cycles
// will tell. Uses the readings up to now; the final good cycle has not been run yet.
bool NeedsMoreCycles(const Record& record);

// The verdict on a whole record: any problem of the scenario gives "could not tell"; else a leak of any judged quantity
// is a leak, and "no leak" needs all of them.
Verdict MakeVerdict(const Record& record);

// "61.0 KiB", "−3.2 MiB", "+2" … `sign` puts a plus in front of what is above zero.
std::string FormatAmount(double value, Unit unit, bool sign = false);

const char* OutcomeName(Outcome outcome);  // "no leak", "leak", "could not tell"
const char* PhaseName(Phase phase);        // "ready", "baseline", "failed", "restored", "stopped"

}  // namespace tidemark::audit
