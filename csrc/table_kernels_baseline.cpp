#include "simd_baseline.h"

#include "table_kernel.h"

namespace skshap {

const TableKernels& table_kernels_baseline() {
  static const TableKernels kernels = make_table_kernels();
  return kernels;
}

}  // namespace skshap
