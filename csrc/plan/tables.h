// Trees explained by tables: written by the builders, read by tables/lookup.cpp.
//
// A leaf's contribution to each feature depends on a row only through the row's decisions on the leaf's path.
// So the contribution can be computed in advance, whatever replaces unknown features. Leaves below one node
// share a table and its index. The index has a bit for each feature of the path above the node, which says
// whether the row satisfies the feature, and a bit for each decision at the node and below it. See
// docs/mathematics.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/aligned.h"
#include "plan/program.h"

namespace skshap {

// Leaves that share a table.
struct Lookup {
  uint32_t bits, n_bits;        // of the index, in Tables::bits
  uint32_t targets, n_targets;  // positions in the row of the batch, ascending, in Tables::targets
  size_t table;                 // where it begins: [index][target]
};

// A leaf whose path is too long for a table. It has the distinct patterns of the background data.
struct PatternLeaf {
  uint32_t bits, n_bits;
  uint32_t targets;  // positions of the leaf's numbers (see tables/pattern_vectors.h) for the first output
  uint32_t n_outputs;
  size_t patterns = 0, n_patterns = 0;
  size_t leaf;  // place of its values in Plan::leaf_values
};

// A leaf of a plan for Fast TreeSHAP v2. Its table has one number for each pattern; see
// baselines/fast_v2.cpp.
struct LeafTable {
  uint32_t features, n_features;  // the first one, in Tables::leaf_features
  size_t table;                   // where it begins
};
struct LeafFeature {
  uint32_t bit, slot;  // as in Tables::bits; in the chunk
  double zero_fraction;
};
constexpr uint32_t kMaxLeafBits = 16;

// A tree explained by tables.
struct TableTree {
  size_t tree;  // in Plan::trees
  size_t batch;
  size_t lookups, lookups_end;
  size_t leaves, leaves_end;
  // For a tree whose nodes of a level all split alike: one node of each level, and the leaf values by the
  // index of the tree's only lookup. n_levels is 0 for other trees.
  size_t levels = 0, values = 0;
  uint32_t n_levels = 0;
  bool adds_margin = true;  // false if the tree is listed before, with other tables
};

// Consecutive trees with tables, all of one chunk. Their values are added up in one row, which is added to
// the sums of the chunk at the end of the batch.
struct TableBatch {
  size_t chunk;
  size_t trees, trees_end;
  size_t places, places_end;  // in Tables::places, one for each position
  size_t row_size = 0;        // the number of positions, padded
};

// Numbers that were computed by this object, or that another owner keeps in memory, such as a file mapped
// into memory.
template <class T>
class Contents {
 public:
  using Own = std::vector<T, AlignedAllocator<T>>;
  // Return the numbers of this object, to be filled before copies are made: copies share them.
  Own& own() {
    if (!own_) own_ = std::make_shared<Own>();
    return *own_;
  }
  // Use numbers that `owner` keeps in memory.
  void borrow(const T* data, size_t size, std::shared_ptr<const void> owner) {
    borrowed_ = data;
    n_borrowed_ = size;
    owner_ = std::move(owner);
  }
  // Return the same numbers, borrowed from this owner.
  Contents borrowed() const {
    Contents out;
    if (data()) out.borrow(data(), size(), owner_ ? owner_ : own_);
    return out;
  }
  bool is_borrowed() const { return owner_ != nullptr; }
  const T* data() const { return owner_ ? borrowed_ : own_ ? own_->data() : nullptr; }
  size_t size() const { return owner_ ? n_borrowed_ : own_ ? own_->size() : 0; }
  const T& operator[](size_t i) const { return data()[i]; }

 private:
  std::shared_ptr<Own> own_;
  const T* borrowed_ = nullptr;
  size_t n_borrowed_ = 0;
  std::shared_ptr<const void> owner_;
};

struct Tables {
  std::vector<uint32_t> bits;  // see bit_rows
  std::vector<uint32_t> targets;
  std::vector<Lookup> lookups;
  std::vector<PatternLeaf> leaves;
  std::vector<LeafTable> leaf_tables;  // one per leaf, tree by tree
  std::vector<LeafFeature, AlignedAllocator<LeafFeature>> leaf_features;
  std::vector<TableTree> trees;
  std::vector<TableBatch> batches;
  // output * places of an output + place. A place is a position in Plan::features or, beyond the features, in
  // Plan::pairs. Like the sums of the walk, tables have twice the value of a pair.
  std::vector<uint32_t> places;
  std::vector<DecideNode> levels;
  std::vector<double> level_values;
  Contents<uint64_t> patterns;  // ascending for each leaf
  Contents<double> weights;     // of the patterns
  Contents<float> floats;       // the tables; only the array of the plan's precision is filled
  Contents<double> doubles;
  size_t n_elements = 0;  // of all tables, including as many as a vector reads beyond the last
  // Numbers that, together with the ensemble, determine the layout. For trees that use the same split
  // throughout each level, these are the bytes allowed. Against background data, there is also the largest
  // number of features on the path of a leaf that has a table.
  bool against_background = false;
  size_t level_limit = 0;
  uint32_t leaf_bits = 0;
  double seconds = 0;  // time to build the tables

  bool any() const { return n_elements > 0; }
  // Drop the numbers of tables, and the patterns.
  void drop_contents() {
    floats = {};
    doubles = {};
    patterns = {};
    weights = {};
  }
  size_t table_bytes() const { return list_bytes(floats, doubles); }
  size_t borrowed_bytes() const { return floats.is_borrowed() || doubles.is_borrowed() ? table_bytes() : 0; }
  size_t bytes() const {
    return table_bytes() + list_bytes(bits, targets, lookups, leaves, leaf_tables, leaf_features, trees,
                                      batches, places, levels, level_values, patterns, weights);
  }
};

// Throw unless the positions in a list of n elements fit the integers that tables have for them.
template <class Position = uint32_t>
constexpr void require_positions(size_t n) {
  if (n > static_cast<size_t>(std::numeric_limits<Position>::max()))
    throw std::invalid_argument("the trees have too many leaves or outputs for tables");
}

// Elements that a lookup reads beyond the end of a table.
constexpr size_t kTablePadding = 16;

// Rows end at cache lines, so that no two rows share a cache line and no vector crosses a line.
constexpr size_t kRowBytes = 64;
constexpr size_t padded_row(size_t n, size_t element) {
  return (n * element + kRowBytes - 1) / kRowBytes * (kRowBytes / element);
}

// Return the number of words for the decisions of a block: an odd number of cache lines. With an even number,
// the same word of many blocks would be in a few sets of the cache.
constexpr size_t block_words(size_t n_nodes) { return ((kFirstWord + 2 * n_nodes + 7) / 8 | 1) * 8; }

}  // namespace skshap
