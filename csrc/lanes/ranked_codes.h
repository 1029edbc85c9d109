// Codes of columns with more thresholds than 16 bits count; see LaneRanks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace skshap {

// Columns with fewer codes than this never have the code below the missing one. Numeric columns with more are
// ranked.
constexpr size_t kMostCodes = 0xfff0;

inline size_t n_thresholds(const Column& column) {
  return std::max(column.thresholds_float.size(), column.thresholds_double.size());
}

// The codes of a column that are ranked.
struct RankedCodes {
  std::vector<uint32_t> ranks;  // by code, from 1; until codes are ranked, whether there is the code
  std::vector<uint32_t> added;  // codes that are not yet among them
  size_t count = 0;

  bool is_full() const { return count && count + added.size() >= kMostCodes; }

  void add() {
    for (const uint32_t code : added) {
      count += !ranks[code];
      ranks[code] = 1;
    }
    added.clear();
  }

  // Rank the codes, and write them.
  void rank(std::vector<uint32_t>& codes) {
    uint32_t n = 0;
    for (size_t code = 0; code < ranks.size(); ++code)
      if (ranks[code]) {
        codes.push_back(static_cast<uint32_t>(code));
        ranks[code] = ++n;
      }
  }

  void clear() {
    std::fill(ranks.begin(), ranks.end(), 0);
    count = 0;
  }
};

}  // namespace skshap
