// Leaves without a table for a GPU, with the patterns of the background data. cuda/program/pattern_leaves.cpp
// writes them, and cuda/pattern_leaves.cuh reads them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include "plan/plan.h"

namespace skshap {

class CudaColumns;

// The forms of leaves: the most features on the path of a leaf. For each form there is a kernel.
constexpr uint32_t kPatternForms[] = {16, 32, 64};
constexpr size_t kNumberOfPatternForms = std::size(kPatternForms);
// In leaves with at most this many features, patterns have 32 bits.
constexpr uint32_t kNarrowBits = 32;
// The number of patterns of a run is padded to a multiple of this number.
constexpr uint32_t kPatternsAtOnce = 4;
// The multiple to which the weights of a pattern are padded.
constexpr uint32_t kTermsAtOnce = 4;

// A split on the path of a leaf. Unless the row goes left, it fails `bit` of its pattern.
struct alignas(16) CudaPathTest {
  uint32_t column_flags, operand;  // as in CudaNode
  uint32_t bit;
  uint32_t unused;
};

// Consecutive patterns that miss equally many features.
struct CudaPatternRun {
  uint32_t n_missing, n;
};

struct CudaPatternLeaf {
  size_t tests;
  size_t runs;
  size_t slots;     // of the chunk: [number of tables/pattern_vectors.h][output]
  size_t patterns;  // in `narrow` or `wide`
  size_t weights;   // in `weights`, or in `terms`: [pattern][term, padded]
  size_t values;    // by output
  uint32_t n_tests, n_runs, n_bits, n_outputs;
  uint32_t first_alpha, n_terms;  // if there are terms: their rows of alpha, see cuda/rescaled.cuh
};

struct CudaPatternChunk {
  size_t leaves, leaves_end;
  uint32_t first_slot, n_slots;  // first_slot counts the slots of all chunks of patterns
};

template <class T>
struct CudaPatternLeaves {
  std::vector<CudaPatternChunk> chunks;
  size_t n_chunks[kNumberOfPatternForms] = {};  // consecutive, by form
  std::vector<CudaPatternLeaf> leaves;
  std::vector<CudaPathTest> tests;
  std::vector<CudaPatternRun> runs;
  std::vector<uint32_t> slots;
  std::vector<uint32_t> narrow;  // the features that a pattern misses
  std::vector<uint64_t> wide;
  std::vector<double> weights;
  std::vector<T> terms;
  std::vector<double> values;    // in units of the plan's leaf scale
  std::vector<uint32_t> places;  // of the slots of all chunks, as in Tables::places
};

// Terms of an output. The patterns are weighed by a sum of these terms, as in background/rescaled_tables.h.
// The weights of each term have the form of Tables::weights.
struct PatternPanel {
  size_t output;
  uint32_t first_alpha;
  std::vector<const double*> weights;
};

// Write the leaves of a plan that have no table. If there are panels, a leaf is written once for each panel
// of its outputs. `panels` is null if each pattern has one weight.
template <class T>
CudaPatternLeaves<T> make_pattern_leaves(const Plan& plan, const CudaColumns& columns,
                                         const std::vector<PatternPanel>* panels);

}  // namespace skshap
