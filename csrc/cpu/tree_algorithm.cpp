#include "cpu/tree_algorithm.h"

#include <stdexcept>
#include <string>

#include "tables/table_costs.h"

namespace skshap {

std::vector<const TreeAlgorithm*>& tree_algorithms() {
  static std::vector<const TreeAlgorithm*> all;
  return all;
}

void set_algorithm(Plan& plan, const TreeAlgorithm& algorithm, const TableRequest& request) {
  const size_t most = algorithm.max_path_features;
  if (most < plan.features.size()) {
    const size_t longest = longest_path(plan);
    if (longest > most)
      throw std::invalid_argument("a path has " + std::to_string(longest) +
                                  " different features; the method '" + algorithm.name +
                                  "' allows for at most " + std::to_string(most));
  }
  if (algorithm.add_tables) algorithm.add_tables(plan, request);
  plan.tree_algorithm = &algorithm;
}

}  // namespace skshap
