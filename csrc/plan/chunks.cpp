#include "plan/chunks.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace skshap {
namespace {

// After this many trees, the sums in single precision are added to sums in double precision.
constexpr size_t kMaxChunkTrees = 64;
// The largest size of the programs of a chunk, approximately: half of a typical L2 cache.
constexpr size_t kMaxChunkBytes = 512 << 10;
// With few rows, threads divide the chunks among themselves, so a large model has at least about this many
// chunks. Adding up the sums of a chunk takes a noticeable time only if the chunk has few leaves, or few
// leaves for each of its sums.
constexpr int64_t kManyChunks = 32;
constexpr int64_t kFewLeaves = 512;
constexpr int64_t kFewLeavesPerSum = 32;

class Divider {
 public:
  Divider(const CodedTrees& trees, const std::vector<TreeShape>& shapes, const Plan& plan)
      : trees_(trees), shapes_(shapes), plan_(plan), chunk_of_player_(trees.n_players, 0) {}

  std::vector<std::vector<int32_t>> divide() {
    for (const int32_t tree : sorted_trees()) {
      if (!has_room(tree)) begin_chunk();
      add(tree);
    }
    return std::move(chunks_);
  }

 private:
  bool is_first(int32_t tree) const { return tree < trees_.n_first; }

  // Return what the trees of a chunk have in common. They have the same K, too, which increases with the
  // number of features unless the features of a group are apart.
  auto key(int32_t tree) const {
    const TreeShape& shape = shapes_[tree];
    return std::make_tuple(!is_first(tree), trees_.tree_output[tree], shape.balanced, shape.n_apart,
                           shape.n_apart ? shape.n_nodes : 0);
  }

  std::vector<int32_t> sorted_trees() const {
    std::vector<int32_t> order;
    for (int32_t tree = 0; tree < trees_.n_trees; ++tree)
      if (shapes_[tree].height > 0) order.push_back(tree);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return std::make_pair(key(a), shapes_[a].n_features) < std::make_pair(key(b), shapes_[b].n_features);
    });
    return order;
  }

  // Return whether the last chunk may take another tree.
  bool has_room(int32_t tree) const {
    if (chunks_.empty()) return false;
    const int32_t last = chunks_.back().back();
    if (key(last) != key(tree) || shapes_[last].n_nodes != shapes_[tree].n_nodes) return false;
    if (chunks_.back().size() >= kMaxChunkTrees || n_bytes_ >= kMaxChunkBytes) return false;
    return n_leaves_ < std::max({plan_.n_leaves / kManyChunks, kFewLeaves, kFewLeavesPerSum * n_sums()});
  }

  void begin_chunk() {
    chunks_.emplace_back();
    n_leaves_ = n_features_ = 0;
    n_bytes_ = 0;
  }

  void add(int32_t tree) {
    chunks_.back().push_back(tree);
    const TreeShape& shape = shapes_[tree];
    n_leaves_ += shape.n_leaves;
    n_bytes_ += static_cast<size_t>(shape.n_leaves) * leaf_bytes(shape);
    const int32_t chunk = static_cast<int32_t>(chunks_.size());
    for (int64_t node = trees_.tree_offsets[tree]; node < trees_.tree_offsets[tree + 1]; ++node) {
      if (trees_.is_leaf(node)) continue;
      int32_t& last = chunk_of_player_[trees_.player[node]];
      n_features_ += last != chunk;
      last = chunk;
    }
  }

  // Return the number of sums of a row in the last chunk. The number of pairs is an upper bound, as not all
  // features interact.
  int64_t n_sums() const {
    return n_features_ + (plan_.interactions() ? n_features_ * (n_features_ - 1) / 2 : 0);
  }

  // Return approximately how many bytes a row streams for each leaf.
  size_t leaf_bytes(const TreeShape& shape) const {
    const size_t n_outputs = static_cast<size_t>(trees_.value_width);
    const size_t n_constants = 3 * static_cast<size_t>(shape.n_nodes) + 2 * n_outputs;
    const size_t n_listed = plan_.interactions() ? 2 * static_cast<size_t>(shape.n_features) : 0;
    return 40 + 8 * n_outputs + element_bytes(plan_) * n_constants + 4 * n_listed;
  }

  const CodedTrees& trees_;
  const std::vector<TreeShape>& shapes_;
  const Plan& plan_;
  std::vector<std::vector<int32_t>> chunks_;
  int64_t n_leaves_ = 0, n_features_ = 0;  // of the last chunk
  size_t n_bytes_ = 0;
  std::vector<int32_t> chunk_of_player_;  // the last chunk that uses the player, counted from 1
};

}  // namespace

std::vector<std::vector<int32_t>> divide_into_chunks(const CodedTrees& trees,
                                                     const std::vector<TreeShape>& shapes, const Plan& plan) {
  return Divider(trees, shapes, plan).divide();
}

}  // namespace skshap
