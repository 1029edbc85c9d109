// Asks the processor itself which instructions it supports. __builtin_cpu_supports needs a part of the
// compiler's runtime that not every toolchain links or initializes; without this part, it reports that no
// instructions are supported.
#include "simd/processor.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif

#include <cstdint>
#include <initializer_list>

namespace skshap {

#ifdef __x86_64__

namespace {

struct Registers {
  uint32_t a = 0, b = 0, c = 0, d = 0;
};

// Return the processor's answer to a cpuid query, or zeros if the processor does not know this query.
Registers cpuid(uint32_t leaf) {
  Registers r;
  if (!__get_cpuid_count(leaf, 0, &r.a, &r.b, &r.c, &r.d)) return {};
  return r;
}

bool all_set(uint32_t word, std::initializer_list<int> bits) {
  for (const int bit : bits)
    if (!(word >> bit & 1)) return false;
  return true;
}

// Return whether the operating system, when it switches between threads, saves all registers whose bits are
// set in the mask.
bool saves(uint32_t mask) {
  constexpr int kOsxsave = 27;
  if (!all_set(cpuid(1).c, {kOsxsave})) return false;
  uint32_t low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & mask) == mask;
}

}  // namespace

bool has_avx2() {
  constexpr int kFma = 12, kAvx = 28;  // leaf 1, ECX
  constexpr int kAvx2 = 5, kBmi2 = 8;  // leaf 7, EBX
  constexpr uint32_t kVectors = 0x06;  // XMM, and the upper halves of YMM
  return all_set(cpuid(1).c, {kFma, kAvx}) && all_set(cpuid(7).b, {kAvx2, kBmi2}) && saves(kVectors);
}

bool has_avx512() {
  constexpr int kF = 16, kDq = 17, kBw = 30, kVl = 31;  // leaf 7, EBX
  constexpr uint32_t kVectors = 0xe6;                   // masks and all of ZMM, too
  return has_avx2() && all_set(cpuid(7).b, {kF, kDq, kBw, kVl}) && saves(kVectors);
}

#else

bool has_avx2() { return false; }
bool has_avx512() { return false; }

#endif

bool has_neon() {
#ifdef __aarch64__
  return true;
#else
  return false;
#endif
}

}  // namespace skshap
