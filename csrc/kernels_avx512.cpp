#include "simd_avx512.h"

#include "kernel.h"
#include "pair_kernel.h"

namespace skshap {

const Kernels& kernels_avx512() {
  static const Kernels kernels = make_kernels("avx512");
  return kernels;
}

const PairKernels& pair_kernels_avx512() {
  static const PairKernels kernels{&subset_sums};
  return kernels;
}

}  // namespace skshap
