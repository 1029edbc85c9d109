// Plain types that every layer of the core shares; no Python, no STL containers in kernels.
#pragma once

#include <cstddef>
#include <cstdint>

namespace skshap {

// The arrays of an Ensemble, borrowed from NumPy. skshapgpu/adapters/ensemble.py documents them.
struct EnsembleView {
  int32_t n_features, n_outputs, n_trees;
  const int64_t* tree_offsets;
  const int32_t* tree_output;
  const int32_t *left, *right, *feature;
  const double* threshold;
  const uint8_t* missing_left;
  const double* cover;
  const double* value;  // [node][value_width]
  int32_t value_width;
  const double* intercept;
  bool x_float32, strict;
  const int32_t* player;  // per feature, or null: each feature is a player
  int32_t n_players;
  const uint8_t* zero_missing;  // per feature, or null
  const int32_t* category_set;  // per node, or null
  const int64_t* category_offsets;
  const int32_t* category_values;
  const uint8_t* category_listed_left;
  // Per node, or null: the next node in the same place of the tree, or -1. See plan/merged_trees.h.
  const int32_t* next = nullptr;
  // For Owen values (see plan/owen_trees.h), or null otherwise. Per node: the node's player, which replaces
  // the player of its feature, and whether the player is a feature of the group whose features are apart. Per
  // tree: whether the tree adds to margins, and whether its walk is balanced (see plan/balance.h). n_saving
  // is for balanced walks in which features are apart: a path with this many of the features takes one node
  // less than it needs.
  const int32_t* node_player = nullptr;
  const uint8_t* is_apart = nullptr;
  const uint8_t* adds_margin = nullptr;
  const uint8_t* balanced = nullptr;
  const int32_t* n_saving = nullptr;

  bool is_leaf(int64_t node) const { return left[node] < 0; }
  // Return the next node in the same place as this node, in a tree with this root, or -1 after the last one.
  int64_t next_of(int64_t node, int64_t root) const {
    return next && next[node] >= 0 ? root + next[node] : -1;
  }
  bool is_categorical(int64_t node) const { return category_set && category_set[node] >= 0; }
  int32_t player_of(int64_t node) const {
    if (node_player) return node_player[node];
    return player ? player[feature[node]] : feature[node];
  }
  bool apart(int64_t node) const { return is_apart && is_apart[node]; }
  bool has_margin(int32_t tree) const { return !adds_margin || adds_margin[tree]; }
  bool is_balanced(int32_t tree) const { return balanced && balanced[tree]; }
};

enum class Precision { kSingle, kDouble };

// The kind of values and interactions: the Shapley interaction index, the Shapley-Taylor index of order 2 or
// the Banzhaf interaction index. The values of the first two kinds are Shapley values, and the values of the
// last kind are Banzhaf values.
enum class Index { kShapley, kTaylor, kBanzhaf };

// How trees are explained: kWalk is the walk (simd/walk_kernel-inl.h), with which trees may also have tables.
// kFastV2 uses the tables of tables/fast_v2.h.
enum class Method { kWalk, kFastV2 };

// The rows to explain. Element (row, column) is row * row_stride + column * column_stride bytes after data.
// NaN means missing. The columns are the columns of X or, if `packed`, only the columns that trees test, in
// ascending order.
struct Rows {
  const void* data;
  bool is_float32;
  int64_t n_rows;
  int64_t row_stride, column_stride;
  bool packed = false;  // CPU only
};

// Rows are processed in blocks of 64, so that one word holds one bit for each row of a block.
constexpr int kBlockRows = 64;
// Return the number of blocks that hold a number of rows, of which the last may be filled in part.
template <class Integer>
constexpr Integer block_count(Integer n_rows) {
  return (n_rows + kBlockRows - 1) / kBlockRows;
}
// Return a number of rows, rounded up to whole blocks.
constexpr size_t whole_blocks(size_t n_rows) { return block_count(n_rows) * kBlockRows; }

}  // namespace skshap
