#include "cuda/kernels.h"

template skshap::WalkKernel<double> skshap::walk_kernel<double, 3>(int, bool);
