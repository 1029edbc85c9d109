// Kernels for rows before and after a tree: ranks, decisions, the leaves that they reach, and sums.
//
// Included by simd/kernels-inl.h: internal linkage, for the reason given there.
#pragma once

#include "simd/kernels.h"

namespace skshap {
namespace {

// A binary search in lockstep: every value takes the same steps, so the inner loop vectorises.
template <class X>
void rank(const RankArgs<X>& args) {
  uint32_t base[kBlockRows] = {};
  for (size_t length = args.n_thresholds; length > 0;) {
    const size_t half = (length + 1) / 2;
    const X* thresholds = args.thresholds + half - 1;
    const uint32_t step = static_cast<uint32_t>(half);
    if (args.strict)
      for (int i = 0; i < kBlockRows; ++i) base[i] += thresholds[base[i]] <= args.values[i] ? step : 0;
    else
      for (int i = 0; i < kBlockRows; ++i) base[i] += thresholds[base[i]] < args.values[i] ? step : 0;
    length -= half;
  }
  for (int i = 0; i < kBlockRows; ++i)
    args.ranks[i] = is_missing(args.values[i], args.zero_missing) ? kMissingCode : base[i];
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
    // Without branches: which nodes are flipped or repeated is unpredictable.
    const uint64_t flip = node->flags & kFlip ? ~uint64_t{0} : 0;
    const uint64_t right = node->flags & kPreviousRight ? ~uint64_t{0} : 0;
    const uint64_t* previous = args.words + node->previous;
    const uint64_t alive = (previous[0] & right) ^ previous[1];
    *out++ = alive;
    *out++ = (left ^ flip) & alive;
  }
}

void leaf_sums(const ReachArgs& args) {
  using S = DoubleVector;
  constexpr int kAtOnce = 4;  // sums in flight
  args.reach[0] = ~uint64_t{0};
  for (int32_t i = 0; i < args.n_inner; ++i) {
    const uint64_t reach = args.reach[i], left = reach & args.words[kFirstWord + 2 * i + 1];
    args.reach[args.children[2 * i]] = left;
    args.reach[args.children[2 * i + 1]] = reach & ~left;
  }
  for (int v = 0; v < kBlockRows / S::kWidth; v += kAtOnce) {
    S::V sum[kAtOnce];
    for (int i = 0; i < kAtOnce; ++i) sum[i] = S::load(args.margin + (v + i) * S::kWidth);
    for (int32_t leaf = 0; leaf <= args.n_inner; ++leaf)
      for (int i = 0; i < kAtOnce; ++i) {
        const S::M reached = S::mask(args.reach + args.n_inner + leaf, v + i);
        sum[i] = S::add(sum[i], S::select_or_zero(reached, S::set1(args.leaf_values[leaf])));
      }
    for (int i = 0; i < kAtOnce; ++i) S::store(args.margin + (v + i) * S::kWidth, sum[i]);
  }
}

// The rows go down together, so that the loop vectorises: rows at a leaf stay there.
void descend(const ReachArgs& args) {
  int32_t node[kBlockRows] = {};
  for (int level = 0; level < args.height; ++level)
    for (int row = 0; row < kBlockRows; ++row) {
      const uint64_t left = args.words[kFirstWord + 2 * node[row] + 1] >> row;
      node[row] = args.children[2 * node[row] + 1 - static_cast<int32_t>(left & 1)];
    }
  for (int row = 0; row < kBlockRows; ++row) args.leaves[row] = node[row] - args.n_inner;
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

template <class T>
void add_scaled(double scale, const T* from, double* to) {
  for (int row = 0; row < kBlockRows; ++row) to[row] += scale * from[row];
}

}  // namespace
}  // namespace skshap
