// The instances of the walk. Each order and precision has a file of its own, so that they compile in
// parallel.
#pragma once

#include "cuda/walk.cuh"

namespace skshap {

// The most threads of a block, by order and K. In double precision, only even K have a kernel: K is rounded
// up to an even number (cuda/program/program.cpp), which stays exact.
template <class T>
constexpr int walk_threads(int order, int n_nodes) {
  constexpr int kSingle[][kMaxFixedNodes] = {{640, 640, 512, 512, 384, 384, 384, 256},
                                             {896, 640, 640, 512, 512, 384, 384, 320},
                                             {384, 384, 384, 384, 384, 320, 320, 256}},
                kDouble[][kMaxFixedNodes / 2] = {
                    {512, 384, 256, 256}, {640, 448, 320, 256}, {384, 384, 320, 256}};
  return sizeof(T) == 4 ? kSingle[order - 1][n_nodes - 1] : kDouble[order - 1][n_nodes / 2 - 1];
}

// Return the kernel for n_nodes nodes if they are at least K. With triples, phi is always in shared memory.
template <class T, int kOrder, int K>
WalkKernel<T> walk_kernel_from(int n_nodes, bool shared) {
  constexpr int kStep = sizeof(T) == 4 ? 1 : 2, kThreads = walk_threads<T>(kOrder, K);
  if (n_nodes != K) {
    if constexpr (K < kMaxFixedNodes) return walk_kernel_from<T, kOrder, K + kStep>(n_nodes, shared);
    return {nullptr, 0};
  }
  if constexpr (kOrder < 3)
    if (!shared) return {walk<T, K, kOrder, false, kThreads>, kThreads};
  return {walk<T, K, kOrder, true, kThreads>, kThreads};
}

template <class T, int kOrder>
WalkKernel<T> walk_kernel(int n_nodes, bool shared) {
  return walk_kernel_from<T, kOrder, sizeof(T) == 4 ? 1 : 2>(n_nodes, shared);
}

}  // namespace skshap
