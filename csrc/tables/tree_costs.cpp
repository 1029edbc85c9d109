#include "tables/tree_costs.h"

#include <map>
#include <utility>

#include "plan/quadrature.h"

namespace skshap {

void TableCost::add_lookups(const Plan& plan, const TableTree& tree) {
  n_lookups += tree.lookups_end - tree.lookups;
  for (size_t i = tree.lookups; i < tree.lookups_end; ++i) {
    const Lookup& lookup = plan.tables.lookups[i];
    bytes += lookup.n_targets * element_bytes(plan) << lookup.n_bits;
  }
}

std::vector<TreeGroup> tree_groups(const Plan& plan) {
  const bool are_copies = !plan.groups.empty() && !plan.tables.against_background;
  std::map<std::pair<int, bool>, TableCost> costs;  // by number of nodes, and whether the trees have tables
  const auto cost_of = [&](const Chunk& chunk, const TreeProgram& tree) -> TableCost& {
    const int n_nodes = are_copies ? chunk.n_nodes : quadrature_nodes(plan.index, tree.n_features);
    return costs.try_emplace({n_nodes, !tree.walked}, TableCost{n_nodes}).first->second;
  };
  auto leaf = plan.tables.leaf_tables.begin();  // of Fast TreeSHAP v2, which has one table for each leaf
  for (const Chunk& chunk : plan.chunks)
    for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i) {
      const TreeProgram& tree = plan.trees[i];
      TableCost& cost = cost_of(chunk, tree);
      cost.n_trees += 1;
      cost.n_leaves += tree.n_leaves;
      if (tree.walked) cost.n_walked += tree.n_leaves;
      if (leaf == plan.tables.leaf_tables.end()) continue;
      cost.n_lookups += tree.n_leaves;
      for (const auto end = leaf + static_cast<std::ptrdiff_t>(tree.n_leaves); leaf != end; ++leaf)
        cost.bytes += padded_row(size_t{1} << leaf->n_features, element_bytes(plan)) * element_bytes(plan);
    }
  for (const TableTree& tree : plan.tables.trees) {
    const TableBatch& batch = plan.tables.batches[tree.batch];
    TableCost& cost = cost_of(plan.chunks[batch.chunk], plan.trees[tree.tree]);
    cost.add_lookups(plan, tree);
    if (batch.trees_end - batch.trees == 1) cost.n_places += batch.places_end - batch.places;
  }
  std::vector<TreeGroup> groups;
  for (const auto& [key, cost] : costs) groups.push_back({key.second, cost});
  const IntervalTables& intervals = plan.intervals;
  if (intervals.any())
    groups.push_back({true,
                      {.n_nodes = intervals.n_nodes,
                       .n_trees = intervals.n_trees,
                       .n_leaves = intervals.n_leaves,
                       .n_lookups = intervals.tables.size(),
                       .bytes = intervals.table_bytes()}});
  return groups;
}

}  // namespace skshap
