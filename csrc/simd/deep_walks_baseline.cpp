#include "simd/simd_baseline.h"

#include "simd/walk_kernel-inl.h"

namespace skshap {

void set_deep_walks_baseline(Kernels& kernels) {
  set_order<1, kMaxFixedNodes + 1, kMaxFixedValueNodes>(kernels);
}

}  // namespace skshap
