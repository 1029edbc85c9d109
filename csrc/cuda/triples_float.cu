#include "cuda/kernels.h"

namespace skshap {

template <>
WalkKernel<float> triples_kernel<float>(int n_nodes) {
  switch (n_nodes) {
    case 1: return triples_with<float, 1, 384>();
    case 2: return triples_with<float, 2, 384>();
    case 3: return triples_with<float, 3, 384>();
    case 4: return triples_with<float, 4, 384>();
    case 5: return triples_with<float, 5, 384>();
    case 6: return triples_with<float, 6, 320>();
    case 7: return triples_with<float, 7, 320>();
    case 8: return triples_with<float, 8, 256>();
  }
  return {nullptr, 0};
}

}  // namespace skshap
