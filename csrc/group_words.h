// The indices of a group of leaves as decisions, so that the kernels that decide for rows do for them, too.
#pragma once

#include "table_builder.h"

namespace skshap {

// Of a node, as in Tables: rows that go left, or right, of those that are alive there.
inline uint32_t bit_of(int32_t node, bool right) {
  return static_cast<uint32_t>(kFirstWord + 2 * node) << 1 | right;
}

// The words that rows with each of a group's indices would have, of the path above and of its nodes.
class GroupWords {
 public:
  explicit GroupWords(const Plan& plan) : plan_(plan) {}

  void make(const TreeProgram& tree, const TreeGroups& groups, const TreeGroups::Group& group);

  // A bit of the tree among those words.
  uint32_t local(uint32_t bit) const;

  const uint64_t* data() const { return words_.data(); }
  size_t block_words() const { return block_words_; }
  size_t n_blocks() const { return n_blocks_; }

 private:
  const Plan& plan_;
  const TreeGroups* groups_ = nullptr;
  TreeGroups::Group group_{};
  size_t block_words_ = 0, n_blocks_ = 0;
  std::vector<uint64_t> words_;
};

}  // namespace skshap
