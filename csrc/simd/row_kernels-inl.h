// Kernels for rows before and after a tree: ranks, decisions, the leaves that rows reach, and sums.
//
// simd/kernels-inl.h includes this file and says why everything has internal linkage.
#pragma once

#include <type_traits>

#include "simd/kernels.h"

namespace skshap {
namespace {

// Up to this many thresholds, all of them are compared with each value; with more, a binary search is faster.
constexpr size_t kMostCounted = 32;
constexpr int kRankVectors = 4;  // vectors of values in flight

// Return the values that have passed a threshold. Missing values have not.
template <class S, bool kStrict>
typename S::M passed(typename S::V threshold, typename S::V x) {
  return kStrict ? S::less_equal(threshold, x) : S::less(threshold, x);
}

// Write the ranks that advance(values, ranks) computes, starting from zeros, for a few vectors at a time.
template <class S, class Advance>
void rank_vectors(const RankArgs<typename S::T>& args, const Advance& advance) {
  for (int begin = 0; begin < kBlockRows; begin += kRankVectors * S::kWidth) {
    typename S::V x[kRankVectors];
    typename S::IndexVector rank[kRankVectors];
    for (int i = 0; i < kRankVectors; ++i) {
      x[i] = S::load(args.values + begin + i * S::kWidth);
      rank[i] = S::no_bits();
    }
    advance(x, rank);
    for (int i = 0; i < kRankVectors; ++i) S::store(args.ranks + begin + i * S::kWidth, rank[i]);
  }
}

template <class S, bool kStrict>
void rank_by_counting(const RankArgs<typename S::T>& args) {
  rank_vectors<S>(args, [&](const typename S::V* x, typename S::IndexVector* rank) {
    for (size_t t = 0; t < args.n_thresholds; ++t) {
      const typename S::V threshold = S::set1(args.thresholds[t]);
      for (int i = 0; i < kRankVectors; ++i)
        rank[i] = S::add_where(rank[i], passed<S, kStrict>(threshold, x[i]), 1);
    }
  });
}

// A binary search in lockstep: every value takes the same steps, and there are no branches.
template <class S, bool kStrict>
void rank_by_search(const RankArgs<typename S::T>& args) {
  using X = typename S::T;
  if constexpr (S::kGathers) {
    rank_vectors<S>(args, [&](const typename S::V* x, typename S::IndexVector* rank) {
      for (size_t length = args.n_thresholds, half; length > 0; length -= half) {
        half = (length + 1) / 2;
        for (int i = 0; i < kRankVectors; ++i) {
          const typename S::V threshold = S::take(args.thresholds + half - 1, rank[i]);
          rank[i] = S::add_where(rank[i], passed<S, kStrict>(threshold, x[i]), static_cast<int>(half));
        }
      }
    });
  } else {
    // Steps are as wide as the values, so that the compiler vectorizes the comparisons without conversions.
    using RankType = std::conditional_t<sizeof(X) == 4, uint32_t, uint64_t>;
    const X* __restrict const x = args.values;
    RankType rank[kBlockRows] = {};
    for (size_t length = args.n_thresholds, half; length > 0; length -= half) {
      half = (length + 1) / 2;
      const X* __restrict const thresholds = args.thresholds + half - 1;
      const RankType step = static_cast<RankType>(half);
      for (int i = 0; i < kBlockRows; ++i) {
        const X threshold = thresholds[rank[i]];
        rank[i] += step & -static_cast<RankType>(kStrict ? threshold <= x[i] : threshold < x[i]);
      }
    }
    for (int i = 0; i < kBlockRows; ++i) args.ranks[i] = static_cast<uint32_t>(rank[i]);
  }
}

template <class S>
void rank(const RankArgs<typename S::T>& args) {
  if (args.n_thresholds <= kMostCounted)
    args.strict ? rank_by_counting<S, true>(args) : rank_by_counting<S, false>(args);
  else
    args.strict ? rank_by_search<S, true>(args) : rank_by_search<S, false>(args);
  const typename S::T* __restrict const x = args.values;
  uint32_t* __restrict const ranks = args.ranks;
  const bool zero_missing = args.zero_missing;
  for (int i = 0; i < kBlockRows; ++i) ranks[i] = is_missing(x[i], zero_missing) ? kMissingCode : ranks[i];
}

template <class Code>
void decide(const DecideArgs& args) {
  uint64_t* out = args.words;
  for (int i = 0; i < kFirstWord; ++i) *out++ = ~uint64_t{0};
  for (const DecideNode *node = args.nodes, *end = node + args.n_nodes; node != end; ++node) {
    uint64_t left;
    if (node->flags & kCategorical) {
      const CategoryRows& rows = args.category_rows[node->column];
      const uint32_t* bits = args.category_bits + node->operand;
      left = 0;
      for (uint32_t i = 0; i < rows.n; ++i)
        if (bits[rows.code[i] >> 5] >> (rows.code[i] & 31) & 1) left |= rows.rows[i];
    } else {
      const Code* codes = static_cast<const Code*>(args.codes) + node->column * args.code_stride;
      left = passes(codes, node->bias, node->operand);
    }
    // This code has no branches, because it is unpredictable which nodes are flipped or repeated.
    const uint64_t flip = node->flags & kFlip ? ~uint64_t{0} : 0;
    const uint64_t right = node->flags & kPreviousRight ? ~uint64_t{0} : 0;
    const uint64_t* previous = args.words + node->previous;
    const uint64_t alive = (previous[0] & right) ^ previous[1];
    *out++ = alive;
    *out++ = (left ^ flip) & alive;
  }
}

// Find the rows that reach each node.
void find_reach(const ReachArgs& args) {
  args.reach[0] = ~uint64_t{0};
  if (args.merged) {
    for (int32_t node = 0; node < args.n_inner + args.n_leaves; ++node) {
      const uint32_t edge = static_cast<uint32_t>(args.children[node]);
      const int32_t parent = static_cast<int32_t>(edge >> 2) - kFirstWord / 2;
      args.reach[node] = bit_rows(args.words, edge) & (parent < 0 ? ~uint64_t{0} : args.reach[parent]);
    }
    return;
  }
  for (int32_t i = 0; i < args.n_inner; ++i) {
    const uint64_t reach = args.reach[i], left = reach & args.words[kFirstWord + 2 * i + 1];
    args.reach[args.children[2 * i]] = left;
    args.reach[args.children[2 * i + 1]] = reach & ~left;
  }
}

void leaf_sums(const ReachArgs& args) {
  using S = DoubleVector;
  constexpr int kAtOnce = 4;  // sums in flight
  find_reach(args);
  for (int v = 0; v * S::kWidth < args.n_rows; v += kAtOnce) {
    S::V sum[kAtOnce];
    for (int i = 0; i < kAtOnce; ++i) sum[i] = S::load(args.margin + (v + i) * S::kWidth);
    for (int32_t leaf = 0; leaf < args.n_leaves; ++leaf)
      for (int i = 0; i < kAtOnce; ++i) {
        const S::M reached = S::mask(args.reach + args.n_inner + leaf, v + i);
        sum[i] = S::add(sum[i], S::select_or_zero(reached, S::set1(args.leaf_values[leaf])));
      }
    for (int i = 0; i < kAtOnce; ++i) S::store(args.margin + (v + i) * S::kWidth, sum[i]);
  }
}

// Number the leaves, and add the number of each leaf to the rows that reach it. A row reaches one leaf only.
void find_leaves(const ReachArgs& args) {
  find_reach(args);
  BlockIndex index;
  for (int32_t leaf = 0; leaf < args.n_leaves; ++leaf)
    index.add(args.reach[args.n_inner + leaf], static_cast<uint16_t>(leaf));
  uint16_t numbers[kBlockRows];
  index.store(numbers);
  std::copy(numbers, numbers + kBlockRows, args.leaves);
}

// Let rows go down together, so that the loop vectorizes. Rows that have reached a leaf stay there.
template <int kRows>
void descend_rows(const ReachArgs& args) {
  int32_t node[kRows] = {};
  for (int level = 0; level < args.height; ++level)
    for (int row = 0; row < kRows; ++row) {
      const uint64_t left = args.words[kFirstWord + 2 * node[row] + 1] >> row;
      node[row] = args.children[2 * node[row] + 1 - static_cast<int32_t>(left & 1)];
    }
  for (int row = 0; row < kRows; ++row) args.leaves[row] = node[row] - args.n_inner;
}

void descend(const ReachArgs& args) {
  args.n_rows <= 16 ? descend_rows<16>(args) : descend_rows<kBlockRows>(args);
}

void index(const IndexArgs& args) {
  const uint64_t* words = args.words;
  for (size_t block = 0; block < args.n_blocks; ++block, words += args.block_words) {
    BlockIndex index;
    for (uint32_t bit = 0; bit < args.n_bits; ++bit)
      index.add(bit_rows(words, args.bits[bit]), static_cast<uint16_t>(1u << bit));
    index.store(args.index + block * kBlockRows);
  }
}

void append_bit(const AppendBitArgs& args) {
  const uint16_t bias = args.bias, operand = args.operand;
  const uint16_t* __restrict const codes = args.codes;
  uint16_t* __restrict const numbers = args.numbers;
  for (size_t i = 0; i < args.n_rows; ++i) {
    const bool exceeds = static_cast<uint16_t>(codes[i] + bias) > operand;
    numbers[i] = static_cast<uint16_t>(2 * numbers[i] + exceeds);
  }
}

void count_rows(const uint64_t* words, size_t n_words, uint64_t* counts) {
  for (size_t i = 0; i < n_words; ++i) counts[i] += static_cast<uint64_t>(__builtin_popcountll(words[i]));
}

template <class T>
void add_scaled(double scale, const T* from, double* to) {
  for (int row = 0; row < kBlockRows; ++row) to[row] += scale * from[row];
}

}  // namespace
}  // namespace skshap
