// The indices of a group of leaves in the form of decision words, so that the kernels for rows can run on all
// indices, too.
#pragma once

#include "base/aligned.h"
#include "tables/tree_groups.h"

namespace skshap {

// Return a word with bit number `bit` of 64 consecutive indices, which begin at 64 * `block`.
uint64_t index_bit(uint32_t bit, size_t block);

// Decision words for every value of a group's index: words for the path above the group, and words for its
// nodes.
class GroupWords {
 public:
  explicit GroupWords(const Plan& plan) : plan_(plan) {}

  void make(const TreeProgram& tree, const TreeGroups& groups, const TreeGroups::Group& group);

  // Return the bit of these words that stands for a bit of the tree.
  uint32_t local(uint32_t bit) const;

  // Write, for each row, the number that these bits form.
  void index(const std::vector<uint32_t>& bits, Aligned<uint16_t>& out) const;

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
