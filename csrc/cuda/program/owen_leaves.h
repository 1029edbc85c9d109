// Leaves for Owen values on a GPU. cuda/program/owen_leaves.cpp writes them, and cuda/owen_leaves.cuh reads
// them.
//
// The contribution of a leaf to the value of a feature is a product of two numbers. The first depends on the
// groups of the leaf's path that a row satisfies, and the second on the features of the same group that the
// row satisfies. Both numbers are looked up in tables of the leaf, which the GPU computes from the zero
// fractions. The trees are descended only to find out which splits a row satisfies. The result is a word for
// each row, with a bit for each group of the path that the row fails, and a bit for each failed feature of a
// group that may have several features on a path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/owen_path.h"

namespace skshap {

class CudaColumns;

// Leaves pass through shared memory in stages of at most kOwenStageWords. The entries of tables are computed
// in fours. A stage begins with the number of fours, and with the positions of its operations and of its list
// of entries, in words. For each four, the list has the position of the description of its table, in 16 bits.
constexpr int kOwenStageHeader = 4;

// A table has an entry for each set of players that a row may fail. The description of a table consists of
//   players | quadrature nodes << kOwenNodesShift | numbers in pieces << kOwenNumbersShift,
//   where its pieces begin | where its lists begin << kOwenListsShift, in units of kOwenPiece,
//   the place of each player's number, in 4 bits: position in the pieces, or kOwenList + number of a list,
//   the number of fours of the stage that come before the fours of this table,
// and, as numbers of the plan's precision, the factor of all integrals and the players' zero fractions. A
// piece has several numbers of each entry, and a list has one. The numbers in pieces are multiplied by the
// difference of their players' fractions.
//
// The lists of a path of many groups (plan/owen_path.h) have a description of the same form, with kOwenLong,
// and an "entry" for each group. Instead of the places, the description has a bit for each group whose value
// goes to its only feature.
constexpr int kOwenTableHeader = 4, kOwenNodesShift = 8, kOwenNumbersShift = 16, kOwenListsShift = 16;
constexpr uint32_t kOwenList = 8, kOwenLong = 1u << 31;

// An operation begins with four words. The kind of the operation is in the lowest bits of the first word.
//
// A node is kind | flags of the test << kOwenFlagShift | column << kOwenColumnShift, the operand of the test,
// and two words of bits. In the subtree that is visited first, these are the bits failed by rows that the
// test lets pass, and the bits failed by all other rows; in the other subtree, they are swapped. An edge has
// the same form, but only one subtree.
//
// A leaf is kind | numbers of groups with one and with several features on the path | number of words of the
// operation << kOwenLengthShift, then the positions of the pieces and of the lists of its table of groups, in
// bytes, and the number of entries. Next come the slots of groups with a single feature, in bytes and padded
// to four for each piece. For each other group, four words and its slots follow. The four words are the first
// bit of the group's field | its number of features << kOwenFeaturesShift, the position of the pieces of its
// table, the number of entries of this table, and the mask of the field.
//
// A leaf whose path has many groups has the same form, but with the number of all groups, the position of
// their lists, and the number of quadrature nodes. Next come four words for each group, and its slots if it
// has several features. If it has one feature, the second word is the slot.
//
// After a leaf, the walk resumes at the subtree that was postponed last.
enum CudaOwenOp : uint32_t { kOwenNode, kOwenEdge, kOwenLeaf, kOwenLongLeaf, kOwenEnd };
constexpr uint32_t kOwenKind = 7, kOwenCount = 31;
constexpr int kOwenFlagShift = 3, kOwenColumnShift = 8;
constexpr int kOwenSingleShift = 3, kOwenManyShift = 8, kOwenLengthShift = 13, kOwenFeaturesShift = 16;

struct CudaOwenChunk {
  uint32_t stages, n_stages;
  uint32_t first_slot, n_slots;  // first_slot counts the slots of all chunks
};

template <class T>
struct CudaOwenLeaves {
  std::vector<CudaOwenChunk> chunks;
  std::vector<uint32_t> stream;
  std::vector<uint32_t> stages;  // where each begins in the stream, in units of kOwenPiece, and the end
  size_t most_postponed = 0;     // the most subtrees that are postponed at a time
};

template <class T>
struct CudaProgram;

// Add the leaves of a plan for which has_owen_leaves() is true, and their slots, in chunks of about
// chunk_leaves leaves.
template <class T>
void add_owen_leaves(const Plan& plan, const CudaColumns& columns, size_t chunk_leaves,
                     CudaProgram<T>& program);

}  // namespace skshap
