#include "simd/simd_avx2.h"

#include "simd/cell_kernels-inl.h"

namespace skshap {

void set_cells_avx2(Kernels& kernels) { kernels.cells = &kCellKernels; }

}  // namespace skshap
