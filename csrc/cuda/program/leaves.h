// The leaves of a plan, for calls of few rows on a GPU. cuda/program/leaves.cpp writes them, and
// cuda/leaves.cuh reads them.
//
// A thread takes a leaf, with the features of its path merged. So a single row fills the GPU. In the walk, it
// takes many rows to fill the GPU.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace skshap {

// The number of leaves of a chunk: one for each thread of a block.
constexpr uint32_t kChunkOfLeaves = 256;

// Consecutive leaves of the same output and number of quadrature nodes.
struct CudaLeafChunk {
  int32_t n_nodes;
  uint32_t length;       // elements of the longest path
  uint32_t n_slots;      // features
  uint32_t first_slot;   // among the slots of all chunks
  uint64_t elements;     // in CudaLeaves::tests and zero_fractions: [element][leaf of the chunk]
  uint64_t values;       // in CudaLeaves::values, by leaf of the chunk
  uint64_t slot_begins;  // in CudaLeaves::slot_begins, one more than slots
};

// All splits of a path on one feature, as two conditions. The first: the row's code in `column` is at least
// the low half of `bounds` and below the high half, or the row is missing and kMissingPasses is set. The
// second: the row's code in `set_column` is in the category set. It always holds if `set_column` is
// kNoSetColumn. A row satisfies the splits if both conditions hold.
struct alignas(16) CudaLeafTest {
  uint32_t columns;  // column | set_column << 16
  uint32_t bounds;
  uint32_t set;  // first word in CudaLeaves::category_bits | kMissingPasses
  uint32_t unused;
};
constexpr uint32_t kNoSetColumn = 0xffff, kMissingPasses = 1u << 31;

template <class T>
struct CudaLeaves {
  std::vector<CudaLeafChunk> chunks;
  std::vector<CudaLeafTest> tests;
  std::vector<T> zero_fractions;
  std::vector<T> values;  // in units of the plan's leaf scale
  // For each slot of a chunk, the elements of the slot, as element * kChunkOfLeaves + leaf of the chunk.
  std::vector<uint32_t> slot_begins;
  std::vector<uint16_t> slot_elements;
  std::vector<uint32_t> category_bits;
};

template <class T>
struct CudaProgram;

// Return whether all trees of a plan can be explained by their leaves. This is possible for SHAP or Banzhaf
// values of trees without tables and vector leaves, if all columns have codes of 16 bits and all paths are
// short enough.
bool has_leaf_chunks(const Plan& plan);

// Add the leaves of such a plan, and their slots.
template <class T>
void add_leaves(const Plan& plan, CudaProgram<T>& program);

}  // namespace skshap
