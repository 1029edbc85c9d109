// The compiled form of the trees for a GPU. cuda/program/writer.cpp writes it, and the CUDA kernels read it.
//
// A chunk of trees is one stream of elements, which are 32-bit words in single precision and 64-bit words in
// double precision. All lanes of a warp read the stream together. It has operations with their constants, in
// the order in which the walk of simd/walk_kernel-inl.h visits the nodes. The stream is made from the
// labelled trees of a Plan, so CPU and GPU share every decision about thresholds, order and cover fractions.
#pragma once

#include <type_traits>
#include <vector>

#include "cuda/program/intervals.h"
#include "cuda/program/leaves.h"
#include "cuda/program/margins.h"
#include "cuda/program/owen_leaves.h"
#include "cuda/program/pattern_leaves.h"
#include "cuda/program/tables.h"
#include "plan/plan.h"

namespace skshap {

// Operations. The low byte of an operation's first element is its code. Bits 8 to 31 have the frame of the
// node, which is the node's height above the fused subtrees. A walk goes down by `enter` to a fused subtree,
// and then up by `exit` to the next `middle` or to the next tree. So a kernel never has to choose among all
// operations.
constexpr uint32_t kCudaFrames = 8;                   // in a code
constexpr uint32_t kCudaMostFrame = kCudaFrames - 2;  // stands for all higher ones
enum CudaKind : uint32_t { kCudaEnter, kCudaMiddle, kCudaExit, kCudaExitLeaf };
constexpr uint32_t cuda_code(CudaKind kind, uint32_t frame, bool repeated) {
  return (frame < kCudaMostFrame ? frame : kCudaMostFrame) << 3 | kind << 1 | repeated;
}
// The last frame of a code stands for a place that several nodes of a merged tree take. Such a place has a
// frame of its own: `enter` keeps C; `middle` adds B of a node to a sum, and restores C for the next node;
// `exit` adds the sum to B of the last node; and `exit leaf` adds the value of a leaf.
constexpr uint32_t kCudaJoin = kCudaFrames - 1;
constexpr uint32_t cuda_join_code(CudaKind kind) { return kCudaJoin << 3 | kind << 1; }
// The number of frames in registers. With more, there would be fewer memory accesses. But each frame needs
// its own instances of all operations, and the instruction caches are the scarcest resource. Frames of joined
// places are never in registers.
constexpr int kCudaRegisterFrames = 2;
constexpr uint32_t kCudaQuad = kCudaFrames << 3;  // + 4 * root + 2 * first + second repeated
constexpr uint32_t kCudaTrio = kCudaQuad + 8;     // + 2 * root + pair repeated
constexpr uint32_t kCudaPair = kCudaTrio + 4;     // + repeated
constexpr uint32_t kCudaNextTree = kCudaPair + 2;
constexpr uint32_t kCudaEndSegment = kCudaNextTree + 1;
constexpr uint32_t kCudaEnd = kCudaNextTree + 2;
constexpr uint32_t kCudaPairs = kCudaNextTree + 3;
constexpr uint32_t kCudaTriples = kCudaNextTree + 4;

// The number of elements of a segment, the part of the stream that is in the shared memory of a block of
// warps at a time. No operation crosses from one segment to the next.
constexpr size_t kCudaSegment = 1024;

// A node is two elements. The first is slot << 16 | column, and the second is the node's test:
constexpr uint32_t kTestOperand = 0xffff;  // rank + bias, or number of the category set in the chunk
constexpr uint32_t kTestBias = 1u << 16;   // added to the code before it is compared
constexpr uint32_t kTestCategorical = 1u << 17;
constexpr uint32_t kTestFlip = 1u << 18;     // children were swapped
constexpr uint32_t kTestTracked = 1u << 19;  // a node below repeats the feature: the test sets its alive bit
constexpr int kTestOwnShift = 20, kTestPreviousShift = 25;  // alive bits: of the node, and of `previous`
constexpr uint32_t kTestBit = 31;
constexpr uint32_t kAliveBits = 32;

// In a program for interactions, only subtrees of two leaves are fused. If there are other features above,
// `exit` and `pair` are followed by `pairs`. This operation has the number of steps in bits 8 to 31 of its
// first element; the steps begin four elements later. A step is for two pairs of features. For each of the
// two, it has slot | alive bit of the other feature's latest node << kPairBitShift; then, for each, lambda_k
// of alive rows. If the number of pairs is odd, the second pair of the last step adds nothing to the slot of
// the node's own feature.
constexpr uint32_t kPairSlot = 0xffff;
constexpr int kPairBitShift = 16;
constexpr uint32_t kAlwaysAlive = kAliveBits - 1;  // a bit of no node, which is always set
constexpr int cuda_pair_step(int n_nodes) { return (2 + 2 * n_nodes + 3) / 4 * 4; }

// A program for triples has `triples` instead of `pairs`, and no slots of pairs. This operation has the
// number of records in bits 8 to 31 of its first element; the records begin four elements later. All triples
// of a record share a second feature. The record begins with this feature: the alive bit of its latest node |
// number of steps << kTripleStepShift, then lambda_k of alive rows. The steps follow. They have the form of
// the steps of pairs, each for the third features of two triples.
constexpr int kTripleStepShift = 8;
constexpr int cuda_triple_record(int n_nodes) { return (1 + n_nodes + 3) / 4 * 4; }

// Some trees do not fit this form: they have more quadrature nodes than there are kernels for, leaves of
// several outputs, or too many alive bits, columns, slots or categories. Such trees have chunks of their own,
// in a general form without fused subtrees. The stream of such a chunk begins with K, the number of outputs,
// the height, t_k and w_k, and for interactions lambda_k of rows that are not alive. A node in this form is
//   op | repeated << 3 | level << 4, slot, column, test flags, operand, level of `previous`, share,
// followed by u_k and G_k if it is repeated, and by the values of those children that are leaves, first the
// right one. For interactions, exits and pairs end with the number of pairs of features, and for each pair
// its slot, the level of the other feature's latest node, and lambda_k of alive rows. For triples, they end
// with the number of other features, and for each of these the level of its latest node and lambda_k of alive
// rows. Then follow the slots of the second other feature with the first, of the third with the first and the
// second, and so on. A feature that is apart has the form of a repeated feature even if it is new on its
// path. Its `previous` then has the height as its level, which no node has, and at which all rows are alive.
enum CudaGeneralOp : uint32_t {
  kGeneralEnter,  // nothing follows the constants
  kGeneralMiddle,
  kGeneralExit,
  kGeneralExitLeaf,  // the right leaf follows
  kGeneralPair,      // both leaves follow
  kGeneralNextTree,  // the op alone
  kGeneralEnd,
};
constexpr int kGeneralHeader = 3, kGeneralNode = 7;

// The nodes of a walk. A tree for Owen values in which the features of a group are apart (plan/owen_trees.h)
// has a double integral. t_k belongs to the other players, and s_k to the features that are apart. These
// features have the form of repeated features. G_k is right for them only, which suffices, because nobody
// needs the values of the other players. If such a tree has more nodes than any kernel, it is walked several
// times, each time with some of the nodes: values are sums over the nodes.
struct CudaQuadrature {
  std::vector<double> t, weights;
  std::vector<double> s;  // empty unless features are apart

  bool operator==(const CudaQuadrature& other) const {
    return t == other.t && weights == other.weights && s == other.s;
  }
};

struct CudaChunk {
  int32_t output, n_nodes;
  int32_t quadrature;  // in CudaProgram::quadratures; -1 in the general form
  bool general;
  uint32_t n_frames;
  uint32_t n_slots;
  uint32_t category_base;  // into CudaProgram::category_sets
  size_t begin;            // in the stream: n_segments of kCudaSegment elements, or the general form
  uint32_t n_segments;
  size_t first_slot;  // among the slots of all chunks
  size_t n_leaves;
};

struct CudaSlot {
  // The place is in Plan::features or, after the features, in Plan::pairs or, of order 3, in Plan::triples;
  // or it is kNoPlace.
  int32_t output, place;
};
constexpr int32_t kNoPlace = -1;  // of values that nobody needs

// A share of the sums of a slot. With a weight, the sums are added to the sums of another place: see
// plan/balance.h.
struct CudaShare {
  int32_t slot;  // of all chunks
  CudaSlot to;
  double weight;
};

template <class T>
struct CudaProgram {
  using Element = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  std::vector<CudaColumn> columns;
  std::vector<CudaChunk> chunks;
  std::vector<CudaQuadrature> quadratures;
  std::vector<CudaSlot> slots;  // of all chunks
  std::vector<CudaShare> shares;
  std::vector<Element> stream;
  std::vector<uint32_t> category_sets;  // first word in Plan::category_bits
  CudaMargins margins;
  CudaTables<T> tables;
  CudaPatternLeaves<T> pattern_leaves;
  CudaOwenLeaves<T> owen_leaves;
  CudaIntervals intervals;
  CudaLeaves<T> leaves;  // instead of chunks
};

// How the trees without tables are explained: by the walk, in chunks for many rows or in smaller chunks for
// few rows; or leaf by leaf for very few rows, if the plan allows it (cuda/program/leaves.h).
enum class CudaMethod { kChunks, kSmallChunks, kLeaves };

// Return the number of places: the features, followed by the interactions of the plan's order.
inline size_t cuda_places(const Plan& plan) {
  return plan.features.size() + (plan.order < 3 ? plan.pairs.size() : plan.triples.size());
}

// Return the slot of a place that is numbered through all outputs, as in Tables::places.
inline CudaSlot slot_of_place(const Plan& plan, uint32_t place) {
  const uint32_t n_places = static_cast<uint32_t>(plan.features.size() + plan.pairs.size());
  return {static_cast<int32_t>(place / n_places), static_cast<int32_t>(place % n_places)};
}

// Compile a plan. At a time, `stage_bytes` of its tables by intervals fit into shared memory.
template <class T>
CudaProgram<T> make_cuda_program(const Plan& plan, CudaMethod method, size_t stage_bytes);

// Add the plan's trees that are explained by tables, and their slots, which follow the slots of the chunks.
template <class T>
void add_tables(const Plan& plan, const CudaColumns& columns, CudaProgram<T>& program);

// Add the plan's leaves that have no table, and their slots.
template <class T>
void add_pattern_leaves(const Plan& plan, const CudaColumns& columns, CudaProgram<T>& program);

// Add the plan's tables by intervals, and their slots.
template <class T>
void add_intervals(const Plan& plan, const CudaColumns& columns, size_t stage_bytes, CudaProgram<T>& program);

}  // namespace skshap
