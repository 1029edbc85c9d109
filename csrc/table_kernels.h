// Kernels of tables that are made for one use only, one set for each instruction set, as Kernels of
// program.h: against background data, and of Fast TreeSHAP v2.
#pragma once

#include <vector>

#include "tables.h"

namespace skshap {

// What the numbers of a leaf are made of, for all patterns of x of a path; see leaf_vectors.h.
struct SubsetSumsArgs {
  const double* weights;  // of the background, by pattern
  int n_features, n_nodes, n_sums;
  const double* coefficients;  // [node][sum]
  const double* on;            // [node][pattern]: t^|x|
  const double* off;           // [node][3][pattern]
  const int* off_of_sum;       // which of the three
  int n_off;                   // how many of them
  double* scratch;             // [2][pattern]
  double* sums;                // [sum][pattern]
};

// Fills the tables of some leaves; see fast_v2.h.
template <class T>
struct FillLeavesArgs {
  const LeafTable* leaves;
  size_t n_leaves;
  const LeafFeature* features;
  // By number of features: how many nodes, t of each, and its weight over 1 - t.
  const int* n_nodes;
  const std::vector<T>*t, *weights;
  T* scratch;  // nodes << features of the longest path
  T* tables;   // those of leaves are aligned to 64 bytes
};

// Rows of a block that take what each leaf of a tree gives them from its table.
template <class T>
struct AddLeavesArgs {
  const uint64_t* words;  // what `decide` wrote
  int n_rows;             // of the block; as many as fill a vector are computed
  const LeafTable* leaves;
  size_t n_leaves;
  const LeafFeature* features;
  const T* tables;
  const T* values;  // [leaf][output]
  size_t n_outputs;
  T* phi;                // [output][slot][64]
  size_t output_stride;  // elements between two outputs of phi
};

struct TableKernels {
  void (*subset_sums)(const SubsetSumsArgs&);
  void (*fill_leaves_float)(const FillLeavesArgs<float>&);
  void (*fill_leaves_double)(const FillLeavesArgs<double>&);
  void (*add_leaves_float)(const AddLeavesArgs<float>&);
  void (*add_leaves_double)(const AddLeavesArgs<double>&);
};

// Those of the instruction set in use.
const TableKernels& table_kernels();

inline void fill_leaves(const FillLeavesArgs<float>& args) { table_kernels().fill_leaves_float(args); }
inline void fill_leaves(const FillLeavesArgs<double>& args) { table_kernels().fill_leaves_double(args); }
inline void add_leaves(const AddLeavesArgs<float>& args) { table_kernels().add_leaves_float(args); }
inline void add_leaves(const AddLeavesArgs<double>& args) { table_kernels().add_leaves_double(args); }

const TableKernels& table_kernels_baseline();
#ifdef SKSHAP_X86_64
const TableKernels& table_kernels_avx2();
const TableKernels& table_kernels_avx512();
#endif

}  // namespace skshap
