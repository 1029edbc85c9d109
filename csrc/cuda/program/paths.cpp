// Plan -> PathSet: paths with their roots. This code runs on the host only.
#include "cuda/program/paths.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace skshap {
namespace {

void add_path(const std::vector<LeafTest>& path, size_t values, int32_t output, PathSet& out) {
  if (path.size() >= kPathLanes)
    throw std::invalid_argument(
        "algorithm='gputreeshap' cannot explain this model: a path of one of its trees "
        "tests more than " +
        std::to_string(kPathLanes - 1) + " distinct features; use algorithm='quadrature'");
  const uint32_t number = static_cast<uint32_t>(out.paths.size());
  out.begins.push_back(static_cast<int64_t>(out.elements.size()));
  out.elements.push_back({passing_test(-1, 0), number, 0});
  for (size_t i = 0; i < path.size(); ++i)
    out.elements.push_back({path[i], number, static_cast<uint8_t>(i + 1)});
  out.paths.push_back({static_cast<int64_t>(values), output, static_cast<uint32_t>(path.size() + 1)});
}

}  // namespace

PathSet make_paths(const Plan& plan) {
  PathSet out;
  LeafTests tests(plan);
  try {
    for (const Chunk& chunk : plan.chunks)
      for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i)
        tests.run(chunk, plan.trees[i], [&](size_t values, const std::vector<LeafTest>& path) {
          add_path(path, values, chunk.output, out);
        });
  } catch (const SeveralColumns&) {
    throw std::invalid_argument(
        "algorithm='gputreeshap' cannot explain this model: a path of one of its trees tests several columns "
        "that are one player, as target statistics of the same categorical columns are; use "
        "algorithm='quadrature'");
  }
  out.category_bits = std::move(tests.category_bits);
  return out;
}

}  // namespace skshap
