// The compiled form of a tree: plan.cpp and walk_writer.cpp write it, the kernels read it.
//
// A tree is two programs over the same preorder of inner nodes. `decide` answers every split for
// a block of 64 rows, one bit a row. `walk` then runs the adjoint quadrature recursion on these
// bits. Where exactly one child of a node is a leaf, that child is put on the right.
#pragma once

#include "base/types.h"

namespace skshap {

// Codes: the columns that trees test, as ranks among the thresholds (or among the listed
// categories), so that every comparison rule becomes `code <= rank`; see coding.h.
//
// Missing has the largest code. Adding the node's bias of 1 wraps it to 0, which is below every
// rank; a bias of 0 leaves it above every rank.
constexpr uint32_t kMissingCode = 0xffffffff;  // before it is narrowed to 16 bits

struct DecideNode {
  uint32_t column;    // coded column
  uint32_t operand;   // rank + bias, or first word of the category bit set
  uint32_t previous;  // words of the nearest ancestor on the same feature, from kFirstWord - 2
  uint8_t bias;
  uint8_t flags;
};

enum DecideFlag : uint8_t {
  kCategorical = 1,
  kFlip = 2,           // children were swapped: the answer is negated
  kPreviousRight = 4,  // this node lies in the right subtree of `previous`
};

// `decide` writes two words for each node, in preorder: the rows that satisfied every earlier split
// on its feature ("alive", all rows where the feature is new on the path), and those of them that
// go left. A row that reaches a node is alive there. Before them stand two words of all ones, the
// `previous` of nodes whose feature is new.
constexpr int kFirstWord = 2;

// Rows of a block by category code, for categorical columns; built once for each block.
struct CategoryRows {
  uint32_t n;
  uint32_t code[kBlockRows];
  uint64_t rows[kBlockRows];
};

// Rows that satisfy what a bit of a table's index stands for: the first of a node's two words, << 1, + 1 if
// it stands for the rows that go right.
inline uint64_t bit_rows(const uint64_t* words, uint32_t bit) {
  const uint64_t* p = words + (bit >> 1);
  return bit & 1 ? p[0] & ~p[1] : p[1];
}

// Operations of `walk`. Suffix kNew/kRep: the node's feature is new / repeated on its path.
// A `pair` is a node with two leaves, a `trio` a node with a pair and a leaf, and a `quad` a
// node with two pairs. Each op is one 32-bit word, op in the low byte, slot of the feature above
// it; trio and quad are followed by a word for each pair. Constants lie in a separate stream.
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
  kOps = kQuad + 8,
};
constexpr int kSlotShift = 8;

// In a plan for interactions no subtree is fused, `middle` has the node's preorder number as its slot, and
// each pair and exit is followed by the pairs of its feature with the other features of the path above:
// their number, then for each the slot of the pair and the level of the latest node on the other feature.
// If the order is 3 there follow the slots of the triples with two of these others: the second and the first,
// the third and the first, the third and the second, and so on.
constexpr uint32_t kMaxSlots = 1u << 24;

// Interactions of up to three features.
constexpr int kMaxOrder = 3;

// Largest node count K that has kernels of its own; larger ones run the loop over K at run time.
constexpr int kMaxFixedNodes = 8;

// Rows that one walk carries: bounds its stack, which should stay in the L1 cache.
template <class T>
constexpr int walk_rows(bool interactions) {
  return (sizeof(T) == 4 ? 64 : 32) / (interactions ? 2 : 1);
}
// Trees with vector leaves keep a value of each output on the stack.
constexpr int kVectorWalkRows = 16;

// Stack of `walk`, in elements a row: frames of C[K], g[K], delta; values of B[K] per output.
// For interactions a frame also holds lambda[K] of the edge that the walk went down; order - 1 times K values
// are in work.
constexpr size_t frame_size(int n_nodes, bool interactions) {
  return (interactions ? 3 : 2) * static_cast<size_t>(n_nodes) + 1;
}
constexpr size_t stack_size(int n_nodes, int n_outputs, int height, int order) {
  return (static_cast<size_t>(height) + 1) * frame_size(n_nodes, order >= 2) +
         (static_cast<size_t>(height) + 2) * n_nodes * n_outputs + static_cast<size_t>(order - 1) * n_nodes;
}

// Different features on a path, where background rows are held by those that they fail.
constexpr int kMaxPathFeatures = 64;

constexpr double kZeroMagnitude = 1e-35f;  // LightGBM's kZeroThreshold, a float

template <class X>
inline bool is_missing(X x, bool zero_missing) {
  return x != x ||
         (zero_missing && x <= static_cast<X>(kZeroMagnitude) && x >= -static_cast<X>(kZeroMagnitude));
}

}  // namespace skshap
