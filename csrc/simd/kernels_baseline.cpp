#include "simd/simd_baseline.h"

#include "simd/kernels-inl.h"

namespace skshap {

const Kernels& kernels_baseline() {
  static const Kernels kernels =
      make_kernels("baseline", {set_deep_walks_baseline, set_vector_walks_baseline, set_cells_baseline});
  return kernels;
}

}  // namespace skshap
