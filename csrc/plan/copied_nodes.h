// Copies parts of trees into coded trees, node by node.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "plan/coded_trees.h"

namespace skshap {

// The children of a node that is copied, and the covers of their copies.
struct CopiedChildren {
  int64_t left, right;
  double left_cover, right_cover;
};

// Copy a node and the nodes below it to the last of the trees. add(node, cover) adds the copy of a node, and
// returns whether its children are copied, too. If so, fill(node, place) fills in the copy, which is at this
// place of the arrays, and returns the children. Return the number of the first copy in its tree.
template <class Add, class Fill>
int32_t copy_nodes(CodedTreeArrays& trees, int64_t from, double cover, const Add& add, const Fill& fill) {
  std::vector<std::pair<int64_t, int64_t>> open;  // nodes whose children are not copied yet, and their places
  const auto copy = [&](int64_t node, double node_cover) {
    const int64_t place = static_cast<int64_t>(trees.cover.size());
    if (add(node, node_cover)) open.push_back({node, place});
    return static_cast<int32_t>(place - trees.tree_offsets.back());
  };
  const int32_t number = copy(from, cover);
  while (!open.empty()) {
    const auto [node, place] = open.back();
    open.pop_back();
    const CopiedChildren children = fill(node, place);
    // Adding may move the arrays.
    const int32_t left = copy(children.left, children.left_cover);
    const int32_t right = copy(children.right, children.right_cover);
    trees.left[place] = left;
    trees.right[place] = right;
  }
  return number;
}

}  // namespace skshap
