// Plain types that every layer of the core shares; no Python, no STL containers in kernels.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <type_traits>

namespace skshap {

// Borrowed arrays of trees, whatever their tests are. The nodes of a tree are numbered from its root.
struct TreeArrays {
  int32_t n_trees = 0, n_outputs = 0, value_width = 1;
  const int64_t* tree_offsets = nullptr;
  const int32_t* tree_output = nullptr;  // -1: each leaf holds all outputs
  const double* intercept = nullptr;
  const int32_t *left = nullptr, *right = nullptr;  // by node, as are the next two
  const double* cover = nullptr;
  const double* value = nullptr;  // [node][value_width]

  int64_t n_nodes() const { return tree_offsets[n_trees]; }
  bool is_leaf(int64_t node) const { return left[node] < 0; }
};

// The arrays of an Ensemble, borrowed from NumPy. skshapgpu/adapters/ensemble.py documents them.
struct EnsembleView : TreeArrays {
  int32_t n_features;
  const int32_t* feature;
  const double* threshold;
  const uint8_t* missing_left;
  bool x_float32, strict;
  const int32_t* player;  // per feature, or null: each feature is a player
  int32_t n_players;
  const uint8_t* zero_missing;  // per feature, or null
  const int32_t* category_set;  // per node, or null
  const int64_t* category_offsets;
  const int32_t* category_values;
  const uint8_t* category_listed_left;

  bool is_categorical(int64_t node) const { return category_set && category_set[node] >= 0; }
};

enum class Precision { kSingle, kDouble };

// Call work(number), where the number has the type of the precision.
template <class Work>
auto in_precision(Precision precision, const Work& work) {
  return precision == Precision::kSingle ? work(float()) : work(double());
}

// The kind of values and interactions: the Shapley interaction index, the Shapley-Taylor index of order 2 or
// the Banzhaf interaction index. The values of the first two kinds are Shapley values, and the values of the
// last kind are Banzhaf values.
enum class Index { kShapley, kTaylor, kBanzhaf };

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

// Return the bytes of the elements of some lists.
template <class... Lists>
size_t list_bytes(const Lists&... lists) {
  return (size_t{0} + ... + (lists.size() * sizeof(*lists.data())));
}

// Return the largest size of the items of a list, or 0. `size` is a member or a function of an item.
template <class List, class Size>
auto largest_of(const List& list, const Size& size) {
  std::decay_t<decltype(std::invoke(size, *std::begin(list)))> largest = 0;
  for (const auto& item : list) largest = std::max(largest, std::invoke(size, item));
  return largest;
}

// Return the list of numbers of type T, given an object that has a list `floats` and a list `doubles`.
template <class T, class Object>
auto& numbers_of(Object& object) {
  if constexpr (sizeof(T) == sizeof(float))
    return object.floats;
  else
    return object.doubles;
}

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
