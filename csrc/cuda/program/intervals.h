// The tables by intervals of a plan for a GPU: written by cuda/program/intervals.cpp, read by
// cuda/intervals.cuh.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "plan/interval_tables.h"

namespace skshap {

struct Plan;

// Numbers of an entry, and columns that a part reads: a kernel exists for each of these.
constexpr int kIntervalForms[] = {8, 16};
constexpr int kMostIntervalSums = 16;
// The largest table is below this size, steps and margins included; the shared memory of a block must hold
// two of them.
constexpr size_t kLeastStageBytes = kMostGpuTableBytes + kMostGpuTableBytes / 2;

// Tables that a block looks up for its rows, one stage in shared memory after the other. All of them add to
// the same sums.
struct CudaIntervalPart {
  uint32_t columns, n_columns;  // in CudaIntervals::columns
  uint32_t categorical;         // a bit for each of these columns
  uint32_t stages, stages_end;  // stages + 1 offsets in CudaIntervals::stages
  uint32_t targets;             // in CudaIntervals::targets: of each sum, then of the margin
};

// Where a sum goes: to a slot, nowhere, or to a margin, as kMarginTarget - its number.
constexpr int32_t kNoTarget = -1, kMarginTarget = -2;

// A stage begins with the number of its tables; see interval_alignment. A table is
//   its bytes, the offsets of its entries and its margins, and whether it has any, as 32-bit numbers,
//   the number of steps of each column of its part, as 16-bit numbers,
//   the steps of each column: two operands and two numbers as half floats, equal ones, or for a categorical
//   column the numbers of all codes,
//   the entries, aligned, and the margins.
// Codes are compared as half floats: those of 16 bits that are not negative, infinity included, are in the
// order of their bits, as integers.
// kMostGpuCode is the largest finite one.
constexpr uint32_t kIntervalMissing = kMostGpuCode + 1;
// The index is added to 1,024 (two rows to a word), so that it is the last bits of the sum.
constexpr uint32_t kIntervalStart = 0x64006400, kIntervalIndex = kMostGpuEntries - 1;
constexpr size_t kIntervalHead = 16;

// The alignment of tables and of their entries, and the bytes before the first table of a stage.
template <class T>
constexpr size_t interval_alignment() {
  return kMostIntervalSums * sizeof(T);
}

// A table, in the order of the stream.
struct CudaIntervalTable {
  uint32_t table, window, part;  // in IntervalTables, and in CudaIntervals::parts
  uint32_t first;                // of the numbers of the window's entries: those of the table's begin there
  uint32_t stage_tables;         // of the stage that it begins; 0 if it begins none
  bool has_margins;              // whether margins follow the entries
};

struct CudaIntervals {
  std::vector<CudaIntervalPart> parts;  // form by form
  size_t n_parts[2] = {0, 0};           // by form
  std::vector<uint32_t> columns;        // of the GPU
  std::vector<uint32_t> plan_columns;   // the same, of the plan
  std::vector<int32_t> targets;
  std::vector<uint64_t> stages;  // where they begin in the stream, and for each part where its last one ends
  std::vector<CudaIntervalTable> tables;
  std::vector<int32_t> margins;  // the output of each margin
  size_t stream_bytes = 0;
};

// Write the stream of the plan's tables, which may take hundreds of megabytes, piece by piece: call
// take(data, bytes) for each piece, in order.
template <class T>
void write_intervals(const Plan& plan, const CudaIntervals& intervals,
                     const std::function<void(const char*, size_t)>& take);

}  // namespace skshap
