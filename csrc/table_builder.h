// Plan -> tables: which leaves share one, where it lies, and what is in it, given how much of what stands
// for unknown features satisfies what of a leaf's path.
//
// With the features of a leaf's path as bits, x the set of those that the row satisfies and b the same of
// what stands for unknown features, leaf value v, and p features that only x satisfies and q that only b
// does, all others being satisfied by both, a feature gets
//     v (p - 1)! q! / (p + q)! if only x satisfies it, -v p! (q - 1)! / (p + q)! if only b does
// (Lundberg et al., 2020). p depends on b only and q on x only, so that quadrature in t separates them:
// (p - 1)! q! / (p + q)! is the integral of t^(p - 1) (1 - t)^q. See docs/how_it_works.md.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <vector>

#include "aligned.h"
#include "plan.h"
#include "tree_groups.h"

namespace skshap {

// A leaf of a group, as its table is computed.
struct TableLeaf {
  size_t tree;     // among Tables::trees
  size_t look_up;  // among Tables::look_ups
  uint32_t n_features;
  const uint16_t* pattern;  // by index
  size_t size;              // of the table
  const double* values;     // of the plan
  size_t n_outputs;
};

// Fills weights[pattern], zeros before.
using WeighPatterns = std::function<void(const TableLeaf& leaf, double* weights)>;

// A tree whose nodes on each level all ask the same: one node of each level.
struct LevelTree {
  size_t tree;  // among those of the plan
  std::vector<int32_t> nodes;
};

// What tables of the trees with one number of quadrature nodes would take; see also longest_path.
struct TableCost {
  int n_nodes;
  size_t n_trees, n_leaves, n_look_ups, bytes;
  size_t n_places;  // sums that a row adds to after the look-ups, of trees that do not share them with others
  uint32_t longest_path;
};

// Of all trees that have none yet, by ascending number of nodes.
std::vector<TableCost> table_costs(const Plan& plan, uint32_t leaf_bits);
// Bytes of all tables that these limits allow.
size_t tables_bytes(const Plan& plan, const TableLimits& limits);
// The most features on a path.
uint32_t longest_path(const Plan& plan);

// Throws std::invalid_argument if a path has more features than tables have bits, and TableMemoryError if
// tables that all trees must have need more bytes than they may take.
void require_short_paths(const Plan& plan);
void require_room(size_t needed, size_t table_bytes);

// Lays out tables: everything but what is in them. Those of `levels`, in the order of the plan, have only one
// each, with an index of the answers on each level. The limits are for all other trees.
void lay_out_tables(Plan& plan, const std::vector<LevelTree>& levels, const TableLimits& limits);

// Notes in the plan how long its tables took to make.
class TableClock {
 public:
  void stop(Plan& plan) const {
    plan.tables.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Makes room for what is in the tables.
void allocate_tables(Plan& plan);

// Fills the tables of all trees but those of levels.
void write_tables(Plan& plan, const TableLimits& limits, int64_t n_threads, const WeighPatterns& weigh);

// Takes the walk's programs of trees with tables away.
void drop_walks(Plan& plan);

// Bit `bit` of the numbers of 64 consecutive indices, the first of which is 64 times `block`.
uint64_t index_bit(uint32_t bit, size_t block);

// Makes room for n elements; new ones are 0.
template <class X>
void grow(Aligned<X>& buffer, size_t n) {
  if (buffer.size() >= n) return;
  buffer.resize(n);
  std::fill_n(buffer.data(), n, X(0));
}

}  // namespace skshap
