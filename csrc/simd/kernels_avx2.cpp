#include "simd/simd_avx2.h"

#include "simd/kernels-inl.h"

namespace skshap {

const Kernels& kernels_avx2() {
  static const Kernels kernels =
      make_kernels("avx2", {set_deep_walks_avx2, set_vector_walks_avx2, set_cells_avx2});
  return kernels;
}

}  // namespace skshap
