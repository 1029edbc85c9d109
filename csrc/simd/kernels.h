// The functions that are compiled for each instruction set, their arguments, and the choice of the set in
// use.
#pragma once

#include <string>
#include <tuple>
#include <vector>

#include "plan/index_steps.h"
#include "plan/leaf_lanes.h"
#include "plan/program.h"
#include "plan/tables.h"

namespace skshap {

template <class T>
struct WalkArgs {
  const uint32_t* ops;
  const T* constants;
  const uint64_t* words;  // written by `decide`
  const T* nodes;         // t_k
  const T* weights;       // w_k; or null, if the stack has C of the root: see root_b()
  int n_nodes;            // K
  int n_outputs;          // 1, or the outputs of a vector leaf
  int height;             // of the tallest tree for which the stack is large enough
  int n_rows;             // of the block; the kernel may compute up to a full vector more
  T* phi;                 // [output][slot][64]
  size_t output_stride;   // elements between two outputs of phi
  T* stack;               // 64-byte aligned
  // For interactions only:
  const T* dead = nullptr;  // lambda_k of rows that left the path of the feature
  T* pair_phi = nullptr;    // [output][slot of a pair][64]
  size_t pair_stride = 0;   // elements between two outputs of pair_phi
  T* triple_phi = nullptr;  // of order 3: [output][slot of a triple][64]
  size_t triple_stride = 0;
};

// Return where the walk of scalar leaves in single precision, with Gauss-Radau quadrature, leaves B of the
// root in its stack, as [K][64]. C of the root is at the beginning of the stack, as [K][64], during the whole
// walk.
inline float* root_b(const WalkArgs<float>& args) {
  static_assert(walk_rows<float>(false) == kBlockRows);
  const size_t frame = (static_cast<size_t>(args.n_nodes) + 2) * kBlockRows;
  return args.stack + (static_cast<size_t>(args.height) + 1) * frame;
}

struct DecideArgs {
  const DecideNode* nodes;
  size_t n_nodes;
  const void* codes;  // uint16 or uint32, [column][code_stride], from the block's first row
  size_t code_stride;
  const CategoryRows* category_rows;  // [column] of the block, where categorical
  const uint32_t* category_bits;
  uint64_t* words;
};

// The leaf that each row of a block reaches by its decisions. The kernels may compute a few rows more.
struct ReachArgs {
  const int32_t* children;  // [node][2]: inner nodes in preorder, then leaves, which are their own children
  int32_t n_inner, n_leaves;
  bool merged;  // a row reaches several leaves; each node has the bit of the edge to it instead of children
  int height;
  int n_rows;             // of the block
  const uint64_t* words;  // written by `decide`, with room for the leaves
  const double* leaf_values;
  uint64_t* reach;  // [node], scratch of leaf_sums and find_leaves
  double* margin;   // [64], to which leaf_sums adds the values of the leaves reached
  int32_t* leaves;  // [64], in which find_leaves and descend write the leaf of each row
};

// The arguments for appending a bit to the number of each row: the bit tells whether the row's code plus the
// bias exceeds the operand.
struct AppendBitArgs {
  const uint16_t* codes;
  uint16_t bias, operand;
  size_t n_rows;
  uint16_t* numbers;
};

// The arguments for forming numbers of given bits of the decisions, for the rows of some blocks.
struct IndexArgs {
  const uint64_t* words;  // written by `decide` for each block
  size_t block_words;     // from a block to the next
  size_t n_blocks;
  const uint32_t* bits;  // as in plan/tables.h, the lowest first, at most 16
  uint32_t n_bits;
  uint16_t* index;  // [block][64]
};

// The arguments for looking up numbers in a table: each row adds the entry at its index. The kernel reads one
// vector beyond the end of the table.
template <class T>
struct LookupArgs {
  const uint16_t* index;
  size_t n_rows;
  const T* table;           // [index][target]
  const uint32_t* targets;  // positions in a row of phi, ascending
  uint32_t n_targets;
  T* phi;  // [row][row_size]; every row is aligned to 64 bytes
  size_t row_size;
};

// The arguments for finding the index of each row in a table by intervals, for the rows of some blocks.
struct EntryIndexArgs {
  const uint16_t* codes;  // [column][code_stride]
  size_t code_stride;
  const CategoryRows* category_rows;  // [block][column], where categorical
  size_t n_columns;                   // of the codes
  const IndexColumn* columns;
  size_t n_index_columns;
  const IndexStep* steps;
  size_t n_blocks;
  uint16_t first;   // added to all indices
  uint16_t* index;  // [block][64]
};

// The number of tables that rows look up together, so that the rows' sums are read and written once for all
// these tables.
constexpr size_t kTablesAtOnce = 4;

// The arguments for looking up sums in up to kTablesAtOnce tables, which follow each other: each row adds the
// entries at its indices. `row_size` is 8 or a multiple of 16.
template <class T>
struct EntryArgs {
  const uint16_t* index;  // [table][index_stride], counted from the first table
  size_t n_tables, index_stride;
  size_t n_rows;
  const T* entries;  // [index][row_size]
  size_t row_size;
  T* sums;                // [row][row_size]
  const double* margins;  // [index], for one output; null if only the sums are needed
  double* margin;         // [row]
};

// The arguments for adding the margins of such entries, for several outputs.
struct MarginArgs {
  const uint16_t* index;
  size_t n_tables, index_stride;
  size_t n_rows;
  const double* margins;  // [index][output]
  size_t n_outputs;
  double* margin;  // [output][stride]
  size_t stride;
};

// The arguments for making rows of columns: rows[row * n_columns + i] = columns[i][row]. The columns have 64
// elements and are aligned to 64 bytes, and the rows are aligned to 32 bytes. n_columns is a multiple of 8.
template <class T>
struct InterleaveArgs {
  const T* const* columns;
  size_t n_columns;
  size_t n_rows;  // at most 64
  T* rows;
};

// The arguments for writing results: rows[row * row_size + i] = columns[i][row], rounded. The columns hold
// the sums of whole blocks of rows.
template <class Out>
struct WriteRowsArgs {
  const double* const* columns;
  size_t n_columns;
  size_t n_rows;
  size_t row_size;
  Out* rows;
  double* totals;  // by row, or null: the written numbers are added to them
};

// The table of a leaf: the leaf's contributions to the features of its path, by the pattern of x; see
// plan/tables.h. `weights` has, for each pattern, its weight in the data that replace unknown features.
struct LeafTableArgs {
  const double* weights;
  int n_features;
  int n_nodes;
  const double* factors;  // [node][4][pattern]: for the weights and for the three sums
  const double* values;   // of the leaf
  size_t n_outputs;
  double* sums;  // [4][pattern], scratch
  double* out;   // [pattern][feature][output]
};

// The number of words of a mask over the background rows of a tile, and the number of background rows.
constexpr int kBackgroundWords = 4;
constexpr int kBackgroundTile = 64 * kBackgroundWords;

// Background rows that fail the same features of a path, and the rows of a block that satisfy all these
// features.
struct BackgroundGroup {
  uint64_t failed;  // bits of the features, in the order of the path
  uint64_t rows;
  uint64_t members[kBackgroundWords];
};

// A leaf that rows of a block reach together with background rows. Each pair of a row and a background row
// has its own factor.
template <class T>
struct PairLeafArgs {
  const uint64_t* failing;  // by feature of the path: the rows that do not satisfy it
  const uint32_t* slots;
  uint32_t n_features;
  const BackgroundGroup* groups;
  size_t n_groups;
  const T* factors;  // [background row][64]
  T value;
  int n_rows;  // of the block
  T* phi;      // [slot][64]
};

// The arguments for ranking the 64 values of a block in a sorted array. A rank is the number of thresholds
// that the value has passed, or the code for missing. Values and ranks are aligned to 64 bytes.
template <class X>
struct RankArgs {
  const X* values;
  const X* thresholds;
  size_t n_thresholds;
  bool strict;
  bool zero_missing;
  uint32_t* ranks;
};

// The arguments for computing sums for all patterns x of a path. The numbers of a leaf are computed from
// these sums; see background/leaf_vectors.h.
struct SubsetSumsArgs {
  const double* weights;  // of the background rows, by pattern
  int n_features, n_nodes, n_sums;
  const double* coefficients;  // [node][sum]
  const double* on;            // [node][pattern]: t^|x|
  const double* off;           // [node][3][pattern]
  const int* off_of_sum;       // by sum: which of the three
  int n_off;                   // how many of the three are used
  double* scratch;             // [2][pattern]
  double* sums;                // [sum][pattern]
};

// The arguments for comparing a row with the leaves of a chunk; see plan/leaf_lanes.h.
template <class T>
struct LaneArgs {
  const uint8_t *n_places, *n_mixed;
  const LanePlace* places;
  const uint16_t* bounds;
  const T* numbers;
  const double* leaf_values;
  const uint64_t* category_words;
  size_t n_vectors;
  size_t n_outputs;       // of a leaf
  const uint16_t* codes;  // of the row, by column; a categorical column has the position of the category
  const uint16_t* mixed_codes;  // [mixed place][lane]
  const T *nodes, *weights;
  size_t n_slots;
  const int32_t* slots;  // positions of the features in the totals
  T* sums;               // [slot][output][lane], scratch; then the values of mixed places, [n_mixed][lane]
  size_t n_sums;         // vectors in `sums`
  double* totals;        // [feature][output][lane], to which the sums are added
  double* margin;        // [output], to which the leaves that the row reaches are added; or null
};

// The kernels of one instruction set for numbers of type T.
template <class T>
struct KernelsOf {
  using Walk = void (*)(const WalkArgs<T>&);

  void (*rank)(const RankArgs<T>&);
  void (*lookup)(const LookupArgs<T>&);
  void (*add_entries)(const EntryArgs<T>&);
  void (*interleave)(const InterleaveArgs<T>&);
  void (*write_rows)(const WriteRowsArgs<T>&);
  void (*pair_leaf)(const PairLeafArgs<T>&);
  void (*add_scaled)(double scale, const T* from, double* to);  // the 64 rows of a block
  // [order - 1][K]. Element [0] runs any K, including those for which there is no kernel and the element is
  // null.
  Walk walks[kMaxOrder][kMaxFixedValueNodes + 1];
  Walk vector_walks[kMaxOrder][kMaxFixedValueNodes + 1];    // for trees whose leaves hold all outputs
  size_t lane_width;                                        // leaves in a vector
  void (*lanes[2][kMaxLaneNodes + 1])(const LaneArgs<T>&);  // [whether leaves hold all outputs][K]
};

struct CellKernels;  // simd/cell_kernels.h

// The kernels of one instruction set.
struct Kernels {
  const char* name;
  void (*decide16)(const DecideArgs&);
  void (*decide32)(const DecideArgs&);
  void (*leaf_sums)(const ReachArgs&);    // for merged trees
  void (*find_leaves)(const ReachArgs&);  // for other trees of at most 65,536 leaves; takes time per leaf
  void (*descend)(const ReachArgs&);      // for all other trees; takes time per level
  void (*append_bit)(const AppendBitArgs&);
  void (*index)(const IndexArgs&);
  // Add the number of rows in each word to its count.
  void (*count_rows)(const uint64_t* words, size_t n_words, uint64_t* counts);
  void (*entry_index)(const EntryIndexArgs&);
  void (*add_margins)(const MarginArgs&);
  const CellKernels* cells;
  void (*leaf_table)(const LeafTableArgs&);
  void (*subset_sums)(const SubsetSumsArgs&);
  std::tuple<KernelsOf<float>, KernelsOf<double>> by_precision;

  template <class T>
  const KernelsOf<T>& of() const {
    return std::get<KernelsOf<T>>(by_precision);
  }
};

// Run the walk for trees with K nodes. `vector` means that each leaf holds all outputs.
template <class T>
void run_walk(const Kernels& kernels, int order, bool vector, const WalkArgs<T>& args) {
  const KernelsOf<T>& k = kernels.of<T>();
  const auto& walks = (vector ? k.vector_walks : k.walks)[order - 1];
  const auto fixed = args.n_nodes <= kMaxFixedValueNodes ? walks[args.n_nodes] : nullptr;
  (fixed ? fixed : walks[0])(args);
}

// Return the kernels in use: the best for this processor, or the kernels that SKSHAPGPU_ISA names.
const Kernels& kernels();
std::vector<std::string> supported_kernels();

// These functions are defined for each instruction set, in translation units that take up to a minute to
// compile. The first function returns all kernels. The others set the walks for K above kMaxFixedNodes, the
// walks for vector leaves, and the kernels for cells.
const Kernels& kernels_baseline();
void set_deep_walks_baseline(Kernels& kernels);
void set_vector_walks_baseline(Kernels& kernels);
void set_cells_baseline(Kernels& kernels);
const Kernels& kernels_avx2();
void set_deep_walks_avx2(Kernels& kernels);
void set_vector_walks_avx2(Kernels& kernels);
void set_cells_avx2(Kernels& kernels);
const Kernels& kernels_avx512();
void set_deep_walks_avx512(Kernels& kernels);
void set_vector_walks_avx512(Kernels& kernels);
void set_cells_avx512(Kernels& kernels);
const Kernels& kernels_neon();
void set_deep_walks_neon(Kernels& kernels);
void set_vector_walks_neon(Kernels& kernels);
void set_cells_neon(Kernels& kernels);

}  // namespace skshap
