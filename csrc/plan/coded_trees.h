// Trees whose tests are coded: the form from which everything else is compiled.
//
// A node compares the code of a value with an operand (see plan/program.h), whatever the library, its
// comparison and its precision were. The front end codes the trees of an ensemble. Merged trees, the trees of
// units and the trees whose walks add up to Owen values are made from coded trees and are coded trees
// themselves.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/types.h"
#include "plan/program.h"

namespace skshap {

// A column of X as the trees test it. A column that is numeric in some nodes and categorical in others is
// listed twice.
struct Column {
  int32_t feature;
  int32_t input;   // the column of X
  int32_t packed;  // its position among the columns of X that trees test
  bool categorical;
  bool zero_missing;
  // Numeric: ascending thresholds, in the precision of x. Categorical: ascending listed categories; with n of
  // them, code n is any other category and code n + 1 missing.
  std::vector<float> thresholds_float;
  std::vector<double> thresholds_double;
  std::vector<int32_t> categories;

  // Return the number of words of a bit set with a bit for each code of a category.
  size_t category_words() const { return (categories.size() + 2 + 31) / 32; }
};

// The columns that trees test, in the form for coding rows and for reading tests. Here, a feature is a player
// of the ensemble: a column of X, or several columns that are known or unknown together.
struct CodedColumns {
  int32_t n_features = 0;
  int32_t n_inputs = 0, n_used_inputs = 0;  // the columns of X, and how many of them trees test
  bool x_float32 = false, strict = false;
  bool wide_codes = false;  // 32-bit instead of 16-bit codes
  std::vector<Column> columns;
  std::vector<int32_t> features;  // used features, ascending
  std::vector<uint32_t> category_bits;
};

// Return whether two tests send all rows the same ways, or the opposite ways if their sides differ.
bool is_same_test(const CodedColumns& columns, const DecideNode& a, const DecideNode& b);

// Borrowed arrays of coded trees.
struct CodedTrees : TreeArrays {
  int32_t n_features = 0;          // positions in CodedColumns::features
  int32_t n_players = 0;           // features and, for Owen values, the groups that follow them
  int32_t n_first = -1;            // trees that come before the others
  bool slots_are_players = false;  // in all chunks; otherwise, the slots of a chunk are for its own players
  // By node. Tests do not have their place on a path.
  const int32_t* player = nullptr;
  const DecideNode* test = nullptr;
  // Or null: the next node in the same place of the tree, or -1. See plan/merged_trees.h.
  const int32_t* next = nullptr;
  // For Owen values (see plan/owen_trees.h), or null otherwise. Per node: whether the player is a feature of
  // the group whose features are apart. Per tree: whether the tree adds to margins, and whether its walk is
  // balanced (see plan/balance.h). n_saving is for balanced walks in which features are apart: a path with
  // this many of the features takes one node less than it needs.
  const uint8_t* is_apart = nullptr;
  const uint8_t* adds_margin = nullptr;
  const uint8_t* balanced = nullptr;
  const int32_t* n_saving = nullptr;

  // Return the next node in the same place as this node, in a tree with this root, or -1 after the last one.
  int64_t next_of(int64_t node, int64_t root) const {
    return next && next[node] >= 0 ? root + next[node] : -1;
  }
  bool apart(int64_t node) const { return is_apart && is_apart[node]; }
  bool has_margin(int32_t tree) const { return !adds_margin || adds_margin[tree]; }
  bool is_balanced(int32_t tree) const { return balanced && balanced[tree]; }
};

// The arrays of trees that are made node by node.
struct CodedTreeArrays {
  int32_t width = 1;  // of values
  std::vector<int64_t> tree_offsets{0};
  std::vector<int32_t> tree_output, left, right, player;
  std::vector<int32_t> next;  // see CodedTrees::next; for trees that are not merged, or else by node
  std::vector<DecideNode> test;
  std::vector<double> cover, value;

  void reserve(size_t n_nodes);
  // Add a node to the last tree, without children and with values of 0. Return its number in the tree.
  int32_t add_node(double node_cover);
  void end_tree(int32_t output);
  // Drop the nodes that have been added since the last tree ended.
  void drop_nodes();
  // Return the trees. Fields that are not arrays of this class are taken from `like`.
  CodedTrees trees(CodedTrees like) const;
};

// The coded trees of an ensemble, whose other arrays are borrowed.
class CodedEnsemble {
 public:
  CodedEnsemble(const EnsembleView& ensemble, int64_t n_threads);
  CodedEnsemble(const CodedEnsemble&) = delete;

  const CodedTrees& trees() const { return trees_; }
  CodedColumns columns;

 private:
  void add_columns(const EnsembleView& ensemble);
  void sort_columns(int64_t n_threads);
  void number_inputs_and_features();
  void place_categories(const EnsembleView& ensemble);
  void code(const EnsembleView& ensemble, int64_t node);

  CodedTrees trees_;
  std::vector<DecideNode> test_;
  std::vector<int32_t> player_;
  std::vector<int32_t> feature_of_column_;  // positions in CodedColumns::features
};

// Return how many threads are worth waking to compile trees with this many nodes.
int64_t compiling_threads(int64_t n_nodes, int64_t n_threads);

template <class X>
void sort_unique(std::vector<X>& x) {
  std::sort(x.begin(), x.end());
  x.erase(std::unique(x.begin(), x.end()), x.end());
  x.shrink_to_fit();
}

template <class X>
uint32_t position(const std::vector<X>& sorted, X x) {
  return static_cast<uint32_t>(std::lower_bound(sorted.begin(), sorted.end(), x) - sorted.begin());
}

// Return the position of each column's feature among the used features.
inline std::vector<int32_t> column_features(const CodedColumns& coded) {
  std::vector<int32_t> features;
  for (const Column& column : coded.columns)
    features.push_back(static_cast<int32_t>(position(coded.features, column.feature)));
  return features;
}

}  // namespace skshap
