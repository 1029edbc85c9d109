// Memory of large arrays: results and tables.
//
// The system clears the pages of a large array before the first use, which can take longer than filling the
// array. So memory that an array gives back is kept for the next array, up to a limit. The system may still
// take the pages of kept memory whenever it is short of memory.
#pragma once

#include <cstddef>

namespace skshap {

// Smaller arrays are better left to other allocators.
constexpr size_t kLargeBytes = 4 << 20;

struct LargeMemory {
  void* data;    // aligned to cache lines, and on large pages if the system has them
  bool is_zero;  // whether all bytes are 0; otherwise they may have any value
};

// Return memory of this many bytes, at least kLargeBytes. Throw std::bad_alloc if there is none.
LargeMemory take_memory(size_t bytes);

// Give back memory that take_memory() returned for this many bytes.
void give_back_memory(void* data, size_t bytes) noexcept;

// Set how many bytes are kept at most, and free the memory beyond the limit. Until the first call, no memory
// is kept.
void keep_memory(size_t most_bytes);

// Return how many bytes are kept.
size_t kept_memory();

}  // namespace skshap
