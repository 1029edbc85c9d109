#include "simd/simd_avx512.h"

#include "simd/walk_kernel-inl.h"

namespace skshap {

void set_deep_walks_avx512(Kernels& kernels) {
  set_order<1, kMaxFixedNodes + 1, kMaxFixedValueNodes>(kernels);
}

}  // namespace skshap
