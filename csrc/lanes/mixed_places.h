// Chooses the features of vectors that are in mixed places, and lists the tests in them; see
// plan/leaf_lanes.h.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/leaf_lanes.h"
#include "plan/mixed_nodes.h"

namespace skshap {

// Vectors with at most this many places have no mixed ones: models with few features, whose loops over the
// places of a vector are unrolled, hardly have longer ones.
constexpr size_t kMostPlainPlaces = 12;

// Mixed places are chosen as if to write the code of a test and to add its value took this many tenths of a
// step (see LeafLanes::n_steps): with 11, calls took 5 to 7 % longer.
constexpr size_t kTestTenths = 7;

struct MixedChoice {
  size_t n_places = 0, n_features = 0, n_tests = 0;
};

// A lane's features.
struct LaneFeatures {
  const uint16_t* features;
  size_t n;
};

class MixedPlaceChooser {
 public:
  explicit MixedPlaceChooser(size_t n_features) : lanes_(n_features, 0) {}

  // Choose mixed places for a vector, and remove the features that they hold. can_be_mixed(feature) returns
  // whether the feature is numeric.
  template <class CanBeMixed>
  MixedChoice choose(const std::vector<LaneFeatures>& lanes, size_t n_nodes, uint16_t* features, size_t n,
                     const CanBeMixed& can_be_mixed) {
    MixedChoice best;
    if (n <= kMostPlainPlaces || n_nodes < kLeastMixedNodes || n_nodes > kMostMixedNodes) return best;
    list_lanes(lanes);
    const size_t place = 10 * (n_nodes + 1);
    rare_.clear();
    for (size_t count = 1; kTestTenths * count < place; ++count)
      for (size_t i = 0; i < n; ++i)
        if (n_lanes(features[i]) == count && can_be_mixed(features[i])) rare_.push_back(features[i]);
    size_t least = n * place;
    for (size_t n_places = 1; n_places <= kMostMixed; ++n_places) {
      const MixedChoice choice = fill(n_places);
      const size_t cost = (n - choice.n_features + n_places) * place + kTestTenths * choice.n_tests;
      if (cost >= least) break;
      least = cost;
      best = choice;
    }
    mixed_.clear();
    if (best.n_places) fill(best.n_places);
    for (const uint16_t feature : mixed_) lanes_[feature] = 0;
    for (size_t i = 0, to = 0; i < n; ++i)
      if (lanes_[features[i]]) features[to++] = features[i];
    for (const LaneFeatures& lane : lanes)
      for (size_t i = 0; i < lane.n; ++i) lanes_[lane.features[i]] = 0;
    return best;
  }

 private:
  void list_lanes(const std::vector<LaneFeatures>& lanes) {
    mixed_.clear();
    for (size_t lane = 0; lane < lanes.size(); ++lane)
      for (size_t i = 0; i < lanes[lane].n; ++i) lanes_[lanes[lane].features[i]] |= 1u << lane;
  }

  size_t n_lanes(uint16_t feature) const { return static_cast<size_t>(__builtin_popcount(lanes_[feature])); }

  // Fill mixed places with the rarest features whose lanes all have room.
  MixedChoice fill(size_t n_places) {
    MixedChoice choice{.n_places = n_places};
    std::array<size_t, 32> n_taken{};
    uint32_t full = 0;
    mixed_.clear();
    for (const uint16_t feature : rare_) {
      if (lanes_[feature] & full) continue;
      mixed_.push_back(feature);
      for (uint32_t rest = lanes_[feature]; rest; rest &= rest - 1) {
        const int lane = __builtin_ctz(rest);
        if (++n_taken[lane] == n_places) full |= 1u << lane;
      }
      ++choice.n_features;
      choice.n_tests += n_lanes(feature);
    }
    return choice;
  }

  std::vector<uint32_t> lanes_;  // by feature: the lanes of the vector that have it
  std::vector<uint16_t> rare_;   // features that may be in mixed places, the rarest first
  std::vector<uint16_t> mixed_;  // features that are
};

// A test in the lane of a mixed place.
struct MixedTest {
  uint16_t position, missing;
};

// Return the code that stands for a missing value, given the bounds of a lane's test and the lane's bits of
// its place: the first code of the first leaf, the last one of the second leaf, or one of no leaf.
inline uint16_t missing_code(const LanePlace& place, const uint16_t* bounds, size_t lane, size_t width) {
  const uint16_t lower = bounds[lane];
  if (!(place.lanes & lane_bit(kMissingLanes, lane, width))) return static_cast<uint16_t>(lower - 1);
  if (place.lanes & lane_bit(kMissingFirstLanes, lane, width)) return lower;
  return static_cast<uint16_t>(lower + bounds[width + lane]);
}

// Add the tests of a column of a chunk, and forget them.
inline void add_mixed_tests(uint16_t column, uint16_t feature, std::vector<MixedTest>& tests,
                            const LaneChunk& chunk, LeafLanes& lanes) {
  const uint16_t behind = static_cast<uint16_t>(chunk.n_mixed * static_cast<size_t>(lanes.width));
  for (size_t first = 0; first < tests.size(); first += kMixedTests) {
    MixedTests next{.column = column, .feature = feature, .positions = {}, .missing = {}};
    for (size_t i = 0; i < kMixedTests; ++i) {
      const MixedTest test = first + i < tests.size() ? tests[first + i] : MixedTest{behind, 0};
      next.positions[i] = test.position;
      next.missing[i] = test.missing;
    }
    lanes.mixed.push_back(next);
  }
  tests.clear();
}

}  // namespace skshap
