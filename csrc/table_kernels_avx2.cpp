#include "simd_avx2.h"

#include "table_kernel.h"

namespace skshap {

const TableKernels& table_kernels_avx2() {
  static const TableKernels kernels = make_table_kernels();
  return kernels;
}

}  // namespace skshap
