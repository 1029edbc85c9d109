#include "cuda/leaves.cuh"

namespace skshap {

template <class T>
LeafKernel<T> leaf_kernel(int n_nodes) {
  switch (n_nodes) {
    case 1: return explain_leaves<T, 1>;
    case 2: return explain_leaves<T, 2>;
    case 3: return explain_leaves<T, 3>;
    case 4: return explain_leaves<T, 4>;
    case 5: return explain_leaves<T, 5>;
    case 6: return explain_leaves<T, 6>;
    case 7: return explain_leaves<T, 7>;
    case 8: return explain_leaves<T, 8>;
  }
  return nullptr;
}
template LeafKernel<float> leaf_kernel(int);
template LeafKernel<double> leaf_kernel(int);

}  // namespace skshap
