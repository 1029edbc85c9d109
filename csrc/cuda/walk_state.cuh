// The state of a walk, and its work at every node: read operations, decide, keep track of the rows that are
// alive, and add to phi.
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

// The walk of R rows in each lane. C and B are the C and B of simd/walk_kernel-inl.h, at the current node.
// kTriples means the walk for triples, whose phi is divided between shared and global memory.
template <class T, int K, int R, bool kTriples = false>
struct CudaWalkState : Segments<typename CudaProgram<T>::Element> {
  using E = typename CudaProgram<T>::Element;
  using Segments<E>::next;
  using V = RowValues<T, R>;

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

  explicit __device__ CudaWalkState(const CudaWalkArgs<T>& args) : a(args) {}

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
    V sum = load_row_values<T, R>(p);
#pragma unroll
    for (int r = 0; r < R; ++r) sum.x[r] = multiply_add(x.x[r], y.x[r], sum.x[r]);
    store_row_values<T, R>(p, sum);
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
};

}  // namespace skshap
