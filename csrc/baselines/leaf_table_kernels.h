// The kernels of Fast TreeSHAP v2 and their arguments; see baselines/fast_v2.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "plan/tables.h"

namespace skshap {

// Leaves whose tables are filled.
template <class T>
struct FillLeavesArgs {
  const LeafTable* leaves;
  size_t n_leaves;
  const LeafFeature* features;
  // By number of features: the number of nodes, and t and the weight divided by 1 - t of each node.
  const int* n_nodes;
  const std::vector<T>*t, *weights;
  T* scratch;  // nodes << features of the longest path
  T* tables;   // the numbers of each leaf are aligned to 64 bytes
};

// The arguments for adding each leaf's contributions, from its table, to the rows of a block.
template <class T>
struct AddLeavesArgs {
  const uint64_t* words;  // written by `decide`
  int n_rows;             // of the block; a full vector may be computed
  const LeafTable* leaves;
  size_t n_leaves;
  const LeafFeature* features;
  const T* tables;
  const T* values;  // [leaf][output]
  size_t n_outputs;
  T* phi;                // [output][slot][64]
  size_t output_stride;  // elements between two outputs of phi
};

template <class T>
struct LeafTableKernelsOf {
  void (*fill_leaves)(const FillLeavesArgs<T>&);
  void (*add_leaves)(const AddLeavesArgs<T>&);
};
using LeafTableKernels = std::tuple<LeafTableKernelsOf<float>, LeafTableKernelsOf<double>>;

// Each instruction set has its kernels in a translation unit of its own.
extern const LeafTableKernels leaf_tables_baseline, leaf_tables_avx2, leaf_tables_avx512, leaf_tables_neon;

}  // namespace skshap
