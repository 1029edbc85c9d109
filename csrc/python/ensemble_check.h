// Checks of an ensemble from Python. Ensemble (skshapgpu/adapters/ensemble.py) has validated all its values;
// these checks are of the numbers with which the core indexes arrays, so that no ensemble makes the core read
// outside of an array.
#pragma once

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/types.h"

namespace skshap {

inline void require_ensemble(bool holds, const char* problem) {
  if (!holds) throw std::invalid_argument(problem);
}

// Return whether offsets ascend from 0 to n.
inline bool ascend(const int64_t* offsets, size_t n_offsets, size_t n) {
  return offsets[0] == 0 && offsets[n_offsets - 1] == static_cast<int64_t>(n) &&
         std::is_sorted(offsets, offsets + n_offsets);
}

inline bool each_below(const int32_t* numbers, size_t n, int32_t limit) {
  return std::all_of(numbers, numbers + n, [=](int32_t number) { return number >= 0 && number < limit; });
}

// The loops over nodes have no branches, because the processor would mispredict them at every other node. The
// loops take less than 2 % of the time of the fastest compilation: of a plan for values without tables.
class EnsembleCheck {
 public:
  EnsembleCheck(const EnsembleView& ensemble, int32_t n_sets) : e_(ensemble), n_sets_(n_sets) {}

  // Throw std::invalid_argument unless the trees are trees, and test what exists.
  void run() {
    for (int32_t tree = 0; tree < e_.n_trees; ++tree) {
      const int64_t root = e_.tree_offsets[tree], end = e_.tree_offsets[tree + 1];
      const bool valid =
          end > root && end - root <= INT32_MAX && is_tree(root, static_cast<int32_t>(end - root));
      if (!valid || !(e_.category_set ? has_tests<true>(root, end) : has_tests<false>(root, end)))
        throw std::invalid_argument("tree " + std::to_string(tree) +
                                    (valid ? " has a node whose test is invalid"
                                           : " has a node that is not reached exactly once from its root"));
    }
  }

 private:
  bool is_tree(int64_t root, int32_t n_nodes) {
    const int32_t *const left = e_.left + root, *const right = e_.right + root;
    // By node: whether it is a child. The last element is for the children of leaves, and for those that do
    // not exist.
    is_child_.assign(static_cast<size_t>(n_nodes) + 1, 0);
    char* const is_child = is_child_.data();
    const auto mark = [=](int32_t child) {
      is_child[std::min(static_cast<uint32_t>(child), static_cast<uint32_t>(n_nodes))] = 1;
    };
    int32_t n_inner = 0, n_disordered = 0;
    for (int32_t node = 0; node < n_nodes; ++node) {
      const int32_t is_inner = left[node] >= 0;
      mark(left[node]);
      mark(right[node] | (is_inner - 1));
      n_inner += is_inner;
      n_disordered += ((left[node] <= node) | (right[node] <= node)) & is_inner;
    }
    // If as many nodes are children as there are links to children, no node is a child twice.
    return n_inner == (n_nodes - 1) / 2 && n_nodes % 2 == 1 &&
           !std::memchr(is_child + 1, 0, static_cast<size_t>(n_nodes) - 1) &&
           (n_disordered == 0 || reaches_all(left, right, n_nodes));
  }

  // Return whether all nodes are reached from the root. No node is a child twice.
  bool reaches_all(const int32_t* left, const int32_t* right, int32_t n_nodes) {
    reached_.assign(1, 0);
    for (size_t i = 0; i < reached_.size(); ++i) {
      const int32_t node = reached_[i];
      if (left[node] < 0) continue;
      reached_.push_back(left[node]);
      reached_.push_back(right[node]);
    }
    return reached_.size() == static_cast<size_t>(n_nodes);
  }

  template <bool kCategories>
  bool has_tests(int64_t node, int64_t end) const {
    const auto n_features = static_cast<uint32_t>(e_.n_features);
    int32_t n_invalid = 0;
    for (; node < end; ++node) {
      int32_t valid = e_.threshold[node] == e_.threshold[node];  // thresholds are sorted
      if constexpr (kCategories)
        valid = (valid | (e_.category_set[node] >= 0)) & (e_.category_set[node] < n_sets_);
      valid &= static_cast<uint32_t>(e_.feature[node]) < n_features;
      n_invalid += (1 - valid) & (e_.left[node] >= 0);
    }
    return n_invalid == 0;
  }

  const EnsembleView& e_;
  const int32_t n_sets_;
  std::vector<char> is_child_;    // of a tree
  std::vector<int32_t> reached_;  // nodes of a tree
};

}  // namespace skshap
