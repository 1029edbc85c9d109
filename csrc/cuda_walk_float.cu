#include "cuda_kernels.h"

namespace skshap {

template <>
WalkKernel<float> walk_kernel<float>(int n_nodes, bool shared) {
#define SKSHAP_CASE(K, FRAMES, BLOCKS)                                                   \
  case K:                                                                                \
    if (shared) return {walk<float, K, 2, FRAMES, true, kBlockThreads, BLOCKS>, FRAMES}; \
    return {walk<float, K, 2, FRAMES, false, kBlockThreads, BLOCKS>, FRAMES};
  switch (n_nodes) {
    SKSHAP_CASE(1, 4, 5)
    SKSHAP_CASE(2, 4, 5)
    SKSHAP_CASE(3, 3, 4)
    SKSHAP_CASE(4, 3, 4)
    SKSHAP_CASE(5, 2, 3)
    SKSHAP_CASE(6, 2, 3)
    SKSHAP_CASE(7, 2, 3)
    SKSHAP_CASE(8, 2, 2)
  }
#undef SKSHAP_CASE
  return {nullptr, 0};
}

}  // namespace skshap
