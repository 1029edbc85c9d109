#include "cuda/program/margins.h"

#include "plan/tree_paths.h"

namespace skshap {
namespace {

class MarginWriter {
 public:
  MarginWriter(const Plan& plan, const CudaColumns& columns) : plan_(plan), columns_(columns) {}

  CudaMargins write() {
    for (const Chunk& chunk : plan_.chunks)
      for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i) {
        const TreeProgram& tree = plan_.trees[i];
        if (!tree.adds_margin) continue;
        const int64_t first_leaf = static_cast<int64_t>(tree.leaves / n_used_outputs(plan_, chunk));
        const int64_t root = tree.merged ? write_merged(tree, first_leaf) : write_tree(tree, first_leaf);
        out_.trees.push_back({root, chunk.output, tree.merged});
      }
    return std::move(out_);
  }

 private:
  // Return the link to a node or, after the nodes, to a leaf.
  static int32_t link(const TreeProgram& tree, int64_t first, int64_t first_leaf, int64_t i) {
    const int64_t n_inner = static_cast<int64_t>(tree.n_inner);
    return static_cast<int32_t>(i < n_inner ? first + i : ~(first_leaf + i - n_inner));
  }

  int64_t write_tree(const TreeProgram& tree, int64_t first_leaf) {
    const int64_t first = static_cast<int64_t>(out_.nodes.size());
    const int32_t* const children = plan_.children.data() + tree.children;
    for (size_t i = 0; i < tree.n_inner; ++i) {
      CudaNode node = columns_.margin_node(plan_.decide[tree.decide + i]);
      node.left = link(tree, first, first_leaf, children[2 * i]);
      node.right = link(tree, first, first_leaf, children[2 * i + 1]);
      out_.nodes.push_back(node);
    }
    return link(tree, first, first_leaf, 0);
  }

  // If a place has several nodes or leaves, a node before them leads a row to all of them, one after another.
  int64_t write_merged(const TreeProgram& tree, int64_t first_leaf) {
    const size_t n_inner = tree.n_inner, n = n_inner + tree.n_leaves;
    const int32_t* const edges = plan_.children.data() + tree.children;
    // List the nodes and leaves of each place. Each inner node has two places, one for each side. The last
    // place is that of the root.
    std::vector<std::vector<int32_t>> places(2 * n_inner + 1);
    for (size_t i = 0; i < n; ++i) {
      const uint32_t edge = static_cast<uint32_t>(edges[i]);
      const size_t place = edge ? 2 * static_cast<size_t>(bit_node(edge)) + (edge & 1) : 2 * n_inner;
      places[place].push_back(static_cast<int32_t>(i));
    }
    // The root must be the first node, so the nodes of its place are linked before the nodes of the tree are
    // written.
    const std::vector<int32_t>& root = places.back();
    const size_t n_joins = root.size() - 1;
    const int64_t before = static_cast<int64_t>(out_.nodes.size()),
                  first = before + static_cast<int64_t>(n_joins);
    const auto link_to = [&](int32_t i) { return link(tree, first, first_leaf, i); };
    for (size_t i = 0; i < n_joins; ++i) {
      const int32_t next =
          i + 1 < n_joins ? static_cast<int32_t>(out_.nodes.size()) + 1 : link_to(root.back());
      out_.nodes.push_back({kJoinedNodes, 0, link_to(root[i]), next});
    }
    for (size_t i = 0; i < n_inner; ++i)
      out_.nodes.push_back(columns_.margin_node(plan_.decide[tree.decide + i]));
    for (size_t i = 0; i < 2 * n_inner; ++i) {
      int32_t to = link_to(places[i].back());
      for (size_t j = places[i].size() - 1; j-- > 0;) {
        out_.nodes.push_back({kJoinedNodes, 0, link_to(places[i][j]), to});
        to = static_cast<int32_t>(out_.nodes.size()) - 1;
      }
      CudaNode& node = out_.nodes[first + static_cast<int64_t>(i / 2)];
      (i & 1 ? node.right : node.left) = to;
    }
    return before;
  }

  const Plan& plan_;
  const CudaColumns& columns_;
  CudaMargins out_;
};

}  // namespace

CudaMargins make_margins(const Plan& plan, const CudaColumns& columns) {
  return MarginWriter(plan, columns).write();
}

}  // namespace skshap
