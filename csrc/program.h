// The compiled form of a tree: plan.cpp and walk_writer.cpp write it, the kernels read it.
//
// A tree is two programs over the same preorder of inner nodes. `decide` answers every split for
// a block of 64 rows, one bit a row. `walk` then runs the adjoint quadrature recursion on these
// bits. Where exactly one child of a node is a leaf, that child is put on the right.
#pragma once

#include "types.h"

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

template <class T>
struct WalkArgs {
  const uint32_t* ops;
  const T* constants;
  const uint64_t* words;  // what `decide` wrote
  const T* nodes;         // t_k
  const T* weights;       // w_k
  int n_nodes;            // K
  int n_outputs;          // 1, or the outputs of a vector leaf
  int height;             // of the tallest tree that the stack was made for
  int n_rows;             // of the block; the kernel may compute up to a full vector more
  T* phi;                 // [output][slot][64]
  size_t output_stride;   // elements between two outputs of phi
  T* stack;               // 64-byte aligned
  // Interactions only:
  const T* dead;       // lambda_k of rows that left the path of the feature
  T* pair_phi;         // [output][slot of a pair][64]
  size_t pair_stride;  // elements between two outputs of pair_phi
  T* triple_phi;       // of order 3: [output][slot of a triple][64]
  size_t triple_stride;
};

struct DecideArgs {
  const DecideNode* nodes;
  size_t n_nodes;
  const void* codes;  // uint16 or uint32, [column][code_stride], at the block's first row
  size_t code_stride;
  const CategoryRows* category_rows;  // [column] of the block, where categorical
  const uint32_t* category_bits;
  uint64_t* words;
};

// Where the decisions lead the rows of a block.
struct ReachArgs {
  const int32_t* children;  // [node][2]: inner nodes in preorder, then leaves, which lead to themselves
  int32_t n_inner;
  int height;
  const uint64_t* words;  // what `decide` wrote, with room for the leaves
  // leaf_sums: adds the values of the leaves reached to margin[64]; reach: [node], scratch.
  const double* leaf_values;
  uint64_t* reach;
  double* margin;
  // descend: the leaf of each row, as a node.
  int32_t* leaves;
};

// Decisions of the rows of some blocks -> what they mean as a number.
struct IndexArgs {
  const uint64_t* words;  // what `decide` wrote, of each block
  size_t block_words;     // from a block to the next
  size_t n_blocks;
  const uint32_t* bits;  // as in tables.h, the lowest first, at most 16
  uint32_t n_bits;
  uint16_t* index;  // [block][64]
};

// Rows that take numbers from a table: each adds those of its index. A vector beyond the end of the table is
// read.
template <class T>
struct LookUpArgs {
  const uint16_t* index;
  size_t n_rows;
  const T* table;           // [index][target]
  const uint32_t* targets;  // positions in a row of phi, ascending
  uint32_t n_targets;
  T* phi;  // [row][row_size], aligned to 64 bytes, as its rows are
  size_t row_size;
};

// What a leaf gives to the features of its path, by the pattern of x; see tables.h. `weights`: by pattern,
// how much of what stands for unknown features has it.
struct LeafTableArgs {
  const double* weights;
  int n_features;
  int n_nodes;
  const double* factors;  // [node][4][pattern]: of the weights, and of the three sums
  const double* values;   // of the leaf
  size_t n_outputs;
  double* sums;  // [4][pattern], scratch
  double* out;   // [pattern][feature][output]
};

// Different features on a path, where background rows are held by those that they fail.
constexpr int kMaxPathFeatures = 64;

// Background rows of a tile: their masks have so many words.
constexpr int kBackgroundWords = 4;
constexpr int kBackgroundTile = 64 * kBackgroundWords;

// Background rows that fail the same features of a path, and the rows of a block that satisfy these.
struct BackgroundGroup {
  uint64_t failed;  // bits of the features, in the order of the path
  uint64_t rows;
  uint64_t members[kBackgroundWords];
};

// A leaf that rows of a block reach together with background rows, each pair with a factor of its own.
template <class T>
struct PairLeafArgs {
  const uint64_t* failing;  // of each feature of the path: the rows that do not satisfy it
  const uint32_t* slots;
  uint32_t n_features;
  const BackgroundGroup* groups;
  size_t n_groups;
  const T* factors;  // [background row][64]
  T value;
  int n_rows;  // of the block
  T* phi;      // [slot][64]
};

// Ranks of the 64 values of a block in a sorted array: how many thresholds each value has passed, or that it
// is missing.
template <class X>
struct RankArgs {
  const X* values;
  const X* thresholds;
  size_t n_thresholds;
  bool strict;
  bool zero_missing;
  uint32_t* ranks;
};

constexpr double kZeroMagnitude = 1e-35f;  // LightGBM's kZeroThreshold, a float

template <class X>
inline bool is_missing(X x, bool zero_missing) {
  return x != x ||
         (zero_missing && x <= static_cast<X>(kZeroMagnitude) && x >= -static_cast<X>(kZeroMagnitude));
}

// One set of kernels for each instruction set.
struct Kernels {
  const char* name;
  void (*decide16)(const DecideArgs&);
  void (*decide32)(const DecideArgs&);
  void (*leaf_sums)(const ReachArgs&);  // for small trees
  void (*descend)(const ReachArgs&);
  void (*index)(const IndexArgs&);
  void (*look_up_float)(const LookUpArgs<float>&);
  void (*look_up_double)(const LookUpArgs<double>&);
  void (*leaf_table)(const LeafTableArgs&);
  void (*pair_leaf_float)(const PairLeafArgs<float>&);
  void (*pair_leaf_double)(const PairLeafArgs<double>&);
  void (*add_scaled_float)(double scale, const float* from, double* to);  // the 64 rows of a block
  void (*add_scaled_double)(double scale, const double* from, double* to);
  void (*rank_float)(const RankArgs<float>&);
  void (*rank_double)(const RankArgs<double>&);
  void (*walk_float[kMaxOrder][kMaxFixedNodes + 1])(const WalkArgs<float>&);  // [order - 1][K], [0]: any K
  void (*walk_double[kMaxOrder][kMaxFixedNodes + 1])(const WalkArgs<double>&);
  void (*walk_vector_float[kMaxOrder])(const WalkArgs<float>&);
  void (*walk_vector_double[kMaxOrder])(const WalkArgs<double>&);
};

// The walk of trees with K nodes, or of those with vector leaves.
inline void run_walk(const Kernels& kernels, int order, bool vector, const WalkArgs<float>& args) {
  const auto& walks = kernels.walk_float[order - 1];
  const int n_fixed = args.n_nodes <= kMaxFixedNodes ? args.n_nodes : 0;
  (vector ? kernels.walk_vector_float[order - 1] : walks[n_fixed])(args);
}
inline void run_walk(const Kernels& kernels, int order, bool vector, const WalkArgs<double>& args) {
  const auto& walks = kernels.walk_double[order - 1];
  const int n_fixed = args.n_nodes <= kMaxFixedNodes ? args.n_nodes : 0;
  (vector ? kernels.walk_vector_double[order - 1] : walks[n_fixed])(args);
}

const Kernels& kernels_baseline();
#ifdef SKSHAP_X86_64
const Kernels& kernels_avx2();
const Kernels& kernels_avx512();
#endif

}  // namespace skshap
