#include "cuda/kernels.h"

template skshap::WalkKernel<float> skshap::walk_kernel<float, 2>(int, bool);
