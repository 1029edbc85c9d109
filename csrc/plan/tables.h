// Trees explained by tables: what the builders write and look_up.cpp reads.
//
// What a leaf gives to each feature depends on a row by its decisions on the leaf's path only, so it can be
// computed beforehand, whatever stands for features that are not known. Leaves below one node share a table
// and its index: the features of the path above the node, satisfied or not, and the decisions of the nodes
// from there on. See docs/how_it_works.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/aligned.h"
#include "plan/program.h"

namespace skshap {

// Leaves that share a table.
struct LookUp {
  uint32_t bits, n_bits;        // of the index, among Tables::bits
  uint32_t targets, n_targets;  // positions in the row of the batch, ascending, among Tables::targets
  size_t table;                 // where it begins: [index][target]
};

// A leaf with too long a path for tables: the background's patterns, each once.
struct PatternLeaf {
  uint32_t bits, n_bits;
  uint32_t targets;  // positions of the features' first outputs
  size_t patterns, n_patterns;
  size_t leaf;  // its values, among those of the plan
};

// A leaf of a plan for Fast TreeSHAP v2, whose table has one number for each pattern; see fast_v2.h.
struct LeafTable {
  uint32_t features, n_features;  // first one, among Tables::leaf_features
  size_t table;                   // where it begins
};
struct LeafFeature {
  uint32_t bit, slot;  // as in Tables::bits; among those of the chunk
  double zero_fraction;
};
constexpr uint32_t kMaxLeafBits = 16;

// A tree explained by tables.
struct TableTree {
  size_t tree;  // among those of the plan
  size_t batch;
  size_t look_ups, look_ups_end;
  size_t leaves, leaves_end;
  // If all nodes of a level split alike: one node of each, and the leaf values by the index of the only
  // look-up. n_levels is 0 for other trees.
  size_t levels, values;
  uint32_t n_levels;
};

// Consecutive ones of these trees, of one chunk, whose values are added up in one row before they leave it.
struct TableBatch {
  size_t chunk;
  size_t trees, trees_end;
  size_t places, places_end;  // of each position, among Tables::places
  size_t row_size;            // positions, padded
};

// Numbers that were computed here, or that lie where somebody else keeps them: in a file mapped into memory.
template <class T>
class Contents {
 public:
  using Own = std::vector<T, AlignedAllocator<T>>;
  Own& own() { return own_; }
  // `owner` keeps them where they are.
  void borrow(const T* data, size_t size, std::shared_ptr<const void> owner) {
    borrowed_ = data;
    n_borrowed_ = size;
    owner_ = std::move(owner);
  }
  bool is_borrowed() const { return owner_ != nullptr; }
  const T* data() const { return owner_ ? borrowed_ : own_.data(); }
  size_t size() const { return owner_ ? n_borrowed_ : own_.size(); }
  const T& operator[](size_t i) const { return data()[i]; }

 private:
  Own own_;
  const T* borrowed_ = nullptr;
  size_t n_borrowed_ = 0;
  std::shared_ptr<const void> owner_;
};

struct Tables {
  std::vector<uint32_t> bits;  // see bit_rows
  std::vector<uint32_t> targets;
  std::vector<LookUp> look_ups;
  std::vector<PatternLeaf> leaves;
  std::vector<LeafTable> leaf_tables;  // of each leaf, tree by tree
  std::vector<LeafFeature, AlignedAllocator<LeafFeature>> leaf_features;
  std::vector<TableTree> trees;
  std::vector<TableBatch> batches;
  std::vector<uint32_t> places;  // output * used features + position in Plan::features
  std::vector<DecideNode> levels;
  std::vector<double> level_values;
  Contents<uint64_t> patterns;  // ascending for each leaf
  Contents<double> weights;     // of the patterns
  Contents<float> floats;       // the tables; those of the plan's precision are filled
  Contents<double> doubles;
  size_t n_elements = 0;  // that they have, beyond the last table as much as a vector reads there
  // What the layout depends on beside the ensemble: the bytes that trees which split alike on each level
  // could take, or, against background data, the most features on the path of a leaf that has a table.
  bool against_background = false;
  size_t level_limit = 0;
  uint32_t leaf_bits = 0;
  double seconds = 0;  // that making them took

  bool any() const { return n_elements > 0; }
  size_t table_bytes() const { return floats.size() * 4 + doubles.size() * 8; }
  size_t borrowed_bytes() const { return floats.is_borrowed() || doubles.is_borrowed() ? table_bytes() : 0; }
  size_t bytes() const {
    return table_bytes() + bits.size() * 4 + targets.size() * 4 + look_ups.size() * sizeof(LookUp) +
           leaves.size() * sizeof(PatternLeaf) + leaf_tables.size() * sizeof(LeafTable) +
           leaf_features.size() * sizeof(LeafFeature) + trees.size() * sizeof(TableTree) +
           batches.size() * sizeof(TableBatch) + places.size() * 4 + levels.size() * sizeof(DecideNode) +
           level_values.size() * 8 + patterns.size() * 16;
  }
};

template <class T>
const Contents<T>& stored_tables(const Tables& tables) {
  if constexpr (sizeof(T) == 4)
    return tables.floats;
  else
    return tables.doubles;
}
template <class T>
Contents<T>& stored_tables(Tables& tables) {
  return const_cast<Contents<T>&>(stored_tables<T>(const_cast<const Tables&>(tables)));
}

// Elements that a look-up reads beyond the end of a table.
constexpr size_t kTablePadding = 16;

// Rows end at cache lines, and so do not share one, nor does a vector cross them.
constexpr size_t kRowBytes = 64;
constexpr size_t padded_row(size_t n, size_t element) {
  return (n * element + kRowBytes - 1) / kRowBytes * (kRowBytes / element);
}

// Words that the decisions of a block take: an odd number of cache lines, so that the same word of many
// blocks does not fall on few sets of the cache.
constexpr size_t block_words(size_t n_nodes) { return ((kFirstWord + 2 * n_nodes + 7) / 8 | 1) * 8; }

}  // namespace skshap
