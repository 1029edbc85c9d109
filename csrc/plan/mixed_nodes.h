// For which leaves in lanes there are mixed places; see plan/leaf_lanes.h.
#pragma once

namespace skshap {

// The numbers of quadrature nodes for which kernels with mixed places are compiled. Shorter paths hardly have
// features of their own, longer ones are rare, and each kernel takes room in the package.
constexpr int kLeastMixedNodes = 3, kMostMixedNodes = 6;

}  // namespace skshap
