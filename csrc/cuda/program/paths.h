// The trees as paths from root to leaf, with the splits of a path on the same feature merged, as GPUs read
// them. This code runs on the host and does not need CUDA.
#pragma once

#include <vector>

#include "plan/leaf_tests.h"
#include "plan/plan.h"

namespace skshap {

// The number of lanes of a warp. A lane takes one element, so a path has at most this many elements.
constexpr int kPathLanes = 32;

// An element stands for all splits of a path on one feature. The first element of a path, its root, has no
// feature: a path of n features needs n + 1 weights, one for each number of known features.
struct PathElement : LeafTest {  // feature: -1 for the root; set: in PathSet::category_bits
  uint32_t path;                 // position in PathSet::paths
  uint8_t place;                 // in the path
};

// A path to a leaf. A leaf with several outputs also has a single path, because all outputs share the weights
// of its features.
struct LeafPath {
  int64_t values;  // the leaf's first one in Plan::leaf_values
  int32_t output;  // -1: the leaf holds all outputs
  uint32_t length;
};

struct PathSet {
  std::vector<PathElement> elements;  // path by path, root first
  std::vector<int64_t> begins;        // where each path begins in `elements`
  std::vector<LeafPath> paths;
  std::vector<uint32_t> category_bits;
};

// Make the paths. Throw std::invalid_argument if a path has more features than fit into a warp.
PathSet make_paths(const Plan& plan);

}  // namespace skshap
