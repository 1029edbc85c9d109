// Leaves without a table on a GPU. The row in each lane goes through the patterns of the background data.
//
// A pattern counts for a row that satisfies all features missed by the pattern. All lanes of a warp go
// through the same patterns, and skip patterns that count for none of their rows. See docs/gpu.md.
#pragma once

#include "cuda/codes.cuh"
#include "cuda/program/pattern_leaves.h"
#include "cuda/program/tuning.h"
#include "cuda/warp_tasks.cuh"
#include "plan/pattern_moments.h"

namespace skshap {

// The results of pattern leaves: values, or values and pairs, with one weight for each pattern; or values
// with weights that are sums of terms.
enum class PatternResults { kValues, kPairs, kTerms };

template <class T>
struct CudaPatternArgs {
  const CudaPatternChunk* chunks;
  const CudaPatternLeaf* leaves;
  const CudaPathTest* tests;
  const CudaPatternRun* runs;
  const uint32_t* slots;
  const uint32_t* narrow;
  const uint64_t* wide;
  const double* weights;
  const T* terms;
  const double* values;
  const double *moments, *pair_moments;  // see plan/pattern_moments.h
  const uint32_t* category_bits;
  int32_t n_tasks, n_groups;  // chunks x groups of 32 rows for each warp of a block
  int32_t n_tiles, tile_rows, n_columns;
  uint32_t n_slots;      // of all kernels
  uint32_t max_slots;    // of a chunk if phi is summed in shared memory, otherwise 0
  const int16_t* codes;  // [tile][column][row of the tile]
  T* partial;            // [tile][slot of all kernels][row of the tile]
  const T* alpha;        // [term of all outputs][row], or null
};

__device__ __forceinline__ int count_bits(uint32_t x) { return __popc(x); }
__device__ __forceinline__ int count_bits(uint64_t x) { return __popcll(x); }

template <class T>
__device__ __forceinline__ const uint32_t* patterns_of(const CudaPatternArgs<T>& a, uint32_t) {
  return a.narrow;
}
template <class T>
__device__ __forceinline__ const uint64_t* patterns_of(const CudaPatternArgs<T>& a, uint64_t) {
  return a.wide;
}

template <class T>
struct PatternRow : TaskRow<T> {
  const T* alpha;  // of the first term of all
  int64_t n_rows;  // from a term to the next
};

// Return the features of the path that a row fails.
template <class Word, class T>
__device__ __forceinline__ Word failed_features(const CudaPatternArgs<T>& a, const CudaPatternLeaf& leaf,
                                                const int16_t* codes) {
  Word failed = 0;
#pragma unroll 4
  for (uint32_t i = 0; i < leaf.n_tests; ++i) {
    const uint4 test = __ldg(reinterpret_cast<const uint4*>(a.tests + leaf.tests + i));
    const bool passes = goes_left(codes, a.tile_rows, test.x, test.y, a.category_bits);
    failed |= static_cast<Word>(!passes) << test.z;
  }
  return failed;
}

// Go through the patterns that miss all features of `least` and count for a row of the warp. Call
// begin(number of features that the following patterns miss) when this number changes. Call add(features that
// the pattern misses, whether it counts for the lane's row, number of the pattern) for each pattern.
template <class Word, class T, class Begin, class Add>
__device__ __forceinline__ void for_patterns(const CudaPatternArgs<T>& a, const CudaPatternLeaf& leaf,
                                             Word failed, Word least, const Begin& begin, const Add& add) {
  constexpr int kLoad = 16 / sizeof(Word);
  const Word* patterns = patterns_of(a, Word{}) + leaf.patterns;
  uint32_t number = 0;
  for (uint32_t r = 0; r < leaf.n_runs; ++r) {
    const CudaPatternRun run = a.runs[leaf.runs + r];
    begin(run.n_missing);
    for (const uint32_t end = number + run.n; number < end; number += kLoad) {
      Word missing[kLoad];
      read_constants(patterns + number, missing);
#pragma unroll
      for (int i = 0; i < kLoad; ++i) {
        const bool counts = !(missing[i] & failed) && (missing[i] & least) == least;
        if (__any_sync(~0u, counts)) add(missing[i], counts, number + i);
      }
    }
  }
}

__device__ __forceinline__ double moment_of(const double* moments, int a, int b) {
  return __ldg(moments + a * PatternMoments::kSize + b);
}

// The weight of a pattern for the row of the lane.
template <class T, bool kTerms>
struct PatternWeight {
  const double* weights;
  __device__ __forceinline__ PatternWeight(const CudaPatternArgs<T>& a, const CudaPatternLeaf& leaf,
                                           const PatternRow<T>&)
      : weights(a.weights + leaf.weights) {}
  __device__ __forceinline__ double operator()(uint32_t pattern) const { return __ldg(weights + pattern); }
};

template <class T>
struct PatternWeight<T, true> {
  const T* terms;
  uint32_t n_terms;  // padded
  T alpha[kMostTerms];

  __device__ __forceinline__ PatternWeight(const CudaPatternArgs<T>& a, const CudaPatternLeaf& leaf,
                                           const PatternRow<T>& row)
      : terms(a.terms + leaf.weights),
        n_terms((leaf.n_terms + kTermsAtOnce - 1) / kTermsAtOnce * kTermsAtOnce) {
#pragma unroll
    for (uint32_t k = 0; k < kMostTerms; ++k)
      alpha[k] = k < leaf.n_terms ? __ldg(row.alpha + (leaf.first_alpha + k) * row.n_rows) : T(0);
  }

  __device__ __forceinline__ double operator()(uint32_t pattern) const {
    const T* const from = terms + static_cast<size_t>(pattern) * n_terms;
    T sum = 0;
#pragma unroll
    for (uint32_t k = 0; k < kMostTerms; k += kTermsAtOnce) {
      if (k >= n_terms) break;
#pragma unroll
      for (uint32_t i = 0; i < kTermsAtOnce; ++i) sum += alpha[k + i] * __ldg(from + k + i);
    }
    return static_cast<double>(sum);
  }
};

// Add a leaf's numbers to the values.
template <class Word, int kBits, bool kTerms, class T>
__device__ __forceinline__ void add_values(const CudaPatternArgs<T>& a, const CudaPatternLeaf& leaf,
                                           const PatternRow<T>& row) {
  const Word failed = failed_features<Word>(a, leaf, row.codes);
  const int q = count_bits(failed);
  const PatternWeight<T, kTerms> weight(a, leaf, row);
  double share[kBits], off = 0, on_factor = 0, off_factor = 0;
#pragma unroll
  for (int i = 0; i < kBits; ++i) share[i] = 0;
  for_patterns(
      a, leaf, failed, Word{0},
      [&](int p) {
        on_factor = p ? moment_of(a.moments, p - 1, q) : 0;
        off_factor = q ? moment_of(a.moments, p, q - 1) : 0;
      },
      [&](Word missing, bool counts, uint32_t pattern) {
        const double w = counts ? weight(pattern) : 0, on = w * on_factor;
        off += w * off_factor;
#pragma unroll
        for (int i = 0; i < kBits; ++i)
          if (missing >> i & 1) share[i] += on;
      });
  const uint32_t* slots = a.slots + leaf.slots;
#pragma unroll
  for (int i = 0; i < kBits; ++i) {
    if (i >= static_cast<int>(leaf.n_bits)) break;
    const double total = failed >> i & 1 ? -off : share[i];
    for (uint32_t o = 0; o < leaf.n_outputs; ++o)
      row.phi[__ldg(slots++) * row.stride] += static_cast<T>(total * __ldg(a.values + leaf.values + o));
  }
}

// Add a leaf's numbers to the values and to the sums of pairs, of one output. For each feature, all patterns
// are gone through once. Both features of a pair add a part of the pair's number.
template <class Word, int kBits, class T>
__device__ __forceinline__ void add_pairs(const CudaPatternArgs<T>& a, const CudaPatternLeaf& leaf,
                                          const PatternRow<T>& row) {
  const Word failed = failed_features<Word>(a, leaf, row.codes);
  const int q = count_bits(failed), n = leaf.n_bits;
  const PatternWeight<T, false> weight(a, leaf, row);
  const uint32_t* const slots = a.slots + leaf.slots;
  const double value = __ldg(a.values + leaf.values);
  // The number of each feature that the row fails, and the number of each pair of two such features.
  double off = 0, pair_off = 0, factor = 0, pair_factor = 0;
  for_patterns(
      a, leaf, failed, Word{0},
      [&](int p) {
        factor = q ? moment_of(a.moments, p, q - 1) : 0;
        pair_factor = q > 1 ? moment_of(a.pair_moments, p, q - 2) : 0;
      },
      [&](Word, bool counts, uint32_t pattern) {
        const double w = counts ? weight(pattern) : 0;
        off += w * factor;
        pair_off += w * pair_factor;
      });
  for (int i = 0; i < n; ++i) {
    // The number of feature i if the row satisfies it; the number of its pair with a feature that the row
    // fails; and the number of its pair with each other feature.
    double on = 0, mixed = 0, both[kBits], on_factor = 0, mixed_factor = 0, both_factor = 0;
#pragma unroll
    for (int j = 0; j < kBits; ++j) both[j] = 0;
    for_patterns(
        a, leaf, failed, Word{1} << i,
        [&](int p) {
          on_factor = p ? moment_of(a.moments, p - 1, q) : 0;
          mixed_factor = p && q ? moment_of(a.pair_moments, p - 1, q - 1) : 0;
          both_factor = p > 1 ? moment_of(a.pair_moments, p - 2, q) : 0;
        },
        [&](Word missing, bool counts, uint32_t pattern) {
          const double w = counts ? weight(pattern) : 0, weighted_both = w * both_factor;
          on += w * on_factor;
          mixed += w * mixed_factor;
#pragma unroll
          for (int j = 0; j < kBits; ++j)
            if (missing >> j & 1) both[j] += weighted_both;
        });
    const bool fails_i = failed >> i & 1;
    row.phi[__ldg(slots + i) * row.stride] += static_cast<T>((fails_i ? -off : on) * value);
#pragma unroll
    for (int j = 0; j < kBits; ++j) {
      if (j >= n) break;
      if (j == i) continue;
      const bool fails_j = failed >> j & 1;
      double number = 0;
      if (!fails_i && fails_j) number = -mixed;
      if (i < j && fails_i == fails_j) number = fails_i ? pair_off : both[j];
      const uint32_t pair = i < j ? pair_number(n, i, j) : pair_number(n, j, i);
      row.phi[__ldg(slots + n + pair) * row.stride] += static_cast<T>(2 * number * value);  // see CudaSumArgs
    }
  }
}

template <class T, class Word, int kBits, PatternResults kResults>
__global__ void __launch_bounds__(kPatternWarps* kWarp)
    explain_pattern_leaves(const __grid_constant__ CudaPatternArgs<T> a) {
  for_tasks<T>(a, a.tile_rows, kPatternWarps, [&](const CudaPatternChunk& chunk, const TaskRow<T>& task) {
    const PatternRow<T> row{task, a.alpha + task.number, static_cast<int64_t>(a.n_tiles) * a.tile_rows};
    for (size_t l = chunk.leaves; l < chunk.leaves_end; ++l) {
      const CudaPatternLeaf leaf = a.leaves[l];
      if constexpr (kResults == PatternResults::kPairs)
        add_pairs<Word, kBits>(a, leaf, row);
      else
        add_values<Word, kBits, kResults == PatternResults::kTerms>(a, leaf, row);
    }
  });
}

template <class T>
using PatternKernel = void (*)(CudaPatternArgs<T>);

// Return the kernel for a form of leaves; see kPatternForms.
template <class T>
PatternKernel<T> pattern_kernel(size_t form, PatternResults results);

}  // namespace skshap
