// Kernels of interactions against background data, one set for each instruction set, as Kernels of program.h.
#pragma once

namespace skshap {

// What the numbers of a leaf are made of, for all patterns of x of a path; see leaf_vectors.h.
struct SubsetSumsArgs {
  const double* weights;  // of the background, by pattern
  int n_features, n_nodes, n_sums;
  const double* coefficients;  // [node][sum]
  const double* on;            // [node][pattern]
  const double* off;           // [node][3][pattern]
  const int* off_of_sum;       // which of the three
  int n_off;                   // how many of them
  double* scratch;             // [2][pattern]
  double* sums;                // [sum][pattern]
};

struct PairKernels {
  void (*subset_sums)(const SubsetSumsArgs&);
};

// Those of the instruction set in use.
const PairKernels& pair_kernels();

const PairKernels& pair_kernels_baseline();
#ifdef SKSHAP_X86_64
const PairKernels& pair_kernels_avx2();
const PairKernels& pair_kernels_avx512();
#endif

}  // namespace skshap
