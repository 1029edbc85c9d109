#include "simd_avx512.h"

#include "table_kernel.h"

namespace skshap {

const TableKernels& table_kernels_avx512() {
  static const TableKernels kernels = make_table_kernels();
  return kernels;
}

}  // namespace skshap
