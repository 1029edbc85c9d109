// Leaves of a plan that have no table -> leaves of a GPU. This code runs on the host and does not need CUDA.
#include "cuda/program/pattern_leaves.h"

#include <algorithm>
#include <stdexcept>
#include <unordered_map>

#include "cuda/program/program.h"
#include "cuda/program/tuning.h"
#include "plan/pattern_moments.h"
#include "plan/tree_paths.h"

namespace skshap {
namespace {

template <class T>
class PatternWriter {
 public:
  PatternWriter(const Plan& plan, const CudaColumns& columns, const std::vector<PatternPanel>* panels)
      : plan_(plan),
        tables_(plan.tables),
        columns_(columns),
        panels_(panels),
        slot_of_(n_places() * plan.n_outputs, kNone) {}

  CudaPatternLeaves<T> write() {
    uint32_t fewest = 0;
    for (form_ = 0; form_ < kNumberOfPatternForms; ++form_) {
      for (const TableBatch& batch : tables_.batches)
        for (size_t t = batch.trees; t < batch.trees_end; ++t)
          for (size_t i = tables_.trees[t].leaves; i < tables_.trees[t].leaves_end; ++i) {
            const PatternLeaf& leaf = tables_.leaves[i];
            if (leaf.n_bits >= fewest && leaf.n_bits <= kPatternForms[form_])
              add_leaf(batch, tables_.trees[t], leaf);
          }
      end_chunk();
      fewest = kPatternForms[form_] + 1;
    }
    return std::move(out_);
  }

 private:
  // The data that all entries of a leaf share, for all outputs and panels.
  struct PatternPath {
    CudaPatternLeaf leaf{};
    std::vector<uint32_t> order;  // of the plan's patterns; kNone: padding
  };
  static constexpr uint32_t kNone = ~uint32_t{0};

  void add_leaf(const TableBatch& batch, const TableTree& tree, const PatternLeaf& from) {
    // The outputs of a leaf may have separate entries in the plan, too.
    const auto [entry, is_new] = paths_.try_emplace(from.patterns);
    PatternPath& path = entry->second;
    if (is_new) {
      path.leaf.n_bits = from.n_bits;
      add_tests(tree, from, path.leaf);
      add_patterns(from, path);
    }
    CudaPatternLeaf leaf = path.leaf;
    if (!panels_) {
      add_outputs(leaf, path, batch, from, 0, from.n_outputs);
      return;
    }
    const size_t first = tables_.places[batch.places + tables_.targets[from.targets]] / n_places();
    for (const PatternPanel& panel : *panels_) {
      if (panel.output < first || panel.output >= first + from.n_outputs) continue;
      leaf.first_alpha = panel.first_alpha;
      leaf.n_terms = static_cast<uint32_t>(panel.weights.size());
      leaf.weights = out_.terms.size();
      add_terms(from, path, panel);
      add_outputs(leaf, path, batch, from, panel.output - first, 1);
    }
  }

  size_t n_places() const { return plan_.features.size() + plan_.pairs.size(); }

  // Add the splits on the path. DecideNode::previous links the splits on a feature.
  void add_tests(const TableTree& tree, const PatternLeaf& from, CudaPatternLeaf& leaf) {
    const DecideNode* const nodes = plan_.decide.data() + plan_.trees[tree.tree].decide;
    leaf.tests = out_.tests.size();
    for (uint32_t i = 0; i < from.n_bits; ++i)
      for (uint32_t bit = tables_.bits[from.bits + i]; bit >> 1 >= static_cast<uint32_t>(kFirstWord);) {
        const DecideNode& node = nodes[bit_node(bit)];
        const CudaNode test = columns_.margin_node(node);
        const uint32_t flip = bit & 1 ? uint32_t{kNodeFlip} : 0;
        out_.tests.push_back({test.column_flags ^ flip, test.operand, i, 0});
        bit = previous_bit(node);
      }
    leaf.n_tests = static_cast<uint32_t>(out_.tests.size() - leaf.tests);
  }

  // Add the patterns in runs.
  void add_patterns(const PatternLeaf& from, PatternPath& path) {
    const uint64_t all = ~uint64_t{0} >> (64 - from.n_bits), *const patterns =
                                                                 tables_.patterns.data() + from.patterns;
    std::vector<std::vector<uint32_t>> by_missing(from.n_bits + 1);
    for (uint32_t i = 0; i < from.n_patterns; ++i)
      by_missing[__builtin_popcountll(all & ~patterns[i])].push_back(i);
    const bool is_narrow = from.n_bits <= kNarrowBits;
    path.leaf.patterns = is_narrow ? out_.narrow.size() : out_.wide.size();
    path.leaf.weights = out_.weights.size();
    path.leaf.runs = out_.runs.size();
    for (uint32_t n_missing = 0; n_missing <= from.n_bits; ++n_missing) {
      std::vector<uint32_t>& run = by_missing[n_missing];
      if (run.empty()) continue;
      run.resize((run.size() + kPatternsAtOnce - 1) / kPatternsAtOnce * kPatternsAtOnce, kNone);
      out_.runs.push_back({n_missing, static_cast<uint32_t>(run.size())});
      for (const uint32_t i : run) {
        const uint64_t missing = i == kNone ? all : all & ~patterns[i];  // padding has the weight 0
        if (is_narrow)
          out_.narrow.push_back(static_cast<uint32_t>(missing));
        else
          out_.wide.push_back(missing);
        if (!panels_) out_.weights.push_back(i == kNone ? 0 : tables_.weights[from.patterns + i]);
      }
      path.order.insert(path.order.end(), run.begin(), run.end());
    }
    path.leaf.n_runs = static_cast<uint32_t>(out_.runs.size() - path.leaf.runs);
  }

  void add_terms(const PatternLeaf& from, const PatternPath& path, const PatternPanel& panel) {
    const size_t stride = (panel.weights.size() + kTermsAtOnce - 1) / kTermsAtOnce * kTermsAtOnce;
    for (const uint32_t i : path.order) {
      const size_t first = out_.terms.size();
      out_.terms.resize(first + stride);
      for (size_t k = 0; k < panel.weights.size() && i != kNone; ++k)
        out_.terms[first + k] = static_cast<T>(panel.weights[k][from.patterns + i]);
    }
  }

  // Add a leaf with some of its outputs.
  void add_outputs(CudaPatternLeaf leaf, const PatternPath& path, const TableBatch& batch,
                   const PatternLeaf& from, size_t first_output, size_t n_outputs) {
    if (out_.leaves.size() - first_leaf_ >= kPatternChunkLeaves ||
        (work_ >= kPatternChunkWork && work_ >= kPatternWorkPerSlot * (out_.places.size() - first_slot_)))
      end_chunk();
    const size_t n_numbers = leaf_numbers(plan_.order, from.n_bits);
    leaf.n_outputs = static_cast<uint32_t>(n_outputs);
    leaf.slots = out_.slots.size();
    for (size_t i = 0; i < n_numbers; ++i)
      for (size_t o = first_output; o < first_output + n_outputs; ++o)
        out_.slots.push_back(slot(tables_.places[batch.places + tables_.targets[from.targets + i] + o]));
    leaf.values = out_.values.size();
    for (size_t o = first_output; o < first_output + n_outputs; ++o)
      out_.values.push_back(plan_.leaf_values[from.leaf + o] / plan_.leaf_scale);
    out_.leaves.push_back(leaf);
    work_ += leaf.n_tests + path.order.size() * (plan_.order > 1 ? from.n_bits + size_t{1} : 1);
  }

  // Return the slot of a place in the chunk.
  uint32_t slot(uint32_t place) {
    if (slot_of_[place] == kNone) {
      slot_of_[place] = static_cast<uint32_t>(out_.places.size() - first_slot_);
      out_.places.push_back(place);
    }
    return slot_of_[place];
  }

  void end_chunk() {
    if (first_leaf_ < out_.leaves.size()) {
      out_.chunks.push_back({first_leaf_, out_.leaves.size(), static_cast<uint32_t>(first_slot_),
                             static_cast<uint32_t>(out_.places.size() - first_slot_)});
      ++out_.n_chunks[form_];
    }
    for (size_t i = first_slot_; i < out_.places.size(); ++i) slot_of_[out_.places[i]] = kNone;
    first_leaf_ = out_.leaves.size();
    first_slot_ = out_.places.size();
    work_ = 0;
  }

  const Plan& plan_;
  const Tables& tables_;
  const CudaColumns& columns_;
  const std::vector<PatternPanel>* const panels_;
  CudaPatternLeaves<T> out_;
  std::unordered_map<size_t, PatternPath> paths_;  // by place of the patterns in the plan
  std::vector<uint32_t> slot_of_;                  // by place
  size_t form_ = 0, first_leaf_ = 0, first_slot_ = 0, work_ = 0;
};

}  // namespace

template <class T>
void add_pattern_leaves(const Plan& plan, const CudaColumns& columns, CudaProgram<T>& program) {
  if (!plan.groups.empty() && !plan.tables.leaves.empty())
    throw std::invalid_argument("a GPU computes no Owen values at leaves without a table");
  program.pattern_leaves = make_pattern_leaves<T>(plan, columns, nullptr);
  const size_t first_slot = program.slots.size();
  for (CudaPatternChunk& chunk : program.pattern_leaves.chunks)
    chunk.first_slot += static_cast<uint32_t>(first_slot);
  for (const uint32_t place : program.pattern_leaves.places)
    program.slots.push_back(slot_of_place(plan, place));
}
template void add_pattern_leaves(const Plan&, const CudaColumns&, CudaProgram<float>&);
template void add_pattern_leaves(const Plan&, const CudaColumns&, CudaProgram<double>&);

template <class T>
CudaPatternLeaves<T> make_pattern_leaves(const Plan& plan, const CudaColumns& columns,
                                         const std::vector<PatternPanel>* panels) {
  return PatternWriter<T>(plan, columns, panels).write();
}
template CudaPatternLeaves<float> make_pattern_leaves(const Plan&, const CudaColumns&,
                                                      const std::vector<PatternPanel>*);
template CudaPatternLeaves<double> make_pattern_leaves(const Plan&, const CudaColumns&,
                                                       const std::vector<PatternPanel>*);

}  // namespace skshap
