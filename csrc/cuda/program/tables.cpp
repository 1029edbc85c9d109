// The tables of a plan -> the tables of a GPU. Entries are placed so that a lane can load 16 bytes at once.
#include <algorithm>

#include "cuda/program/program.h"

namespace skshap {
namespace {

constexpr size_t kLoadBytes = 16;

// Begin a tree with `n_lookups` lookups, and add its nodes.
template <class T>
void begin_tree(const DecideNode* nodes, size_t n_nodes, size_t n_lookups, const CudaColumns& columns,
                CudaTables<T>& out) {
  const int32_t first = static_cast<int32_t>(out.lookups.size());
  out.trees.push_back(
      {out.nodes.size(), static_cast<int32_t>(n_nodes), first, first + static_cast<int32_t>(n_lookups)});
  for (size_t i = 0; i < n_nodes; ++i) out.nodes.push_back(table_node(columns, nodes[i]));
}

// Return the number of elements of an entry, padded to the number that a lane loads at once.
template <class T>
size_t padded_entry(uint32_t n_targets) {
  return (n_targets * sizeof(T) + kLoadBytes - 1) / kLoadBytes * kLoadBytes / sizeof(T);
}

template <class T>
void add_tree(const Plan& plan, const TableTree& tree, const CudaColumns& columns, CudaTables<T>& out) {
  const DecideNode* const nodes = tree.n_levels ? plan.tables.levels.data() + tree.levels
                                                : plan.decide.data() + plan.trees[tree.tree].decide;
  const size_t n_nodes = tree.n_levels ? tree.n_levels : plan.trees[tree.tree].n_inner;
  begin_tree(nodes, n_nodes, tree.lookups_end - tree.lookups, columns, out);
  const Contents<T>& tables = numbers_of<T>(plan.tables);
  for (size_t i = tree.lookups; i < tree.lookups_end; ++i) {
    const Lookup& from = plan.tables.lookups[i];
    const size_t entry_size = padded_entry<T>(from.n_targets);
    out.lookups.push_back({.bits = from.bits,
                           .n_bits = from.n_bits,
                           .targets = static_cast<uint32_t>(out.targets.size()),
                           .n_targets = from.n_targets,
                           .entry_size = static_cast<uint32_t>(entry_size),
                           .factors = 0,
                           .table = out.entries.size()});
    const auto targets = plan.tables.targets.begin() + from.targets;
    out.targets.insert(out.targets.end(), targets, targets + from.n_targets);
    out.targets.resize((out.targets.size() * 4 + kLoadBytes - 1) / kLoadBytes * kLoadBytes / 4);
    const T* entry = tables.data() + from.table;
    for (size_t index = 0; index < size_t{1} << from.n_bits; ++index, entry += from.n_targets) {
      out.entries.insert(out.entries.end(), entry, entry + from.n_targets);
      out.entries.resize(out.entries.size() + entry_size - from.n_targets);
    }
  }
}

// Add a tree of Fast TreeSHAP v2. `slots` are the slots of its features in its chunk.
template <class T>
void add_leaves(const Plan& plan, const Chunk& chunk, const TreeProgram& tree, const LeafTable* leaves,
                const CudaColumns& columns, CudaTables<T>& out) {
  const size_t n_leaves = tree.n_inner + 1, n_outputs = n_used_outputs(plan, chunk);
  begin_tree(plan.decide.data() + tree.decide, tree.n_inner, n_leaves, columns, out);
  for (size_t i = 0; i < n_leaves; ++i) {
    const LeafTable& leaf = leaves[i];
    out.lookups.push_back({.bits = static_cast<uint32_t>(out.bits.size()),
                           .n_bits = leaf.n_features,
                           .targets = static_cast<uint32_t>(out.targets.size()),
                           .n_targets = static_cast<uint32_t>(leaf.n_features * n_outputs),
                           .entry_size = 0,
                           .factors = static_cast<uint32_t>(out.factors.size()),
                           .table = leaf.table});
    for (uint32_t f = leaf.features; f < leaf.features + leaf.n_features; ++f) {
      const LeafFeature& feature = plan.tables.leaf_features[f];
      out.bits.push_back(feature.bit);
      out.factors.push_back(static_cast<T>((1 - feature.zero_fraction) / feature.zero_fraction));
      for (size_t o = 0; o < n_outputs; ++o)
        out.targets.push_back(static_cast<uint32_t>(feature.slot + o * chunk.slots.size()));
    }
    const double* const values = plan.leaf_values.data() + tree.leaves + i * n_outputs;
    for (size_t o = 0; o < n_outputs; ++o) out.factors.push_back(static_cast<T>(values[o] / plan.leaf_scale));
  }
}

template <class T>
void add_leaf_tables(const Plan& plan, const CudaColumns& columns, CudaProgram<T>& program) {
  CudaTables<T>& out = program.tables;
  const Contents<T>& tables = numbers_of<T>(plan.tables);
  out.entries.assign(tables.data(), tables.data() + tables.size());
  const LeafTable* leaves = plan.tables.leaf_tables.data();
  for (const Chunk& chunk : plan.chunks) {
    const int32_t first = static_cast<int32_t>(out.trees.size());
    for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i) {
      add_leaves(plan, chunk, plan.trees[i], leaves, columns, out);
      leaves += plan.trees[i].n_inner + 1;
    }
    const size_t n_outputs = n_used_outputs(plan, chunk);
    out.chunks.push_back({first, static_cast<int32_t>(out.trees.size()),
                          static_cast<uint32_t>(program.slots.size()),
                          static_cast<uint32_t>(n_outputs * chunk.slots.size())});
    const int32_t first_output = std::max(chunk.output, 0);
    for (size_t o = 0; o < n_outputs; ++o)
      for (const int32_t feature : chunk.slots)
        program.slots.push_back({first_output + static_cast<int32_t>(o), feature});
  }
}

template <class T>
void add_lookup_tables(const Plan& plan, const CudaColumns& columns, CudaProgram<T>& program) {
  CudaTables<T>& out = program.tables;
  out.bits = plan.tables.bits;
  size_t n_elements = 0;
  for (const Lookup& lookup : plan.tables.lookups)
    n_elements += padded_entry<T>(lookup.n_targets) << lookup.n_bits;
  out.entries.reserve(n_elements);
  for (const TableBatch& batch : plan.tables.batches) {
    const int32_t first = static_cast<int32_t>(out.trees.size());
    for (size_t i = batch.trees; i < batch.trees_end; ++i) {
      const TableTree& tree = plan.tables.trees[i];
      if (tree.lookups != tree.lookups_end) add_tree(plan, tree, columns, out);
    }
    if (out.trees.size() == static_cast<size_t>(first)) continue;  // all leaves are without a table
    out.chunks.push_back({first, static_cast<int32_t>(out.trees.size()),
                          static_cast<uint32_t>(program.slots.size()),
                          static_cast<uint32_t>(batch.places_end - batch.places)});
    for (size_t i = batch.places; i < batch.places_end; ++i)
      program.slots.push_back(slot_of_place(plan, plan.tables.places[i]));
  }
}

}  // namespace

template <class T>
void add_tables(const Plan& plan, const CudaColumns& columns, CudaProgram<T>& program) {
  if (!plan.tables.leaf_tables.empty()) add_leaf_tables(plan, columns, program);
  if (!plan.tables.lookups.empty()) add_lookup_tables(plan, columns, program);
  const CudaTables<T>& out = program.tables;
  for (const size_t n : {out.bits.size(), out.targets.size(), out.factors.size(), program.slots.size()})
    require_positions(n);
  for (const size_t n : {out.trees.size(), out.lookups.size()}) require_positions<int32_t>(n);
}
template void add_tables(const Plan&, const CudaColumns&, CudaProgram<float>&);
template void add_tables(const Plan&, const CudaColumns&, CudaProgram<double>&);

}  // namespace skshap
