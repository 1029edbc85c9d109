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

  // Write the pattern of a leaf of the group for each index. The leaf's path has n features.
  void leaf_patterns(const PathStep* path, uint32_t n, Aligned<uint16_t>& out) const;

 private:
  // Return the bit of these words that stands for a bit of the tree.
  uint32_t local(uint32_t bit) const;

  const Plan& plan_;
  const TreeGroups* groups_ = nullptr;
  TreeGroups::Group group_{};
  size_t block_words_ = 0, n_blocks_ = 0;
  std::vector<uint64_t> words_;
};

}  // namespace skshap
