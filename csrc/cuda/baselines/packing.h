// The packing of paths into warps as in GPUTreeShap (Mitchell, Frank, Holmes, arXiv:2010.13972, sections 3.2
// and 3.3). This code runs on the host and does not need CUDA.
#pragma once

#include <string>
#include <vector>

#include "cuda/program/paths.h"

namespace skshap {

enum class Packing { kNone, kNextFit, kFirstFitDecreasing, kBestFitDecreasing };
// Return the packing named "none", "next_fit", "first_fit_decreasing" or "best_fit_decreasing".
Packing packing_named(const std::string& name);

// The assignment of items to bins. A bin has kPathLanes lanes, and an item takes as many as its size.
struct Bins {
  std::vector<uint32_t> bin;
  size_t n_bins = 0;
};
Bins pack(const std::vector<uint8_t>& sizes, Packing packing);

struct PackedPaths {
  std::vector<PathElement> elements;  // bin by bin; elements of a path are adjacent, root first
  std::vector<int64_t> bins;          // where each bin begins in `elements`, and the end of the last bin
  double utilisation;                 // elements divided by lanes; 0 without paths
};
PackedPaths pack_paths(const PathSet& set, Packing packing);

}  // namespace skshap
