// Counts the background data: the weight of each index of a table, or of each pattern at a leaf.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/aligned.h"
#include "base/threads.h"
#include "rows/coding.h"
#include "tables/table_builder.h"

namespace skshap {

// Distinct patterns, numbered in the order of their first occurrence.
class PatternIds {
 public:
  PatternIds() { clear(); }
  void clear();
  uint32_t id(uint64_t pattern);
  const std::vector<uint64_t>& patterns() const { return patterns_; }
  size_t bytes() const { return places_.capacity() * 4 + patterns_.capacity() * 8; }

 private:
  size_t place(uint64_t pattern) const;
  void grow();

  int n_bits_ = 0;                // places_ has 2^n_bits_ elements
  std::vector<uint32_t> places_;  // ids, by hash
  std::vector<uint64_t> patterns_;
};

// Find the patterns, of up to 64 bits, of the rows of some blocks. `index` and `patterns` have memory for
// them.
void row_patterns(const Decisions& decisions, const uint32_t* bits, uint32_t n_bits, uint16_t* index,
                  uint64_t* patterns);

// The number of background rows that are decided and counted at once.
constexpr size_t kCountedRows = 4096;

// One thread's work: it adds up the weights of background rows by their decisions at the nodes of a tree.
class RowCounter {
 public:
  // Decide n_rows rows at the nodes of a tree. They begin with a block of `codes`.
  void decide(const Plan& plan, const TreeProgram& tree, const CodeTile& codes, size_t first_block,
              size_t n_rows, const double* weights);

  // Add each row's weight to by_index[i], where i is the number that the bits form for the row. There are at
  // most 16 bits.
  void add_by_index(const uint32_t* bits, uint32_t n_bits, double* by_index);

  // Call add(patterns, weights, number of rows) for each block. A pattern has at most 64 bits.
  template <class Add>
  void add_patterns(const uint32_t* bits, uint32_t n_bits, const Add& add) {
    check_interrupt();
    row_patterns(decisions_, bits, n_bits, index_.data(), patterns_.data());
    for (size_t first = 0; first < n_rows_; first += kBlockRows)
      add(patterns_.data() + first, weights_ + first, std::min<size_t>(kBlockRows, n_rows_ - first));
  }

  size_t bytes() const { return (words_.capacity() + patterns_.capacity()) * 8 + index_.capacity() * 2; }

 private:
  const double* weights_ = nullptr;
  size_t n_rows_ = 0;
  Decisions decisions_{};
  std::vector<uint64_t> words_, patterns_;
  std::vector<uint16_t> index_;
};

// List the bits of the index of a group, or of the pattern of a leaf.
void list_bits(const TreeGroups& groups, const TreeGroups::Group& group, std::vector<uint32_t>& bits);
void list_bits(const TreeGroups& groups, const TreeGroups::Leaf& leaf, std::vector<uint32_t>& bits);

// The distinct indices of a tree's groups, then the distinct patterns of its leaves outside of groups.
struct PatternCounts {
  std::vector<size_t> begin;  // by group, then by leaf; the last element is the end
  std::vector<uint64_t> patterns;
  std::vector<double> weights;

  // The patterns and weights of a group or leaf.
  struct Part {
    const uint64_t* patterns;
    const double* weights;
    size_t n;
  };
  Part part(size_t i) const {
    return {patterns.data() + begin[i], weights.data() + begin[i], begin[i + 1] - begin[i]};
  }
  size_t bytes() const { return begin.size() * sizeof(size_t) + patterns.size() * 16; }
};

struct BackgroundPairsPlan;

// One thread's work. The order in which it adds depends only on the background data.
class BackgroundCounter {
 public:
  explicit BackgroundCounter(const BackgroundPairsPlan& pairs) : pairs_(pairs) {}

  // Return the counts for a tree that the plan keeps, or count again. The result is valid until the next
  // call.
  const PatternCounts& count(size_t tree, const TreeGroups& groups);

  // Return the bytes that are allocated.
  size_t bytes() const;

 private:
  struct LongLeaf {
    std::vector<uint64_t> patterns;
    std::vector<double> weights;
  };

  void count_rows(const TreeGroups& groups);
  void write(const TreeGroups& groups);

  const BackgroundPairsPlan& pairs_;
  RowCounter rows_;
  std::vector<uint32_t> bits_;
  std::vector<double> by_index_;  // for one group at a time
  std::vector<LongLeaf> long_leaves_;
  PatternIds ids_;
  PatternCounts counts_;
};

}  // namespace skshap
