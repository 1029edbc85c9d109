// Writes chunks of trees to the stream of a GPU's program. cuda/program/program.h describes the stream.
#pragma once

#include <cstring>
#include <vector>

#include "cuda/program/program.h"
#include "cuda/program/tree.h"
#include "plan/balance.h"

namespace skshap {

template <class T>
class CudaWriter {
 public:
  CudaWriter(const Plan& plan, const CudaColumns& columns, CudaTree& tree, CudaProgram<T>& program);

  // Begin a chunk, which is walked with these quadrature nodes. end_chunk ends the open chunk, if there is
  // one.
  void begin_chunk(const Chunk& chunk, const CudaQuadrature& nodes, bool general);
  void end_chunk();
  bool is_open() const { return open_; }

  // Write the open tree.
  void write_tree();

 private:
  using Element = typename CudaProgram<T>::Element;

  // An element of the stream that holds a slot, and the number of the slot's first bit in it.
  struct SlotUse {
    size_t at;
    int shift;
  };

  int32_t number_of(const CudaQuadrature& nodes);
  uint32_t slot(int32_t place);
  bool has_shares(int32_t place) const;
  void sort_slots();
  // A step of writing a tree: a visit of a node or, in the fused form, the frame or leaf of a joined place.
  struct Step {
    enum Kind { kVisit, kMiddle, kExit, kJoinEnter, kJoinMiddle, kJoinExit, kJoinLeaf } kind;
    int32_t node;
    const double* leaf;
  };

  void push_place(const CudaTree::Place& place);
  void push_children(int32_t i);
  bool visit(int32_t i);
  void exit(int32_t i);
  void write_frame(CudaKind kind, int32_t i, double constant);
  void join(const Step& step);
  void emit_interactions(int32_t i) { plan_.order < 3 ? emit_pairs(i) : emit_triples(i); }
  void emit_pairs(int32_t i);
  void emit_triples(int32_t i);
  template <class PlaceOf>
  void emit_steps(int32_t i, const std::vector<int32_t>& others, const PlaceOf& place_of);
  void lambda(int32_t above, int32_t node);
  void emit_fused(int32_t i);
  void pair_elements(int32_t i);
  // Return t_k for a node, or s_k if the node's feature is apart.
  const std::vector<double>& times(const CudaTree::Node& n) const { return n.apart ? nodes_.s : nodes_.t; }
  void factors(const CudaTree::Node& n);
  void node(int32_t i, bool decides = true);
  bool general_visit(int32_t i);
  void general_exit(int32_t i);
  void general_node(int32_t i, CudaGeneralOp code);
  void general_interactions(int32_t i) { plan_.order < 3 ? general_pairs(i) : general_triples(i); }
  void general_pairs(int32_t i);
  void general_triples(int32_t i);
  void general_leaf(const double* values);
  uint32_t set_number(uint32_t first_word);
  void take_bit(int32_t i);
  void give_bit(int32_t i);
  double leaf(const double* x) const { return *x / plan_.leaf_scale; }
  uint32_t width() const { return output_ < 0 ? plan_.n_outputs : 1; }

  void op(uint32_t code, uint32_t frame = 0) {
    op_begin_ = out_.stream.size();
    element(frame << 8 | code);
  }
  void element(uint32_t x) { out_.stream.push_back(x); }
  // Write an element with the slot of a place and other bits.
  void slot_element(int32_t place, int shift, uint32_t other_bits) {
    if (plan_.order > 2) uses_.push_back({out_.stream.size(), shift});
    element(slot(place) << shift | other_bits);
  }
  void value(double x) {
    const T rounded = static_cast<T>(x);
    Element e;
    std::memcpy(&e, &rounded, sizeof(e));
    out_.stream.push_back(e);
  }
  void pad(size_t multiple) {
    const size_t begin = out_.chunks.back().begin;
    out_.stream.resize(begin + (out_.stream.size() - begin + multiple - 1) / multiple * multiple);
  }
  // End an operation: pad it to 16 bytes. If it would leave no memory for the end of the segment, move it to
  // a new segment.
  void close() {
    std::vector<Element>& stream = out_.stream;
    pad(4);
    const size_t begin = out_.chunks.back().begin;
    if ((op_begin_ - begin) / kCudaSegment == (stream.size() + 3 - begin) / kCudaSegment) return;
    const std::vector<Element> moved(stream.begin() + op_begin_, stream.end());
    stream.resize(op_begin_);
    element(kCudaEndSegment);
    pad(kCudaSegment);
    for (auto use = uses_.rbegin(); use != uses_.rend() && use->at >= op_begin_; ++use)
      use->at += stream.size() - op_begin_;
    stream.insert(stream.end(), moved.begin(), moved.end());
  }

  const Plan& plan_;
  const CudaColumns& columns_;
  CudaTree& tree_;
  CudaProgram<T>& out_;
  const bool pairs_;
  const Balance balance_;
  const Chunk* chunk_ = nullptr;  // of the plan
  int n_ = 0;                     // K
  int32_t output_ = 0;
  uint32_t height_ = 0;  // of the chunk
  bool open_ = false;
  CudaQuadrature nodes_;
  std::vector<int32_t> slot_, slot_places_;  // of the chunk: place -> slot, and the places that have a slot
  std::vector<SlotUse> uses_;                // of the chunk, for triples
  std::vector<int32_t> own_;                 // alive bit of a tracked node
  uint32_t free_bits_ = 0;
  std::vector<Step> steps_;  // that are left, the next one last
  size_t op_begin_ = 0;
};

}  // namespace skshap
