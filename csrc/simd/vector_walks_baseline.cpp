#include "simd/simd_baseline.h"

#include "simd/vector_walk_kernel-inl.h"

namespace skshap {

void set_vector_walks_baseline(Kernels& kernels) { set_vector_walks(kernels); }

}  // namespace skshap
