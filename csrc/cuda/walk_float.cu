#include "cuda/kernels.h"

template skshap::WalkKernel<float> skshap::walk_kernel<float, 1>(int, bool);
