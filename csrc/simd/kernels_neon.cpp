#include "simd/simd_neon.h"

#include "simd/kernels-inl.h"

namespace skshap {

const Kernels& kernels_neon() {
  static const Kernels kernels =
      make_kernels("neon", {set_deep_walks_neon, set_vector_walks_neon, set_cells_neon});
  return kernels;
}

}  // namespace skshap
