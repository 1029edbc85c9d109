#include "simd_baseline.h"

#include "kernel.h"
#include "pair_kernel.h"

namespace skshap {

const Kernels& kernels_baseline() {
  static const Kernels kernels = make_kernels("baseline");
  return kernels;
}

const PairKernels& pair_kernels_baseline() {
  static const PairKernels kernels{&subset_sums};
  return kernels;
}

}  // namespace skshap
