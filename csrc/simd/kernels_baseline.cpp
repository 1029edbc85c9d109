#include "simd/simd_baseline.h"

#include "simd/kernels-inl.h"

namespace skshap {

const Kernels& kernels_baseline() {
  static const Kernels kernels = make_kernels("baseline");
  return kernels;
}

}  // namespace skshap
