#include "cuda/intervals.cuh"

namespace skshap {
namespace {

template <class T, int kSums, bool kMargins>
IntervalKernel<T> kernel_of() {
  return {look_up_intervals<T, kSums, kMargins, kIntervalThreads>, kIntervalThreads,
          kIntervalThreads * interval_rows<T, kSums>()};
}

}  // namespace

template <class T>
IntervalKernel<T> interval_kernel(int n_sums, bool margins) {
  if (n_sums == 8) return margins ? kernel_of<T, 8, true>() : kernel_of<T, 8, false>();
  return margins ? kernel_of<T, 16, true>() : kernel_of<T, 16, false>();
}
template IntervalKernel<float> interval_kernel(int, bool);
template IntervalKernel<double> interval_kernel(int, bool);

}  // namespace skshap
