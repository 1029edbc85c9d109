// The contributions of a leaf to the features of its path and to their pairs, against background data. They
// are computed from the distinct patterns of these data, one after another.
//
// Let x be the set of the path's features that the row satisfies, and b the set that a background row
// satisfies. The leaf counts if x and b together cover all features, if the features in x only are known, and
// if the features in b only are unknown; see tables/table_builder.h. At t, with p features in x only and q in
// b only, this has the probability t^p (1 - t)^q. The interaction of two features is the mixed derivative of
// this probability by both, integrated over t:
//     both in x only: t^(p - 2) (1 - t)^q,  both in b only: t^p (1 - t)^(q - 2),
//     one each:      -t^(p - 1) (1 - t)^(q - 1).
#pragma once

#include <algorithm>
#include <vector>

#include "plan/pattern_moments.h"

namespace skshap {

// Return the features of each group as bits, in the order in which the groups occur among n features, given
// the group of each feature.
template <class Bits, class GroupOf>
std::vector<Bits> members_of_groups(uint32_t n, const GroupOf& group_of) {
  std::vector<int32_t> groups;
  std::vector<Bits> members;
  for (uint32_t i = 0; i < n; ++i) {
    const int32_t group = group_of(i);
    const size_t number =
        static_cast<size_t>(std::find(groups.begin(), groups.end(), group) - groups.begin());
    if (number == groups.size()) {
      groups.push_back(group);
      members.push_back(0);
    }
    members[number] |= Bits{1} << i;
  }
  return members;
}

class PatternVectors {
 public:
  // Prepare for an index and an order. The number of a pair is half of the interaction, as in plan/plan.h.
  PatternVectors(Index index, int order) : order_(order), moments_(index) {}

  // Write the numbers of x, times a value, for a path of n features.
  template <class T>
  void write(uint32_t n, uint64_t x, const uint64_t* patterns, const double* weights, size_t n_patterns,
             double value, T* out);

  // Write the Owen values of x. `groups` has the features of each group as bits.
  void write_owen(uint32_t n, uint64_t x, const std::vector<uint64_t>& groups, const uint64_t* patterns,
                  const double* weights, size_t n_patterns, double* out) const;

  // Return the bytes allocated for paths of at most `longest` features.
  static size_t bytes(int order, uint32_t longest) {
    return 8 * (2 * PatternMoments::kSize * PatternMoments::kSize + leaf_numbers(order, longest));
  }

 private:
  const int order_;
  const PatternMoments moments_;
  std::vector<double> numbers_;
};

}  // namespace skshap
