// Path-dependent SHAP values by adjoint quadrature, rows in the lanes of a vector.
//
// A leaf with value v and distinct path features P contributes to feature i
//   phi_i = v (o_i - z_i) * integral over t in [0, 1] of the product over j in P, j != i of
//           a_j(t) = z_j (1 - t) + o_j t,
// z_j the product of cover shares of the path's splits on j (zero fraction), o_j whether the row
// satisfies them all (one fraction). The integrand has degree |P| - 1, so Gauss-Legendre with
// K = ceil(|P| / 2) nodes t_k is exact. Summed over leaves, the integrand is the multilinear
// extension of the tree; it is evaluated bottom-up and differentiated top-down in one walk:
//
//   visit(node, C):            C_k = w_k * product of the factors above; at the root C_k = w_k
//     g_k = left factor given the path; the right factor is 1 - g_k, as shares add up to 1
//     B^L = visit(left, C g)
//     B^R = visit(right, C - C g)
//     D = B^L - B^R
//     phi[feature] += delta * sum_k C_k G_k D_k
//     return B^R + g D
//
// with r the left share, o = 1 where the row goes left, delta = o - r, and
//   feature new on the path:  g_k = r + delta t_k, G_k = 1;
//   repeated, row alive:      g_k = (z r (1 - t_k) + o t_k) / a_k, G_k = z / a_k^2,
//                             a_k = z (1 - t_k) + t_k, z the zero fraction so far;
//   repeated, row not alive:  g_k = r, G_k = 0,
// alive: the row satisfied every split on the feature so far. Nothing is ever divided by a zero
// fraction and every factor lies in [0, 1]. See docs/how_it_works.md.
//
// Included once by each kernels_*.cpp, after its simd_*.h: everything here has internal linkage,
// because functions compiled for one instruction set must not be merged with those of another.
#pragma once

#include "program.h"

namespace skshap {
namespace {

#define SKSHAP_INLINE inline __attribute__((always_inline))

template <class S, int K, int kRows>
struct Walker {
  using T = typename S::T;
  using V = typename S::V;
  using M = typename S::M;
  static constexpr int W = S::kWidth;
  static constexpr int kFixed = K > 0 ? K : 1;

  const WalkArgs<T>& args;
  const T* t;
  T* frame;        // C of the current subtree, then g and delta of its root
  T* value;        // top of the stack of results
  const T* c;      // constants of the current op
  const uint64_t* m;  // decisions of the next node
  int first, n_vectors;

  SKSHAP_INLINE int n_nodes() const { return K > 0 ? K : args.n_nodes; }
  SKSHAP_INLINE size_t frame_elements() const { return frame_size(n_nodes()) * kRows; }
  SKSHAP_INLINE size_t value_elements() const { return static_cast<size_t>(n_nodes()) * kRows; }
  SKSHAP_INLINE V at(int i) const { return S::set1(c[i]); }
  SKSHAP_INLINE T* C(T* f, int k, int v) const { return f + k * kRows + v * W; }
  SKSHAP_INLINE T* g(int k, int v) const { return frame + (n_nodes() + k) * kRows + v * W; }
  SKSHAP_INLINE T* delta(int v) const { return frame + 2 * n_nodes() * kRows + v * W; }
  SKSHAP_INLINE M mask(int word, int v) const { return S::mask(m + word, first + v); }

  SKSHAP_INLINE void add_phi(uint32_t slot, int v, V x, int output = 0) const {
    T* p = args.phi + output * args.output_stride + static_cast<size_t>(slot) * kBlockRows + (first + v) * W;
    S::store(p, S::add(S::load(p), x));
  }
  SKSHAP_INLINE void add_phi(uint32_t slot, int v, V x, V y) const {
    T* p = args.phi + static_cast<size_t>(slot) * kBlockRows + (first + v) * W;
    S::store(p, S::fma(x, y, S::load(p)));
  }

  // delta of a repeated node: 0 for rows that are not alive.
  SKSHAP_INLINE V repeated_delta(M alive, M alive_left, V off, V on) const {
    return S::select(alive_left, S::select_or_zero(alive, off), on);
  }
  SKSHAP_INLINE V three_way(M alive, M alive_left, V dead, V off, V on) const {
    return S::select(alive_left, S::select(alive, dead, off), on);
  }

  // Constants: r, -r, 1 - r.
  void enter_new() {
    T* next = frame + frame_elements();
    for (int v = 0; v < n_vectors; ++v) {
      const V d = S::select(mask(0, v), at(1), at(2));
      S::store(delta(v), d);
      for (int k = 0; k < n_nodes(); ++k)
        S::store(C(next, k, v), S::mul(S::load(C(frame, k, v)), S::fma(d, S::set1(t[k]), at(0))));
    }
    frame = next;
    c += 3;
    m += 1;
  }

  // Constants: r, -r, 1 - r, g of alive rows that go right [K], that go left [K].
  void enter_repeated() {
    T* next = frame + frame_elements();
    for (int v = 0; v < n_vectors; ++v) {
      const M alive = mask(0, v), alive_left = mask(1, v);
      S::store(delta(v), repeated_delta(alive, alive_left, at(1), at(2)));
      for (int k = 0; k < n_nodes(); ++k) {
        const V factor = three_way(alive, alive_left, at(0), at(3 + k), at(3 + n_nodes() + k));
        S::store(g(k, v), factor);
        S::store(C(next, k, v), S::mul(S::load(C(frame, k, v)), factor));
      }
    }
    frame = next;
    c += 3 + 2 * n_nodes();
    m += 2;
  }

  // From the left to the right child: its C is what the left one did not take.
  void middle() {
    const T* parent = frame - frame_elements();
    for (int k = 0; k < n_nodes(); ++k)
      for (int v = 0; v < n_vectors; ++v) {
        T* p = C(frame, k, v);
        S::store(p, S::sub(S::load(parent + k * kRows + v * W), S::load(p)));
      }
  }

  // Constants: r if new, G[K] if repeated; then each output's right value if that is a leaf.
  template <bool kRepeated, bool kRightLeaf>
  void exit(uint32_t slot) {
    frame -= frame_elements();
    const int n_constants = kRepeated ? n_nodes() : 1;
    const T* right_leaf = c + n_constants;
    T* right = value - value_elements() * args.n_outputs;
    T* left = kRightLeaf ? right : right - value_elements() * args.n_outputs;
    for (int output = 0; output < args.n_outputs; ++output) {
      for (int v = 0; v < n_vectors; ++v) {
        const V d = S::load(delta(v));
        V sum = S::zero();
        for (int k = 0; k < n_nodes(); ++k) {
          T* l = left + k * kRows + v * W;
          const V b = kRightLeaf ? S::set1(right_leaf[output]) : S::load(right + k * kRows + v * W);
          const V difference = S::sub(S::load(l), b);
          V weight = S::load(C(frame, k, v));
          if (kRepeated) weight = S::mul(weight, at(k));
          sum = S::fma(weight, difference, sum);
          const V factor = kRepeated ? S::load(g(k, v)) : S::fma(d, S::set1(t[k]), at(0));
          S::store(l, S::fma(factor, difference, b));
        }
        add_phi(slot, v, S::mul(d, sum), output);
      }
      left += value_elements();
      right += value_elements();
    }
    value -= kRightLeaf ? 0 : value_elements() * args.n_outputs;
    c += n_constants + (kRightLeaf ? args.n_outputs : 0);
  }

  // A node with two leaves: B = v_R + g (v_L - v_R).
  // New: constants [output][c, F of rows going right, left]: B_k = c + F t_k.
  void pair_new(uint32_t slot) {
    for (int v = 0; v < n_vectors; ++v) {
      const M left = mask(0, v);
      V sum = S::load(C(frame, 0, v));
      for (int k = 1; k < n_nodes(); ++k) sum = S::add(sum, S::load(C(frame, k, v)));
      T* out = value + v * W;
      for (int output = 0; output < args.n_outputs; ++output, out += value_elements()) {
        const T* p = c + 3 * output;
        const V slope = S::select(left, S::set1(p[1]), S::set1(p[2]));
        add_phi(slot, v, S::mul(slope, sum), output);
        for (int k = 0; k < n_nodes(); ++k)
          S::store(out + k * kRows, S::fma(slope, S::set1(t[k]), S::set1(p[0])));
      }
    }
    value += value_elements() * args.n_outputs;
    c += 3 * args.n_outputs;
    m += 1;
  }

  // Repeated: G[K], g of alive rows that go right [K], left [K], then [output][B of rows not
  // alive, phi factor of alive rows going right, left, v_R, v_L - v_R].
  void pair_repeated(uint32_t slot) {
    const int n = n_nodes();
    for (int v = 0; v < n_vectors; ++v) {
      const M alive = mask(0, v), alive_left = mask(1, v);
      V sum = S::mul(S::load(C(frame, 0, v)), at(0));
      for (int k = 1; k < n; ++k) sum = S::fma(S::load(C(frame, k, v)), at(k), sum);
      T* out = value + v * W;
      for (int output = 0; output < args.n_outputs; ++output, out += value_elements()) {
        const T* p = c + 3 * n + 5 * output;
        add_phi(slot, v, S::mul(repeated_delta(alive, alive_left, S::set1(p[1]), S::set1(p[2])), sum), output);
        for (int k = 0; k < n; ++k) {
          const V off = S::fma(at(n + k), S::set1(p[4]), S::set1(p[3]));
          const V on = S::fma(at(2 * n + k), S::set1(p[4]), S::set1(p[3]));
          S::store(out + k * kRows, three_way(alive, alive_left, S::set1(p[0]), off, on));
        }
      }
    }
    value += value_elements() * args.n_outputs;
    c += 3 * n + 5 * args.n_outputs;
    m += 2;
  }

  // --- Fused subtrees of three and four leaves, in registers (scalar leaves, fixed K) ---

  // Split at the fused root. Constants: r, -r, 1 - r; if repeated also g off [K], g on [K], G[K].
  template <bool kRepeated>
  static constexpr int split_constants() { return kRepeated ? 3 + 3 * K : 3; }
  template <bool kRepeated>
  SKSHAP_INLINE V split(int v, const T* p, V (&factor)[kFixed]) const {
    if constexpr (kRepeated) {
      const M alive = mask(0, v), alive_left = mask(1, v);
      for (int k = 0; k < K; ++k)
        factor[k] = three_way(alive, alive_left, S::set1(p[0]), S::set1(p[3 + k]), S::set1(p[3 + K + k]));
      return repeated_delta(alive, alive_left, S::set1(p[1]), S::set1(p[2]));
    } else {
      const V d = S::select(mask(0, v), S::set1(p[1]), S::set1(p[2]));
      for (int k = 0; k < K; ++k) factor[k] = S::fma(d, S::set1(t[k]), S::set1(p[0]));
      return d;
    }
  }

  // A pair in registers: consumes C, leaves B in it. Constants if new: c, F off, F on; if
  // repeated: phi factor off, on, B of rows not alive, then [K] each of G, B off, B on.
  template <bool kRepeated>
  static constexpr int pair_constants() { return kRepeated ? 3 + 3 * K : 3; }
  template <bool kRepeated>
  SKSHAP_INLINE void pair(int v, int word, uint32_t slot, const T* p, V (&x)[kFixed]) const {
    if constexpr (kRepeated) {
      const M alive = mask(word, v), alive_left = mask(word + 1, v);
      V sum = S::mul(x[0], S::set1(p[3]));
      for (int k = 1; k < K; ++k) sum = S::fma(x[k], S::set1(p[3 + k]), sum);
      add_phi(slot, v, repeated_delta(alive, alive_left, S::set1(p[0]), S::set1(p[1])), sum);
      for (int k = 0; k < K; ++k)
        x[k] = three_way(alive, alive_left, S::set1(p[2]), S::set1(p[3 + K + k]), S::set1(p[3 + 2 * K + k]));
    } else {
      const V slope = S::select(mask(word, v), S::set1(p[1]), S::set1(p[2]));
      V sum = x[0];
      for (int k = 1; k < K; ++k) sum = S::add(sum, x[k]);
      add_phi(slot, v, slope, sum);
      for (int k = 0; k < K; ++k) x[k] = S::fma(slope, S::set1(t[k]), S::set1(p[0]));
    }
  }

  template <bool kRoot, bool kFirst>
  void trio(uint32_t slot, uint32_t slot1) {
    const T *p1 = c + split_constants<kRoot>(), *leaf = p1 + pair_constants<kFirst>();
    for (int v = 0; v < n_vectors; ++v) {
      V factor[kFixed], left[kFixed];
      const V d = split<kRoot>(v, c, factor);
      for (int k = 0; k < K; ++k) left[k] = S::mul(S::load(C(frame, k, v)), factor[k]);
      pair<kFirst>(v, kRoot ? 2 : 1, slot1, p1, left);
      V sum = S::zero();
      const V right = S::set1(*leaf);
      for (int k = 0; k < K; ++k) {
        const V difference = S::sub(left[k], right);
        V weight = S::load(C(frame, k, v));
        if (kRoot) weight = S::mul(weight, at(3 + 2 * K + k));
        sum = S::fma(weight, difference, sum);
        S::store(value + k * kRows + v * W, S::fma(factor[k], difference, right));
      }
      add_phi(slot, v, d, sum);
    }
    value += value_elements();
    c = leaf + 1;
    m += 2 + kRoot + kFirst;
  }

  template <bool kRoot, bool kFirst, bool kSecond>
  void quad(uint32_t slot, uint32_t slot1, uint32_t slot2) {
    const T *p1 = c + split_constants<kRoot>(), *p2 = p1 + pair_constants<kFirst>();
    for (int v = 0; v < n_vectors; ++v) {
      V factor[kFixed], left[kFixed], right[kFixed];
      const V d = split<kRoot>(v, c, factor);
      for (int k = 0; k < K; ++k) {
        const V x = S::load(C(frame, k, v));
        left[k] = S::mul(x, factor[k]);
        right[k] = S::sub(x, left[k]);
      }
      pair<kFirst>(v, kRoot ? 2 : 1, slot1, p1, left);
      pair<kSecond>(v, (kRoot ? 2 : 1) + (kFirst ? 2 : 1), slot2, p2, right);
      V sum = S::zero();
      for (int k = 0; k < K; ++k) {
        const V difference = S::sub(left[k], right[k]);
        V weight = S::load(C(frame, k, v));
        if (kRoot) weight = S::mul(weight, at(3 + 2 * K + k));
        sum = S::fma(weight, difference, sum);
        S::store(value + k * kRows + v * W, S::fma(factor[k], difference, right[k]));
      }
      add_phi(slot, v, d, sum);
    }
    value += value_elements();
    c = p2 + pair_constants<kSecond>();
    m += 3 + kRoot + kFirst + kSecond;
  }

  void run() {
    for (int k = 0; k < n_nodes(); ++k)
      for (int v = 0; v < n_vectors; ++v) S::store(C(frame, k, v), S::set1(args.weights[k]));
    for (const uint32_t* op = args.ops;; ++op) {
      const uint32_t slot = *op >> kSlotShift;
      const uint8_t code = static_cast<uint8_t>(*op);
      switch (code) {
        case kEnd: return;
        case kEnterNew: enter_new(); break;
        case kEnterRep: enter_repeated(); break;
        case kMiddle: middle(); break;
        case kExitNew: exit<false, false>(slot); break;
        case kExitRep: exit<true, false>(slot); break;
        case kExitLeafNew: exit<false, true>(slot); break;
        case kExitLeafRep: exit<true, true>(slot); break;
        case kPairNew: pair_new(slot); break;
        case kPairRep: pair_repeated(slot); break;
        default:
          if constexpr (K > 0) {
            switch (code) {
              case kTrio: trio<false, false>(slot, op[1]); break;
              case kTrio + 1: trio<false, true>(slot, op[1]); break;
              case kTrio + 2: trio<true, false>(slot, op[1]); break;
              case kTrio + 3: trio<true, true>(slot, op[1]); break;
              case kQuad: quad<false, false, false>(slot, op[1], op[2]); break;
              case kQuad + 1: quad<false, false, true>(slot, op[1], op[2]); break;
              case kQuad + 2: quad<false, true, false>(slot, op[1], op[2]); break;
              case kQuad + 3: quad<false, true, true>(slot, op[1], op[2]); break;
              case kQuad + 4: quad<true, false, false>(slot, op[1], op[2]); break;
              case kQuad + 5: quad<true, false, true>(slot, op[1], op[2]); break;
              case kQuad + 6: quad<true, true, false>(slot, op[1], op[2]); break;
              default: quad<true, true, true>(slot, op[1], op[2]); break;
            }
            op += code >= kQuad ? 2 : 1;
          }
      }
    }
  }
};

template <class S, int K, int kRows>
void walk(const WalkArgs<typename S::T>& args) {
  using T = typename S::T;
  for (int first = args.first_row; first < args.first_row + args.n_rows; first += kRows) {
    const int n_rows = args.first_row + args.n_rows - first < kRows ? args.first_row + args.n_rows - first : kRows;
    T* values = args.stack + (static_cast<size_t>(args.height) + 1) * frame_size(args.n_nodes) * kRows;
    Walker<S, K, kRows> walker{args, args.nodes, args.stack, values, args.constants, args.masks,
                               first / S::kWidth, (n_rows + S::kWidth - 1) / S::kWidth};
    walker.run();
  }
}

template <class Code>
void decide(const DecideArgs& args) {
  uint64_t* out = args.masks;
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
    if (node->flags & kFlip) left = ~left;
    if (node->flags & kRepeated) {
      const uint64_t* previous = args.masks + node->previous;
      uint64_t alive;
      if (node->flags & kPreviousRepeated)
        alive = node->flags & kPreviousRight ? previous[0] & ~previous[1] : previous[1];
      else
        alive = node->flags & kPreviousRight ? ~previous[0] : previous[0];
      *out++ = alive;
      left &= alive;
    }
    *out++ = left;
  }
}

// Binary search in lockstep: every value takes the same steps, so the inner loop vectorises.
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
  for (int i = 0; i < kBlockRows; ++i) args.ranks[i] = base[i];
}

Kernels make_kernels(const char* name) {
  constexpr int kFloatRows = walk_rows<float>(), kDoubleRows = walk_rows<double>();
  return Kernels{
      name, &decide<uint16_t>, &decide<uint32_t>, &rank<float>, &rank<double>,
      {&walk<FloatVector, 0, kFloatRows>, &walk<FloatVector, 1, kFloatRows>, &walk<FloatVector, 2, kFloatRows>,
       &walk<FloatVector, 3, kFloatRows>, &walk<FloatVector, 4, kFloatRows>, &walk<FloatVector, 5, kFloatRows>,
       &walk<FloatVector, 6, kFloatRows>, &walk<FloatVector, 7, kFloatRows>, &walk<FloatVector, 8, kFloatRows>},
      {&walk<DoubleVector, 0, kDoubleRows>, &walk<DoubleVector, 1, kDoubleRows>,
       &walk<DoubleVector, 2, kDoubleRows>, &walk<DoubleVector, 3, kDoubleRows>,
       &walk<DoubleVector, 4, kDoubleRows>, &walk<DoubleVector, 5, kDoubleRows>,
       &walk<DoubleVector, 6, kDoubleRows>, &walk<DoubleVector, 7, kDoubleRows>,
       &walk<DoubleVector, 8, kDoubleRows>},
      &walk<FloatVector, 0, kVectorWalkRows>, &walk<DoubleVector, 0, kVectorWalkRows>};
}

}  // namespace
}  // namespace skshap
