// The kernels of Fast TreeSHAP v2: they fill the tables of leaves and look up rows in them.
//
// baselines/leaf_table_kernels.cpp.in includes this file once, after simd/simd_*.h. Everything in this file
// has internal linkage, as in simd/kernels-inl.h, which says why.
#pragma once

#include <algorithm>
#include <cstddef>

#include "baselines/leaf_table_kernels.h"

namespace skshap {
namespace {

// Masks of the lanes that satisfy a feature, for the first features of a path. The number of a lane has a bit
// for each of these features.
constexpr uint64_t kLanesOfBit[] = {0xaaaaaaaaaaaaaaaa, 0xcccccccccccccccc, 0xf0f0f0f0f0f0f0f0,
                                    0xff00ff00ff00ff00};
constexpr int log2_of(int n) { return n > 1 ? 1 + log2_of(n / 2) : 0; }

// Fill the table of a leaf. For each node, the factors of the first features are the lanes of one vector, and
// the factors of the other features are scalars. So a vector of the table is a sum over the nodes of scalar
// times vector. With z the zero fraction, a factor is z (1 - t), plus t if the feature is satisfied.
template <class S, int K>
void fill_leaf(const FillLeavesArgs<typename S::T>& args, const LeafTable& leaf) {
  using T = typename S::T;
  using V = typename S::V;
  constexpr int W = S::kWidth, kLaneBits = log2_of(W);
  const int n_features = static_cast<int>(leaf.n_features);
  const LeafFeature* const features = args.features + leaf.features;
  const T *const t = args.t[n_features].data(), *const weights = args.weights[n_features].data();
  const int n_lane_bits = std::min(n_features, kLaneBits);
  V lanes[K];
  for (int k = 0; k < K; ++k) lanes[k] = S::set1(T(1));
  for (int i = 0; i < n_lane_bits; ++i) {
    const V z = S::set1(static_cast<T>(features[i].zero_fraction));
    const auto satisfied = S::mask(&kLanesOfBit[i], 0);
    for (int k = 0; k < K; ++k) {
      const V more = S::select_or_zero(satisfied, S::set1(t[k]));
      lanes[k] = S::mul(lanes[k], S::fma(z, S::set1(1 - t[k]), more));
    }
  }
  T* const numbers = args.scratch;  // [pattern of the other features][node]
  for (int k = 0; k < K; ++k) numbers[k] = weights[k];
  size_t n = 1;
  for (int i = n_lane_bits; i < n_features; ++i, n *= 2) {
    const T z = static_cast<T>(features[i].zero_fraction);
    for (size_t x = 0; x < n; ++x)
      for (int k = 0; k < K; ++k) {
        const T number = numbers[x * K + k], off = z * (1 - t[k]);
        numbers[(n + x) * K + k] = number * (off + t[k]);
        numbers[x * K + k] = number * off;
      }
  }
  T* const table = args.tables + leaf.table;
  for (size_t x = 0; x < n; ++x) {
    V sum = S::mul(S::set1(numbers[x * K]), lanes[0]);
    for (int k = 1; k < K; ++k) sum = S::fma(S::set1(numbers[x * K + k]), lanes[k], sum);
    S::store(table + x * W, sum);
  }
  // Fill up the cache line: files store whole lines.
  for (size_t x = n; x * W * sizeof(T) < kRowBytes; ++x) S::store(table + x * W, S::zero());
}

template <class S>
void fill_leaves(const FillLeavesArgs<typename S::T>& args) {
  for (const LeafTable *leaf = args.leaves, *end = leaf + args.n_leaves; leaf != end; ++leaf)
    switch (args.n_nodes[leaf->n_features]) {
      case 1: fill_leaf<S, 1>(args, *leaf); break;
      case 2: fill_leaf<S, 2>(args, *leaf); break;
      case 3: fill_leaf<S, 3>(args, *leaf); break;
      case 4: fill_leaf<S, 4>(args, *leaf); break;
      case 5: fill_leaf<S, 5>(args, *leaf); break;
      case 6: fill_leaf<S, 6>(args, *leaf); break;
      case 7: fill_leaf<S, 7>(args, *leaf); break;
      default: fill_leaf<S, 8>(args, *leaf);
    }
}

// A table in registers, or in memory.
template <class S, int kVectors>
class TableInRegisters {
 public:
  explicit TableInRegisters(const typename S::T* table) {
    for (int i = 0; i < 1 << kVectors; ++i) vectors_[i] = S::load_unaligned(table + i * S::kWidth);
  }
  inline __attribute__((always_inline)) typename S::V take(typename S::IndexVector x) const {
    return S::template take<kVectors>(vectors_, x);
  }

 private:
  typename S::V vectors_[1 << kVectors];
};
template <class S>
class TableInMemory {
 public:
  explicit TableInMemory(const typename S::T* table) : table_(table) {}
  inline __attribute__((always_inline)) typename S::V take(typename S::IndexVector x) const {
    return S::take(table_, x);
  }

 private:
  const typename S::T* table_;
};

// Add the contributions of a leaf to its rows. A feature that the row does not satisfy gets minus the number
// of the row's pattern. A feature that the row satisfies gets the feature's ratio times the number of the
// pattern without this feature. Both are multiplied by the leaf's value.
template <class S, class Table>
inline __attribute__((always_inline)) void add_leaf(const AddLeavesArgs<typename S::T>& args,
                                                    const LeafTable& leaf, const typename S::T* values) {
  using T = typename S::T;
  using V = typename S::V;
  const Table table(args.tables + leaf.table);
  const LeafFeature* const features = args.features + leaf.features;
  const int n = static_cast<int>(leaf.n_features);
  const bool several = args.n_outputs > 1;
  const T value = several ? T(1) : values[0];
  uint64_t satisfied[kMaxLeafBits];
  V ratios[kMaxLeafBits];
  for (int i = 0; i < n; ++i) {
    satisfied[i] = bit_rows(args.words, features[i].bit);
    ratios[i] = S::set1(static_cast<T>((1 - features[i].zero_fraction) / features[i].zero_fraction) * value);
  }
  const V minus_value = S::set1(-value);
  for (int v = 0; v * S::kWidth < args.n_rows; ++v) {
    typename S::IndexVector x = S::no_bits();
    for (int i = 0; i < n; ++i) x = S::with_bit(x, S::mask(&satisfied[i], v), i);
    const V off = S::mul(table.take(x), minus_value);
    for (int i = 0; i < n; ++i) {
      const V on = S::mul(table.take(S::without_bit(x, i)), ratios[i]);
      const V share = S::select(S::mask(&satisfied[i], v), off, on);
      T* phi = args.phi + features[i].slot * kBlockRows + v * S::kWidth;
      if (!several) {
        S::store(phi, S::add(S::load(phi), share));
        continue;
      }
      for (size_t o = 0; o < args.n_outputs; ++o, phi += args.output_stride)
        S::store(phi, S::fma(S::set1(values[o]), share, S::load(phi)));
    }
  }
}

template <class S, int kVectors = 0>
inline __attribute__((always_inline)) void add_leaf_of(int n_vectors,
                                                       const AddLeavesArgs<typename S::T>& args,
                                                       const LeafTable& leaf, const typename S::T* values) {
  if constexpr (kVectors > S::kMostTableVectors)
    add_leaf<S, TableInMemory<S>>(args, leaf, values);
  else if (n_vectors <= kVectors)
    add_leaf<S, TableInRegisters<S, kVectors>>(args, leaf, values);
  else
    add_leaf_of<S, kVectors + 1>(n_vectors, args, leaf, values);
}

template <class S>
void add_leaves(const AddLeavesArgs<typename S::T>& args) {
  const typename S::T* values = args.values;
  for (const LeafTable *leaf = args.leaves, *end = leaf + args.n_leaves; leaf != end; ++leaf) {
    add_leaf_of<S>(static_cast<int>(leaf->n_features) - log2_of(S::kWidth), args, *leaf, values);
    values += args.n_outputs;
  }
}

template <class S>
constexpr LeafTableKernelsOf<typename S::T> kLeafTablesOf{&fill_leaves<S>, &add_leaves<S>};

}  // namespace
}  // namespace skshap
