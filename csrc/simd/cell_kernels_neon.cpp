#include "simd/simd_neon.h"

#include "simd/cell_kernels-inl.h"

namespace skshap {

void set_cells_neon(Kernels& kernels) { kernels.cells = &kCellKernels; }

}  // namespace skshap
