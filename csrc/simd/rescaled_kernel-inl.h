// The contributions of a leaf to a block of rows, each paired with background rows. The lanes of a vector are
// rows.
//
// For a leaf with value v on a path with features P, let a background row b fail the features C, and a row x
// fail Q. The pair reaches the leaf if no feature is in both C and Q. With p = |C|, q = |Q| and the pair's
// factor s(x, b),
//   phi_j += s v (p - 1)! q! / (p + q)!   for j in C,
//   phi_j -= s v p! (q - 1)! / (p + q)!   for j in Q
// (Lundberg et al., 2020). Background rows with the same C form a group. Their factors are added up first, so
// that the weights take one operation per group.
//
// simd/kernels-inl.h includes this file and says why everything has internal linkage.
#pragma once

#include "simd/kernels.h"

namespace skshap {
namespace {

// The number of vectors that are processed together, so that one loop over background rows serves all of
// them.
constexpr int kPairVectors = 4;

template <class S>
struct PairVectors {
  using V = typename S::V;
  V v[kPairVectors];
};

// All steps are in one function, as they share the vectors of the rows.
template <class S>
void pair_leaf_part(const PairLeafArgs<typename S::T>& args, int first) {
  using T = typename S::T;
  using Vectors = PairVectors<S>;
  constexpr int W = S::kWidth;
  constexpr uint64_t kPart = ~uint64_t{0} >> (64 - W * kPairVectors);
  const uint64_t part = kPart << (first * W);
  const uint32_t n = args.n_features;
  const typename S::V one = S::set1(T(1));

  Vectors q, on[kMaxPathFeatures], weight[kMaxPathFeatures + 1], off;
  for (int i = 0; i < kPairVectors; ++i) q.v[i] = off.v[i] = S::zero();
  for (uint32_t j = 0; j < n; ++j)
    for (int i = 0; i < kPairVectors; ++i) {
      q.v[i] = S::add(q.v[i], S::select_or_zero(S::mask(args.failing + j, first + i), one));
      on[j].v[i] = S::zero();
    }
  int n_weights = 0;  // weight[p]: (p - 1)! q! / (p + q)!, for the values of p so far
  for (const BackgroundGroup *group = args.groups, *end = group + args.n_groups; group != end; ++group) {
    if (!(group->rows & part)) continue;
    Vectors sum;
    for (int i = 0; i < kPairVectors; ++i) sum.v[i] = S::zero();
    for (int word = 0; word < kBackgroundWords; ++word)
      for (uint64_t rest = group->members[word]; rest; rest &= rest - 1) {
        const T* factors =
            args.factors + static_cast<size_t>(64 * word + __builtin_ctzll(rest)) * kBlockRows + first * W;
        for (int i = 0; i < kPairVectors; ++i) sum.v[i] = S::add(sum.v[i], S::load(factors + i * W));
      }
    for (int i = 0; i < kPairVectors; ++i)
      sum.v[i] = S::select_or_zero(S::mask(&group->rows, first + i), sum.v[i]);
    const int p = __builtin_popcountll(group->failed);
    if (!p) {
      for (int i = 0; i < kPairVectors; ++i) off.v[i] = S::add(off.v[i], sum.v[i]);
      continue;
    }
    for (; n_weights < p; ++n_weights) {
      const typename S::V next = S::set1(static_cast<T>(n_weights + 1));
      for (int i = 0; i < kPairVectors; ++i) {
        const typename S::V above =
            n_weights ? S::mul(weight[n_weights].v[i], S::set1(static_cast<T>(n_weights))) : one;
        weight[n_weights + 1].v[i] = S::div(above, S::add(q.v[i], next));
      }
    }
    for (int i = 0; i < kPairVectors; ++i) {
      sum.v[i] = S::mul(sum.v[i], weight[p].v[i]);
      off.v[i] = S::fma(sum.v[i], S::set1(static_cast<T>(p)), off.v[i]);
    }
    for (uint64_t rest = group->failed; rest; rest &= rest - 1) {
      Vectors& total = on[__builtin_ctzll(rest)];
      for (int i = 0; i < kPairVectors; ++i) total.v[i] = S::add(total.v[i], sum.v[i]);
    }
  }
  // If q is 0, no feature fails, and the quotient is not used.
  for (int i = 0; i < kPairVectors; ++i) off.v[i] = S::div(off.v[i], q.v[i]);
  const typename S::V value = S::set1(args.value);
  for (uint32_t j = 0; j < n; ++j) {
    T* phi = args.phi + static_cast<size_t>(args.slots[j]) * kBlockRows + first * W;
    for (int i = 0; i < kPairVectors; ++i) {
      const auto failing = S::mask(args.failing + j, first + i);
      const typename S::V share = S::sub(on[j].v[i], S::select_or_zero(failing, off.v[i]));
      S::store(phi + i * W, S::fma(value, share, S::load(phi + i * W)));
    }
  }
}

template <class S>
void pair_leaf(const PairLeafArgs<typename S::T>& args) {
  for (int first = 0; first * S::kWidth < args.n_rows; first += kPairVectors) pair_leaf_part<S>(args, first);
}

}  // namespace
}  // namespace skshap
