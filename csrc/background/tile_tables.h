// Tables of interactions against background data. They are made for the rows of a tile and then discarded.
#pragma once

#include <vector>

#include "background/background_counts.h"
#include "background/group_targets.h"
#include "background/leaf_vectors.h"
#include "base/aligned.h"
#include "plan/plan.h"
#include "tables/group_words.h"

namespace skshap {

// The most bits of the index of a table that is shared by several leaves below one node.
constexpr uint32_t kGroupBits = 10;
static_assert(kGroupBits <= kLeafBits);

// Find the groups of a tree, and sort the features of each path in ascending order.
void find_groups(const Chunk& chunk, const TreeProgram& tree, TreeGroups& groups,
                 const TableLimits& limits = {kGroupBits});

// One thread's work. Rows go through the tables of one group of leaves after another. A table has a vector
// for each index that occurs in the tile. The numbers in the vector of an index, and the order in which a row
// adds up vectors, do not depend on the other rows of the tile.
template <class T>
class TileTables {
 public:
  TileTables(const Plan& plan, size_t tile, uint32_t longest_path);

  // Begin a chunk, whose slots and pairs ascend. Its trees will add to sums[row][used feature, then pair].
  void begin(const Chunk& chunk, size_t n_rows, double* sums);

  // Add a tree. `values` are the values of the tree's leaves for one output.
  void add_tree(const TreeProgram& tree, const TreeGroups& groups, const PatternCounts& counts,
                const double* values, const Decisions& decisions);

  // Add the sums of all trees since the last call.
  void flush();

 private:
  // A table and the rows of the tile that use it.
  struct TileLookup {
    size_t first_row, n_rows;
    const uint16_t* index;  // of all rows of the tile
    const T* table;
    size_t targets;
    uint32_t n_targets;
  };
  using Counts = PatternCounts::Part;

  void add_group(const TreeProgram& tree, const TreeGroups& groups, const TreeGroups::Group& group,
                 const Counts& counts, const double* values);
  void sum_up_group_leaf(const PathStep* path, uint32_t n, const Counts& counts);
  void add_leaf(const TreeGroups& groups, const TreeGroups::Leaf& leaf, const Counts& counts, double value);
  void list_targets(const TreeGroups& groups, const TreeGroups::Group& group);
  uint32_t position(int32_t first, int32_t second) const {
    return pair_position_[slot_of_[first] * n_slots_ + slot_of_[second]];
  }
  uint16_t* new_index();
  void number(uint16_t* index, uint32_t n_bits);
  T* make_room(size_t n_elements);
  void add_lookup(size_t first_row, size_t n_rows, const T* table);
  void run_lookups();
  void count_table();

  const Plan& plan_;
  const size_t capacity_;  // elements of the tables that wait for rows
  const Chunk* chunk_ = nullptr;
  size_t n_rows_ = 0, n_blocks_ = 0;  // of the tile
  double* sums_ = nullptr;
  size_t n_slots_ = 0, row_size_ = 0;
  Decisions decisions_{};  // at the tree
  Aligned<T> phi_;         // [row][row_size_]: the chunk's features, then its pairs
  int n_tables_ = 0;       // since the last flush

  // The finished tables that wait for rows; the last one is being built.
  std::vector<TileLookup> lookups_;
  Aligned<T> tables_;
  size_t n_elements_ = 0;
  std::vector<Aligned<uint16_t>> indices_;
  size_t n_indices_ = 0;
  std::vector<uint32_t> waiting_targets_, targets_;
  std::vector<uint16_t> needed_;  // indices that occur, ascending

  GroupWords group_words_;
  GroupTargets group_targets_;
  LeafVectors vectors_;
  PatternVectors pattern_vectors_;
  PatternIds ids_;
  std::vector<uint64_t> patterns_;  // of the rows
  std::vector<uint16_t> number_of_, leaf_number_of_, leaf_index_;
  Aligned<uint16_t> group_index_;  // pattern of a leaf, by index of its group
  Aligned<T> group_table_, leaf_table_;
  std::vector<double> weights_;
  std::vector<uint32_t> slot_of_, pair_position_;  // by used feature; [slot][slot]
  std::vector<uint32_t> bits_, leaf_targets_;
};

// Return the bytes that TileTables allocate for each row of a tile, and the bytes that do not depend on rows.
size_t tile_table_row_bytes(const Plan& plan);
size_t tile_table_bytes(const Plan& plan, uint32_t longest_path);

}  // namespace skshap
