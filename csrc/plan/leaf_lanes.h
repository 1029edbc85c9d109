// Leaves in the lanes of vectors, for calls of few rows: written by lanes/builder.cpp, read by
// lanes/runner.cpp and simd/lane_kernels-inl.h.
//
// A walk takes 64 rows through a tree, and hardly less time if there is only one row. Here, one row is
// compared with the leaves of all trees, a vector of leaves at a time. A place of a vector is a feature: in
// each lane, all splits of the lane's path on the feature are one interval of codes, or one set of
// categories. The leaves of a vector have about the same features. A leaf without the feature of a place
// passes any code, and has the zero fraction 1, so that the place changes nothing.
//
// Unless leaves hold all outputs, a lane has a leaf or two. The paths of most pairs of siblings differ only
// in how they divide the interval of one feature in two: with v and w, the values of the leaves, y and z,
// their zero fractions of that feature, and o and p, which are 1 if a row passes their tests, they add up to
// a single leaf of the value 1, whose factor is (v y + w z) (1 - t) + (v o + w p) t. The place of that
// feature is called the split of the lane. A single leaf also has a split, at the first place of its path,
// with v = w.
//
// With many features, each of the deepest nodes mostly has a feature of its own, so that a place would serve
// a lane or two. A mixed place has another feature in each lane. Before a row is compared with a chunk, its
// codes are written into the lanes of the chunk's mixed places, and afterwards the values are collected from
// there; see MixedTests. The mixed places of a vector follow its other places.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/aligned.h"
#include "base/types.h"

namespace skshap {

// The most places of a vector, and the most mixed places among them, and the largest number of quadrature
// nodes.
constexpr size_t kMostPlaces = 64, kMostMixed = 8;
constexpr int kMaxLaneNodes = 8;

struct LanePlace {
  uint16_t column;  // in Plan::columns; of a mixed place, its number in the chunk
  uint16_t slot;    // in the slots of the chunk, which the mixed places follow
  // kNumeric, kMixed, or the first word of the sets of categories, which have a bit for each code and lane:
  // the bits of a code follow those of the code before it.
  uint32_t words;
  // Three bits for each lane, first those of all lanes whose split is at this place. Then, unless the column
  // is categorical, those of the lanes that a missing value passes, and of the lanes where it reaches the
  // first leaf. See lane_bit.
  uint64_t lanes;
};
enum LaneBit { kSplitLanes, kMissingLanes, kMissingFirstLanes };

// Return the bit of a lane in LanePlace::lanes, given the lanes of a vector.
constexpr uint64_t lane_bit(LaneBit kind, size_t lane, size_t width) {
  return uint64_t{1} << (kind * width + lane);
}
constexpr uint32_t kNumeric = 0xffffffff, kMixed = 0xfffffffe;

// The code of a missing value in a numeric column. The code below it never occurs.
constexpr uint16_t kMissingLaneCode = 0xffff;

// Tests of a numeric column in mixed places of a chunk. The last ones of a column are filled up with tests at
// a position behind all lanes, whose value is 0, so that no loop depends on their number.
constexpr size_t kMixedTests = 8;
struct MixedTests {
  uint16_t column;                  // in Plan::columns
  uint16_t feature;                 // in Plan::features
  uint16_t positions[kMixedTests];  // mixed place * width + lane
  // The codes that stand for a missing value: those of the leaf, or the leaves, that it reaches.
  uint16_t missing[kMixedTests];
};

// Consecutive vectors of the same output and number of nodes, by ascending numbers of mixed places and of all
// places. They are few enough to be summed in single precision.
struct LaneChunk {
  int32_t output;  // -1: each leaf holds all outputs
  int32_t n_nodes;
  size_t vectors, vectors_end;
  size_t places, bounds;           // of its first vector
  size_t numbers, values;          // of its first vector, in the numbers and in leaf_values
  size_t quadrature;               // t_k, then w_k, in the numbers
  size_t slots, n_slots, n_mixed;  // slots and mixed places
  size_t mixed, mixed_end;         // in LeafLanes::mixed
  size_t ranks, ranks_end;
};

// The codes that the tests of a chunk, and of others with the same ranks, tell apart in a column, ascending.
// If a column has too many thresholds for 16 bits, the code of a row is replaced by the number of these codes
// that are not above it.
struct LaneRanks {
  uint32_t column;
  size_t codes, codes_end;  // in LeafLanes::ranked_codes
};

// Consecutive chunks of the same output. Threads share the parts; the sums of parts are added up in order.
struct LanePart {
  int32_t output;
  size_t chunks, chunks_end;
};

struct LeafLanes {
  int width = 0;  // lanes of a vector
  std::vector<LanePart> parts;
  std::vector<LaneChunk> chunks;
  std::vector<uint8_t> n_places, n_mixed;  // by vector: all places, and the mixed ones among them
  std::vector<LanePlace> places;
  std::vector<MixedTests> mixed;
  // By vector. Unless leaves hold all outputs, it begins with [lane]: at the split, a row reaches the first
  // of the lane's leaves if its code, less the lower bound, is at most this number. Then [place][2][lane]: a
  // row passes a numeric place if its code, less the first number, is at most the second. All modulo 2^16.
  std::vector<uint16_t, AlignedAllocator<uint16_t>> bounds;
  // By vector, in the plan's precision only: [output][lane] or [first or second leaf][lane], the leaf values
  // in units of the plan's leaf scale; then [place][lane], the zero fractions, where that of a split is v y +
  // w z. The nodes and weights follow the last vector.
  std::vector<float, AlignedAllocator<float>> floats;
  std::vector<double, AlignedAllocator<double>> doubles;
  std::vector<double, AlignedAllocator<double>> leaf_values;  // the leaf values, as above
  std::vector<uint64_t> category_words;
  std::vector<int32_t> slots;  // positions in Plan::features
  bool ranked = false;         // whether codes are replaced by ranks
  std::vector<LaneRanks> ranks;
  std::vector<uint32_t> ranked_codes;
  size_t n_trees = 0, n_leaves = 0;
  // The work for each row: the sum over the vectors of the places times one more than the nodes and, if
  // leaves hold several outputs, one and a half times the outputs; and more for the tests in mixed places.
  size_t n_steps = 0;

  bool any() const { return !chunks.empty(); }
  size_t bytes() const {
    return list_bytes(parts, chunks, n_places, n_mixed, places, mixed, bounds, floats, doubles, leaf_values,
                      category_words, slots, ranks, ranked_codes);
  }
};

}  // namespace skshap
