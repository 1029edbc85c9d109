#include "simd_avx2.h"

#include "kernel.h"
#include "pair_kernel.h"

namespace skshap {

const Kernels& kernels_avx2() {
  static const Kernels kernels = make_kernels("avx2");
  return kernels;
}

const PairKernels& pair_kernels_avx2() {
  static const PairKernels kernels{&subset_sums};
  return kernels;
}

}  // namespace skshap
