#include "simd_baseline.h"

#include "kernels-inl.h"

namespace skshap {

const Kernels& kernels_baseline() {
  static const Kernels kernels = make_kernels("baseline");
  return kernels;
}

}  // namespace skshap
