#include "simd/simd_avx512.h"

#include "simd/cell_kernels-inl.h"

namespace skshap {

void set_cells_avx512(Kernels& kernels) { kernels.cells = &kCellKernels; }

}  // namespace skshap
