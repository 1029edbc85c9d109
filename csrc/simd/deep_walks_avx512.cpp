#include "simd/simd_avx512.h"

#include "simd/walk_kernel-inl.h"

namespace skshap {

void set_deep_walks_avx512(Kernels& kernels) {
  set_order<1, kMaxFixedNodes + 2, kMaxFixedValueNodes, 2>(kernels);  // see walked_nodes
}

}  // namespace skshap
