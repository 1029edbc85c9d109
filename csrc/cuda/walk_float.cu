#include "cuda/kernels.h"

namespace skshap {

template <>
WalkKernel<float> walk_kernel<float>(int n_nodes, bool shared) {
  switch (n_nodes) {
    case 1: return walk_with<float, 1, false, 640>(shared);
    case 2: return walk_with<float, 2, false, 640>(shared);
    case 3: return walk_with<float, 3, false, 512>(shared);
    case 4: return walk_with<float, 4, false, 512>(shared);
    case 5: return walk_with<float, 5, false, 384>(shared);
    case 6: return walk_with<float, 6, false, 384>(shared);
    case 7: return walk_with<float, 7, false, 384>(shared);
    case 8: return walk_with<float, 8, false, 256>(shared);
  }
  return {nullptr, 0};
}

}  // namespace skshap
