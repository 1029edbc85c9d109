// The trees as paths from root to leaf, packed into warps, as GPUTreeShap needs them (Mitchell, Frank,
// Holmes, arXiv:2010.13972, sections 3.1 to 3.3). Host only, needs no CUDA.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"

namespace skshap {

// Each element is taken by a lane of a warp, so a path has no more elements than a warp has lanes.
constexpr int kPathLanes = 32;

constexpr uint32_t kNoSet = 0xffffffff;

// All splits of a path on one feature. The first element of each path, its root, has no feature: a path of n
// features needs n + 1 weights, one for each number of known features.
struct PathElement {
  double zero_fraction;
  int32_t feature;  // position in Plan::features, or -1: the root
  uint32_t path;    // position in PathSet::paths
  // A row follows the path if lower <= its code < upper, or if it is missing and `missing` is set ...
  uint32_t column, lower, upper;
  // ... and, if there is a set, if the bit of its code in this column is set. Both tests hold for a feature
  // that is numeric in some nodes and categorical in others; otherwise an absent test always passes.
  uint32_t set_column, set;  // set: first word in PathSet::category_bits, or kNoSet
  uint8_t missing;
  uint8_t place;  // in the path
};

// A path to a leaf. A vector leaf has only one, too: the weights of its features serve all its outputs.
struct Path {
  int64_t values;  // the leaf's first one in Plan::leaf_values
  int32_t output;  // -1: the leaf holds all outputs
  uint32_t length;
};

struct PathSet {
  std::vector<PathElement> elements;  // bin by bin; those of a path lie together, its root first
  std::vector<int64_t> bins;          // where each bin begins in `elements`, and the end of the last
  std::vector<Path> paths;
  std::vector<uint32_t> category_bits;
  size_t n_bins;
  double utilisation;  // elements divided by lanes; 0 without paths
};

enum class Packing { kNone, kNextFit, kFirstFitDecreasing, kBestFitDecreasing };
// Return the packing named "none", "next_fit", "first_fit_decreasing" or "best_fit_decreasing".
Packing packing_named(const std::string& name);

// The assignment of items to bins of kPathLanes, given the items' sizes.
struct Bins {
  std::vector<uint32_t> bin;
  size_t n_bins = 0;
};
Bins pack(const std::vector<uint8_t>& sizes, Packing packing);

// Make the paths; throw std::invalid_argument if one has more features than a warp has room for.
PathSet make_paths(const Plan& plan, Packing packing);

}  // namespace skshap
