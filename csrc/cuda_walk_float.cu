#include "cuda_kernels.h"

namespace skshap {

template <>
WalkKernel<float> walk_kernel<float>(int n_nodes, bool shared) {
#define SKSHAP_CASE(K, THREADS)                                                  \
  case K:                                                                        \
    if (shared) return {walk<float, K, 2, kWalkFrames, true, THREADS>, THREADS}; \
    return {walk<float, K, 2, kWalkFrames, false, THREADS>, THREADS};
  switch (n_nodes) {
    SKSHAP_CASE(1, 640)
    SKSHAP_CASE(2, 640)
    SKSHAP_CASE(3, 512)
    SKSHAP_CASE(4, 512)
    SKSHAP_CASE(5, 384)
    SKSHAP_CASE(6, 384)
    SKSHAP_CASE(7, 384)
    SKSHAP_CASE(8, 256)
  }
#undef SKSHAP_CASE
  return {nullptr, 0};
}

}  // namespace skshap
