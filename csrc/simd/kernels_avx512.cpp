#include "simd/simd_avx512.h"

#include "simd/kernels-inl.h"

namespace skshap {

const Kernels& kernels_avx512() {
  static const Kernels kernels =
      make_kernels("avx512", {set_deep_walks_avx512, set_vector_walks_avx512, set_cells_avx512});
  return kernels;
}

}  // namespace skshap
