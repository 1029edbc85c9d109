// Page-locked memory of the host for results. A GPU writes results to page-locked memory directly, while the
// processor must copy results elsewhere a second time.
//
// Locking pages takes longer than filling them. So memory that is given back is kept for the next result. A
// result gets page-locked memory only if there was a request of about the same size before. All page-locked
// memory together, in use and kept, has a limit.
#pragma once

#include <cstddef>

namespace skshap {

// Return page-locked memory for this many bytes, or null. The result is null if this is the first request of
// about this size, if the limit would be exceeded, or if the system has no such memory.
void* take_page_locked(size_t bytes);

// Give back memory that take_page_locked() returned. In a forked process, this does nothing.
void give_back_page_locked(void* data) noexcept;

// Return whether memory is part of such memory.
bool is_page_locked(const void* data, size_t bytes);

// Set the limit, and free kept memory beyond it. Until the first call, the limit is 0.
void limit_page_locked(size_t most_bytes);

// Return the bytes in use and kept.
size_t page_locked_bytes();

}  // namespace skshap
