// Fast TreeSHAP v2 on a GPU: the tables of leaves that baselines/fast_v2.cpp describes, looked up like the
// tables of trees.
#include <algorithm>
#include <memory>
#include <stdexcept>

#include "cuda/chunk_model.cuh"
#include "cuda/table_model.cuh"

namespace skshap {
// Names of kernels in an unnamed namespace contain the number of nvcc's process, so that two builds differ.
namespace gpu_leaf_tables {

struct CudaLeafTable {
  uint32_t bits, n_bits;  // a bit for each feature of the path
  uint32_t targets, n_outputs;
  size_t numbers;  // the ratio of each feature, the values of the leaf, then its table
};

// Add the contributions of a leaf to the features of its path, like add_leaf in
// baselines/leaf_table_kernels-inl.h.
template <class T>
__device__ __forceinline__ void add_numbers(const CudaTableArgs<T, CudaLeafTable>& a,
                                            const CudaLeafTable& leaf, uint32_t index, T* phi, int stride) {
  const T *const ratios = a.numbers + leaf.numbers, *const values = ratios + leaf.n_bits,
                 *const table = values + leaf.n_outputs;
  const uint32_t* target = a.targets + leaf.targets;
  const T off = -__ldg(table + index);
  for (uint32_t i = 0; i < leaf.n_bits; ++i) {
    const bool satisfied = index >> i & 1;
    const T share = satisfied ? __ldg(ratios + i) * __ldg(table + (index ^ 1u << i)) : off;
    for (uint32_t o = 0; o < leaf.n_outputs; ++o) phi[__ldg(target++) * stride] += __ldg(values + o) * share;
  }
}

// The leaves of a plan with their tables. The slots of their chunks are added to the program's.
template <class T>
class LeafTableWriter {
 public:
  LeafTableWriter(const Plan& plan, CudaProgram<T>& program) : plan_(plan), columns_(plan), out_(program) {}

  CudaTableTrees<T, CudaLeafTable> write() {
    const Tables& from = plan_.tables;
    tables_.numbers.reserve(from.n_elements + from.leaf_features.size() + plan_.leaf_values.size());
    const LeafTable* leaves = from.leaf_tables.data();
    for (const Chunk& chunk : plan_.chunks) {
      const int32_t first = static_cast<int32_t>(tables_.trees.size());
      for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i) {
        add_tree(chunk, plan_.trees[i], leaves);
        leaves += plan_.trees[i].n_inner + 1;
      }
      add_slots(chunk, first);
    }
    tables_.require_positions_fit(out_.slots.size());
    return std::move(tables_);
  }

 private:
  void add_tree(const Chunk& chunk, const TreeProgram& tree, const LeafTable* leaves) {
    const size_t n_leaves = tree.n_inner + 1, n_outputs = n_used_outputs(plan_, chunk);
    tables_.begin_tree(plan_.decide.data() + tree.decide, tree.n_inner, n_leaves, columns_);
    const double* values = plan_.leaf_values.data() + tree.leaves;
    for (size_t i = 0; i < n_leaves; ++i, values += n_outputs) add_leaf(chunk, leaves[i], values);
  }

  void add_leaf(const Chunk& chunk, const LeafTable& leaf, const double* values) {
    const uint32_t n_outputs = static_cast<uint32_t>(n_used_outputs(plan_, chunk));
    tables_.lookups.push_back({.bits = static_cast<uint32_t>(tables_.bits.size()),
                               .n_bits = leaf.n_features,
                               .targets = static_cast<uint32_t>(tables_.targets.size()),
                               .n_outputs = n_outputs,
                               .numbers = tables_.numbers.size()});
    for (uint32_t f = leaf.features; f < leaf.features + leaf.n_features; ++f) {
      const LeafFeature& feature = plan_.tables.leaf_features[f];
      tables_.bits.push_back(feature.bit);
      tables_.numbers.push_back(static_cast<T>((1 - feature.zero_fraction) / feature.zero_fraction));
      for (size_t o = 0; o < n_outputs; ++o)
        tables_.targets.push_back(static_cast<uint32_t>(feature.slot + o * chunk.slots.size()));
    }
    for (size_t o = 0; o < n_outputs; ++o)
      tables_.numbers.push_back(static_cast<T>(values[o] / plan_.leaf_scale));
    const T* const table = numbers_of<T>(plan_.tables).data() + leaf.table;
    tables_.numbers.insert(tables_.numbers.end(), table, table + (size_t{1} << leaf.n_features));
  }

  void add_slots(const Chunk& chunk, int32_t first_tree) {
    const size_t n_outputs = n_used_outputs(plan_, chunk);
    tables_.chunks.push_back({first_tree, static_cast<int32_t>(tables_.trees.size()),
                              static_cast<uint32_t>(out_.slots.size()),
                              static_cast<uint32_t>(n_outputs * chunk.slots.size())});
    const int32_t first_output = std::max(chunk.output, 0);
    for (size_t o = 0; o < n_outputs; ++o)
      for (const int32_t feature : chunk.slots)
        out_.slots.push_back({first_output + static_cast<int32_t>(o), feature});
  }

  const Plan& plan_;
  const CudaColumns columns_;
  CudaProgram<T>& out_;
  CudaTableTrees<T, CudaLeafTable> tables_;
};

template <class T>
std::unique_ptr<BatchModel> make(const Plan& plan) {
  CudaProgram<T> program = make_cuda_program<T>(plan, CudaMethod::kChunks, 0);
  const auto tables = LeafTableWriter<T>(plan, program).write();
  auto model = std::make_unique<ChunkModel<T>>(plan, program);
  if (!tables.chunks.empty())  // trees of a single leaf are in no chunk
    model->add(std::make_unique<TableModel<T, CudaLeafTable>>(model->context(program), tables));
  return model;
}

std::unique_ptr<BatchModel> make_leaf_tables(const Plan& plan) {
  if (plan.tables.leaf_tables.empty() && !plan.trees.empty())
    throw std::invalid_argument("the plan was not compiled for Fast TreeSHAP v2");
  return plan.precision == Precision::kSingle ? make<float>(plan) : make<double>(plan);
}

const RegisteredModel fast_v2("fast_v2", make_leaf_tables);

}  // namespace gpu_leaf_tables
}  // namespace skshap
