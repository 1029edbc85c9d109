// The compiled form of a tree: plan/plan.cpp and plan/walk_writer.cpp write it, the kernels read it.
//
// A tree is two programs over the same preorder of inner nodes. `decide` evaluates every split for a block of
// 64 rows, one bit per row. `walk` then runs the adjoint quadrature recursion on these bits. If exactly one
// child of a node is a leaf, it is made the right child.
#pragma once

#include <cmath>

#include "base/any_device.h"
#include "base/types.h"

namespace skshap {

// A code is the rank of a value among the thresholds of its column (or the position of its category among the
// listed ones), so that every comparison rule becomes `code <= rank`; see rows/coding.h.
//
// A missing value has the largest code. A node with a bias of 1 wraps this code to 0, which is below every
// rank. A bias of 0 leaves the code above every rank.
constexpr uint32_t kMissingCode = 0xffffffff;  // before it is narrowed to 16 bits

struct DecideNode {
  uint32_t column;    // the coded column
  uint32_t operand;   // rank + bias, or position of the first word of the category bit set
  uint32_t previous;  // position of the words of the nearest ancestor on the same feature, or 0
  uint8_t bias;
  uint8_t flags;
};

enum DecideFlag : uint8_t {
  kCategorical = 1,
  kFlip = 2,           // children were swapped: the decision is negated
  kPreviousRight = 4,  // this node is in the right subtree of `previous`
};

// `decide` writes two words for each node, in preorder. The first has the rows that satisfied every earlier
// split on the node's feature ("alive"), which are all rows if the feature is new on the path. The second has
// the alive rows that go left. A row that reaches a node is alive at this node. The first two words of all
// are all ones: they are the `previous` of nodes whose feature is new.
constexpr int kFirstWord = 2;

// The rows of a block by category code, for categorical columns. They are found once for each block.
struct CategoryRows {
  uint32_t n;
  uint32_t code[kBlockRows];
  uint64_t rows[kBlockRows];
};

// Return the rows, one for each bit of a word, that satisfy a bit of a table's index. A bit of an index is
// the position of the first of a node's two words, shifted left by 1, plus 1 if it stands for the rows that
// go right.
template <class Word>
SKSHAP_ANY_DEVICE inline Word bit_rows(const Word* words, uint32_t bit) {
  const Word* p = words + (bit >> 1);
  return bit & 1 ? p[0] & ~p[1] : p[1];
}

// The operations of `walk`. The suffix kNew or kRep says whether the node's feature is new or repeated on its
// path. A `pair` is a node with two leaves, a `trio` is a node with a pair and a leaf, and a `quad` is a node
// with two pairs. Each operation is a 32-bit word, with its code in the low byte and the slot of the feature
// above it. After a trio or a quad follows a word for each pair. The constants are in a separate stream.
enum Op : uint8_t {
  kEnd,
  kEnterNew,
  kEnterRep,
  kMiddle,
  kExitNew,
  kExitRep,
  kExitLeafNew,
  kExitLeafRep,  // the right child is a leaf
  kPairNew,
  kPairRep,
  kTrio,              // + 2 * root repeated + pair repeated
  kQuad = kTrio + 4,  // + 4 * root repeated + 2 * first + second pair repeated
  kJoin = kQuad + 8,  // add the B of two nodes in the same place of a merged tree
  kAddLeaf,           // add the value of a leaf in the same place
  kSilentEnter,       // silent operations: see simd/scalar_walk_kernel-inl.h
  kSilentExitNew,
  kSilentExitRep,
  kSilentExitLeafNew,
  kSilentExitLeafRep,
  kSilentPair,
  kSilentTrio,
  kSilentQuad,
  kRightChild = 32,  // added to a pair, trio or quad whose C is its parent's less the left child's
};
constexpr int kSlotShift = 8;

// In a plan for interactions, no subtree is fused, and the slot of `middle` is the node's preorder number.
// After each pair and exit follow the pairs of its feature with the other features of the path above: their
// number, then for each of them the slot of the pair and the level of the latest node on the other feature.
// In a plan of order 3, the slots of the triples with two of these other features follow next: the second and
// the first, the third and the first, the third and the second, and so on.
constexpr uint32_t kMaxSlots = 1u << 24;

// The largest order: interactions of up to three features.
constexpr int kMaxOrder = 3;

// The largest K with kernels of its own, and the largest such K for values without interactions on a CPU.
// Larger K are run by the kernels with a loop over K nodes.
constexpr int kMaxFixedNodes = 8, kMaxFixedValueNodes = 16;

// Return the K with which a CPU walks trees that need n_nodes nodes. Above kMaxFixedNodes, only even K have
// kernels of their own: kernels for the odd ones would be a fifth of the extension, and save at most a tenth
// of the time for few models.
constexpr int walked_nodes(int n_nodes, bool interactions) {
  const bool fixed = !interactions && kMaxFixedNodes < n_nodes && n_nodes <= kMaxFixedValueNodes;
  return n_nodes + (fixed ? n_nodes % 2 : 0);
}

// Return whether walks with n_nodes nodes have silent operations. In double precision, the operations of many
// nodes are large, and few models need them.
constexpr bool has_silent_operations(bool single, int n_nodes) {
  return n_nodes <= (single ? kMaxFixedValueNodes : kMaxFixedNodes);
}

// The number of rows that one walk carries. It bounds the stack of the walk, which should stay in the L1
// cache.
template <class T>
constexpr int walk_rows(bool interactions) {
  return (sizeof(T) == 4 ? 64 : 32) / (interactions ? 2 : 1);
}
// The number of rows for trees with vector leaves, which keep a value of each output on the stack.
template <class T>
constexpr int vector_walk_rows(bool interactions) {
  return sizeof(T) == 4 && !interactions ? 32 : 16;
}

// The stack of `walk`, in elements per row. Its frames hold C[K], g[K] and delta; its values are B[K] per
// output. For interactions a frame also holds lambda[K] of the edge that the walk went down, and order - 1
// times K values are kept while a node is processed.
constexpr size_t frame_size(int n_nodes, bool interactions) {
  return (interactions ? 3 : 2) * static_cast<size_t>(n_nodes) + 1;
}
constexpr size_t stack_size(int n_nodes, int n_outputs, int height, int n_values, int order) {
  return (static_cast<size_t>(height) + 1) * frame_size(n_nodes, order >= 2) +
         static_cast<size_t>(n_values) * n_nodes * n_outputs + static_cast<size_t>(order - 1) * n_nodes;
}

// The most different features on a path where background rows are identified by the features that they fail.
constexpr int kMaxPathFeatures = 64;

// Return the code of a category: its position among the n listed ones, which ascend, or n if it is not
// listed. n is a reference because GPU code then needs fewer registers: it reads n again at the end.
SKSHAP_ANY_DEVICE inline uint32_t category_code(const int32_t* categories, const uint32_t& n, double x) {
  const double truncated = trunc(x);
  if (!(truncated >= 0 && truncated <= 2147483647.0)) return n;
  const int32_t wanted = static_cast<int32_t>(truncated);
  uint32_t low = 0, high = n;
  while (low < high) {
    const uint32_t middle = (low + high) / 2;
    if (categories[middle] < wanted)
      low = middle + 1;
    else
      high = middle;
  }
  return low < n && categories[low] == wanted ? low : n;
}

constexpr double kZeroMagnitude = 1e-35f;  // LightGBM's kZeroThreshold, which is a float

template <class X>
inline bool is_missing(X x, bool zero_missing) {
  return x != x ||
         (zero_missing && x <= static_cast<X>(kZeroMagnitude) && x >= -static_cast<X>(kZeroMagnitude));
}

}  // namespace skshap
