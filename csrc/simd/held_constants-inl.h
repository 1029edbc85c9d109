// The constants of an operation, which are read before its loop over vectors of rows. As many constants are
// held as there are registers for; `kWorking` registers are left for other values.
//
// simd/scalar_walk_kernel-inl.h includes this file. Everything has internal linkage, for the reason given in
// simd/kernels-inl.h.
#pragma once

#define SKSHAP_INLINE inline __attribute__((always_inline))

// This macro precedes loops that take factors by their index. If the instructions of a header of vectors need
// lanes that are constants, the header defines the macro to unroll such loops.
#ifndef SKSHAP_UNROLL
#define SKSHAP_UNROLL
#endif

namespace skshap {
namespace {

// Each constant takes a register.
template <class S, int kCount, int kWorking, bool kByLane = (S::kFactorLanes > 1)>
class HeldConstants {
 public:
  using T = typename S::T;
  using V = typename S::V;
  static constexpr int kTaken = kCount;  // registers, if there are enough
  explicit SKSHAP_INLINE HeldConstants(const T* from) : p_(from) {
    SKSHAP_UNROLL
    for (int i = 0; i < kInRegisters; ++i) registers_[i] = S::set1(from[i]);
  }
  SKSHAP_INLINE V operator[](int i) const { return i < kInRegisters ? registers_[i] : S::set1(p_[i]); }
  // Return a constant that is only multiplied by.
  SKSHAP_INLINE V factor(int i) const { return (*this)[i]; }

 private:
  static constexpr int kRoom = S::kRegisters - kWorking;
  static constexpr int kInRegisters = kCount < kRoom ? kCount : kRoom < 0 ? 0 : kRoom;
  V registers_[kInRegisters > 0 ? kInRegisters : 1];
  const T* p_;
};

// A register holds several constants, and instructions multiply by its lanes. For other uses, as many
// constants as there is room for are broadcast from there before the loop. The compiler drops the broadcasts
// of factors.
template <class S, int kCount, int kWorking>
class HeldConstants<S, kCount, kWorking, true> {
 public:
  using T = typename S::T;
  using V = typename S::V;
  using Factor = typename S::Factor;
  // No vector is read beyond the last constant. If there are too few constants for a vector, each takes a
  // register. The last vector may repeat some constants of the previous vector.
  static constexpr int kVectorConstants = kCount < S::kFactorLanes ? 1 : S::kFactorLanes;
  static constexpr int kTaken = (kCount + kVectorConstants - 1) / kVectorConstants;
  explicit SKSHAP_INLINE HeldConstants(const T* from) : p_(from) {
    SKSHAP_UNROLL
    for (int i = 0; i < kInRegisters; ++i) registers_[i] = read(i);
    SKSHAP_UNROLL
    for (int i = 0; i < kBroadcast; ++i) broadcast_[i] = S::broadcast(factor(i));
  }
  SKSHAP_INLINE V operator[](int i) const { return i < kBroadcast ? broadcast_[i] : S::broadcast(factor(i)); }
  SKSHAP_INLINE Factor factor(int i) const {
    const int n = i / kVectorConstants;
    return {n < kInRegisters ? registers_[n] : read(n), i - begin(n)};
  }

 private:
  static constexpr int kRoom = S::kRegisters - kWorking < 0 ? 0 : S::kRegisters - kWorking;
  static constexpr int kInRegisters = kTaken < kRoom ? kTaken : kRoom;
  static constexpr int kBroadcast = kCount < kRoom - kInRegisters ? kCount : kRoom - kInRegisters;
  static SKSHAP_INLINE int begin(int n) {
    return (n + 1) * kVectorConstants <= kCount ? n * kVectorConstants : kCount - kVectorConstants;
  }
  SKSHAP_INLINE V read(int n) const {
    return kVectorConstants == 1 ? S::set1(p_[n]) : S::load_unaligned(p_ + begin(n));
  }
  V registers_[kInRegisters > 0 ? kInRegisters : 1], broadcast_[kBroadcast > 0 ? kBroadcast : 1];
  const T* p_;
};

}  // namespace
}  // namespace skshap
