// The numbering of pairs and triples of features that occur on one path.
#pragma once

#include <unordered_map>
#include <utility>

#include "plan/walk_program.h"

namespace skshap {

// The numbers of interactions while a program is written. Each interaction has a slot in the last chunk,
// where the walk sums it, and a place in the program.
class InteractionNumbers {
 public:
  explicit InteractionNumbers(WalkProgram& program) : program_(program) {}

  void begin_chunk();

  // Return the slot of an interaction, given the slots of its features in any order.
  uint32_t pair(uint32_t a, uint32_t b);
  uint32_t triple(uint32_t a, uint32_t b, uint32_t c);

 private:
  // Numbers in order of appearance. The key of a triple consists of the number of its first two features and
  // of its third feature.
  using Numbers = std::unordered_map<uint64_t, uint32_t>;

  static std::pair<uint32_t, bool> number(Numbers& numbers, uint32_t first, uint32_t second);
  uint32_t pair_place(int32_t first, int32_t second);

  WalkProgram& program_;
  Numbers pair_slots_, triple_slots_;
  Numbers pair_places_, triple_places_;
};

// Sort the interactions of a program in ascending order, once all are known.
void sort_interactions(WalkProgram& program);

}  // namespace skshap
