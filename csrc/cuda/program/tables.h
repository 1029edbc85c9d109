// The tables of plan/tables.h for a GPU. cuda/program/tables.cpp writes them, and cuda/tables.cuh reads them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda/program/columns.h"

namespace skshap {

// A node whose decision is part of an index.
struct alignas(16) CudaTableNode {
  uint32_t column_flags, operand;  // as in CudaNode
  uint32_t alive;                  // the rows alive at the node, as a bit of Tables::bits
  uint32_t unused;
};

// Return the bit of an index that stands for the rows alive at a node.
inline uint32_t previous_bit(const DecideNode& node) {
  return node.previous << 1 | static_cast<uint32_t>((node.flags & kPreviousRight) != 0);
}
inline CudaTableNode table_node(const CudaColumns& columns, const DecideNode& from) {
  const CudaNode node = columns.margin_node(from);
  return {node.column_flags, node.operand, previous_bit(from), 0};
}

struct CudaLookup {
  uint32_t bits, n_bits;
  uint32_t targets, n_targets;  // except for a leaf, targets begin at a multiple of 16 bytes
  uint32_t entry_size;          // padded to what a lane loads at once; 0 for a leaf of Fast TreeSHAP v2
  uint32_t factors;             // for a leaf: the ratio of each bit, then the values
  size_t table;                 // [index][entry], or for a leaf [index]
};

struct CudaTableTree {
  size_t nodes;
  int32_t n_nodes, lookups, lookups_end;
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
  std::vector<CudaLookup> lookups;
  std::vector<uint32_t> bits, targets;
  std::vector<T> factors;
  std::vector<T> entries;
};

}  // namespace skshap
