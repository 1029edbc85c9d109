// The limits of what a plan may hold for the kernels of a GPU to explain it. The plan keeps them, and the
// GPU's code relies on them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace skshap {

// --- Merged trees (plan/merged_trees.h) ---

// The most levels of a merged tree. A thread that adds up margins keeps the nodes that it has still to visit
// in an array with a place for each level and one more (cuda/margins.cuh).
constexpr int kMostGpuLevels = 32;

// --- Tables by intervals (plan/interval_tables.h) ---

// The most features of a model. Sets of features have a bit for each of them (intervals/packing.h), and
// models with more features would need many windows.
constexpr size_t kMostGpuFeatures = 64;
// The largest code of a column. Codes are compared as half floats, and this is the largest finite one.
constexpr uint32_t kMostGpuCode = 0x7bff;
// The most entries of a table. The index of an entry is a sum of half floats that begins at 1,024. Half
// floats from 1,024 to 2,047 are the integers, and the last ten bits of a sum are the index.
constexpr uint32_t kMostGpuEntries = 1024;
// The most bytes of the entries of a table. Half as many more bytes are enough for the table's steps and
// margins.
constexpr size_t kMostGpuTableBytes = size_t{32} << 10;
// The largest table is smaller than this, including its steps and margins. The shared memory of a block must
// hold two stages of this size: one is loaded while the other one is used.
constexpr size_t kLeastStageBytes = kMostGpuTableBytes + kMostGpuTableBytes / 2;

// --- Leaves for Owen values (plan/owen_path.h) ---

// The most players of a table. A table has an entry for each set of its players. One word of its description
// has four bits for each player, and the kernels keep numbers of each player in registers.
constexpr int kMostOwenPlayers = 8;
// The most groups on a path. The kernels keep a factor for each quadrature node of the groups' integral, of
// which there is one for every two groups, in registers.
constexpr int kMostOwenGroups = 16;
// The bits of the word that each row has on a path. The first bits are for the groups, in the order in which
// a path meets them. Then each group with several features on some path below its first node has as many bits
// as it has features there.
constexpr int kOwenWordBits = 32;
// The most bytes of all tables of a leaf, and of the tables of a stage. They are computed in shared memory.
constexpr size_t kOwenTableBytes = size_t{24} << 10;
// The number of words of a stage. Leaves pass through shared memory in stages. A stage consists of words for
// the descriptions of tables, words for operations, and the tables themselves, which are computed in shared
// memory.
constexpr size_t kOwenStageWords = 2048;
// The number of stages in shared memory: one is loaded, the tables of one are computed, and the operations of
// one are done.
constexpr int kOwenStreams = 3;
// The most subtrees that are postponed at a time: for each of them, each row keeps a word in shared memory. A
// postponed subtree has at least as many leaves as all subtrees that are postponed after it.
constexpr uint32_t kMostPostponed = 31;

}  // namespace skshap
