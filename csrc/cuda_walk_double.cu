#include "cuda_kernels.h"

namespace skshap {

// Even K only: K is rounded up for double precision (cuda_program.cpp), which stays exact.
template <>
WalkKernel<double> walk_kernel<double>(int n_nodes, bool shared) {
#define SKSHAP_CASE(K, THREADS)                                                   \
  case K:                                                                         \
    if (shared) return {walk<double, K, 1, kWalkFrames, true, THREADS>, THREADS}; \
    return {walk<double, K, 1, kWalkFrames, false, THREADS>, THREADS};
  switch (n_nodes) {
    SKSHAP_CASE(2, 512)
    SKSHAP_CASE(4, 384)
    SKSHAP_CASE(6, 256)
    SKSHAP_CASE(8, 256)
  }
#undef SKSHAP_CASE
  return {nullptr, 0};
}

}  // namespace skshap
