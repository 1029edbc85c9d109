#include "tables/tree_costs.h"

#include <map>
#include <utility>

#include "plan/quadrature.h"

namespace skshap {
namespace {

class Groups {
 public:
  explicit Groups(const Plan& plan) : plan_(plan), element_(element_bytes(plan)) {}

  void add_trees() {
    for (size_t c = 0; c < plan_.chunks.size(); ++c)
      for (size_t i = plan_.chunks[c].tree_begin; i < plan_.chunks[c].tree_end; ++i) {
        const bool is_copy = !plan_.groups.empty() && !plan_.tables.against_background;
        const int n_nodes = is_copy ? plan_.chunks[c].n_nodes : nodes_of(plan_.trees[i]);
        TableCost& cost = group(n_nodes, !plan_.trees[i].walked);
        cost.n_trees += 1;
        cost.n_leaves += plan_.trees[i].n_leaves;
        if (plan_.trees[i].walked) cost.n_walked += plan_.trees[i].n_leaves;
      }
  }

  void add_tables() {
    for (const TableTree& tree : plan_.tables.trees) {
      TableCost& cost = group(plan_.trees[tree.tree], true);
      cost.n_lookups += tree.lookups_end - tree.lookups;
      for (size_t i = tree.lookups; i < tree.lookups_end; ++i)
        cost.bytes += plan_.tables.lookups[i].n_targets * element_ << plan_.tables.lookups[i].n_bits;
    }
    for (const TableBatch& batch : plan_.tables.batches)
      if (batch.trees_end - batch.trees == 1)
        group(plan_.trees[plan_.tables.trees[batch.trees].tree], true).n_places +=
            batch.places_end - batch.places;
  }

  // Add the tables of Fast TreeSHAP v2, which has one table for each leaf.
  void add_leaf_tables() {
    const LeafTable* leaf = plan_.tables.leaf_tables.data();
    if (!leaf) return;
    for (size_t c = 0; c < plan_.chunks.size(); ++c)
      for (size_t i = plan_.chunks[c].tree_begin; i < plan_.chunks[c].tree_end; ++i) {
        TableCost& cost = group(plan_.trees[i], true);
        cost.n_lookups += plan_.trees[i].n_inner + 1;
        for (const LeafTable* const end = leaf + plan_.trees[i].n_inner + 1; leaf != end; ++leaf)
          cost.bytes += padded_row(size_t{1} << leaf->n_features, element_) * element_;
      }
  }

  std::vector<TreeGroup> list() const {
    std::vector<TreeGroup> out;
    for (const auto& [key, cost] : costs_) out.push_back({key.second, cost});
    const IntervalTables& intervals = plan_.intervals;
    if (intervals.any())
      out.push_back({true,
                     {.n_nodes = intervals.n_nodes,
                      .n_trees = intervals.n_trees,
                      .n_leaves = intervals.n_leaves,
                      .n_lookups = intervals.tables.size(),
                      .bytes = intervals.table_bytes()}});
    return out;
  }

 private:
  int nodes_of(const TreeProgram& tree) const { return quadrature_nodes(plan_.index, tree.n_features); }
  TableCost& group(const TreeProgram& tree, bool tables) { return group(nodes_of(tree), tables); }
  TableCost& group(int n_nodes, bool tables) {
    return costs_.try_emplace({n_nodes, tables}, TableCost{n_nodes}).first->second;
  }

  const Plan& plan_;
  const size_t element_;
  std::map<std::pair<int, bool>, TableCost> costs_;  // by number of nodes, and whether the trees have tables
};

}  // namespace

std::vector<TreeGroup> tree_groups(const Plan& plan) {
  Groups groups(plan);
  groups.add_trees();
  groups.add_tables();
  groups.add_leaf_tables();
  return groups.list();
}

}  // namespace skshap
