// The numbers that tune the GPU's pipeline. Changing them changes the time of calls and, where a comment says
// so, the last digits of results. The most threads of a block that the registers of a kernel allow are beside
// the kernels (walk_threads, owen_warps, rescaled_threads).
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

// The bytes that a thread copies from rows on the host at a time. Copying them takes longer than waking the
// thread.
constexpr int64_t kCopiedBytes = int64_t{1} << 20;

// --- Chunks of trees and leaves (cuda/program) ---

// The limits of a chunk that a warp walks for one tile of rows. This is enough work to hide the warp's
// start-up, and few enough trees that their sum is safe in single precision. A call of few rows takes as long
// as one chunk, and fills a GPU only if there are many chunks.
constexpr size_t kMaxChunkTrees = 32;
constexpr size_t kMaxChunkLeaves = 512, kSmallChunkLeaves = 128;
// A larger tree is cut into parts of about this many leaves for each sum, because each part has its own sums,
// which take memory and time for each row.
constexpr size_t kPartLeavesPerSum = 32;
// Small models are divided into about this many smaller chunks.
constexpr size_t kSmallModelChunks = 5, kMinChunkLeaves = 16;
// The limits of a chunk of leaves with patterns, which a warp takes for its rows. The leaves of a chunk are
// added up in the plan's precision, and more leaves would lose accuracy. Few rows fill a GPU only if there
// are many chunks. But each chunk has its own sums, which take memory and time for each row. So a chunk is
// large enough if it has kPatternChunkWork comparisons with patterns, and kPatternWorkPerSlot of them for
// each sum.
constexpr size_t kPatternChunkLeaves = 256;
constexpr size_t kPatternChunkWork = size_t{1} << 14, kPatternWorkPerSlot = 64;
// The number of tables by intervals of a part. With so few tables, sums in single precision are safe, and a
// job of few rows has parts for all multiprocessors. With this many, the sums of the parts take little time.
constexpr size_t kPartTables = 32;
// The size of a piece of the stream of these tables. A piece of this size stays in the caches between being
// written and being copied.
constexpr size_t kPieceBytes = size_t{1} << 20;

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
// The rows of a block that writes matrices: one for each lane.
constexpr int kMatrixRows = 32;

// --- Methods ---

// The memory of the general walk. It limits the number of warps that run this walk.
constexpr size_t kGeneralBytes = size_t{1} << 28;
// The warps of a block of the general walk, whose memory is global.
constexpr int kGeneralWarps = 2;
// The most warps of a block that looks up tables: fewer if its shared memory cannot hold the sums.
constexpr int kTableWarps = 8;
// The warps of a block that goes through patterns.
constexpr int kPatternWarps = 4;
// The threads of a block that looks up tables by intervals. It is the only block of a multiprocessor.
constexpr int kIntervalThreads = 512;
// Owen values leaf by leaf: if a block would have fewer warps than this, codes and phi are in the caches
// instead of shared memory.
constexpr int kLeastOwenWarps = 6;
// The rows of a launch that explains leaves.
constexpr int64_t kMostLeafRows = 1 << 15;
// Rescaled outputs: the number of chunks of trees. With this many, a job of few rows has many blocks, and
// each sum in single precision has few summands.
constexpr size_t kRescaledChunks = 32;
// Rescaled outputs: the most terms that a thread keeps in registers. For each even number up to this one,
// there is a kernel. A panel of the weights of patterns has no more terms, either.
constexpr uint32_t kMostTerms = 16;
// Rescaled outputs: the threads of a block that finds the factors of terms.
constexpr int kFactorThreads = 128;
// Rescaled outputs: the most warps of a block that finds indices, and its shared memory, if it may choose.
constexpr int kIndexWarps = 8;
constexpr size_t kIndexBytes = size_t{48} << 10;

}  // namespace skshap
