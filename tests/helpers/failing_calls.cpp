// A library that is loaded before all others (LD_PRELOAD) and lets the n-th call of one kind fail.
//
// Only calls for which skshapgpu answers are counted: allocations and mappings of the core, also those that
// the C++ library makes for it, system calls for files in one folder, and threads. So the interpreter and
// other libraries do not run out of memory, which some of them do not survive.
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <new>

namespace {

// The order of KINDS in failing_calls.py.
enum Kind {
  kAllocation,
  kMapping,
  kThread,
  kOpen,
  kRead,
  kWrite,
  kSync,
  kTruncate,
  kRename,
  kUnlink,
  kMkdir,
  kClose
};

// Frames between an allocation and the core if the C++ library makes the allocation, as for a string.
constexpr int kMostFrames = 8;

constexpr int kMostFiles = 4096;

struct Range {
  uintptr_t begin = 0, end = 0;
  bool contains(const void* p) const {
    return reinterpret_cast<uintptr_t>(p) >= begin && reinterpret_cast<uintptr_t>(p) < end;
  }
};

Range core, standard_library;
std::atomic<int> armed{-1};
std::atomic<long> n_calls{0}, first_failing{0}, n_failing{0}, n_failed{0};
std::atomic<long> live_blocks{0}, live_bytes{0}, mapped_bytes{0};
int error_number;
char folder[4096];
std::atomic<bool> in_folder[kMostFiles], is_writable[kMostFiles];

// Count a call; return whether it is to fail.
bool fails(Kind kind) {
  if (armed != kind) return false;
  const long n = ++n_calls;
  if (n < first_failing || n >= first_failing + n_failing) return false;
  ++n_failed;
  return true;
}

// Likewise, and set the number of the error.
bool fails_with_errno(Kind kind) {
  if (!fails(kind)) return false;
  errno = error_number;
  return true;
}

bool is_of_core(const void* caller) {
  if (core.contains(caller)) return true;
  if (!standard_library.contains(caller)) return false;
  void* frames[kMostFrames];
  const int n = backtrace(frames, kMostFrames);
  for (int i = 0; i < n; ++i)
    if (core.contains(frames[i])) return true;
  return false;
}

bool is_inside(const char* path) { return folder[0] && !strncmp(path, folder, strlen(folder)); }

bool is_open_inside(int file) { return file >= 0 && file < kMostFiles && in_folder[file]; }

template <class F>
F next(const char* name) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}
#define NEXT(name) static const auto original = next<decltype(&name)>(#name)

void* allocate(size_t bytes, size_t alignment, const void* caller) {
  if (armed == kAllocation && is_of_core(caller) && fails(kAllocation)) return nullptr;
  void* p = nullptr;
  if (alignment <= sizeof(max_align_t))
    p = malloc(bytes ? bytes : 1);
  else if (posix_memalign(&p, alignment, bytes ? bytes : 1))
    p = nullptr;
  if (p) {
    ++live_blocks;
    live_bytes += static_cast<long>(malloc_usable_size(p));
  }
  return p;
}

void* allocate_or_throw(size_t bytes, size_t alignment, const void* caller) {
  if (void* p = allocate(bytes, alignment, caller)) return p;
  throw std::bad_alloc();
}

void release(void* p) {
  if (!p) return;
  --live_blocks;
  live_bytes -= static_cast<long>(malloc_usable_size(p));
  free(p);
}

int opened(int file, const char* path, int flags) {
  if (file >= 0 && file < kMostFiles) {
    in_folder[file] = is_inside(path);
    is_writable[file] = (flags & O_ACCMODE) != O_RDONLY;
  }
  return file;
}

}  // namespace

#define CALLER __builtin_return_address(0)

void* operator new(size_t n) { return allocate_or_throw(n, 0, CALLER); }
void* operator new[](size_t n) { return allocate_or_throw(n, 0, CALLER); }
void* operator new(size_t n, const std::nothrow_t&) noexcept { return allocate(n, 0, CALLER); }
void* operator new[](size_t n, const std::nothrow_t&) noexcept { return allocate(n, 0, CALLER); }
void* operator new(size_t n, std::align_val_t a) { return allocate_or_throw(n, size_t(a), CALLER); }
void* operator new[](size_t n, std::align_val_t a) { return allocate_or_throw(n, size_t(a), CALLER); }
void* operator new(size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return allocate(n, size_t(a), CALLER);
}
void* operator new[](size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return allocate(n, size_t(a), CALLER);
}
void operator delete(void* p) noexcept { release(p); }
void operator delete[](void* p) noexcept { release(p); }
void operator delete(void* p, size_t) noexcept { release(p); }
void operator delete[](void* p, size_t) noexcept { release(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { release(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { release(p); }
void operator delete(void* p, std::align_val_t) noexcept { release(p); }
void operator delete[](void* p, std::align_val_t) noexcept { release(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { release(p); }
void operator delete[](void* p, size_t, std::align_val_t) noexcept { release(p); }
void operator delete(void* p, std::align_val_t, const std::nothrow_t&) noexcept { release(p); }
void operator delete[](void* p, std::align_val_t, const std::nothrow_t&) noexcept { release(p); }

extern "C" {

// Let calls of a kind fail with this error: of those from now on, the n-th, and the next ones up to this
// number.
void fail_arm(int kind, long n, long number, int error) {
  n_calls = n_failed = 0;
  first_failing = n;
  n_failing = number;
  error_number = error;
  armed = kind;
}

// End it; return the number of calls of the kind.
long fail_disarm() {
  armed = -1;
  return n_calls;
}

long fail_count() { return n_failed; }
long fail_live_blocks() { return live_blocks; }
long fail_live_bytes() { return live_bytes; }
long fail_mapped_bytes() { return mapped_bytes; }

// Count calls for files in this folder, whose path is absolute.
void fail_folder(const char* path) { strncpy(folder, path, sizeof folder - 1); }

// Look for the core among the loaded libraries; return whether it is there.
int fail_find_core() {
  void* frames[kMostFrames];
  backtrace(frames, kMostFrames);  // the first call allocates
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void*) {
        Range range;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          if (info->dlpi_phdr[i].p_type != PT_LOAD) continue;
          const uintptr_t begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
          if (!range.begin || begin < range.begin) range.begin = begin;
          if (begin + info->dlpi_phdr[i].p_memsz > range.end) range.end = begin + info->dlpi_phdr[i].p_memsz;
        }
        if (strstr(info->dlpi_name, "/_core.")) core = range;
        if (strstr(info->dlpi_name, "/libstdc++.")) standard_library = range;
        return 0;
      },
      nullptr);
  return core.begin != 0 && standard_library.begin != 0;
}

void* mmap(void* address, size_t bytes, int protection, int flags, int file, off_t offset) {
  NEXT(mmap);
  const bool is_of_core = core.contains(CALLER);
  if ((is_of_core || is_open_inside(file)) && fails_with_errno(kMapping)) return MAP_FAILED;
  void* const p = original(address, bytes, protection, flags, file, offset);
  if (is_of_core && p != MAP_FAILED) mapped_bytes += static_cast<long>(bytes);
  return p;
}
void* mmap64(void* address, size_t bytes, int protection, int flags, int file, off_t offset) {
  NEXT(mmap64);
  if (is_open_inside(file) && fails_with_errno(kMapping)) return MAP_FAILED;
  return original(address, bytes, protection, flags, file, offset);
}
int munmap(void* address, size_t bytes) {
  NEXT(munmap);
  if (core.contains(CALLER)) mapped_bytes -= static_cast<long>(bytes);
  return original(address, bytes);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                   void* argument) {
  NEXT(pthread_create);
  return fails(kThread) ? EAGAIN : original(thread, attributes, start, argument);
}

// Files

#define OPEN(name)                                                                     \
  int name(const char* path, int flags, ...) {                                         \
    NEXT(name);                                                                        \
    va_list arguments;                                                                 \
    va_start(arguments, flags);                                                        \
    const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, mode_t) : 0; \
    va_end(arguments);                                                                 \
    if (is_inside(path) && fails_with_errno(kOpen)) return -1;                         \
    return opened(original(path, flags, mode), path, flags);                           \
  }
OPEN(open)
OPEN(open64)

#define OF_FILE(result, name, kind, parameters, arguments)         \
  result name parameters {                                         \
    NEXT(name);                                                    \
    if (is_open_inside(file) && fails_with_errno(kind)) return -1; \
    return original arguments;                                     \
  }
OF_FILE(ssize_t, read, kRead, (int file, void* data, size_t n), (file, data, n))
OF_FILE(ssize_t, pread, kRead, (int file, void* data, size_t n, off_t at), (file, data, n, at))
OF_FILE(ssize_t, pread64, kRead, (int file, void* data, size_t n, off_t at), (file, data, n, at))
OF_FILE(ssize_t, write, kWrite, (int file, const void* data, size_t n), (file, data, n))
OF_FILE(ssize_t, pwrite, kWrite, (int file, const void* data, size_t n, off_t at), (file, data, n, at))
OF_FILE(ssize_t, pwrite64, kWrite, (int file, const void* data, size_t n, off_t at), (file, data, n, at))
OF_FILE(int, ftruncate, kTruncate, (int file, off_t n), (file, n))
OF_FILE(int, ftruncate64, kTruncate, (int file, off_t n), (file, n))

// Otherwise, most of the time would be spent in writing to the disk.
int fsync(int file) {
  NEXT(fsync);
  if (is_open_inside(file)) return fails_with_errno(kSync) ? -1 : 0;
  return original(file);
}

#define OF_PATH(name, kind, parameters, arguments)            \
  int name parameters {                                       \
    NEXT(name);                                               \
    if (is_inside(path) && fails_with_errno(kind)) return -1; \
    return original arguments;                                \
  }
OF_PATH(rename, kRename, (const char* path, const char* to), (path, to))
OF_PATH(renameat, kRename, (int from, const char* path, int in, const char* to), (from, path, in, to))
OF_PATH(link, kRename, (const char* path, const char* to), (path, to))
OF_PATH(linkat, kRename, (int from, const char* path, int in, const char* to, int flags),
        (from, path, in, to, flags))
OF_PATH(unlink, kUnlink, (const char* path), (path))
OF_PATH(mkdir, kMkdir, (const char* path, mode_t mode), (path, mode))

// As on Linux, the file is closed whether or not this fails. It only fails for files that were written.
int close(int file) {
  NEXT(close);
  const bool is_counted = is_open_inside(file) && is_writable[file];
  if (is_open_inside(file)) in_folder[file] = false;
  const int status = original(file);
  return is_counted && fails_with_errno(kClose) ? -1 : status;
}
}
