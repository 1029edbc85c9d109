// The indices of a group of leaves as decisions, so that the kernels that decide for rows do for them, too.
#pragma once

#include "base/aligned.h"
#include "tables/tree_groups.h"

namespace skshap {

// Return bit `bit` of 64 consecutive indices, the first of which is 64 times `block`.
uint64_t index_bit(uint32_t bit, size_t block);

// Decision words for every value of a group's index: of the path above the group and of its nodes. The index
// may begin at a later bit.
class GroupWords {
 public:
  explicit GroupWords(const Plan& plan) : plan_(plan) {}

  void make(const TreeProgram& tree, const TreeGroups& groups, const TreeGroups::Group& group,
            uint32_t first_bit = 0);

  // A bit of the tree among those words; the first_bit first steps of the path have none.
  uint32_t local(uint32_t bit) const;

  // The number that such bits are, for each row.
  void index(const std::vector<uint32_t>& bits, Aligned<uint16_t>& out) const;

  const uint64_t* data() const { return words_.data(); }
  size_t block_words() const { return block_words_; }
  size_t n_blocks() const { return n_blocks_; }

 private:
  const Plan& plan_;
  const TreeGroups* groups_ = nullptr;
  TreeGroups::Group group_{};
  uint32_t first_bit_ = 0;
  size_t block_words_ = 0, n_blocks_ = 0;
  std::vector<uint64_t> words_;
};

}  // namespace skshap
