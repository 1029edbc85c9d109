#include "tables/group_words.h"

#include "rows/coding.h"

namespace skshap {

uint64_t index_bit(uint32_t bit, size_t block) {
  constexpr uint64_t kLow[6] = {0xaaaaaaaaaaaaaaaa, 0xcccccccccccccccc, 0xf0f0f0f0f0f0f0f0,
                                0xff00ff00ff00ff00, 0xffff0000ffff0000, 0xffffffff00000000};
  if (bit < 6) return kLow[bit];
  return block >> (bit - 6) & 1 ? ~uint64_t{0} : 0;
}

void GroupWords::make(const TreeProgram& tree, const TreeGroups& groups, const TreeGroups::Group& group) {
  groups_ = &groups;
  group_ = group;
  const uint32_t n_bits = group.n_bits();
  n_blocks_ = block_count(size_t{1} << n_bits);
  block_words_ = block_words(n_bits);
  words_.assign(n_blocks_ * block_words_, ~uint64_t{0});
  for (size_t block = 0; block < n_blocks_; ++block) {
    uint64_t* const words = words_.data() + block * block_words_;
    for (uint32_t i = 0; i < n_bits; ++i) {
      const uint64_t set = index_bit(i, block);
      uint64_t* const word = words + kFirstWord + 2 * i;
      if (i < group.n_above) {
        const bool right = groups.steps[group.above + i].bit & 1;
        word[0] = right ? set : ~uint64_t{0};
        word[1] = right ? 0 : set;
        continue;
      }
      const DecideNode& node = plan_.decide[tree.decide + group.first_node + (i - group.n_above)];
      const bool is_new = node.previous < static_cast<uint32_t>(kFirstWord);
      const bool right = node.flags & kPreviousRight;
      word[0] = is_new ? ~uint64_t{0} : bit_rows(words, local(node.previous << 1 | right));
      word[1] = word[0] & set;
    }
  }
}

uint32_t GroupWords::local(uint32_t bit) const {
  const int32_t node = bit_node(bit);
  const bool inside = node >= group_.first_node && node < group_.first_node + group_.n_nodes;
  size_t i = group_.n_above + (node - group_.first_node);
  if (!inside)
    for (i = 0; groups_->steps[group_.above + i].bit != bit;) ++i;
  return bit_of(static_cast<int32_t>(i), bit & 1);
}

void GroupWords::leaf_patterns(const PathStep* path, uint32_t n, Aligned<uint16_t>& out) const {
  uint32_t bits[kMaxTableBits];
  for (uint32_t i = 0; i < n; ++i) bits[i] = local(path[i].bit);
  grow(out, n_blocks_ * kBlockRows);
  Decisions{words_.data(), block_words_, n_blocks_}.index(bits, n, out.data());
}

}  // namespace skshap
