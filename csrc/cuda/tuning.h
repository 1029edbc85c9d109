// The numbers that tune the GPU's pipeline. Changing them changes the time of calls and, where a comment says
// so, the last digits of results. The threads of a block for each number of quadrature nodes, which depend on
// the registers of a kernel, are beside the kernels (cuda/kernels.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace skshap {

// --- Calls (cuda/pipeline.cu) ---

// The device memory that a call without a memory limit uses. More memory would not make the call faster.
constexpr size_t kDefaultBytes = size_t{1} << 30;
// The device memory that such a call uses with triples. A row may take hundreds of kilobytes, and fewer rows
// would not fill a large device.
constexpr size_t kTripleBytes = size_t{1} << 32;
// The memory that a call uses without asking how much memory is free.
constexpr size_t kSmallBytes = size_t{1} << 27;
// The rows per batch, if memory allows: enough work for the largest devices, and few enough for batches to
// overlap.
constexpr int64_t kBatchRows = 1 << 17;
// The least rows of the batches of a call with rows on the host: so many that a batch is worth its launches.
// The call has up to eight batches, so that copies overlap with kernels.
constexpr int64_t kHostBatchRows = 1 << 14, kHostBatches = 8;
// The least rows of the batches of a call with rows on the device, whose results are not copied.
constexpr int64_t kDeviceBatchRows = 1 << 15;
// The number of batches in flight, whose copies and kernels overlap. The walk fills the GPU, so the kernels
// that add up the sums of a batch may have to wait for the walk of the next batch. Only after them does the
// copy of the result begin. With two batches, the GPU would have no work during this copy.
constexpr int kFlights = 4;
// If more than two batches are in flight, each has at least this many rows.
constexpr size_t kLeastRows = 1 << 10;
// The number of batches in flight for rows on the device. The second batch fills the GPU while the first one
// ends.
constexpr int kDeviceFlights = 2;

// --- Shared memory ---

// The shared memory that a block has without requesting more.
constexpr size_t kSharedBytes = size_t{48} << 10;
// The shared memory that kernels use in addition to what they request, and that the runtime may take.
constexpr size_t kStaticSharedBytes = 256, kRescaledStaticBytes = 1024;
// The shared memory for the decisions of a tree, for all warps of a block. Larger trees use global memory.
constexpr size_t kMaxSharedWords = size_t{1} << 15;

// --- Margins and sums ---

// The trees of a margin group. A thread descends them one after another. For few rows, this takes as long as
// all other work. With rescaled outputs, there is more other work, and each group takes memory for each row.
// The order of additions, and the last digits of margins, depend on these numbers.
constexpr size_t kMarginTrees = 2, kRescaledMarginTrees = 32;
// The largest number of features for which add_matrices writes matrices. In larger matrices, most elements
// are zeros, and add_matrices would be slow.
constexpr int kMaxSmallMatrix = 128;

// --- Methods ---

// The memory of the general walk. It limits the number of warps that run this walk.
constexpr size_t kGeneralBytes = size_t{1} << 28;
// The rows of a launch that explains leaves.
constexpr int64_t kMostLeafRows = 1 << 15;
// Rescaled outputs: the number of chunks of trees. With this many, a job of few rows has many blocks, and
// each sum in single precision has few summands.
constexpr size_t kRescaledChunks = 32;
// Rescaled outputs: the most terms that a thread keeps in registers. For each even number up to this one,
// there is a kernel.
constexpr int kMostTerms = 16;
// Rescaled outputs: the shared memory of a block that finds indices, if it may choose.
constexpr size_t kIndexBytes = size_t{48} << 10;

}  // namespace skshap
