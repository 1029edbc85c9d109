#include "simd/simd_avx2.h"

#include "simd/vector_walk_kernel-inl.h"

namespace skshap {

void set_vector_walks_avx2(Kernels& kernels) { set_vector_walks(kernels); }

}  // namespace skshap
