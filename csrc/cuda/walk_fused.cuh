// The state of a walk, and its work at every node: read operations, decide, keep track of the rows that are
// alive, and add to phi. Subtrees of two to four leaves are walked in one operation.
#pragma once

#include "cuda/lanes.cuh"
#include "cuda/segments.cuh"

namespace skshap {

template <class T>
struct CudaWalkArgs {
  const typename CudaProgram<T>::Element* stream;
  const CudaChunk* chunks;
  const int32_t* chunk_list;  // the chunks of this launch
  int32_t n_tasks;            // chunks of the list x groups of as many tiles as a block has warps
  int32_t n_groups, n_tiles;
  int32_t n_columns;
  uint32_t n_slots;      // of all chunks
  uint32_t max_slots;    // of a chunk of this launch
  const int16_t* codes;  // [tile][column][lane][R]
  const uint32_t* category_bits;
  const uint32_t* category_sets;
  T* partial;          // [tile][slot of all chunks][lane][R]
  T* frames;           // [warp][frame beyond the registers][element][lane][R]
  size_t warp_frames;  // elements of a warp in `frames`
  int32_t* next_task;
  T t[kMaxFixedNodes], weight[kMaxFixedNodes], tau[kMaxFixedNodes];  // t_k, w_k, 1 / (t_k (1 - t_k))
  T dead[kMaxFixedNodes];  // lambda_k of rows that left the path of a feature
  uint32_t shared_slots;   // of triples: the first slots of a chunk, which are summed in shared memory
};

// The walk of R rows in each lane, for a plan of order kOrder. C and B are the C and B of
// simd/walk_kernel-inl.h, at the current node. With pairs, only subtrees of two leaves are walked in one
// operation. With triples, phi is divided between shared and global memory.
template <class T, int K, int kOrder>
struct FusedWalk : Segments<typename CudaProgram<T>::Element> {
  static constexpr int R = cuda_lane_rows<T>();
  static constexpr bool kPairs = kOrder > 1, kTriples = kOrder > 2;
  using E = typename CudaProgram<T>::Element;
  using Segments<E>::next;
  using V = RowValues<T>;

  const CudaWalkArgs<T>& a;
  E head[4];             // first elements of the current operation; of the next one after take()
  const int16_t* codes;  // of this lane
  T* phi;                // of this lane
  T* shared_phi;         // of triples: of the first slots
  T* memory;             // frames of this lane beyond the registers
  const uint32_t* category_sets;
  uint32_t alive_bits[R];
  V C[K], B[K];
  V Q[K], Q_delta;  // the latest node's contribution to its feature: delta sum_k Q_k

  explicit __device__ FusedWalk(const CudaWalkArgs<T>& args) : a(args) {}

  __device__ __forceinline__ T value(E x) const { return as_value(x, T()); }

  // Read the elements of the operation, padded, and the first elements of the next operation.
  template <int kSize>
  __device__ __forceinline__ void take(E (&e)[kSize]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) e[i] = head[i];
    if constexpr (kSize > 4) {
      E rest[kSize - 4];
      fetch(shared_segments<E>() + next + 4, rest);
#pragma unroll
      for (int i = 4; i < kSize; ++i) e[i] = rest[i - 4];
    }
    next += kSize;
    fetch_head();
  }
  __device__ __forceinline__ void fetch_head() { fetch(shared_segments<E>() + next, head); }

  __device__ __forceinline__ T* slot(uint32_t number) const {
    if constexpr (kTriples) return (number < a.shared_slots ? shared_phi : phi) + number * (kWarp * R);
    return phi + number * (kWarp * R);
  }

  __device__ __forceinline__ void add_phi(uint32_t node, const V& x, const V& y) {
    T* p = slot(node >> 16);
    V sum = load_row_values(p);
#pragma unroll
    for (int r = 0; r < R; ++r) sum.x[r] = multiply_add(x.x[r], y.x[r], sum.x[r]);
    store_row_values(p, sum);
  }

  // Find whether each row goes left, whether it is alive or not.
  __device__ __forceinline__ void decide(uint32_t node, uint32_t test, bool (&left)[R]) {
    const int16_t* p = codes + (node & 0xffff) * (kWarp * R);
    int code[R];
    if constexpr (R == 2) {
      const short2 v = __ldg(reinterpret_cast<const short2*>(p));
      code[0] = v.x, code[1] = v.y;
    } else {
      code[0] = __ldg(p);
    }
    const bool flip = test & kTestFlip;
    if (test & kTestCategorical) {
      const uint32_t* bits = a.category_bits + __ldg(category_sets + (test & kTestOperand));
#pragma unroll
      for (int r = 0; r < R; ++r) {
        const uint32_t c = static_cast<uint16_t>(code[r]);
        left[r] = static_cast<bool>(__ldg(bits + (c >> 5)) >> (c & 31) & 1) != flip;
      }
    } else {
      const uint32_t bias = test & kTestBias ? 1 : 0, operand = test & kTestOperand;
#pragma unroll
      for (int r = 0; r < R; ++r) left[r] = (static_cast<uint32_t>(code[r]) + bias <= operand) != flip;
    }
  }

  __device__ __forceinline__ bool alive(uint32_t test, int r) const {
    return alive_bits[r] >> (test >> kTestPreviousShift & kTestBit) & 1;
  }

  static __device__ __forceinline__ uint32_t own_bit(uint32_t test) {
    return test & kTestTracked ? 1u << (test >> kTestOwnShift & kTestBit) : 0;
  }

  // Mark the rows that are alive in the left subtree.
  __device__ __forceinline__ void mark_left(uint32_t test, const bool (&left)[R]) {
    const uint32_t bit = own_bit(test);
#pragma unroll
    for (int r = 0; r < R; ++r) alive_bits[r] = left[r] ? alive_bits[r] | bit : alive_bits[r] & ~bit;
  }

  static __device__ __forceinline__ T factor(const V& base, const V& delta, T u, int r) {
    return multiply_add(-delta.x[r], u, base.x[r]);
  }

  // Change the marks of mark_left to the rows that are alive in the right subtree: rows that are alive at the
  // node, but not in the left subtree.
  template <bool kRepeated>
  __device__ __forceinline__ void mark_right(uint32_t test) {
    const uint32_t bit = own_bit(test);
#pragma unroll
    for (int r = 0; r < R; ++r) alive_bits[r] ^= kRepeated && !alive(test, r) ? 0 : bit;
  }

  // Decide a node. Set `left` to the rows that are alive and go left.
  template <bool kRepeated>
  __device__ __forceinline__ void split(uint32_t node, uint32_t test, T share, V& base, V& delta) {
    bool left[R];
    decide(node, test, left);
#pragma unroll
    for (int r = 0; r < R; ++r) {
      base.x[r] = left[r] ? T(1) : T(0);
      if constexpr (kRepeated) {
        const bool is_alive = alive(test, r);
        if (!is_alive) base.x[r] = share;
        left[r] = left[r] && is_alive;
      }
      delta.x[r] = base.x[r] - share;
    }
    mark_left(test, left);
  }

  // Compute u_k and G_k of a node. If it is repeated, they are computed from `constants`.
  template <bool kRepeated>
  __device__ __forceinline__ T u(const E* constants, int k) const {
    return kRepeated ? value(constants[k]) : T(1) - a.t[k];
  }
  template <bool kRepeated>
  __device__ __forceinline__ T G(const E* constants, int k) const {
    if constexpr (!kRepeated) return T(1);
    const T u = value(constants[k]);
    return multiply_add(-u, u, u) * a.tau[k];
  }

  // --- Subtrees of two to four leaves ---

  // Walk the pair with elements p. It takes C in x, and leaves B in x.
  template <bool kRepeated>
  __device__ __forceinline__ void pair(const E* p, const E* constants, V (&x)[K]) {
    const uint32_t node = p[0], test = p[1];
    bool left[R];
    decide(node, test, left);
    V slope, start, sum;
#pragma unroll
    for (int r = 0; r < R; ++r) {
      slope.x[r] = left[r] ? value(p[4]) : value(p[3]);
      start.x[r] = value(p[2]);
      if constexpr (kRepeated) {
        if (alive(test, r))
          start.x[r] = left[r] ? value(p[6]) : value(p[5]);
        else
          slope.x[r] = 0;
      }
      sum.x[r] = x[0].x[r] * G<kRepeated>(constants, 0);
#pragma unroll
      for (int k = 1; k < K; ++k)
        sum.x[r] =
            kRepeated ? multiply_add(x[k].x[r], G<true>(constants, k), sum.x[r]) : sum.x[r] + x[k].x[r];
    }
    add_phi(node, slope, sum);
    if constexpr (kPairs) {
      Q_delta = slope;
#pragma unroll
      for (int k = 0; k < K; ++k)
#pragma unroll
        for (int r = 0; r < R; ++r) Q[k].x[r] = x[k].x[r] * G<kRepeated>(constants, k);
    }
#pragma unroll
    for (int k = 0; k < K; ++k)
#pragma unroll
      for (int r = 0; r < R; ++r)
        x[k].x[r] = kRepeated ? multiply_add(-slope.x[r], value(constants[k]), start.x[r])
                              : multiply_add(slope.x[r], a.t[k], start.x[r]);
  }
  static constexpr int pair_elements(bool repeated) { return repeated ? 7 : 5; }

  template <bool kRepeated>
  __device__ __forceinline__ void lone_pair() {
    constexpr int kN = 1 + pair_elements(kRepeated) + (kRepeated ? K : 0);
    E e[padded(kN)];
    take(e);
#pragma unroll
    for (int k = 0; k < K; ++k) B[k] = C[k];
    pair<kRepeated>(e + 1, e + 1 + pair_elements(kRepeated), B);
  }

  template <bool kRepeated>
  __device__ __forceinline__ void join(uint32_t node, const E* constants, const V& base, const V& delta,
                                       const V (&left)[K]) {
    // The results of the right side are in B.
    V sum{};
#pragma unroll
    for (int k = 0; k < K; ++k)
#pragma unroll
      for (int r = 0; r < R; ++r) {
        const T difference = left[k].x[r] - B[k].x[r], weight = C[k].x[r] * G<kRepeated>(constants, k);
        sum.x[r] = multiply_add(weight, difference, sum.x[r]);
        B[k].x[r] = multiply_add(factor(base, delta, u<kRepeated>(constants, k), r), difference, B[k].x[r]);
      }
    add_phi(node, delta, sum);
  }

  template <bool kRoot, bool kPair>
  __device__ __forceinline__ void trio() {
    constexpr int kPairAt = 4, kLeafAt = kPairAt + pair_elements(kPair), kRootAt = kLeafAt + 1,
                  kPairU = kRootAt + (kRoot ? K : 0), kN = kPairU + (kPair ? K : 0);
    E e[padded(kN)];
    take(e);
    V base, delta, left[K];
    split<kRoot>(e[1], e[2], value(e[3]), base, delta);
#pragma unroll
    for (int k = 0; k < K; ++k)
#pragma unroll
      for (int r = 0; r < R; ++r) {
        left[k].x[r] = C[k].x[r] * factor(base, delta, u<kRoot>(e + kRootAt, k), r);
        B[k].x[r] = value(e[kLeafAt]);
      }
    pair<kPair>(e + kPairAt, e + kPairU, left);
    join<kRoot>(e[1], e + kRootAt, base, delta, left);
  }

  template <bool kRoot, bool kFirst, bool kSecond>
  __device__ __forceinline__ void quad() {
    constexpr int kFirstAt = 4, kSecondAt = kFirstAt + pair_elements(kFirst),
                  kRootAt = kSecondAt + pair_elements(kSecond), kFirstU = kRootAt + (kRoot ? K : 0),
                  kSecondU = kFirstU + (kFirst ? K : 0), kN = kSecondU + (kSecond ? K : 0);
    E e[padded(kN)];
    take(e);
    if constexpr (!kRoot && !kFirst && !kSecond) {
      new_quad(e);
    } else {
      V base, delta, left[K];
      split<kRoot>(e[1], e[2], value(e[3]), base, delta);
#pragma unroll
      for (int k = 0; k < K; ++k)
#pragma unroll
        for (int r = 0; r < R; ++r) {
          left[k].x[r] = C[k].x[r] * factor(base, delta, u<kRoot>(e + kRootAt, k), r);
          B[k].x[r] = C[k].x[r] - left[k].x[r];
        }
      pair<kFirst>(e + kFirstAt, e + kFirstU, left);
      mark_right<kRoot>(e[2]);
      pair<kSecond>(e + kSecondAt, e + kSecondU, B);
      join<kRoot>(e[1], e + kRootAt, base, delta, left);
    }
  }

  // Walk a node with two pairs and three new features. The integrand is a polynomial of degree 2 in t, which
  // needs only the moments of C.
  __device__ __forceinline__ void new_quad(const E* e) {
    bool go[R], go1[R], go2[R];
    decide(e[1], e[2], go);
    decide(e[4], e[5], go1);
    decide(e[9], e[10], go2);
    const T share = value(e[3]), constant1 = value(e[6]), constant2 = value(e[11]);
    V delta, slope1, slope2, left0, right0, root;
#pragma unroll
    for (int r = 0; r < R; ++r) {
      T m0 = C[0].x[r], m1 = m0 * a.t[0];
#pragma unroll
      for (int k = 1; k < K; ++k) {
        m0 += C[k].x[r];
        m1 = multiply_add(C[k].x[r], a.t[k], m1);
      }
      delta.x[r] = go[r] ? T(1) - share : -share;
      slope1.x[r] = go1[r] ? value(e[8]) : value(e[7]);
      slope2.x[r] = go2[r] ? value(e[13]) : value(e[12]);
      left0.x[r] = multiply_add(delta.x[r], m1, m0 * share);
      right0.x[r] = m0 - left0.x[r];
      const T constant = constant1 - constant2, slope = slope1.x[r] - slope2.x[r];
      root.x[r] = multiply_add(slope, m1, constant * m0);
      const T b0 = multiply_add(constant, share, constant2);
      const T b1 = multiply_add(delta.x[r], constant, multiply_add(slope, share, slope2.x[r]));
      const T b2 = delta.x[r] * slope;
#pragma unroll
      for (int k = 0; k < K; ++k) B[k].x[r] = multiply_add(multiply_add(b2, a.t[k], b1), a.t[k], b0);
    }
    add_phi(e[4], slope1, left0);
    add_phi(e[9], slope2, right0);
    add_phi(e[1], delta, root);
  }

  template <bool kRoot, bool kFirst>
  __device__ __forceinline__ void quad_second(uint32_t code) {
    if (code & 1)
      quad<kRoot, kFirst, true>();
    else
      quad<kRoot, kFirst, false>();
  }
  template <bool kRoot>
  __device__ __forceinline__ void quad_first(uint32_t code) {
    if (code & 2)
      quad_second<kRoot, true>(code);
    else
      quad_second<kRoot, false>(code);
  }
  __device__ __forceinline__ void fused(uint32_t code) {
    if constexpr (kPairs) {
      if (code == kCudaPair)
        lone_pair<false>();
      else
        lone_pair<true>();
      return;
    }
    if (code < kCudaTrio) {
      if (code & 4)
        quad_first<true>(code);
      else
        quad_first<false>(code);
      return;
    }
    switch (code) {
      case kCudaTrio: trio<false, false>(); break;
      case kCudaTrio + 1: trio<false, true>(); break;
      case kCudaTrio + 2: trio<true, false>(); break;
      case kCudaTrio + 3: trio<true, true>(); break;
      case kCudaPair: lone_pair<false>(); break;
      default: lone_pair<true>(); break;
    }
  }
};

}  // namespace skshap
