// Plan -> CudaLeaves. Host only, needs no CUDA.
#include "cuda/program/leaves.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "cuda/program/paths.h"
#include "cuda/program/program.h"
#include "plan/quadrature.h"

namespace skshap {
namespace {

// The most elements of a path. The elements of a chunk are in shared memory.
constexpr int kMostElements = 2 * kMaxFixedNodes;

template <class T>
class LeafWriter {
 public:
  LeafWriter(const Plan& plan, CudaProgram<T>& program)
      : plan_(plan),
        program_(program),
        out_(program.leaves),
        set_(make_paths(plan)),
        slot_of_(plan.features.size(), -1) {}

  void write() {
    if (set_.category_bits.size() >= kMissingPasses) throw std::invalid_argument("too many categories");
    out_.category_bits = std::move(set_.category_bits);
    // Sort the leaves by their number of nodes, for each of which there is a launch, and by output.
    // Otherwise, they keep the order of the trees.
    std::vector<uint32_t> order(set_.paths.size());
    std::iota(order.begin(), order.end(), 0);
    const auto key = [&](uint32_t i) {
      return std::make_pair(nodes_of(set_.paths[i]), set_.paths[i].output);
    };
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
    for (auto first = order.begin(); first != order.end();) {
      auto end = first;
      while (end != order.end() && end - first < kChunkOfLeaves && key(*end) == key(*first)) ++end;
      write_chunk(first, end);
      first = end;
    }
  }

 private:
  using LeafIterator = std::vector<uint32_t>::const_iterator;

  static uint32_t n_elements(const LeafPath& path) { return path.length - 1; }  // without the root
  int nodes_of(const LeafPath& path) const {
    return quadrature_nodes(plan_.index, static_cast<int>(n_elements(path)));
  }
  const PathElement& element(uint32_t path, uint32_t i) const {
    return set_.elements[set_.begins[path] + 1 + i];
  }

  void write_chunk(LeafIterator first, LeafIterator end) {
    CudaLeafChunk chunk{};
    const LeafPath& example = set_.paths[*first];
    chunk.n_nodes = nodes_of(example);
    for (LeafIterator leaf = first; leaf != end; ++leaf)
      chunk.length = std::max(chunk.length, n_elements(set_.paths[*leaf]));
    chunk.elements = out_.tests.size();
    chunk.values = out_.values.size();
    // All rows pass elements that a path does not have, whether the feature is known or unknown.
    out_.tests.resize(out_.tests.size() + chunk.length * kChunkOfLeaves,
                      {kNoSetColumn << 16, 0xffffu << 16, kMissingPasses, 0});
    out_.zero_fractions.resize(out_.tests.size(), T(1));
    out_.values.resize(out_.values.size() + kChunkOfLeaves, T(0));
    elements_of_slot_.clear();
    for (LeafIterator leaf = first; leaf != end; ++leaf)
      write_leaf(chunk, *leaf, static_cast<uint32_t>(leaf - first));
    write_slots(chunk, example.output);
    out_.chunks.push_back(chunk);
  }

  void write_leaf(const CudaLeafChunk& chunk, uint32_t path, uint32_t place) {
    out_.values[chunk.values + place] =
        static_cast<T>(plan_.leaf_values[set_.paths[path].values] / plan_.leaf_scale);
    for (uint32_t i = 0; i < n_elements(set_.paths[path]); ++i) {
      const PathElement& e = element(path, i);
      const uint32_t at = i * kChunkOfLeaves + place;
      const uint32_t set_column = e.set == kNoSet ? kNoSetColumn : e.set_column;
      out_.tests[chunk.elements + at] = {e.column | set_column << 16,
                                         e.lower | std::min(e.upper, uint32_t{0xffff}) << 16,
                                         (e.set == kNoSet ? 0 : e.set) | (e.missing ? kMissingPasses : 0), 0};
      out_.zero_fractions[chunk.elements + at] = static_cast<T>(e.zero_fraction);
      int32_t& slot = slot_of_[e.feature];
      if (slot < 0) {
        slot = static_cast<int32_t>(elements_of_slot_.size());
        features_.push_back(e.feature);
        elements_of_slot_.emplace_back();
      }
      elements_of_slot_[slot].push_back(static_cast<uint16_t>(at));
    }
  }

  void write_slots(CudaLeafChunk& chunk, int32_t output) {
    chunk.n_slots = static_cast<uint32_t>(features_.size());
    chunk.first_slot = static_cast<uint32_t>(program_.slots.size());
    chunk.slot_begins = out_.slot_begins.size();
    for (size_t slot = 0; slot < features_.size(); ++slot) {
      program_.slots.push_back({output, features_[slot]});
      out_.slot_begins.push_back(static_cast<uint32_t>(out_.slot_elements.size()));
      out_.slot_elements.insert(out_.slot_elements.end(), elements_of_slot_[slot].begin(),
                                elements_of_slot_[slot].end());
      slot_of_[features_[slot]] = -1;
    }
    out_.slot_begins.push_back(static_cast<uint32_t>(out_.slot_elements.size()));
    features_.clear();
  }

  const Plan& plan_;
  CudaProgram<T>& program_;
  CudaLeaves<T>& out_;
  PathSet set_;
  std::vector<int32_t> slot_of_, features_;  // of the chunk
  std::vector<std::vector<uint16_t>> elements_of_slot_;
};

}  // namespace

bool has_leaf_chunks(const Plan& plan) {
  const auto is_narrow = [](const Column& column) {
    return column.thresholds_float.size() + column.thresholds_double.size() <= kCudaRanks &&
           column.categories.size() <= kCudaCategories;
  };
  // If a player had several columns, an element would need several tests.
  std::vector<int32_t> inputs(plan.features.size(), -1);
  const auto is_alone = [&](const Column& column) {
    const auto at = std::lower_bound(plan.features.begin(), plan.features.end(), column.feature);
    int32_t& input = inputs[static_cast<size_t>(at - plan.features.begin())];
    if (input < 0) input = column.input;
    return input == column.input;
  };
  return plan.order == 1 && plan.groups.empty() && !plan.tables.any() && !plan.intervals.any() &&
         plan.columns.size() < kNoSetColumn &&
         std::all_of(plan.columns.begin(), plan.columns.end(), is_narrow) &&
         std::all_of(plan.columns.begin(), plan.columns.end(), is_alone) &&
         std::all_of(
             plan.chunks.begin(), plan.chunks.end(), [](const Chunk& chunk) { return chunk.output >= 0; }) &&
         std::all_of(
             plan.trees.begin(), plan.trees.end(),
             [](const TreeProgram& tree) {
               return tree.walked && !tree.merged && tree.n_features <= kMostElements;
             });
}

template <class T>
void add_leaves(const Plan& plan, CudaProgram<T>& program) {
  LeafWriter<T>(plan, program).write();
}
template void add_leaves(const Plan&, CudaProgram<float>&);
template void add_leaves(const Plan&, CudaProgram<double>&);

}  // namespace skshap
