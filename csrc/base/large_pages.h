// Memory on large pages.
#pragma once

#ifdef __linux__
#include <sys/mman.h>
#endif

#include <cstddef>
#include <cstdint>

namespace skshap {

// Resize an empty vector on pages of 2 MiB if the system has them: otherwise writing to it costs a page fault
// for every 4 KiB.
template <class Vector>
void resize_on_large_pages(Vector& vector, size_t n) {
  vector.reserve(n);
#ifdef __linux__
  constexpr uintptr_t kPage = 2 << 20;
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(vector.data()) + kPage - 1) / kPage * kPage;
  const uintptr_t end = reinterpret_cast<uintptr_t>(vector.data() + n) / kPage * kPage;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
  vector.resize(n);
}

}  // namespace skshap
