// The walk in its general form, for any number of quadrature nodes, any height, and leaves of several
// outputs. All of its state is in memory. Models that need it are rare, so the code is short rather than
// fast.
#pragma once

#include "cuda/lanes.cuh"
#include "cuda/program/program.h"

namespace skshap {

template <class T>
struct CudaGeneralArgs {
  const typename CudaProgram<T>::Element* stream;
  const CudaChunk* chunks;
  const int32_t* chunk_list;
  int32_t n_tasks, n_tiles, n_columns;
  uint32_t n_slots;
  bool pairs;  // interactions, too: pairs or triples
  const int16_t* codes;
  const uint32_t* category_bits;
  T* partial;
  T* memory;           // [warp][element][lane]
  size_t warp_memory;  // elements of a warp in `memory`
  int32_t* next_task;
};

// Return the number of elements per lane for a walk. They are C[K] of each level and of one more level; for
// each level base, delta, whether the row is alive at the node, and whether it is alive in the current
// subtree; a stack of results B[K] of each output; and Q[K] of each output.
__host__ __device__ constexpr size_t general_elements(size_t n_nodes, size_t n_outputs, size_t height) {
  return (height + 1) * n_nodes + 4 * (height + 1) + (height + 3) * n_nodes * n_outputs;
}

template <class T>
__device__ bool general_decide(const CudaGeneralArgs<T>& a, const typename CudaProgram<T>::Element* node,
                               const int16_t* codes, int stride) {
  const uint32_t column = node[2], flags = node[3], operand = node[4];
  const uint32_t code =
      static_cast<uint32_t>(static_cast<int32_t>(codes[static_cast<size_t>(column) * stride]));
  bool left;
  if (flags & kNodeCategorical) {
    uint32_t c = code & 0xffff;
    if (flags & kNodeWide)
      c |= static_cast<uint32_t>(static_cast<uint16_t>(codes[static_cast<size_t>(column + 1) * stride]))
           << 16;
    left = a.category_bits[operand + (c >> 5)] >> (c & 31) & 1;
  } else {
    left = code + (flags & kNodeBias) <= operand;
  }
  return left != static_cast<bool>(flags & kNodeFlip);
}

// Walk one row per lane. `codes` and `phi` belong to this row; `stride` is the number of elements from one
// column or slot to the next. kTriples means triples instead of pairs. All operations are in one function, as
// they share the places and pointers of the walk.
template <class T, bool kTriples>
__device__ void general_walk(const CudaGeneralArgs<T>& a, const typename CudaProgram<T>::Element* p,
                             const int16_t* codes, T* phi, int stride, T* memory) {
  using E = typename CudaProgram<T>::Element;
  const int K = static_cast<int>(p[0]), n_outputs = static_cast<int>(p[1]), height = static_cast<int>(p[2]);
  const E *t = p + kGeneralHeader, *weights = t + K, *dead = weights + K;
  const auto value = [](E x) { return as_value(x, T()); };
  T* const C = memory;                                                     // [level][k]
  T* const state = C + static_cast<size_t>(height + 1) * K * kWarp;        // [level][4]
  T* const results = state + static_cast<size_t>(height + 1) * 4 * kWarp;  // [result][output][k]
  T* top = results;
  const size_t result = static_cast<size_t>(K) * n_outputs * kWarp;
  T* const Q = results + (height + 2) * result;  // [output][k]
  p = dead + (a.pairs ? K : 0);
  // Differentiate the current node's contribution to its feature by the features above it. `p` is at the list
  // of these features.
  const auto add_pairs = [&] {
    uint32_t n = static_cast<uint32_t>(*p++);
    for (; n; --n, p += 2 + K) {
      const bool alive = state[(static_cast<size_t>(p[1]) * 4 + 3) * kWarp] != 0;
      for (int o = 0; o < n_outputs; ++o) {
        T sum = 0;
        for (int k = 0; k < K; ++k)
          sum = multiply_add(Q[(o * K + k) * kWarp], value(alive ? p[2 + k] : dead[k]), sum);
        phi[(static_cast<size_t>(p[0]) + o) * stride] += sum;
      }
    }
  };
  // Differentiate the contribution by two of the features above the node.
  const auto add_triples = [&] {
    const uint32_t n = static_cast<uint32_t>(*p++);
    const E* const others = p;
    p += static_cast<size_t>(n) * (1 + K);
    const auto lambda = [&](uint32_t i) {
      const E* const other = others + static_cast<size_t>(i) * (1 + K);
      return state[(static_cast<size_t>(other[0]) * 4 + 3) * kWarp] != 0 ? other + 1 : dead;
    };
    for (uint32_t i = 1; i < n; ++i) {
      const E* const second = lambda(i);
      for (uint32_t j = 0; j < i; ++j, ++p) {
        const E* const first = lambda(j);
        for (int o = 0; o < n_outputs; ++o) {
          T sum = 0;
          for (int k = 0; k < K; ++k)
            sum = multiply_add(Q[(o * K + k) * kWarp], value(first[k]) * value(second[k]), sum);
          phi[(static_cast<size_t>(p[0]) + o) * stride] += sum;
        }
      }
    }
  };
  const auto add_interactions = [&] {
    if constexpr (kTriples)
      add_triples();
    else
      add_pairs();
  };
  for (;;) {
    const uint32_t code = static_cast<uint32_t>(p[0]) & 7;
    if (code == kGeneralEnd) return;
    if (code == kGeneralNextTree) {
      for (int k = 0; k < K; ++k) C[k * kWarp] = value(weights[k]);
      state[(static_cast<size_t>(height) * 4 + 3) * kWarp] = 1;  // of a level that no node has
      top = results;
      ++p;
      continue;
    }
    const bool repeated = p[0] >> 3 & 1;
    const uint32_t level = static_cast<uint32_t>(p[0]) >> 4;
    const T share = value(p[6]);
    const E *u = p + kGeneralNode, *G = u + K, *leaves = repeated ? G + K : u;
    T* const c = C + static_cast<size_t>(level) * K * kWarp;
    T* const s = state + static_cast<size_t>(level) * 4 * kWarp;
    const auto factor = [&](T base, T delta, int k) {
      return multiply_add(-delta, repeated ? value(u[k]) : T(1) - value(t[k]), base);
    };
    const auto add_phi = [&](int o, T x) { phi[(static_cast<size_t>(p[1]) + o) * stride] += x; };
    if (code == kGeneralEnter || code == kGeneralPair) {
      const bool left = general_decide(a, p, codes, stride);
      const bool alive = !repeated || state[(static_cast<size_t>(p[5]) * 4 + 3) * kWarp] != 0;
      const T base = !alive ? share : left ? T(1) : T(0), delta = base - share;
      if (code == kGeneralEnter) {
        s[0] = base;
        s[kWarp] = delta;
        s[2 * kWarp] = alive;
        s[3 * kWarp] = alive && left;
        for (int k = 0; k < K; ++k) c[(K + k) * kWarp] = c[k * kWarp] * factor(base, delta, k);
        p = leaves;
        continue;
      }
      T sum = 0;
      for (int k = 0; k < K; ++k) sum = multiply_add(c[k * kWarp], repeated ? value(G[k]) : T(1), sum);
      for (int o = 0; o < n_outputs; ++o) {
        const T right = value(leaves[o]), difference = value(leaves[n_outputs + o]) - right;
        add_phi(o, delta * difference * sum);
        for (int k = 0; k < K; ++k) {
          top[(o * K + k) * kWarp] = multiply_add(factor(base, delta, k), difference, right);
          if (a.pairs)
            Q[(o * K + k) * kWarp] = delta * difference * c[k * kWarp] * (repeated ? value(G[k]) : T(1));
        }
      }
      top += result;
      p = leaves + 2 * n_outputs;
      if (a.pairs) add_interactions();
      continue;
    }
    const T base = s[0], delta = s[kWarp];
    if (code == kGeneralMiddle) {
      s[3 * kWarp] = s[2 * kWarp] - s[3 * kWarp];  // alive here, but not on the left
      for (int k = 0; k < K; ++k)
        c[(K + k) * kWarp] = multiply_add(-factor(base, delta, k), c[k * kWarp], c[k * kWarp]);
      p = leaves;
      continue;
    }
    const bool right_leaf = code == kGeneralExitLeaf;
    if (!right_leaf) top -= result;
    T* const left = top - result;
    for (int o = 0; o < n_outputs; ++o) {
      T sum = 0;
      for (int k = 0; k < K; ++k) {
        T* const l = left + (o * K + k) * kWarp;
        const T right = right_leaf ? value(leaves[o]) : top[(o * K + k) * kWarp], difference = *l - right;
        const T part = c[k * kWarp] * (repeated ? value(G[k]) : T(1)) * difference;
        sum += part;
        if (a.pairs) Q[(o * K + k) * kWarp] = delta * part;
        *l = multiply_add(factor(base, delta, k), difference, right);
      }
      add_phi(o, delta * sum);
    }
    p = leaves + (right_leaf ? n_outputs : 0);
    if (a.pairs) add_interactions();
  }
}

template <class T, bool kTriples>
__global__ void __launch_bounds__(64) walk_general(const __grid_constant__ CudaGeneralArgs<T> a) {
  constexpr int R = cuda_lane_rows<T>();
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const size_t warp_index = static_cast<size_t>(blockIdx.x) * (64 / kWarp) + warp;
  for (;;) {
    int32_t task = 0;
    if (lane == 0) task = atomicAdd(a.next_task, 1);
    task = __shfl_sync(~0u, task, 0);
    if (task >= a.n_tasks) return;
    const CudaChunk& chunk = a.chunks[a.chunk_list[task / a.n_tiles]];
    const size_t tile = task % a.n_tiles;
    T* partial = a.partial + (tile * a.n_slots + chunk.first_slot) * (kWarp * R) + lane * R;
    for (int r = 0; r < R; ++r) {
      for (uint32_t slot = 0; slot < chunk.n_slots; ++slot)
        partial[static_cast<size_t>(slot) * (kWarp * R) + r] = 0;
      general_walk<T, kTriples>(a, a.stream + chunk.begin,
                                a.codes + (tile * a.n_columns * kWarp + lane) * R + r, partial + r, kWarp * R,
                                a.memory + warp_index * a.warp_memory + lane);
    }
  }
}

}  // namespace skshap
