#include "cuda/kernels.h"

namespace skshap {

template <>
WalkKernel<float> pairs_kernel<float>(int n_nodes, bool shared) {
  switch (n_nodes) {
    case 1: return walk_with<float, 1, true, 896>(shared);
    case 2: return walk_with<float, 2, true, 640>(shared);
    case 3: return walk_with<float, 3, true, 640>(shared);
    case 4: return walk_with<float, 4, true, 512>(shared);
    case 5: return walk_with<float, 5, true, 512>(shared);
    case 6: return walk_with<float, 6, true, 384>(shared);
    case 7: return walk_with<float, 7, true, 384>(shared);
    case 8: return walk_with<float, 8, true, 320>(shared);
  }
  return {nullptr, 0};
}

}  // namespace skshap
