// Plan -> CudaProgram: which trees form a chunk, and in which form. Host only, needs no CUDA.
#include "cuda/program/program.h"

#include <algorithm>

#include "cuda/program/writer.h"
#include "plan/quadrature.h"

namespace skshap {
namespace {

// A warp walks one chunk for one tile of rows. This is enough work to hide its start-up, and few enough trees
// that their sum is safe in single precision and that a job of few rows fills a GPU.
constexpr size_t kMaxChunkTrees = 32;
constexpr size_t kMaxChunkLeaves = 512;
// Small models are divided into about this many smaller chunks, because a small job takes as long as one
// chunk.
constexpr size_t kChunks = 5, kMinChunkLeaves = 16;

// Round a number of quadrature nodes up to one for which a kernel exists.
template <class T>
int rounded_nodes(int n) {
  return sizeof(T) == 4 ? n : n + (n & 1);
}

template <class T>
class CudaCompiler {
 public:
  explicit CudaCompiler(const Plan& plan)
      : plan_(plan), columns_(plan), tree_(plan, columns_), writer_(plan, columns_, tree_, out_) {}

  CudaProgram<T> compile(size_t stage_bytes) {
    out_.columns = columns_.list();
    size_up();
    for (const Chunk& chunk : plan_.chunks) {
      for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i) {
        tree_.open(chunk, plan_.trees[i]);
        write_margin_nodes(chunk, plan_.trees[i]);
        if (!plan_.trees[i].walked) continue;
        const int n_nodes = nodes_of(plan_.trees[i]);
        const bool general = needs_general_form(chunk, n_nodes);
        if (!writer_.is_open() || !fits(n_nodes, general)) begin_chunk(chunk, n_nodes, general);
        count_tree();
        writer_.write_tree();
      }
      writer_.end_chunk();
    }
    add_tables<T>(plan_, [this](const DecideNode& node) { return columns_.margin_node(node); }, out_);
    add_intervals<T>(plan_, columns_.first(), stage_bytes, out_);
    return std::move(out_);
  }

 private:
  void size_up() {
    size_t leaves[kMaxFixedNodes + 1] = {}, n_leaves = 0;
    for (const Chunk& chunk : plan_.chunks)
      for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i) {
        if (!plan_.trees[i].walked) continue;
        const int n = rounded_nodes<T>(nodes_of(plan_.trees[i]));
        if (n <= kMaxFixedNodes) leaves[n] += plan_.trees[i].n_inner + 1;
        n_leaves += plan_.trees[i].n_inner + 1;
      }
    chunk_leaves_ = std::clamp(n_leaves / kChunks, kMinChunkLeaves, kMaxChunkLeaves);
    // More nodes than needed are exact, too, and less than a chunk of leaves is not worth its own launch.
    for (int n = kMaxFixedNodes, next = 0; n > 0; --n) {
      launched_nodes_[n] = next && leaves[n] < kMaxChunkLeaves ? next : n;
      if (leaves[n]) next = launched_nodes_[n];
    }
  }

  // Return the number of quadrature nodes of a tree: here it is always Gauss-Legendre quadrature, whatever
  // that of the plan's chunk is.
  int nodes_of(const TreeProgram& tree) const { return quadrature_nodes(plan_.index, tree.n_features); }

  bool needs_general_form(const Chunk& chunk, int n_nodes) const {
    const uint32_t alive_bits = plan_.interactions() ? kAliveBits - 1 : kAliveBits;
    return !tree_.fits || chunk.output < 0 || rounded_nodes<T>(n_nodes) > kMaxFixedNodes ||
           tree_.most_tracked > alive_bits || tree_.n_sets > kMaxCudaIndex || tree_.n_slots > kMaxCudaIndex;
  }

  // Return whether the open chunk has room for the open tree.
  bool fits(int n_nodes, bool general) const {
    const CudaChunk& c = out_.chunks.back();
    return c.general == general && chunk_nodes_ == n_nodes && chunk_trees_ < kMaxChunkTrees &&
           c.n_leaves + tree_.nodes.size() < chunk_leaves_ &&
           (general ||
            (chunk_sets_ + tree_.n_sets <= kMaxCudaIndex && c.n_slots + tree_.n_slots <= kMaxCudaIndex));
  }

  void begin_chunk(const Chunk& chunk, int n_nodes, bool general) {
    writer_.begin_chunk(chunk, general ? n_nodes : launched_nodes_[rounded_nodes<T>(n_nodes)], general);
    chunk_nodes_ = n_nodes;
    chunk_trees_ = chunk_sets_ = 0;
  }

  void count_tree() {
    CudaChunk& c = out_.chunks.back();
    c.n_frames = std::max(c.n_frames, tree_.n_frames);
    c.n_leaves += tree_.nodes.size() + 1;
    ++chunk_trees_;
    chunk_sets_ += tree_.n_sets;
  }

  void write_margin_nodes(const Chunk& chunk, const TreeProgram& tree) {
    const int64_t first = static_cast<int64_t>(out_.nodes.size());
    const int64_t first_leaf = static_cast<int64_t>(tree.leaves / n_used_outputs(plan_, chunk));
    const int32_t n_inner = static_cast<int32_t>(tree.n_inner);
    out_.tree_nodes.push_back(first);
    out_.tree_output.push_back(chunk.output);
    const auto link = [&](int32_t child) {
      return static_cast<int32_t>(child < n_inner ? first + child : ~(first_leaf + child - n_inner));
    };
    for (int32_t i = 0; i < n_inner; ++i) {
      CudaNode node = columns_.margin_node(tree_.decide[i]);
      node.left = link(tree_.children[2 * i]);
      node.right = link(tree_.children[2 * i + 1]);
      out_.nodes.push_back(node);
    }
  }

  const Plan& plan_;
  const CudaColumns columns_;
  CudaTree tree_;
  CudaProgram<T> out_;
  CudaWriter<T> writer_;
  int launched_nodes_[kMaxFixedNodes + 1] = {};  // by K of a tree: the K that it is walked with
  int chunk_nodes_ = 0;                          // of the trees of the open chunk
  size_t chunk_leaves_ = 0;
  size_t chunk_trees_ = 0, chunk_sets_ = 0;
};

}  // namespace

template <class T>
CudaProgram<T> make_cuda_program(const Plan& plan, size_t stage_bytes) {
  return CudaCompiler<T>(plan).compile(stage_bytes);
}
template CudaProgram<float> make_cuda_program(const Plan&, size_t);
template CudaProgram<double> make_cuda_program(const Plan&, size_t);

}  // namespace skshap
