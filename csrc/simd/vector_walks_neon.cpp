#include "simd/simd_neon.h"

#include "simd/vector_walk_kernel-inl.h"

namespace skshap {

void set_vector_walks_neon(Kernels& kernels) { set_vector_walks(kernels); }

}  // namespace skshap
