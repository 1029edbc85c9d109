// SHAP values by the recursions of TreeSHAP (Lundberg et al., 2020, algorithm 2) and Fast TreeSHAP v1 (Yang,
// 2021, arXiv:2109.09847), one row at a time. These methods are the baselines with which the walk is
// compared.
//
// Both methods keep weights for a path with L different features,
//     w_k = k! (L - k)! / (L + 1)! (sum over the sets of k known features of the product
//                                   of their one fractions and the zero fractions of the others).
// They add a feature (EXTEND in the papers) and take it out again (UNWIND) by recursions over k. At a leaf, a
// feature's value is computed from the sum over k of the weights without the feature.
//
// TreeSHAP has weights of all features of the path. Fast TreeSHAP v1 has weights only of the features that
// the row satisfies. The row reaches the leaf only if all other features are unknown. So the product of the
// zero fractions of the other features is a common factor, and at a leaf all of them get the same value.
//
// Nodes come in preorder. So when a node is reached, the path to its parent is still stored at the level
// above. No function calls itself, and deep trees need no deep stack.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cpu/tree_algorithm.h"
#include "plan/tree_paths.h"

namespace skshap {
namespace {

struct Sizes {
  size_t levels = 1, elements = 1, inner = 0, leaf_values = 0;
};

Sizes sizes_of(const Plan& plan) {
  Sizes sizes;
  for (const Chunk& chunk : plan.chunks) {
    const size_t outputs = n_used_outputs(plan, chunk);
    sizes.levels = std::max(sizes.levels, static_cast<size_t>(chunk.height) + 1);
    // There is one weight more than there are features.
    for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i)
      sizes.elements = std::max(sizes.elements, static_cast<size_t>(plan.trees[i].n_features) + 1);
    sizes.inner = std::max(sizes.inner, chunk.max_inner);
    sizes.leaf_values = std::max(sizes.leaf_values, (chunk.max_inner + 1) * outputs);
  }
  return sizes;
}

// One of the two recursions: kFast is Fast TreeSHAP v1.
//
// The plan says which splits are on the same feature (plan/tree_paths.h). This class multiplies the zero
// fractions row by row, in the precision of the weights from which they will be divided out. For Fast
// TreeSHAP v1, it does so only as long as the row satisfies the feature.
template <class T, bool kFast>
class Recursion final : public TreeWorker<T> {
 public:
  explicit Recursion(const Plan& plan);

  void add_tree(const Chunk& chunk, const TreeProgram& tree, const uint64_t* words, int n_rows,
                T* phi) override;

  // Return the bytes that a Recursion allocates.
  static size_t bytes(const Plan& plan);

 private:
  // A feature of the path, which stands for all splits on it.
  struct RecursionElement {
    uint32_t slot;
    bool satisfied;  // whether the row satisfies the feature: the one fraction
    T zero_fraction;
  };
  struct RecursionPath {
    RecursionElement* elements;
    T* weights;
    int n_elements;    // L
    int n_weights;     // L + 1, or the number of satisfied features + 1
    T unsatisfied;     // Fast TreeSHAP v1: product of the zero fractions of features that are not satisfied
    bool unreachable;  // no row comes here, whatever is known, so nodes below have no values
    RecursionElement split;  // at a node: the state of its feature on the path above; not an element
  };
  struct RecursionNode {
    int32_t parent, level;
    bool right;     // the right child of its parent
    bool repeated;  // a node above splits on its feature
    uint32_t slot;
    int32_t children[2];
    T shares[2];
  };

  void open_tree(const Chunk& chunk, const TreeProgram& tree);
  void explain_row(const uint64_t* words, int row, T* phi);
  void descend(const RecursionPath& above, T share, bool satisfied, RecursionPath& below) const;
  void extend(const RecursionElement& element, RecursionPath& path) const;
  T unwind(const RecursionPath& path, const RecursionElement& element, T* weights) const;
  void take_out(const RecursionNode& node, RecursionPath& path) const;
  void add_leaf(const RecursionPath& path, const T* values, T* phi) const;

  const Plan& plan_;
  PathWalk walk_;
  std::vector<uint32_t> slot_of_;  // by feature: its slot in the chunk
  std::vector<T> reciprocals_;
  std::vector<RecursionElement> elements_;
  std::vector<T> weights_, leaf_values_;
  std::vector<RecursionPath> paths_;  // by level
  std::vector<RecursionNode> nodes_;  // inner nodes, in preorder
  int32_t n_inner_ = 0;
  size_t n_outputs_ = 1, output_stride_ = 0;
};

template <class T, bool kFast>
size_t Recursion<T, kFast>::bytes(const Plan& plan) {
  const Sizes sizes = sizes_of(plan);
  return sizes.levels * (sizes.elements * (sizeof(RecursionElement) + sizeof(T)) + sizeof(RecursionPath)) +
         sizes.inner * sizeof(RecursionNode) + (sizes.leaf_values + sizes.elements + 1) * sizeof(T) +
         4 * plan.features.size() + PathWalk::bytes(plan, sizes.levels);
}

template <class T, bool kFast>
Recursion<T, kFast>::Recursion(const Plan& plan) : plan_(plan), walk_(plan) {
  const Sizes sizes = sizes_of(plan);
  slot_of_.resize(plan.features.size());
  reciprocals_.resize(sizes.elements + 1);
  for (size_t i = 1; i < reciprocals_.size(); ++i) reciprocals_[i] = T(1) / static_cast<T>(i);
  elements_.resize(sizes.levels * sizes.elements);
  weights_.resize(sizes.levels * sizes.elements);
  paths_.resize(sizes.levels);
  for (size_t level = 0; level < sizes.levels; ++level) {
    paths_[level].elements = elements_.data() + level * sizes.elements;
    paths_[level].weights = weights_.data() + level * sizes.elements;
  }
  nodes_.resize(sizes.inner);
  leaf_values_.resize(sizes.leaf_values);
}

template <class T, bool kFast>
void Recursion<T, kFast>::add_tree(const Chunk& chunk, const TreeProgram& tree, const uint64_t* words,
                                   int n_rows, T* phi) {
  open_tree(chunk, tree);
  for (int row = 0; row < n_rows; ++row) explain_row(words + kFirstWord, row, phi + row);
}

template <class T, bool kFast>
void Recursion<T, kFast>::open_tree(const Chunk& chunk, const TreeProgram& tree) {
  n_inner_ = static_cast<int32_t>(tree.n_inner);
  n_outputs_ = n_used_outputs(plan_, chunk);
  output_stride_ = chunk.slots.size() * kBlockRows;
  for (size_t slot = 0; slot < chunk.slots.size(); ++slot)
    slot_of_[chunk.slots[slot]] = static_cast<uint32_t>(slot);
  walk_.run<LeafOrder::kByNumber>(
      tree,
      [&](const PathNode& at) {
        const double share = plan_.shares[tree.decide + at.node];
        const int32_t* const children = plan_.children.data() + tree.children + 2 * at.node;
        nodes_[at.node] = {.parent = at.parent,
                           .level = static_cast<int32_t>(at.level),
                           .right = at.is_right,
                           .repeated = at.previous != nullptr,
                           .slot = slot_of_[at.feature],
                           .children = {children[0], children[1]},
                           .shares = {static_cast<T>(share), static_cast<T>(1 - share)}};
      },
      [](int32_t) {});
  const double* values = plan_.leaf_values.data() + tree.leaves;
  for (size_t i = 0; i < (tree.n_inner + 1) * n_outputs_; ++i)
    leaf_values_[i] = static_cast<T>(values[i] / plan_.leaf_scale);
}

template <class T, bool kFast>
void Recursion<T, kFast>::explain_row(const uint64_t* words, int row, T* phi) {
  const auto satisfied = [&](int32_t node, int side) {
    const uint64_t alive = words[2 * node], left = words[2 * node + 1];
    return ((side ? alive & ~left : left) >> row & 1) != 0;
  };
  for (int32_t i = 0; i < n_inner_; ++i) {
    const RecursionNode& node = nodes_[i];
    RecursionPath& path = paths_[node.level];
    if (i == 0) {
      path.n_elements = 0;
      path.n_weights = 1;
      path.weights[0] = path.unsatisfied = T(1);
      path.unreachable = false;
    } else {
      descend(paths_[node.level - 1], nodes_[node.parent].shares[node.right],
              satisfied(node.parent, node.right), path);
    }
    if (path.unreachable) continue;
    take_out(node, path);
    for (int side = 0; side < 2; ++side) {
      if (node.children[side] < n_inner_) continue;
      RecursionPath& to_leaf = paths_[node.level + 1];
      descend(path, node.shares[side], satisfied(i, side), to_leaf);
      if (!to_leaf.unreachable)
        add_leaf(to_leaf, leaf_values_.data() + (node.children[side] - n_inner_) * n_outputs_, phi);
    }
  }
}

// Make the path to a child, given the path to its parent.
template <class T, bool kFast>
void Recursion<T, kFast>::descend(const RecursionPath& above, T share, bool satisfied,
                                  RecursionPath& below) const {
  const RecursionElement element{above.split.slot, satisfied, above.split.zero_fraction * share};
  // No row reaches this child, whether the feature is known or not. TreeSHAP could not take the feature out
  // again.
  below.unreachable = above.unreachable || (!satisfied && element.zero_fraction == 0);
  if (below.unreachable) return;
  below.n_elements = above.n_elements;
  below.n_weights = above.n_weights;
  below.unsatisfied = above.unsatisfied;
  std::copy_n(above.elements, above.n_elements, below.elements);
  std::copy_n(above.weights, above.n_weights, below.weights);
  extend(element, below);
}

template <class T, bool kFast>
void Recursion<T, kFast>::extend(const RecursionElement& element, RecursionPath& path) const {
  const int n = path.n_elements;  // L before, L + 1 after
  T* const w = path.weights;
  const T over = reciprocals_[n + 2], z = element.zero_fraction;
  path.elements[path.n_elements++] = element;
  if (kFast && !element.satisfied) {
    path.unsatisfied *= z;
    for (int k = 0; k < path.n_weights; ++k) w[k] *= static_cast<T>(n + 1 - k) * over;
    return;
  }
  const T one = element.satisfied ? over : T(0);
  w[path.n_weights] = 0;
  for (int k = path.n_weights - 1; k >= 0; --k) {
    w[k + 1] += one * static_cast<T>(k + 1) * w[k];
    w[k] *= z * static_cast<T>(n + 1 - k) * over;
  }
  ++path.n_weights;
}

// Compute the weights without an element of the path. They may overwrite the weights of the path. Return
// their sum. With Fast TreeSHAP v1, the weights are the same without any unsatisfied element.
template <class T, bool kFast>
T Recursion<T, kFast>::unwind(const RecursionPath& path, const RecursionElement& element, T* weights) const {
  const int n = path.n_elements, top = path.n_weights - 1;
  const T* const w = path.weights;
  const T z = element.zero_fraction, times = static_cast<T>(n + 1), over = reciprocals_[n + 1];
  T sum = 0;
  if (element.satisfied) {
    T next = w[top];
    for (int k = top - 1; k >= 0; --k) {
      const T old = w[k], x = next * times * reciprocals_[k + 1];
      next = old - x * z * static_cast<T>(n - k) * over;
      sum += x;
      if (weights) weights[k] = x;
    }
    return sum;
  }
  for (int k = 0; k < top + kFast; ++k) {
    T x = w[k] * times * reciprocals_[n - k];
    if (!kFast) x /= z;
    sum += x;
    if (weights) weights[k] = x;
  }
  return sum;
}

// End a path before a split on a feature: take out the earlier splits on this feature.
template <class T, bool kFast>
void Recursion<T, kFast>::take_out(const RecursionNode& node, RecursionPath& path) const {
  if (!node.repeated) {
    path.split = {node.slot, true, T(1)};
    return;
  }
  RecursionElement* const end = path.elements + path.n_elements;
  RecursionElement* const match = std::find_if(
      path.elements, end, [&](const RecursionElement& element) { return element.slot == node.slot; });
  path.split = *match;
  unwind(path, path.split, path.weights);
  *match = *(end - 1);
  --path.n_elements;
  if (kFast && !path.split.satisfied)
    path.split.zero_fraction = T(1);  // it remains in the product
  else
    --path.n_weights;
}

template <class T, bool kFast>
void Recursion<T, kFast>::add_leaf(const RecursionPath& path, const T* values, T* phi) const {
  T unsatisfied = 0;
  if (kFast && path.n_elements >= path.n_weights)
    unsatisfied = -path.unsatisfied * unwind(path, RecursionElement{0, false, T(0)}, nullptr);
  for (const RecursionElement *element = path.elements, *end = element + path.n_elements; element != end;
       ++element) {
    T gain = unsatisfied;
    if (!kFast || element->satisfied) {
      gain = unwind(path, *element, nullptr);
      gain *= element->satisfied ? 1 - element->zero_fraction : -element->zero_fraction;
      if (kFast) gain *= path.unsatisfied;
    }
    T* to = phi + element->slot * kBlockRows;
    for (size_t output = 0; output < n_outputs_; ++output, to += output_stride_) *to += gain * values[output];
  }
}

template <class T>
using TreeShap = Recursion<T, false>;
template <class T>
using FastV1 = Recursion<T, true>;

const RegisteredTreeAlgorithm<TreeShap> treeshap("treeshap");
const RegisteredTreeAlgorithm<FastV1> fast_v1("fast_v1");

}  // namespace

}  // namespace skshap
