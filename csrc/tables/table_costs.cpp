#include "tables/table_costs.h"

#include <algorithm>
#include <string>

namespace skshap {

size_t tables_bytes(const Plan& plan, const TableLimits& limits) {
  TreeGroups groups(plan);
  std::vector<int32_t> features;
  size_t bytes = 0;
  for (const Chunk& chunk : plan.chunks)
    for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i) {
      groups.find(chunk, plan.trees[i], limits);
      for (const TreeGroups::Group& group : groups.groups) {
        groups.list_features(group, features);
        // A group has at most 2^kMaxTableBits indices, so a sum of this many bytes stays below 2^64.
        bytes += features.size() * n_used_outputs(plan, chunk) * element_bytes(plan) << group.n_bits();
      }
    }
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
  return static_cast<uint32_t>(largest_of(plan.trees, &TreeProgram::n_features));
}

void require_short_path(uint32_t n_features) {
  if (n_features > kMaxPatternBits)
    throw std::invalid_argument("a path has " + std::to_string(n_features) +
                                " different features; background data allow for at most " +
                                std::to_string(kMaxPatternBits));
}

void require_room(size_t needed, size_t table_bytes) {
  if (needed > table_bytes)
    throw TableMemoryError("tables of all trees need " + std::to_string(needed) + " bytes, but may take " +
                           std::to_string(table_bytes));
}

}  // namespace skshap
