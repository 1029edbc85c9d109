// Prints the name of the best instruction set of this processor, for builds with SKSHAPGPU_KERNELS=native.
#include <cstdio>

#include "simd/processor.h"

int main() {
  using namespace skshap;
  std::fputs(has_avx512() ? "avx512" : has_avx2() ? "avx2" : has_neon() ? "neon" : "baseline", stdout);
}
