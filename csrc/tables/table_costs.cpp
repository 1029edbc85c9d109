#include "tables/table_costs.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>

#include "plan/quadrature.h"
#include "tables/table_layout.h"

namespace skshap {

std::vector<TableCost> table_costs(const Plan& plan, uint32_t leaf_bits) {
  TreeGroups groups(plan);
  std::vector<int32_t> features;
  std::map<int, TableCost> costs_by_nodes;
  for (const Chunk& chunk : plan.chunks)
    for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i) {
      if (!plan.trees[i].walked) continue;
      const int n_nodes = quadrature_nodes(plan.index, plan.trees[i].n_features);
      TableCost& cost = costs_by_nodes.try_emplace(n_nodes, TableCost{n_nodes}).first->second;
      groups.find(chunk, plan.trees[i], {leaf_bits});
      cost.n_trees += 1;
      cost.n_leaves += groups.leaves.size();
      cost.n_lookups += groups.groups.size();
      const size_t width = n_used_outputs(plan, chunk);
      if (plan.features.size() * width > kBatchPositions) cost.n_places += groups.features.size() * width;
      for (const TreeGroups::Leaf& leaf : groups.leaves)
        cost.longest_path = std::max(cost.longest_path, leaf.n_features);
      for (const TreeGroups::Group& group : groups.groups) {
        groups.list_features(group, features);
        // A group has at most 2^kMaxTableBits indices, so a sum of this many bytes stays below 2^64.
        cost.bytes += features.size() * width * element_bytes(plan) << group.n_bits();
      }
    }
  std::vector<TableCost> costs;
  for (const auto& [n_nodes, cost] : costs_by_nodes) costs.push_back(cost);
  return costs;
}

size_t tables_bytes(const Plan& plan, const TableLimits& limits) {
  size_t bytes = 0;
  for (const TableCost& cost : table_costs(plan, limits.leaf_bits)) bytes += cost.bytes;
  return bytes;
}

size_t most_patterns(uint32_t n_features, size_t n_background) {
  return n_features < 32 ? std::min(size_t{1} << n_features, n_background) : n_background;
}

size_t most_patterns(const Plan& plan, const TableLimits& limits, size_t n_background) {
  TreeGroups groups(plan);
  size_t n = 0;
  for (const Chunk& chunk : plan.chunks)
    for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i) {
      groups.find(chunk, plan.trees[i], limits);
      for (const TreeGroups::Leaf& leaf : groups.leaves)
        if (!leaf.grouped) n += most_patterns(leaf.n_features, n_background);
    }
  return n;
}

uint32_t longest_path(const Plan& plan) {
  uint32_t longest = 0;
  for (const TableCost& cost : table_costs(plan, 0)) longest = std::max(longest, cost.longest_path);
  return longest;
}

void require_room(size_t needed, size_t table_bytes) {
  if (needed > table_bytes)
    throw TableMemoryError("tables of all trees need " + std::to_string(needed) + " bytes, but may take " +
                           std::to_string(table_bytes));
}

}  // namespace skshap
