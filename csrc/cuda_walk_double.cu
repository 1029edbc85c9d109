#include "cuda_kernels.h"

namespace skshap {

// Even K only: K is rounded up for double precision (cuda_program.cpp), which stays exact.
template <>
WalkKernel<double> walk_kernel<double>(int n_nodes, bool shared) {
#define SKSHAP_CASE(K, FRAMES, BLOCKS)                                                    \
  case K:                                                                                 \
    if (shared) return {walk<double, K, 1, FRAMES, true, kBlockThreads, BLOCKS>, FRAMES}; \
    return {walk<double, K, 1, FRAMES, false, kBlockThreads, BLOCKS>, FRAMES};
  switch (n_nodes) {
    SKSHAP_CASE(2, 3, 4)
    SKSHAP_CASE(4, 2, 3)
    SKSHAP_CASE(6, 1, 2)
    SKSHAP_CASE(8, 1, 2)
  }
#undef SKSHAP_CASE
  return {nullptr, 0};
}

}  // namespace skshap
