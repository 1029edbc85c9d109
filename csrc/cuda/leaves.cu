#include "cuda/leaves.cuh"

namespace skshap {

template <class T>
LeafKernel<T> leaf_kernel(int n_nodes) {
  constexpr int kTile = cuda_tile_rows<T>();
  switch (n_nodes) {
    case 1: return explain_leaves<T, 1, kTile>;
    case 2: return explain_leaves<T, 2, kTile>;
    case 3: return explain_leaves<T, 3, kTile>;
    case 4: return explain_leaves<T, 4, kTile>;
    case 5: return explain_leaves<T, 5, kTile>;
    case 6: return explain_leaves<T, 6, kTile>;
    case 7: return explain_leaves<T, 7, kTile>;
    case 8: return explain_leaves<T, 8, kTile>;
  }
  return nullptr;
}
template LeafKernel<float> leaf_kernel(int);
template LeafKernel<double> leaf_kernel(int);

}  // namespace skshap
