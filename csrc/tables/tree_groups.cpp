#include "tables/tree_groups.h"

#include <algorithm>

namespace skshap {
namespace {

// The largest size of a table of several leaves. At this size, most of a table stays in the L1 cache while it
// is used.
constexpr size_t kGroupBytes = 40 << 10;
// The limits of tables of pairs that several leaves share. Below a node with few inner nodes, the index has
// hardly more bits than the index of a single leaf. All other shared tables have few bits.
constexpr size_t kFewNodes = 3, kFewBits = 7;

}  // namespace

void TreeGroups::find(const Chunk& chunk, const TreeProgram& tree, const TableLimits& limits) {
  limits_ = limits;
  width_ = n_used_outputs(plan_, chunk);
  n_inner_ = static_cast<int32_t>(tree.n_inner);
  const int32_t* const children = plan_.children.data() + tree.children;
  steps.clear();
  leaves.clear();
  groups.clear();
  for (const int32_t feature : features) met_[feature] = 0;
  met_.resize(plan_.features.size());
  features.clear();
  inner_below_.assign(n_inner_, 1);
  for (int32_t i = n_inner_ - 1; i >= 0; --i)  // preorder: children come after their parent
    for (const int32_t child : {children[2 * i], children[2 * i + 1]})
      if (child < n_inner_) inner_below_[i] += inner_below_[child];
  walk_.run<LeafOrder::kDepthFirst>(
      tree, [this](const PathNode& at) { enter(at); }, [this](int32_t leaf) { add_leaf(leaf); });
}

void TreeGroups::list_features(const Group& group, std::vector<int32_t>& out) const {
  out.clear();
  for (size_t i = 0; i < group.n_above; ++i) out.push_back(steps[group.above + i].feature);
  for (int32_t i = 0; i < group.n_nodes; ++i) {
    const int32_t feature = walk_.feature(group.first_node + i);
    if (std::find(out.begin(), out.end(), feature) == out.end()) out.push_back(feature);
  }
}

void TreeGroups::enter(const PathNode& at) {
  begin_group(at.node, inner_below_[at.node]);
  if (met_[at.feature]) return;
  met_[at.feature] = 1;
  features.push_back(at.feature);
}

void TreeGroups::add_leaf(int32_t leaf) {
  begin_group(n_inner_ + leaf, 0);
  const std::vector<PathStep>& path = walk_.steps();
  leaves.push_back(
      {static_cast<size_t>(leaf) * width_, steps.size(), static_cast<uint32_t>(path.size()), grouped()});
  if (path.size() <= kMaxPatternBits) steps.insert(steps.end(), path.begin(), path.end());
}

// Return whether the leaves below n_below inner nodes share a table. A leaf itself has no nodes below.
bool TreeGroups::shares_table(size_t n_below) const {
  const size_t n_bits = walk_.steps().size() + n_below;
  if (!n_below) return n_bits <= limits_.leaf_bits;
  if (limits_.is_for_pairs)
    return n_bits <= limits_.leaf_bits && (n_below <= kFewNodes || n_bits <= kFewBits);
  return n_bits <= std::min(limits_.leaf_bits, kMaxTableBits) &&
         (n_bits * width_ * element_bytes(plan_) << n_bits) <= kGroupBytes;
}

// Begin a group at a node, unless the node is in a group or its leaves cannot share a table.
void TreeGroups::begin_group(int32_t node, int32_t n_below) {
  if (grouped() || !shares_table(n_below)) return;
  const auto settled = [&](const PathStep& step) {
    for (int32_t below = node; below < node + n_below; ++below)
      if (walk_.feature(below) == step.feature) return false;
    return true;
  };
  const std::vector<PathStep>& path = walk_.steps();
  const size_t first = steps.size();
  steps.insert(steps.end(), path.begin(), path.end());
  std::stable_partition(steps.begin() + first, steps.end(), settled);
  groups.push_back({.above = first,
                    .n_above = path.size(),
                    .first_node = node,
                    .n_nodes = n_below,
                    .leaves = leaves.size(),
                    .leaves_end = leaves.size() + static_cast<size_t>(n_below) + 1});
}

}  // namespace skshap
