#include "simd/simd_baseline.h"

#include "simd/cell_kernels-inl.h"

namespace skshap {

void set_cells_baseline(Kernels& kernels) { kernels.cells = &kCellKernels; }

}  // namespace skshap
