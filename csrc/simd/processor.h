// Questions to the processor and the operating system about instructions.
#pragma once

namespace skshap {

// Return whether the kernels for AVX2 can run. They use FMA and BMI2 as well.
bool has_avx2();
// Return whether the kernels for AVX-512 can run. They use its F, BW, DQ and VL instructions, and all
// instructions of the AVX2 kernels.
bool has_avx512();
// Return whether the kernels for NEON can run, as on every 64-bit Arm processor.
bool has_neon();

}  // namespace skshap
