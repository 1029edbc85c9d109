// The tables of a plan -> the tables of a GPU. Entries are placed so that a lane can load 16 bytes at once.
#include "cuda/program/program.h"

namespace skshap {
namespace {

constexpr size_t kLoadBytes = 16;

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
  out.begin_tree(nodes, n_nodes, tree.lookups_end - tree.lookups, columns);
  const Contents<T>& tables = numbers_of<T>(plan.tables);
  for (size_t i = tree.lookups; i < tree.lookups_end; ++i) {
    const Lookup& from = plan.tables.lookups[i];
    const size_t entry_size = padded_entry<T>(from.n_targets);
    out.lookups.push_back({.bits = from.bits,
                           .n_bits = from.n_bits,
                           .targets = static_cast<uint32_t>(out.targets.size()),
                           .n_targets = from.n_targets,
                           .entry_size = static_cast<uint32_t>(entry_size),
                           .table = out.numbers.size()});
    const auto targets = plan.tables.targets.begin() + from.targets;
    out.targets.insert(out.targets.end(), targets, targets + from.n_targets);
    out.targets.resize((out.targets.size() * 4 + kLoadBytes - 1) / kLoadBytes * kLoadBytes / 4);
    const T* entry = tables.data() + from.table;
    for (size_t index = 0; index < size_t{1} << from.n_bits; ++index, entry += from.n_targets) {
      out.numbers.insert(out.numbers.end(), entry, entry + from.n_targets);
      out.numbers.resize(out.numbers.size() + entry_size - from.n_targets);
    }
  }
}

}  // namespace

template <class T>
void add_tables(const Plan& plan, const CudaColumns& columns, CudaProgram<T>& program) {
  CudaTables<T>& out = program.tables;
  out.bits = plan.tables.bits;
  size_t n_elements = 0;
  for (const Lookup& lookup : plan.tables.lookups)
    n_elements += padded_entry<T>(lookup.n_targets) << lookup.n_bits;
  out.numbers.reserve(n_elements);
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
  out.require_positions_fit(program.slots.size());
}
template void add_tables(const Plan&, const CudaColumns&, CudaProgram<float>&);
template void add_tables(const Plan&, const CudaColumns&, CudaProgram<double>&);

}  // namespace skshap
