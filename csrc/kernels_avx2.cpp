#include "simd_avx2.h"

#include "kernels-inl.h"

namespace skshap {

const Kernels& kernels_avx2() {
  static const Kernels kernels = make_kernels("avx2");
  return kernels;
}

}  // namespace skshap
