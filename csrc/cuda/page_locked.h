// Page-locked memory of the host for results: a GPU writes them there directly, while results elsewhere are
// copied a second time by the processor.
//
// To lock pages takes longer than to fill them. So memory that is given back is kept for the next result, and
// a result gets such memory only from the second one of about its size on. All page-locked memory together,
// in use and kept, has a limit.
#pragma once

#include <cstddef>

namespace skshap {

// Return page-locked memory for so many bytes, or null if there is to be none: if so many are asked for the
// first time, if the limit would be exceeded, or if the system has none.
void* take_page_locked(size_t bytes);

// Give back memory that take_page_locked() returned. In a forked process this does nothing.
void give_back_page_locked(void* data) noexcept;

// Return whether memory is part of such memory.
bool is_page_locked(const void* data, size_t bytes);

// Set the limit, and free what is kept beyond it. Until the first call, it is 0.
void limit_page_locked(size_t most_bytes);

// Return the bytes in use and kept.
size_t page_locked_bytes();

}  // namespace skshap
