// The tables of a plan -> those of a GPU, whose entries lie where a lane loads 16 bytes at once.
#include "cuda_program.h"

namespace skshap {
namespace {

constexpr size_t kLoadBytes = 16;

template <class T>
void add_tree(const Plan& plan, const TableTree& tree, const CudaTest& test, CudaTables<T>& out) {
  const DecideNode* const nodes = tree.n_levels ? plan.tables.levels.data() + tree.levels
                                                : plan.decide.data() + plan.trees[tree.tree].decide;
  const size_t n_nodes = tree.n_levels ? tree.n_levels : plan.trees[tree.tree].n_inner;
  out.trees.push_back({out.nodes.size(), static_cast<int32_t>(n_nodes),
                       static_cast<int32_t>(out.look_ups.size()),
                       static_cast<int32_t>(out.look_ups.size() + tree.look_ups_end - tree.look_ups)});
  for (size_t i = 0; i < n_nodes; ++i) {
    const CudaNode node = test(nodes[i]);
    const bool right = nodes[i].flags & kPreviousRight;
    out.nodes.push_back({node.column_flags, node.operand, nodes[i].previous << 1 | right, 0});
  }
  const Contents<T>& tables = stored_tables<T>(plan.tables);
  for (size_t i = tree.look_ups; i < tree.look_ups_end; ++i) {
    const LookUp& from = plan.tables.look_ups[i];
    const size_t entry_size =
        (from.n_targets * sizeof(T) + kLoadBytes - 1) / kLoadBytes * kLoadBytes / sizeof(T);
    out.look_ups.push_back({from.bits, from.n_bits, from.targets, from.n_targets,
                            static_cast<uint32_t>(entry_size), out.entries.size()});
    const T* entry = tables.data() + from.table;
    for (size_t index = 0; index < size_t{1} << from.n_bits; ++index, entry += from.n_targets) {
      out.entries.insert(out.entries.end(), entry, entry + from.n_targets);
      out.entries.resize(out.entries.size() + entry_size - from.n_targets);
    }
  }
}

}  // namespace

template <class T>
void add_tables(const Plan& plan, const CudaTest& test, CudaProgram<T>& program) {
  CudaTables<T>& out = program.tables;
  out.bits = plan.tables.bits;
  out.targets = plan.tables.targets;
  for (const TableBatch& batch : plan.tables.batches) {
    const int32_t first = static_cast<int32_t>(out.trees.size());
    for (size_t i = batch.trees; i < batch.trees_end; ++i) add_tree(plan, plan.tables.trees[i], test, out);
    out.chunks.push_back({first, static_cast<int32_t>(out.trees.size()),
                          static_cast<uint32_t>(program.slots.size()),
                          static_cast<uint32_t>(batch.places_end - batch.places)});
    const int32_t n_used = static_cast<int32_t>(plan.features.size());
    for (size_t i = batch.places; i < batch.places_end; ++i) {
      const int32_t place = static_cast<int32_t>(plan.tables.places[i]);
      program.slots.push_back({place / n_used, place % n_used});
    }
  }
}
template void add_tables(const Plan&, const CudaTest&, CudaProgram<float>&);
template void add_tables(const Plan&, const CudaTest&, CudaProgram<double>&);

}  // namespace skshap
