// Plan -> PathSet: paths with their roots. This code runs on the host only.
#include "cuda/program/paths.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "plan/leaf_tests.h"

namespace skshap {
namespace {

class PathWriter {
 public:
  explicit PathWriter(const Plan& plan) : plan_(plan), tests_(plan) {}

  PathSet write() {
    for (const Chunk& chunk : plan_.chunks)
      for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i)
        tests_.run(chunk, plan_.trees[i], [&](size_t values, const std::vector<LeafTest>& path) {
          add_path(path, values, chunk.output);
        });
    out_.category_bits = std::move(tests_.category_bits);
    return std::move(out_);
  }

 private:
  void add_path(const std::vector<LeafTest>& path, size_t values, int32_t output) {
    if (path.size() >= kPathLanes)
      throw std::invalid_argument(
          "algorithm='gputreeshap' cannot explain this model: a path of one of its trees "
          "tests more than " +
          std::to_string(kPathLanes - 1) + " distinct features; use algorithm='quadrature'");
    out_.begins.push_back(static_cast<int64_t>(out_.elements.size()));
    add_element(passing_test(-1, 0), 0);
    for (size_t i = 0; i < path.size(); ++i) add_element(path[i], i + 1);
    out_.paths.push_back({static_cast<int64_t>(values), output, static_cast<uint32_t>(path.size() + 1)});
  }

  void add_element(const LeafTest& test, size_t place) {
    out_.elements.push_back({.zero_fraction = test.zero_fraction,
                             .feature = test.feature,
                             .path = static_cast<uint32_t>(out_.paths.size()),
                             .column = test.column,
                             .lower = test.lower,
                             .upper = test.upper,
                             .set_column = test.set_column,
                             .set = test.set,
                             .missing = test.missing,
                             .place = static_cast<uint8_t>(place)});
  }

  const Plan& plan_;
  LeafTests tests_;
  PathSet out_;
};

}  // namespace

PathSet make_paths(const Plan& plan) {
  try {
    return PathWriter(plan).write();
  } catch (const SeveralColumns&) {
    throw std::invalid_argument(
        "algorithm='gputreeshap' cannot explain this model: a path of one of its trees tests several columns "
        "that are one player, as target statistics of the same categorical columns are; use "
        "algorithm='quadrature'");
  }
}

}  // namespace skshap
