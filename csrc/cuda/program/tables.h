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
  uint32_t targets, n_targets;  // targets begin at a multiple of 16 bytes
  uint32_t entry_size;          // padded to what a lane loads at once
  size_t table;                 // [index][entry]
};

struct CudaTableTree {
  size_t nodes;
  int32_t n_nodes, lookups, lookups_end;
};

struct CudaTableChunk {
  int32_t trees, trees_end;
  uint32_t first_slot, n_slots;
};

// Trees that are explained by tables. A Lookup has the place of its bits, and says how its numbers are
// stored.
template <class T, class Lookup>
struct CudaTableTrees {
  std::vector<CudaTableChunk> chunks;
  std::vector<CudaTableTree> trees;
  std::vector<CudaTableNode> nodes;
  std::vector<Lookup> lookups;
  std::vector<uint32_t> bits, targets;
  std::vector<T> numbers;

  // Begin a tree with `n_lookups` lookups, and add its nodes.
  void begin_tree(const DecideNode* tree_nodes, size_t n_nodes, size_t n_lookups,
                  const CudaColumns& columns) {
    const int32_t first = static_cast<int32_t>(lookups.size());
    trees.push_back(
        {nodes.size(), static_cast<int32_t>(n_nodes), first, first + static_cast<int32_t>(n_lookups)});
    for (size_t i = 0; i < n_nodes; ++i) nodes.push_back(table_node(columns, tree_nodes[i]));
  }

  // Throw unless all positions, of these trees and of the slots of all chunks, fit their integers.
  void require_positions_fit(size_t n_slots) const {
    for (const size_t n : {bits.size(), targets.size(), n_slots}) require_positions(n);
    for (const size_t n : {trees.size(), lookups.size()}) require_positions<int32_t>(n);
  }
};
template <class T>
using CudaTables = CudaTableTrees<T, CudaLookup>;

}  // namespace skshap
