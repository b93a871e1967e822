#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "lifecycle/load_transaction.h"
#include "repository/model_check.h"

namespace tidemark {

struct CheckRequest : FilesRequest {
  std::string owner = {};  // path for the rows of what is taken meanwhile
  bool open = true;        // open the model with its engine
};

struct CheckReport {
  std::vector<Finding> findings;   // errors and warnings, each once
  ConfigText text;                 // what the places in them are about
  std::size_t parse_findings = 0;  // so many of the first are about the text itself
};

// Everything that is wrong with the model in a directory, by its files and by what its engine says when it opens them: a
// load of each version that the policy selects, which ends before anything is executed or published. Afterwards nothing is
// left of it. Takes as long as opening the model does; thread-safe.
CheckReport CheckModel(const LoadTransaction::Parts& parts, const RepositoryOptions& options,
                       const CheckRequest& request);

}  // namespace tidemark
