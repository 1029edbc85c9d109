// Marks functions that the CPU and GPUs both run.
#pragma once

#ifdef __CUDACC__
#define SKSHAP_ANY_DEVICE __host__ __device__
#else
#define SKSHAP_ANY_DEVICE
#endif
