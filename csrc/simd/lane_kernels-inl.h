// The kernel that compares a row with leaves in the lanes of vectors; see plan/leaf_lanes.h.
//
// A place has the factor a_k = z (1 - t_k) + o t_k, where o is 1 in the lanes whose test the row passes. At
// the split of a lane, o is the value of the leaf that the row reaches, and z holds the values of both. The
// value of a feature is the sum over k of w_k times o - z, times the product of the factors of all other
// places; if leaves hold all outputs, times the leaf values. A first pass over the places keeps the products
// of the factors before each place. A second pass, from the last place to the first, multiplies them by the
// products of the factors after it. It computes the factors again, because they take longer to store and
// load.
//
// simd/kernels-inl.h includes this file and says why everything has internal linkage.
#pragma once

#include <algorithm>
#include <utility>

#include "plan/mixed_nodes.h"
#include "simd/kernels.h"
#include "simd/transpose-inl.h"

namespace skshap {
namespace {

// Return the lanes of a place whose tests the row passes.
template <class S>
typename S::M passes_place(const LaneArgs<typename S::T>& args, const LanePlace& place,
                           const uint16_t* bounds) {
  constexpr uint32_t W = S::kWidth;
  const uint16_t code = args.codes[place.column];
  if (place.words == kNumeric) {
    if (code == kMissingLaneCode) return S::mask(&place.lanes, kMissingLanes);
    return S::within(bounds, bounds + W, code);
  }
  const uint32_t bit = code * W;
  return S::mask(args.category_words + place.words + bit / 64, static_cast<int>(bit % 64 / W));
}

// Return the lanes of a place where a row that passes reaches the first leaf, if this is their split.
template <class S>
typename S::M reaches_first(const LaneArgs<typename S::T>& args, const LanePlace& place,
                            const uint16_t* bounds, const uint16_t* first_bounds) {
  const uint16_t code = args.codes[place.column];
  if (code == kMissingLaneCode) return S::mask(&place.lanes, kMissingFirstLanes);
  return S::within(bounds, first_bounds, code);
}

// Return the codes of a row in the lanes of a mixed place.
template <class S>
const uint16_t* mixed_codes(const LaneArgs<typename S::T>& args, const LanePlace& place) {
  return args.mixed_codes + place.column * S::kWidth;
}

// Return the lanes of a vector where a row that passes all places reaches the first leaf.
template <class S, bool kMixes>
__attribute__((noinline)) uint32_t first_leaves(const LaneArgs<typename S::T>& args, const LanePlace* place,
                                                const uint16_t* bounds, int n_places) {
  uint32_t first = 0;
  for (int i = 0; i < n_places; ++i) {
    const uint16_t* const own = bounds + (2 * i + 1) * S::kWidth;
    const typename S::M reached = kMixes && place[i].words == kMixed
                                      ? S::within(own, bounds, mixed_codes<S>(args, place[i]))
                                      : reaches_first<S>(args, place[i], own, bounds);
    first |= S::bits(reached) & S::bits(S::mask(&place[i].lanes, kSplitLanes));
  }
  return first;
}

// Return how many vectors have no mixed places. They are the first ones.
__attribute__((noinline)) size_t plain_vectors(const uint8_t* n_mixed, size_t n_vectors) {
  return static_cast<size_t>(std::find_if(n_mixed, n_mixed + n_vectors, [](uint8_t n) { return n != 0; }) -
                             n_mixed);
}

// Add the sums of the lanes, which are in the plan's precision, to sums in double precision.
template <class S>
void add_lane_sums(const typename S::T* from, double* to) {
  using Narrow = typename RowPart<typename S::T, S::kWidth>::Type;
  using Wide = typename RowPart<double, S::kWidth>::Unaligned;  // it may be longer than a vector
  *reinterpret_cast<Wide*>(to) += __builtin_convertvector(*reinterpret_cast<const Narrow*>(from), Wide);
}

// The bytes by which numbers are fetched ahead, because the leaves of large models do not fit into caches.
constexpr size_t kAhead = 4096;

// Pointers to the first place, bounds, numbers and leaf values of a vector.
template <class T>
struct LaneCursor {
  const LanePlace* place;
  const uint16_t* bounds;
  const T* numbers;
  const double* leaf_values;
};

// Add the leaves of a vector that a row reaches, which are in some lanes, to the margin of one output.
template <class S, bool kMixes>
void add_margin(const LaneArgs<typename S::T>& args, const LaneCursor<typename S::T>& at, uint32_t reached,
                int n_places) {
  const uint32_t first = first_leaves<S, kMixes>(args, at.place, at.bounds, n_places);
  for (; reached; reached &= reached - 1) {
    const int lane = __builtin_ctz(reached);
    args.margin[0] += at.leaf_values[lane + (first >> lane & 1 ? 0 : S::kWidth)];
  }
}

// Write o of the places of a vector with mixed places, and add the leaves that the row reaches to the margin.
// This function is not compiled for each number of nodes, which would save little time.
template <class S>
__attribute__((noinline)) void pass_places(const LaneArgs<typename S::T>& args,
                                           const LaneCursor<typename S::T>& at, int n_places,
                                           typename S::V* ones) {
  using T = typename S::T;
  constexpr size_t W = S::kWidth;
  uint32_t reached = ~uint32_t{0};
  const uint16_t* bounds = at.bounds + W;
  for (int i = 0; i < n_places; ++i, bounds += 2 * W) {
    __builtin_prefetch(bounds + kAhead / sizeof(uint16_t));
    __builtin_prefetch(at.numbers + (i + 2) * W + kAhead / sizeof(T));
    const LanePlace& place = at.place[i];
    typename S::M passed, first;
    if (place.words == kMixed) {
      const uint16_t* const codes = mixed_codes<S>(args, place);
      passed = S::within(bounds, bounds + W, codes);
      first = S::within(bounds, at.bounds, codes);
    } else {
      passed = passes_place<S>(args, place, bounds);
      first = reaches_first<S>(args, place, bounds, at.bounds);
    }
    const typename S::V leaf = S::select(first, S::load(at.numbers + W), S::load(at.numbers));
    ones[i] = S::select_or_zero(passed, S::select(S::mask(&place.lanes, kSplitLanes), S::set1(T(1)), leaf));
    reached &= S::bits(passed);
  }
  if (args.margin && reached) add_margin<S, true>(args, at, reached, n_places);
}

// Explains the leaves of vectors with K nodes. If kVector, each leaf holds all outputs; else one.
template <class S, int K, bool kVector>
class LaneWalk {
 public:
  using T = typename S::T;
  using V = typename S::V;

  explicit LaneWalk(const LaneArgs<T>& args) : args_(args), n_outputs_(kVector ? args.n_outputs : 1) {
    for (int k = 0; k < K; ++k) {
      t_[k] = S::set1(args.nodes[k]);
      weight_[k] = S::set1(args.weights[k]);
    }
  }

  void run() {
    std::fill_n(args_.sums, args_.n_sums * W, T(0));
    LaneCursor<T> at{args_.places, args_.bounds, args_.numbers, args_.leaf_values};
    const size_t n_plain = kMixes ? plain_vectors(args_.n_mixed, args_.n_vectors) : args_.n_vectors;
    for (size_t first = 0, end; first < n_plain; first = end) {
      const int n_places = args_.n_places[first];
      for (end = first + 1; end < n_plain && args_.n_places[end] == n_places;) ++end;
      run_vectors(end - first, n_places, at);
    }
    if constexpr (kMixes) run_mixed(n_plain, at);
    for (size_t slot = 0; slot < args_.n_slots; ++slot)
      for (size_t o = 0; o < n_outputs_; ++o)
        add_lane_sums<S>(args_.sums + (slot * n_outputs_ + o) * W,
                         args_.totals + (static_cast<size_t>(args_.slots[slot]) * n_outputs_ + o) * W);
  }

 private:
  static constexpr size_t W = S::kWidth;
  // Whether there may be mixed places.
  static constexpr bool kMixes = !kVector && K >= kLeastMixedNodes && K <= kMostMixedNodes;
  // The loops over places are unrolled for these numbers of places. Leaves that need K nodes have no fewer;
  // with more, hardly any time is saved, nor with 16 registers of 16 bytes.
  static constexpr int kFirstUnrolled = K == 1 ? 1 : 2 * K - 1;
  static constexpr int kMostUnrolled = K < 4 ? 2 * K + 2 : 8;
  static constexpr bool kIsUnrolled = !kVector && (S::kRegisters > 16 || W * sizeof(T) > 16);
  static constexpr int kLastUnrolled = kIsUnrolled ? kMostUnrolled : 0;

  struct Place {
    V before[K], difference;
  };

  // Explain vectors of n_places places without mixed ones.
  template <int kPlaces = kFirstUnrolled>
  void run_vectors(size_t n_vectors, int n_places, LaneCursor<T>& at) {
    if constexpr (kPlaces <= kLastUnrolled) {
      if (n_places != kPlaces) return run_vectors<kPlaces + 1>(n_vectors, n_places, at);
      Place places[kPlaces];
      for (size_t v = 0; v < n_vectors; ++v) run_vector<kPlaces>(kPlaces, places, at);
    } else {
      Place places[kMostPlaces];
      for (size_t v = 0; v < n_vectors; ++v) run_vector<0>(n_places, places, at);
    }
  }

  // Explain a vector, and advance to the next one. kPlaces is the number of places, or 0 for any number.
  template <int kPlaces>
  void run_vector(int any_places, Place* places, LaneCursor<T>& at) {
    const int n_places = kPlaces ? kPlaces : any_places;
    const T* const values = at.numbers;
    const T* const zero_fractions = values + (kVector ? n_outputs_ : 2) * W;
    const uint16_t* const bounds = at.bounds + (kVector ? 0 : W);
    V product[K], after[K];
    begin(product, after);
    uint32_t reached = ~uint32_t{0};
    const auto pass = [&](int i) __attribute__((always_inline)) {
      const typename S::M passed = passes_place<S>(args_, at.place[i], bounds + i * 2 * W);
      reached &= S::bits(passed);
      __builtin_prefetch(bounds + i * 2 * W + kAhead / sizeof(uint16_t));
      __builtin_prefetch(zero_fractions + i * W + kAhead / sizeof(T));
      V one = S::set1(T(1));
      if constexpr (!kVector) {
        const V leaf = S::select(reaches_first<S>(args_, at.place[i], bounds + i * 2 * W, at.bounds),
                                 S::load(values + W), S::load(values));
        one = S::select(S::mask(&at.place[i].lanes, kSplitLanes), one, leaf);
      }
      multiply(S::select_or_zero(passed, one), S::load(zero_fractions + i * W), product, places[i]);
    };
    const auto add_value = [&](int i) __attribute__((always_inline)) {
      add(value(places[i], S::load(zero_fractions + i * W), after), values,
          args_.sums + at.place[i].slot * n_outputs_ * W);
    };
    if constexpr (kPlaces > 0) {
#pragma GCC unroll 8
      for (int i = 0; i < kPlaces; ++i) pass(i);
#pragma GCC unroll 8
      for (int i = kPlaces - 1; i >= 0; --i) add_value(i);
    } else {
      for (int i = 0; i < n_places; ++i) pass(i);
      for (int i = n_places - 1; i >= 0; --i) add_value(i);
    }
    if (args_.margin && reached) add_margins(reached, at, n_places);
    advance(at, n_places);
  }

  // Explain the vectors with mixed places, which are the last ones.
  void run_mixed(size_t first, LaneCursor<T>& at) {
    Place places[kMostPlaces];
    V ones[kMostPlaces], product[K], after[K];
    for (size_t v = first; v < args_.n_vectors; ++v) {
      const int n_places = args_.n_places[v];
      pass_places<S>(args_, at, n_places, ones);
      const T* const zero_fractions = at.numbers + 2 * W;
      begin(product, after);
      for (int i = 0; i < n_places; ++i)
        multiply(ones[i], S::load(zero_fractions + i * W), product, places[i]);
      for (int i = n_places - 1; i >= 0; --i)
        add(value(places[i], S::load(zero_fractions + i * W), after), at.numbers,
            args_.sums + at.place[i].slot * W);
      advance(at, n_places);
    }
  }

  // Set the products before the first place and after the last one.
  void begin(V* product, V* after) const {
    for (int k = 0; k < K; ++k) {
      product[k] = weight_[k];
      after[k] = S::set1(T(1));
    }
  }

  // Advance to the next vector.
  void advance(LaneCursor<T>& at, int n_places) const {
    const size_t n_numbers = ((kVector ? n_outputs_ : 2) + n_places) * W;
    at = {at.place + n_places, at.bounds + (kVector ? 0 : W) + n_places * 2 * W, at.numbers + n_numbers,
          at.leaf_values + (kVector ? n_outputs_ : 2) * W};
  }

  // Multiply the products by the factors of a place, and keep what its value needs.
  void multiply(V o, V z, V* product, Place& place) const {
    place.difference = S::sub(o, z);
    for (int k = 0; k < K; ++k) {
      place.before[k] = product[k];
      product[k] = S::mul(product[k], S::fma(place.difference, t_[k], z));
    }
  }

  // Return the value of a place, given the products of the factors after it, which are multiplied by its own.
  V value(const Place& place, V z, V* after) const {
    V sum = S::mul(place.before[0], after[0]);
    for (int k = 1; k < K; ++k) sum = S::fma(place.before[k], after[k], sum);
    for (int k = 0; k < K; ++k) after[k] = S::mul(after[k], S::fma(place.difference, t_[k], z));
    return S::mul(sum, place.difference);
  }

  // Add to the sums of a feature.
  void add(V x, const T* values, T* sums) const {
    if (!kVector) return S::store(sums, S::add(S::load(sums), x));
    for (size_t o = 0; o < n_outputs_; ++o)
      S::store(sums + o * W, S::fma(x, S::load(values + o * W), S::load(sums + o * W)));
  }

  void add_margins(uint32_t reached, const LaneCursor<T>& at, int n_places) const {
    if (!kVector) return add_margin<S, false>(args_, at, reached, n_places);
    for (; reached; reached &= reached - 1)
      for (size_t o = 0; o < n_outputs_; ++o)
        args_.margin[o] += at.leaf_values[o * W + static_cast<size_t>(__builtin_ctz(reached))];
  }

  const LaneArgs<T> args_;
  const size_t n_outputs_;
  V t_[K], weight_[K];
};

template <class S, int K, bool kVector>
void explain_lanes(const LaneArgs<typename S::T>& args) {
  LaneWalk<S, K, kVector>(args).run();
}

template <class S, size_t... i>
void set_lanes(KernelsOf<typename S::T>& k, std::index_sequence<i...>) {
  k.lane_width = S::kWidth;
  ((k.lanes[false][i + 1] = &explain_lanes<S, i + 1, false>), ...);
  ((k.lanes[true][i + 1] = &explain_lanes<S, i + 1, true>), ...);
}

}  // namespace
}  // namespace skshap
