#include "cuda/kernels.h"

namespace skshap {

// Only even K: in double precision, K is rounded up to an even number (cuda/program/program.cpp), which stays
// exact.
template <>
WalkKernel<double> pairs_kernel<double>(int n_nodes, bool shared) {
  switch (n_nodes) {
    case 2: return walk_with<double, 2, true, 640>(shared);
    case 4: return walk_with<double, 4, true, 448>(shared);
    case 6: return walk_with<double, 6, true, 320>(shared);
    case 8: return walk_with<double, 8, true, 256>(shared);
  }
  return {nullptr, 0};
}

}  // namespace skshap
