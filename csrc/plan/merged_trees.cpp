#include "plan/merged_trees.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "base/threads.h"
#include "plan/tree_paths.h"

namespace skshap {
namespace {

// The number of trees that are merged to see whether merging pays, and the largest fraction of their leaves
// that may remain. Parts of merged trees repeat the nodes of some paths, and places that several nodes take
// cost time, too.
constexpr size_t kSampled = 16;
constexpr double kMostRemaining = 0.75;

// The largest difference between a cover fraction and 1 less the other child's fraction. The two differ
// because both are rounded.
constexpr double kRounding = 2 * std::numeric_limits<double>::epsilon();

// The places that are filled between two checks for interrupts, which take as long as some places.
constexpr size_t kUncheckedPlaces = 64;

// A node of a tree of the plan; `swapped` tells whether its left child takes the place of the right one.
struct Member {
  const TreeProgram* tree;
  int32_t node;
  bool swapped;

  bool is_leaf() const { return node >= static_cast<int32_t>(tree->n_inner); }
};

// A place of a merged tree that is to be filled. It is the place of a child, or of the root.
struct UnfilledPlace {
  size_t members;  // where its nodes begin in members_; the nodes of the last place are at the end
  int32_t parent;  // or -1
  bool right;
  double cover;
};

class Merger {
 public:
  explicit Merger(const Plan& plan) : plan_(plan), feature_of_column_(column_features(plan)) {}

  MergedTrees merge(int32_t output, const std::vector<size_t>& trees) {
    out_ = {};
    out_.trees = trees;
    for (const size_t tree : trees) members_.push_back({&plan_.trees[tree], 0, false});
    unfilled_.push_back({0, -1, false, 1});
    for (size_t place_number = 0; !unfilled_.empty(); ++place_number) {
      if (place_number % kUncheckedPlaces == 0) check_interrupt();
      const UnfilledPlace place = unfilled_.back();
      unfilled_.pop_back();
      place_members_.assign(members_.begin() + static_cast<std::ptrdiff_t>(place.members), members_.end());
      members_.resize(place.members);
      fill(place);
    }
    out_.nodes.end_tree(output);
    count_leaves();
    return std::move(out_);
  }

  // Return whether most trees have the same root as an earlier tree.
  bool begin_alike(const std::vector<size_t>& trees) {
    groups_.clear();
    for (const size_t tree : trees) {
      const Member root{&plan_.trees[tree], 0, false};
      const auto alike = [&](const Member& earlier) { return is_alike(earlier, root); };
      if (std::none_of(groups_.begin(), groups_.end(), alike)) groups_.push_back(root);
    }
    return 2 * groups_.size() <= trees.size();
  }

 private:
  // Add the nodes that take a place, and plan the places of their children.
  void fill(const UnfilledPlace& place) {
    double value = 0;
    const size_t n_inner = group_members(value);
    const bool has_leaf = n_inner < place_members_.size();
    const int32_t first = static_cast<int32_t>(out_.nodes.next.size());
    if (place.parent >= 0) (place.right ? out_.nodes.right : out_.nodes.left)[place.parent] = first;
    for (size_t i = 0; i < groups_.size(); ++i) {
      const bool last = i + 1 == groups_.size() && !has_leaf;
      const int32_t number = add_node(place.cover, last);
      const double left_share = share(groups_[i]);
      out_.nodes.test[number] = test(groups_[i]);
      out_.nodes.player[number] = feature_of_column_[out_.nodes.test[number].column];
      for (const bool right : {true, false}) {
        unfilled_.push_back({members_.size(), number, right, right ? 1 - left_share : left_share});
        for (size_t j = 0; j < n_inner; ++j)
          if (group_of_[j] == i)
            members_.push_back({place_members_[j].tree,
                                child(place_members_[j], right != place_members_[j].swapped), false});
      }
    }
    if (has_leaf) out_.nodes.value[add_node(place.cover, true)] = value;
  }

  // Group the inner nodes among the members of the place by their splits, and add the values of its leaves.
  // Return the number of inner nodes, which come first among the members then.
  size_t group_members(double& value) {
    groups_.clear();
    size_t n_inner = 0;
    for (Member member : place_members_) {
      if (member.is_leaf()) {
        value += plan_.leaf_values[member.tree->leaves + member.node - member.tree->n_inner];
        continue;
      }
      auto group = groups_.begin();
      while (group != groups_.end() && !is_alike(*group, member)) ++group;
      if (group == groups_.end()) {
        groups_.push_back(member);
        group = groups_.end() - 1;
      } else {
        member.swapped = test(member).flags != test(*group).flags;
      }
      place_members_[n_inner] = member;
      group_of_.resize(std::max(group_of_.size(), n_inner + 1));
      group_of_[n_inner++] = static_cast<size_t>(group - groups_.begin());
    }
    return n_inner;
  }

  // Add a node, which is the last one in its place or is followed by the next node. Return its number.
  int32_t add_node(double cover, bool last) {
    const int32_t number = out_.nodes.add_node(cover);
    out_.nodes.next.push_back(last ? -1 : number + 1);
    return number;
  }

  // Return the test of an inner node without its place on a path.
  DecideNode test(const Member& member) const {
    return test_of(plan_.decide[member.tree->decide + member.node]);
  }

  double share(const Member& member) const { return plan_.shares[member.tree->decide + member.node]; }

  int32_t child(const Member& member, bool right) const {
    return plan_.children[member.tree->children + 2 * member.node + right];
  }

  // Return whether two nodes have the same split and cover fractions.
  bool is_alike(const Member& a, const Member& b) const {
    const DecideNode x = test(a), y = test(b);
    const bool is_same_share =
        x.flags == y.flags ? share(a) == share(b) : std::fabs(share(a) + share(b) - 1) <= kRounding;
    return is_same_share && is_same_test(plan_, x, y);
  }

  // Count the leaves below each node, and number them.
  void count_leaves() {
    const CodedTreeArrays& nodes = out_.nodes;
    const size_t n_nodes = out_.nodes.next.size();
    const auto places = [&](size_t node, const auto& visit) {
      for (const int32_t place : {nodes.left[node], nodes.right[node]})
        for (int32_t i = place; i >= 0; i = out_.nodes.next[i]) visit(static_cast<size_t>(i));
    };
    out_.first_leaf.resize(n_nodes);
    out_.n_leaves.resize(n_nodes);
    for (size_t i = n_nodes; i-- > 0;) {
      out_.n_leaves[i] = nodes.left[i] < 0;
      places(i, [&](size_t child) { out_.n_leaves[i] += out_.n_leaves[child]; });
    }
    for (int32_t i = 0; i >= 0; i = out_.nodes.next[i]) {
      out_.first_leaf[i] = out_.n_all_leaves;
      out_.n_all_leaves += out_.n_leaves[i];
    }
    for (size_t i = 0; i < n_nodes; ++i) {
      size_t first = out_.first_leaf[i];
      places(i, [&](size_t child) {
        out_.first_leaf[child] = first;
        first += out_.n_leaves[child];
      });
    }
  }

  const Plan& plan_;
  const std::vector<int32_t> feature_of_column_;  // positions in Plan::features
  MergedTrees out_;
  std::vector<UnfilledPlace> unfilled_;
  std::vector<Member> members_;                 // of all places
  std::vector<Member> place_members_, groups_;  // nodes of the place being filled; first node of each split
  std::vector<size_t> group_of_;
};

}  // namespace

std::vector<size_t> neighbours_in(const Plan& plan, std::vector<size_t> trees) {
  std::sort(trees.begin(), trees.end(),
            [&](size_t a, size_t b) { return plan.trees[a].source < plan.trees[b].source; });
  const size_t n = std::min(kSampled, trees.size());
  const auto first = trees.begin() + static_cast<std::ptrdiff_t>((trees.size() - n) / 2);
  return {first, first + static_cast<std::ptrdiff_t>(n)};
}

std::vector<AlikeTrees> find_alike_trees(const Plan& plan, const std::vector<size_t>& trees) {
  std::map<int32_t, std::vector<size_t>> trees_by_output;
  auto chunk = plan.chunks.begin();
  for (const size_t tree : trees) {
    while (chunk->tree_end <= tree) ++chunk;
    if (chunk->radau) trees_by_output[chunk->output].push_back(tree);
  }
  std::vector<AlikeTrees> out;
  Merger merger(plan);
  for (auto& [output, candidates] : trees_by_output) {
    const std::vector<size_t> sample = neighbours_in(plan, candidates);
    if (sample.size() < 2 || !merger.begin_alike(sample)) continue;
    size_t n_leaves = 0;
    for (const size_t tree : sample) n_leaves += plan.trees[tree].n_inner + 1;
    const size_t n_remaining = merger.merge(output, sample).n_all_leaves;
    const double remaining_fraction = static_cast<double>(n_remaining) / static_cast<double>(n_leaves);
    if (remaining_fraction <= kMostRemaining)
      out.push_back({output, std::move(candidates), remaining_fraction});
  }
  return out;
}

MergedTrees merge_trees(const Plan& plan, const AlikeTrees& alike) {
  return Merger(plan).merge(alike.output, alike.trees);
}

}  // namespace skshap
