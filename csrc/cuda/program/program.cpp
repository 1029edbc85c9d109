// Plan -> CudaProgram: which trees form a chunk, and in which form. This code runs on the host only.
#include "cuda/program/program.h"

#include <algorithm>
#include <stdexcept>

#include "cuda/program/tuning.h"
#include "cuda/program/writer.h"
#include "plan/quadrature.h"

namespace skshap {
namespace {

// Round a number of quadrature nodes up to a number for which a kernel exists.
template <class T>
int rounded_nodes(int n) {
  return sizeof(T) == 4 ? n : n + (n & 1);
}

// Divide the nodes of a double integral into parts for which kernels exist. The parts are filled up with
// nodes of weight 0.
template <class T>
std::vector<CudaQuadrature> divide_nodes(const CudaQuadrature& all) {
  const size_t n = all.t.size(), step = static_cast<size_t>(rounded_nodes<T>(1)),
               n_steps = (n + step - 1) / step, n_parts = (n + kMaxFixedNodes - 1) / kMaxFixedNodes;
  std::vector<CudaQuadrature> parts(n_parts);
  for (size_t i = 0; i < n_parts; ++i) {
    const size_t first = i * n_steps / n_parts * step, end = (i + 1) * n_steps / n_parts * step;
    const auto copy = [&](const std::vector<double>& from, std::vector<double>& to, double filler) {
      to.assign(from.begin() + static_cast<std::ptrdiff_t>(first),
                from.begin() + static_cast<std::ptrdiff_t>(std::min(end, n)));
      to.resize(end - first, filler);
    };
    copy(all.t, parts[i].t, 0.5);
    copy(all.s, parts[i].s, 0.5);
    copy(all.weights, parts[i].weights, 0);
  }
  return parts;
}

template <class T>
class CudaCompiler {
 public:
  CudaCompiler(const Plan& plan, CudaMethod method)
      : plan_(plan),
        small_(method == CudaMethod::kSmallChunks),
        leaves_(method == CudaMethod::kLeaves),
        columns_(plan),
        tree_(plan, columns_),
        writer_(plan, columns_, tree_, out_) {}

  CudaProgram<T> compile(size_t stage_bytes) {
    out_.columns = columns_.list();
    size_up();
    out_.margins = make_margins(plan_, columns_);
    if (!leaves_ && !plan_.unwalked)
      for (const Chunk& chunk : plan_.chunks) write_trees(chunk);
    if (leaves_) add_leaves<T>(plan_, out_);
    if (plan_.unwalked)
      add_owen_leaves<T>(plan_, columns_, small_ ? kSmallChunkLeaves : kMaxChunkLeaves, out_);
    add_tables<T>(plan_, columns_, out_);
    add_pattern_leaves<T>(plan_, columns_, out_);
    add_intervals<T>(plan_, columns_, stage_bytes, out_);
    return std::move(out_);
  }

 private:
  void size_up() {
    size_t leaves[kMaxFixedNodes + 1] = {}, n_leaves = 0;
    for (const Chunk& chunk : plan_.chunks)
      for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i) {
        if (!plan_.trees[i].walked) continue;
        const int n = rounded_nodes<T>(nodes_of(plan_.trees[i]));
        if (n <= kMaxFixedNodes && !chunk.n_apart) leaves[n] += plan_.trees[i].n_inner + 1;
        n_leaves += plan_.trees[i].n_inner + 1;
      }
    const size_t most = small_ ? kSmallChunkLeaves : kMaxChunkLeaves;
    chunk_leaves_ = std::clamp(n_leaves / kSmallModelChunks, kMinChunkLeaves, most);
    // Quadrature with more nodes than needed is exact, too, and fewer leaves than a chunk are not worth a
    // separate launch.
    for (int n = kMaxFixedNodes, next = 0; n > 0; --n) {
      launched_nodes_[n] = next && leaves[n] < kMaxChunkLeaves ? next : n;
      if (leaves[n]) next = launched_nodes_[n];
    }
  }

  // Merged trees have been divided before.
  size_t count_parts(const TreeProgram& tree) const {
    if (tree.merged) return 1;
    const size_t n_sums = cuda_places(plan_),
                 part = small_ ? kSmallChunkLeaves : std::max(kMaxChunkLeaves, kPartLeavesPerSum * n_sums);
    return std::max<size_t>((tree.n_inner + part / 2) / part, 1);
  }

  // Write the trees of a chunk of the plan. For Owen values, write the walks of the trees with each part of
  // the nodes.
  void write_trees(const Chunk& chunk) {
    if (!chunk.n_apart) return write_trees(chunk, [&](const TreeProgram& tree) { write_tree(chunk, tree); });
    CudaQuadrature all;
    product_quadrature(chunk.n_nodes / chunk.n_apart, chunk.n_apart, all.t, all.s, all.weights);
    const auto is_general = [&] { return needs_general_form(chunk, kMaxFixedNodes); };
    bool any_fused = false;
    write_trees(chunk, [&](const TreeProgram&) {  // the general form takes any number of nodes
      if (is_general())
        write_tree(chunk, all, true);
      else
        any_fused = true;
    });
    if (!any_fused) return;
    for (const CudaQuadrature& nodes : divide_nodes<T>(all))
      write_trees(chunk, [&](const TreeProgram&) {
        if (!is_general()) write_tree(chunk, nodes, false);
      });
  }

  // Open the walked trees of a chunk of the plan, part by part, and call write(tree) for each part.
  template <class Write>
  void write_trees(const Chunk& chunk, const Write& write) {
    for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i) {
      const TreeProgram& tree = plan_.trees[i];
      if (!tree.walked) continue;
      const size_t n_parts = count_parts(tree);
      for (size_t part = 0; part < n_parts; ++part) {
        tree_.open(chunk, tree, static_cast<int32_t>(part * tree.n_inner / n_parts),
                   static_cast<int32_t>((part + 1) * tree.n_inner / n_parts));
        write(tree);
      }
    }
    writer_.end_chunk();
  }

  // Write the open tree, or the open part of a tree.
  void write_tree(const Chunk& chunk, const TreeProgram& tree) {
    const int n_nodes = nodes_of(tree);
    const bool general = needs_general_form(chunk, n_nodes);
    if (general && tree.merged) throw std::logic_error("a merged tree does not fit the form for a GPU");
    if (!has_room(n_nodes, general)) {
      CudaQuadrature nodes;
      quadrature(plan_.index, general ? n_nodes : launched_nodes_[rounded_nodes<T>(n_nodes)], nodes.t,
                 nodes.weights);
      begin_chunk(chunk, nodes, n_nodes, general);
    }
    add_tree();
  }

  // Write the open tree with these nodes. If a chunk is open, they are its nodes.
  void write_tree(const Chunk& chunk, const CudaQuadrature& nodes, bool general) {
    const int n_nodes = static_cast<int>(nodes.t.size());
    if (!has_room(n_nodes, general)) begin_chunk(chunk, nodes, n_nodes, general);
    add_tree();
  }

  // Return the number of quadrature nodes of a tree. A GPU always uses Gauss-Legendre quadrature, whichever
  // rule the plan's chunk has.
  int nodes_of(const TreeProgram& tree) const { return quadrature_nodes(plan_.index, tree.n_features); }

  bool needs_general_form(const Chunk& chunk, int n_nodes) const {
    const bool has_always_alive = plan_.interactions() || !plan_.players.empty();
    const uint32_t alive_bits = has_always_alive ? kAliveBits - 1 : kAliveBits;
    return !tree_.fits || chunk.output < 0 || rounded_nodes<T>(n_nodes) > kMaxFixedNodes ||
           tree_.most_tracked > alive_bits || tree_.n_sets > kMaxCudaIndex || tree_.n_slots > kMaxCudaIndex;
  }

  // Return whether the open tree fits into the open chunk.
  bool has_room(int n_nodes, bool general) const {
    if (!writer_.is_open()) return false;
    const CudaChunk& c = out_.chunks.back();
    return c.general == general && chunk_nodes_ == n_nodes && chunk_trees_ < kMaxChunkTrees &&
           c.n_leaves + tree_.nodes.size() < chunk_leaves_ &&
           (general ||
            (chunk_sets_ + tree_.n_sets <= kMaxCudaIndex && c.n_slots + tree_.n_slots <= kMaxCudaIndex));
  }

  // Begin a chunk for trees that need n_nodes nodes.
  void begin_chunk(const Chunk& chunk, const CudaQuadrature& nodes, int n_nodes, bool general) {
    writer_.begin_chunk(chunk, nodes, general);
    chunk_nodes_ = n_nodes;
    chunk_trees_ = chunk_sets_ = 0;
  }

  // Write the open tree, or the open part of a tree, to the open chunk.
  void add_tree() {
    CudaChunk& c = out_.chunks.back();
    c.n_frames = std::max(c.n_frames, tree_.n_frames);
    c.n_leaves += tree_.nodes.size() + 1;
    ++chunk_trees_;
    chunk_sets_ += tree_.n_sets;
    writer_.write_tree();
  }

  const Plan& plan_;
  const bool small_, leaves_;
  const CudaColumns columns_;
  CudaTree tree_;
  CudaProgram<T> out_;
  CudaWriter<T> writer_;
  int launched_nodes_[kMaxFixedNodes + 1] = {};  // by K of a tree: the K with which it is walked
  int chunk_nodes_ = 0;                          // of the trees of the open chunk
  size_t chunk_leaves_ = 0;
  size_t chunk_trees_ = 0, chunk_sets_ = 0;
};

}  // namespace

template <class T>
CudaProgram<T> make_cuda_program(const Plan& plan, CudaMethod method, size_t stage_bytes) {
  return CudaCompiler<T>(plan, method).compile(stage_bytes);
}
template CudaProgram<float> make_cuda_program(const Plan&, CudaMethod, size_t);
template CudaProgram<double> make_cuda_program(const Plan&, CudaMethod, size_t);

}  // namespace skshap
