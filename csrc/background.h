// Tables for SHAP values against background data (interventional): what background.cpp builds and reads.
//
// Only the leaves matter where row x and background row b differ: with the features of a leaf's path as bits,
// x and b as the sets whose splits they satisfy, leaf value v, and p features that only x satisfies and q
// that only b does, all others being satisfied by both, a feature gets
//     v (p - 1)! q! / (p + q)! if only x satisfies it, -v p! (q - 1)! / (p + q)! if only b does
// (Lundberg et al., 2020). p depends on b only and q on x only, so that quadrature in t separates them:
// (p - 1)! q! / (p + q)! is the integral of t^(p - 1) (1 - t)^q. See docs/how_it_works.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace skshap {

// Leaves below one node, looked up together: an index made of decisions, and for each feature (and output) a
// table of 2^n_bits numbers.
struct LookUp {
  uint32_t bits, n_bits;        // among `bits`
  uint32_t targets, n_targets;  // among `targets`: slot of each table
  size_t tables;                // where they begin
};

// A leaf with too long a path for tables: the background's patterns, each once.
struct PatternLeaf {
  uint32_t bits, n_bits;
  uint32_t targets;  // slots of the features
  size_t patterns, n_patterns;
  size_t leaf;  // its values, among those of the plan
};

struct BackgroundTables {
  // Of each bit: the first of a node's two words, << 1, + 1 if it stands for the rows that go right.
  std::vector<uint32_t> bits;
  std::vector<uint32_t> targets;
  std::vector<LookUp> look_ups;
  std::vector<PatternLeaf> leaves;
  std::vector<size_t> tree_look_ups, tree_leaves;  // [tree]: where they begin; then the end
  std::vector<uint64_t> patterns;                  // ascending for each leaf
  std::vector<double> weights;                     // of the patterns
  std::vector<float> tables_float;                 // the one of the plan's precision is filled
  std::vector<double> tables_double;

  size_t bytes() const {
    return bits.size() * 4 + targets.size() * 4 + look_ups.size() * sizeof(LookUp) +
           leaves.size() * sizeof(PatternLeaf) + patterns.size() * 16 + tables_float.size() * 4 +
           tables_double.size() * 8;
  }
};

// Rows that satisfy what a bit stands for.
inline uint64_t bit_rows(const uint64_t* words, uint32_t bit) {
  const uint64_t* p = words + (bit >> 1);
  return bit & 1 ? p[0] & ~p[1] : p[1];
}

}  // namespace skshap
