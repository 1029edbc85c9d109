#include "cuda/kernels.h"

namespace skshap {

// Even K only, as for pairs.
template <>
WalkKernel<double> triples_kernel<double>(int n_nodes) {
  switch (n_nodes) {
    case 2: return triples_with<double, 2, 384>();
    case 4: return triples_with<double, 4, 384>();
    case 6: return triples_with<double, 6, 320>();
    case 8: return triples_with<double, 8, 256>();
  }
  return {nullptr, 0};
}

}  // namespace skshap
