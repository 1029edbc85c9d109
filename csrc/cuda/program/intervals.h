// The tables by intervals of a plan for a GPU. cuda/program/intervals.cpp writes them, and cuda/intervals.cuh
// reads them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "plan/gpu_limits.h"
#include "plan/interval_tables.h"

namespace skshap {

struct Plan;

// The forms of the tables: the most numbers of an entry, and the most columns that a part reads. For each of
// these forms there is a kernel.
constexpr int kIntervalForms[] = {8, 16};
constexpr int kMostIntervalSums = 16;

// Tables that a block looks up for its rows. They pass through shared memory, one stage after another. All
// tables of a part add to the same sums.
struct CudaIntervalPart {
  uint32_t columns, n_columns;  // in CudaIntervals::columns
  uint32_t categorical;         // a bit for each of these columns
  uint32_t stages, stages_end;  // stages + 1 offsets in CudaIntervals::stages
  uint32_t targets;             // in CudaIntervals::targets: of each sum, then of the margin
};

// The target of a sum: a slot, nothing, or a margin, which is written as kMarginTarget - its number.
constexpr int32_t kNoTarget = -1, kMarginTarget = -2;

// A stage begins with the number of its tables; see interval_alignment. A table consists of
//   its bytes, the offsets of its entries and of its margins, and whether it has margins, as 32-bit numbers,
//   the number of steps of each column of its part, as 16-bit numbers,
//   the steps of each column: two equal operands and two equal numbers as half floats or, for a categorical
//   column, the numbers of all codes,
//   the entries, aligned, and the margins.
// Codes are compared as half floats. The half floats that are not negative, including infinity, have the same
// order as their bits read as integers. kMostGpuCode is the largest finite half float.
constexpr uint32_t kIntervalMissing = kMostGpuCode + 1;
// The index is added to 1,024 (for two rows in a word), so that it is the last bits of the sum.
constexpr uint32_t kIntervalStart = 0x64006400, kIntervalIndex = kMostGpuEntries - 1;
constexpr size_t kIntervalHead = 16;

// Return the alignment of tables and of their entries, which is also the number of bytes before the first
// table of a stage.
template <class T>
constexpr size_t interval_alignment() {
  return kMostIntervalSums * sizeof(T);
}

// A table, in the order of the stream.
struct CudaIntervalTable {
  uint32_t table, window, part;  // in IntervalTables, and in CudaIntervals::parts
  uint32_t first;                // the entries of the table begin at this number of the window's entries
  uint32_t stage_tables = 0;     // tables of the stage that it begins, or 0 if it begins none
  bool has_margins;              // whether margins follow the entries
};

struct CudaIntervals {
  std::vector<CudaIntervalPart> parts;  // form by form
  size_t n_parts[2] = {0, 0};           // by form
  std::vector<uint32_t> columns;        // of the GPU
  std::vector<uint32_t> plan_columns;   // the same, of the plan
  std::vector<int32_t> targets;
  std::vector<uint64_t> stages;  // beginning of each stage in the stream; for each part, also its end
  std::vector<CudaIntervalTable> tables;
  std::vector<int32_t> margins;  // the output of each margin
  size_t stream_bytes = 0;
};

// Write the stream of the plan's tables. As it may have hundreds of megabytes, it is written in pieces:
// take(data, bytes) is called for each piece, in order.
template <class T>
void write_intervals(const Plan& plan, const CudaIntervals& intervals,
                     const std::function<void(const char*, size_t)>& take);

}  // namespace skshap
