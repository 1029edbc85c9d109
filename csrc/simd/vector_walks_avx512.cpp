#include "simd/simd_avx512.h"

#include "simd/vector_walk_kernel-inl.h"

namespace skshap {

void set_vector_walks_avx512(Kernels& kernels) { set_vector_walks(kernels); }

}  // namespace skshap
