// The tables of tables.h for a GPU: what cuda/program/tables.cpp writes and cuda/tables.cuh reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace skshap {

// A node whose decision is part of an index.
struct alignas(16) CudaTableNode {
  uint32_t column_flags, operand;  // as in CudaNode
  uint32_t alive;                  // the rows that are, as a bit of Tables::bits
  uint32_t unused;
};

struct CudaLookUp {
  uint32_t bits, n_bits;
  uint32_t targets, n_targets;
  uint32_t
      entry_size;    // of the table: targets, padded to what a lane loads at once; 0: a leaf's, see fast_v2.h
  uint32_t factors;  // of a leaf: the ratio of each bit, then the values
  size_t table;      // [index][entry], or of a leaf [index]
};

struct CudaTableTree {
  size_t nodes;
  int32_t n_nodes, look_ups, look_ups_end;
};

struct CudaTableChunk {
  int32_t trees, trees_end;
  uint32_t first_slot, n_slots;
};

template <class T>
struct CudaTables {
  std::vector<CudaTableChunk> chunks;
  std::vector<CudaTableTree> trees;
  std::vector<CudaTableNode> nodes;
  std::vector<CudaLookUp> look_ups;
  std::vector<uint32_t> bits, targets;
  std::vector<T> factors;
  std::vector<T> entries;
};

}  // namespace skshap
