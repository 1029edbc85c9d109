#include "cuda/owen_leaves.cuh"

namespace skshap {

template <class T>
OwenKernel<T> owen_kernel(bool shared) {
  return shared ? explain_owen_leaves<T, true> : explain_owen_leaves<T, false>;
}
template OwenKernel<float> owen_kernel(bool);
template OwenKernel<double> owen_kernel(bool);

}  // namespace skshap
