// Plain types that every layer of the core shares; no Python, no STL containers in kernels.
#pragma once

#include <cstddef>
#include <cstdint>

namespace skshap {

// The arrays of skshapgpu.Ensemble (see ensemble.py for their meaning), borrowed from NumPy.
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
  const int32_t* player;  // per feature, or null: each is one
  int32_t n_players;
  const uint8_t* zero_missing;  // per feature, or null
  const int32_t* category_set;  // per node, or null
  const int64_t* category_offsets;
  const int32_t* category_values;
  const uint8_t* category_listed_left;

  bool is_leaf(int64_t node) const { return left[node] < 0; }
  bool is_categorical(int64_t node) const { return category_set && category_set[node] >= 0; }
  int32_t player_of(int64_t node) const { return player ? player[feature[node]] : feature[node]; }
};

enum class Precision { kSingle, kDouble };

// What the values and interactions are: the Shapley interaction index, the Shapley-Taylor index of order 2
// or the Banzhaf interaction index. The first two have the Shapley values, the last the Banzhaf values.
enum class Index { kShapley, kTaylor, kBanzhaf };

// How path-dependent SHAP values are computed: by the walk (walk_kernel-inl.h), by the methods of
// recursive.h, or by that of fast_v2.h. With the first and the last trees may have tables instead.
enum class Method { kWalk, kTreeShap, kFastV1, kFastV2 };

// Their names in Python, which the rows of skshapgpu/_engine/algorithms.py refer to.
struct NamedMethod {
  const char* name;
  Method method;
};
constexpr NamedMethod kMethods[] = {{"walk", Method::kWalk},
                                    {"treeshap", Method::kTreeShap},
                                    {"fast_v1", Method::kFastV1},
                                    {"fast_v2", Method::kFastV2}};

// Rows to explain: element (row, feature) lies row * row_stride + feature * column_stride bytes
// after data. NaN is missing.
struct Rows {
  const void* data;
  bool is_float32;
  int64_t n_rows;
  int64_t row_stride, column_stride;
};

// Rows are handled in blocks of 64, so that one word holds a yes or no of each row of a block.
constexpr int kBlockRows = 64;

}  // namespace skshap
