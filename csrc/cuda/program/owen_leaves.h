// Leaves for Owen values on a GPU: written by cuda/program/owen_leaves.cpp, read by cuda/owen_leaves.cuh.
//
// What a leaf adds to the value of a feature is a product of two numbers. One depends on the groups of its
// path that a row satisfies, the other on the features of the same group that it satisfies. Both are looked
// up in tables of the leaf, which the GPU computes from the zero fractions. The trees themselves are only
// descended to find out what a row satisfies: one word for each row has a bit for each group of the path that
// the row fails, and one for each feature of a group that may have several on a path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/owen_path.h"

namespace skshap {

class CudaColumns;

// Leaves pass through shared memory in stages: words that describe tables, operations, and the tables, which
// are computed there.
constexpr size_t kOwenStageWords = 2048;

// A stage begins with the number of fours of entries, and where its operations and its list of entries begin,
// in words. The list has, for each four entries of the tables, in 16 bits, where the table's description
// begins.
constexpr int kOwenStageHeader = 4;

// A table has an entry for each set of players that a row fails. A description of one consists of
//   players | quadrature nodes << kOwenNodesShift | numbers in pieces << kOwenNumbersShift,
//   where its pieces begin | where its lists begin << kOwenListsShift, in units of kOwenPiece,
//   the place of each player's number, in 4 bits: among the numbers of pieces, or kOwenList + number of a
//     list,
//   the number of the stage's fours of entries that come before its own,
// and, as numbers of the plan's precision, the factor of all integrals and the players' zero fractions. A
// piece has some numbers of each entry, a list has one. The numbers in pieces are multiplied by the
// difference of their players' fractions.
//
// The lists of a path of many groups (plan/owen_path.h) have a description of the same form, with kOwenLong
// and an "entry" for each group. Instead of the places, it has a bit for each group whose only feature gets
// its value.
constexpr int kOwenTableHeader = 4, kOwenNodesShift = 8, kOwenNumbersShift = 16, kOwenListsShift = 16;
constexpr uint32_t kOwenList = 8, kOwenLong = 1u << 31;

// Operations are four words, with a kind in the lowest bits of the first.
//
// A node is kind | flags of the test << kOwenFlagShift | column << kOwenColumnShift, the test's operand, and
// the bits that rows fail in the subtree that is visited first: those which the test lets pass, and all
// others; in the other subtree, it is the other way round. An edge has the same form, and only one subtree.
//
// A leaf is kind | numbers of groups with one and with several features on the path | the operation's number
// of words << kOwenLengthShift, where the pieces and the lists of its table of groups begin, in bytes, and
// the number of entries. Then come the slots of single features, in bytes and padded to four for each piece;
// and for each other group four words and the slots: the first bit of its field | its number of features <<
// kOwenFeaturesShift, where the pieces of its table begin, the number of its entries, and the mask of the
// field.
//
// A leaf whose path has many groups is the same, but with the number of all groups, where their lists begin,
// and the number of quadrature nodes. Then come four words for each group, and the slots if it has several
// features; otherwise the second word is the slot.
//
// After a leaf, the walk goes on at the subtree that was left last.
enum CudaOwenOp : uint32_t { kOwenNode, kOwenEdge, kOwenLeaf, kOwenLongLeaf, kOwenEnd };
constexpr uint32_t kOwenKind = 7, kOwenCount = 31;
constexpr int kOwenFlagShift = 3, kOwenColumnShift = 8;
constexpr int kOwenSingleShift = 3, kOwenManyShift = 8, kOwenLengthShift = 13, kOwenFeaturesShift = 16;

struct CudaOwenChunk {
  uint32_t stages, n_stages;
  uint32_t first_slot, n_slots;  // the first among those of all chunks
};

template <class T>
struct CudaOwenLeaves {
  std::vector<CudaOwenChunk> chunks;
  std::vector<uint32_t> stream;
  std::vector<uint32_t> stages;  // where each begins in the stream, in units of kOwenPiece, and the end
  size_t most_left = 0;          // subtrees that are left while others are visited
};

template <class T>
struct CudaProgram;

// Add the leaves of a plan that has_owen_leaves(), and their slots, in chunks of about so many leaves.
template <class T>
void add_owen_leaves(const Plan& plan, const CudaColumns& columns, size_t chunk_leaves,
                     CudaProgram<T>& program);

}  // namespace skshap
