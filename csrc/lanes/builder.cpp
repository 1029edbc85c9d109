// The trees are read twice. The first time, the leaves are sorted, so that the leaves of a vector have about
// the same features; then the places of all vectors are known. The second time, the leaves are written into
// their lanes.
#include "lanes/builder.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "base/threads.h"
#include "lanes/lane_leaves.h"
#include "lanes/lane_order.h"
#include "lanes/mixed_places.h"
#include "lanes/ranked_codes.h"
#include "plan/quadrature.h"
#include "simd/kernels.h"

namespace skshap {
namespace {

// After about this many lanes, sums in single precision are added to sums in double precision.
constexpr size_t kChunkLanes = 1024;
// The chunks of a part: so many that it takes longer to compare a row with their leaves than to wake a
// thread.
constexpr size_t kPartChunks = 16;

// The codes from `lower` on, below `upper`.
struct Interval {
  uint32_t lower, upper;
};

// In a lane of a mixed place without a test.
constexpr uint16_t kNoFeature = 0xffff;

// The entries of a vector, and where its lists of numbers begin. n_features counts only those that are not in
// mixed places.
struct Vector : LaneVector {
  MixedChoice mixed_places{};
  size_t mixed = 0;       // number of its first mixed place
  uint32_t n_values = 0;  // of a lane
  bool has_split = false;
  size_t places = 0, bounds = 0, numbers = 0, values = 0;

  size_t n_places() const { return n_features + mixed_places.n_places; }
};

// The trees in the order in which they are read.
template <class OnTree>
void each_tree(const Plan& plan, const OnTree& on_tree) {
  for (const Chunk& chunk : plan.chunks)
    for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i) {
      check_interrupt();
      on_tree(chunk, plan.trees[i]);
    }
}

class LaneBuilder {
 public:
  LaneBuilder(const Plan& plan, LeafLanes& lanes)
      : plan_(plan),
        lanes_(lanes),
        rank_(plan.features.size()),
        order_(plan.features.size(), lane_width(plan)) {
    lanes.width = static_cast<int>(lane_width(plan));
  }

  void build(size_t most_bytes) {
    lanes_.ranked = std::any_of(plan_.columns.begin(), plan_.columns.end(),
                                [](const Column& column) { return n_thresholds(column) >= kMostCodes; });
    rank_features();
    each_tree(plan_, [&](const Chunk& chunk, const TreeProgram& tree) { read(chunk, tree); });
    order_.sort();
    place(most_bytes);
    if (!lanes_.any()) return;
    size_t entry = 0;
    each_tree(plan_, [&](const Chunk& chunk, const TreeProgram& tree) { write(chunk, tree, entry); });
    if (lanes_.ranked) rank_chunks();
    list_mixed_tests();
    if (lanes_.bytes() > most_bytes) {  // with what is known only now
      lanes_ = LeafLanes();
      return;
    }
    lanes_.n_trees = plan_.trees.size();
    lanes_.n_leaves = static_cast<size_t>(plan_.n_leaves);
  }

 private:
  static size_t lane_width(const Plan& plan) {
    return plan.precision == Precision::kSingle ? kernels().of<float>().lane_width
                                                : kernels().of<double>().lane_width;
  }
  size_t width() const { return static_cast<size_t>(lanes_.width); }

  // Number the features by how many nodes test them, the most frequent feature first.
  void rank_features() {
    std::vector<size_t> counts(plan_.features.size());
    const std::vector<int32_t> feature_of_column = column_features(plan_);
    for (const DecideNode& node : plan_.decide) ++counts[feature_of_column[node.column]];
    features_.resize(counts.size());
    std::iota(features_.begin(), features_.end(), 0);
    std::stable_sort(features_.begin(), features_.end(),
                     [&](int32_t a, int32_t b) { return counts[a] > counts[b]; });
    for (size_t i = 0; i < features_.size(); ++i) rank_[features_[i]] = static_cast<uint16_t>(i);
    column_of_feature_.resize(counts.size());
    for (size_t column = 0; column < feature_of_column.size(); ++column)
      column_of_feature_[feature_of_column[column]] = static_cast<uint16_t>(column);
  }

  void read(const Chunk& chunk, const TreeProgram& tree) {
    std::vector<uint16_t> set;
    reader_.run(chunk, tree, joins_siblings(chunk), [&](const LaneLeaves& leaves) {
      set.clear();
      for (const LeafTest& test : leaves.tests) set.push_back(rank_[test.feature]);
      order_.add(quadrature_nodes(plan_.index, static_cast<int>(set.size())), chunk.output, set);
    });
  }

  // Return whether lanes may have two leaves.
  static bool joins_siblings(const Chunk& chunk) { return chunk.output >= 0; }

  // Make the chunks, vectors and places, and fill the lanes with leaves that add nothing.
  void place(size_t most_bytes) {
    lane_of_.resize(order_.size());
    slot_of_.resize(features_.size());
    std::vector<uint16_t> features;
    for (size_t first = 0, end; first < order_.size(); first = end) {
      const LaneEntry& example = order_[first];
      end = order_.section_end(first);
      std::vector<Vector> section;
      for (const LaneVector& vector : order_.divide(first, end, features)) section.push_back({vector});
      if (example.output >= 0)
        for (Vector& vector : section) choose_mixed(vector, features.data() + vector.features, example);
      std::stable_sort(section.begin(), section.end(), [](const Vector& a, const Vector& b) {
        return std::make_pair(a.mixed_places.n_places, a.n_places()) <
               std::make_pair(b.mixed_places.n_places, b.n_places());
      });
      for (size_t i = 0; i < section.size(); ++i) {
        if (i * width() % kChunkLanes == 0) begin_chunk(example);
        add_vector(section[i], features.data() + section[i].features, example);
      }
      if (lanes_.places.size() * sizeof(LanePlace) + n_bounds_ * 2 + n_numbers_ * element_bytes(plan_) +
                  (n_values_ + n_words_) * 8 >
              most_bytes ||
          n_words_ >= kMixed) {
        lanes_ = LeafLanes();
        return;
      }
    }
    fill();
  }

  // Choose the mixed places of a vector, and remove their features from its own.
  void choose_mixed(Vector& vector, uint16_t* features, const LaneEntry& example) {
    lane_features_.clear();
    for (size_t lane = 0; lane < vector.n_entries; ++lane) {
      const LaneEntry& entry = order_[vector.first + lane];
      lane_features_.push_back({order_.set_of(entry), entry.n_features});
    }
    vector.mixed_places = chooser_.choose(
        lane_features_, static_cast<size_t>(example.n_nodes), features, vector.n_features,
        [&](uint16_t rank) { return !plan_.columns[column_of_feature_[features_[rank]]].categorical; });
    vector.n_features -= vector.mixed_places.n_features;
  }

  void add_vector(Vector vector, const uint16_t* features, const LaneEntry& example) {
    vector.has_split = example.output >= 0;
    vector.n_values = vector.has_split ? 2 : static_cast<uint32_t>(plan_.n_outputs);
    vector.places = lanes_.places.size();
    vector.bounds = n_bounds_ + (vector.has_split ? width() : 0);
    vector.numbers = n_numbers_;
    vector.values = n_values_;
    for (size_t lane = 0; lane < vector.n_entries; ++lane)
      lane_of_[order_.number(vector.first + lane)] = vectors_.size() * width() + lane;
    for (size_t i = 0; i < vector.n_features; ++i) add_place(features_[features[i]]);
    add_mixed_places(vector);
    n_values_ += vector.n_values * width();
    n_numbers_ += (vector.n_values + vector.n_places()) * width();
    n_bounds_ = vector.bounds + vector.n_places() * 2 * width();
    lanes_.n_places.push_back(static_cast<uint8_t>(vector.n_places()));
    lanes_.n_mixed.push_back(static_cast<uint8_t>(vector.mixed_places.n_places));
    // In measurements, to add to the sums of an output takes as long as one and a half steps. So does a test
    // in a mixed place, with what else takes longer in vectors that have such places.
    const size_t additions = example.output < 0 ? (3 * vector.n_values + 1) / 2 : 0;
    lanes_.n_steps += vector.n_places() * (static_cast<size_t>(example.n_nodes) + 1 + additions) +
                      vector.mixed_places.n_tests * 3 / 2;
    ++lanes_.chunks.back().vectors_end;
    vectors_.push_back(vector);
  }

  void begin_chunk(const LaneEntry& example) {
    std::fill(slot_of_.begin(), slot_of_.end(), -1);
    const size_t number = lanes_.chunks.size();
    if (lanes_.parts.empty() || lanes_.parts.back().output != example.output ||
        number - lanes_.parts.back().chunks == kPartChunks)
      lanes_.parts.push_back({example.output, number, number});
    ++lanes_.parts.back().chunks_end;
    lanes_.chunks.push_back({.output = example.output,
                             .n_nodes = example.n_nodes,
                             .vectors = vectors_.size(),
                             .vectors_end = vectors_.size(),
                             .places = lanes_.places.size(),
                             .bounds = n_bounds_,
                             .numbers = n_numbers_,
                             .values = n_values_,
                             .quadrature = 0,
                             .slots = lanes_.slots.size(),
                             .n_slots = 0,
                             .n_mixed = 0,
                             .mixed = 0,
                             .mixed_end = 0,
                             .ranks = 0,
                             .ranks_end = 0});
  }

  // Add a place to the last chunk.
  void add_place(int32_t feature) {
    LaneChunk& chunk = lanes_.chunks.back();
    if (slot_of_[feature] < 0) {
      slot_of_[feature] = static_cast<int32_t>(chunk.n_slots++);
      lanes_.slots.push_back(feature);
    }
    const uint16_t column = column_of_feature_[feature];
    const bool categorical = plan_.columns[column].categorical;
    lanes_.places.push_back({column, static_cast<uint16_t>(slot_of_[feature]),
                             categorical ? static_cast<uint32_t>(n_words_) : kNumeric,
                             lane_bit(kMissingFirstLanes, 0, width()) - lane_bit(kMissingLanes, 0, width())});
    if (categorical) n_words_ += ((plan_.columns[column].categories.size() + 2) * width() + 63) / 64;
  }

  // Add the mixed places of a vector to the last chunk. Their slots are known with all those of the chunk.
  void add_mixed_places(Vector& vector) {
    vector.mixed = mixed_features_.size() / width();
    mixed_features_.resize(mixed_features_.size() + vector.mixed_places.n_places * width(), kNoFeature);
    for (size_t i = 0; i < vector.mixed_places.n_places; ++i)
      lanes_.places.push_back(
          {static_cast<uint16_t>(lanes_.chunks.back().n_mixed++), 0, kMixed,
           lane_bit(kMissingFirstLanes, 0, width()) - lane_bit(kMissingLanes, 0, width())});
  }

  void fill() {
    if (lanes_.ranked) {
      intervals_.assign(lanes_.places.size() * width(), {0, kMissingCode});
      first_ends_.assign(vectors_.size() * width(), 0);
    }
    lanes_.bounds.resize(n_bounds_);
    std::fill(lanes_.bounds.begin(), lanes_.bounds.end(), uint16_t{0});
    for (const Vector& vector : vectors_)
      for (size_t i = 0; i < vector.n_places(); ++i)
        std::fill_n(lanes_.bounds.data() + vector.bounds + (2 * i + 1) * width(), width(), kMissingLaneCode);
    lanes_.category_words.assign(n_words_, ~uint64_t{0});
    lanes_.leaf_values.resize(n_values_);
    std::fill(lanes_.leaf_values.begin(), lanes_.leaf_values.end(), 0.0);
    if (plan_.precision == Precision::kSingle)
      fill_numbers<float>();
    else
      fill_numbers<double>();
  }

  template <class T>
  void fill_numbers() {
    auto& numbers = numbers_of<T>(lanes_);
    numbers.resize(n_numbers_);
    std::fill(numbers.begin(), numbers.end(), T(1));
    for (const Vector& vector : vectors_)
      std::fill_n(numbers.data() + vector.numbers, vector.n_values * width(), T(0));
    size_t begins[kMaxLaneNodes + 1] = {};
    std::vector<double> t, weights;
    for (LaneChunk& chunk : lanes_.chunks) {
      size_t& begin = begins[chunk.n_nodes];
      if (!begin) {
        begin = numbers.size();
        quadrature(plan_.index, chunk.n_nodes, t, weights);
        for (const std::vector<double>* constants : {&t, &weights})
          for (const double x : *constants) numbers.push_back(static_cast<T>(x));
      }
      chunk.quadrature = begin;
    }
  }

  void write(const Chunk& chunk, const TreeProgram& tree, size_t& entry) {
    reader_.run(chunk, tree, joins_siblings(chunk), [&](const LaneLeaves& leaves) {
      if (plan_.precision == Precision::kSingle)
        write_lane<float>(leaves, lane_of_[entry++]);
      else
        write_lane<double>(leaves, lane_of_[entry++]);
    });
  }

  template <class T>
  void write_lane(const LaneLeaves& leaves, size_t lane) {
    const Vector& vector = vectors_[lane / width()];
    if (lanes_.ranked && leaves.n_leaves == 2) first_ends_[lane] = leaves.second.lower;
    lane %= width();
    T* const numbers = numbers_of<T>(lanes_).data() + vector.numbers + lane;
    const auto leaf_value = [&](size_t i) {
      return plan_.leaf_values[vector.has_split ? leaves.values[i] : leaves.values[0] + i];
    };
    for (size_t i = 0; i < vector.n_values; ++i) {
      numbers[i * width()] = static_cast<T>(leaf_value(i) / plan_.leaf_scale);
      lanes_.leaf_values[vector.values + i * width() + lane] = leaf_value(i);
    }
    for (size_t i = 0, n_mixed = 0; i < leaves.tests.size(); ++i) {
      const LeafTest& test = leaves.tests[i];
      const size_t place = place_of(vector, lane, test, n_mixed);
      double zero_fraction = test.zero_fraction;
      const bool is_split = vector.has_split && i == leaves.split;
      if (is_split) {
        lanes_.places[vector.places + place].lanes |= lane_bit(kSplitLanes, lane, width());
        zero_fraction *= leaf_value(0) / plan_.leaf_scale;
        if (leaves.n_leaves == 2)
          zero_fraction += leaves.second.zero_fraction * (leaf_value(1) / plan_.leaf_scale);
      }
      numbers[(vector.n_values + place) * width()] = static_cast<T>(zero_fraction);
      if (is_split && leaves.n_leaves == 2)
        write_siblings(vector, place, lane, test, leaves.second);
      else
        write_test(vector, place, lane, test);
    }
  }

  // Return the place of a test: that of its column, or the next mixed one of the lane.
  size_t place_of(const Vector& vector, size_t lane, const LeafTest& test, size_t& n_mixed) {
    for (size_t i = 0; i < vector.n_features; ++i)
      if (lanes_.places[vector.places + i].column == test.column) return i;
    mixed_features_[(vector.mixed + n_mixed) * width() + lane] = static_cast<uint16_t>(test.feature);
    return vector.n_features + n_mixed++;
  }

  void write_test(const Vector& vector, size_t i, size_t lane, const LeafTest& test) {
    LanePlace& place = lanes_.places[vector.places + i];
    if (place.words < kMixed) return write_categories(place, test, lane);
    if (lanes_.ranked)
      intervals_[(vector.places + i) * width() + lane] = {test.lower, test.upper};
    else
      write_bounds(bounds(vector, i) + lane, {test.lower, test.upper});
    if (!test.missing) place.lanes &= ~lane_bit(kMissingLanes, lane, width());
  }

  // Write the tests of two leaves at their split.
  void write_siblings(const Vector& vector, size_t i, size_t lane, LeafTest test, const LeafTest& second) {
    if (test.missing) lanes_.places[vector.places + i].lanes |= lane_bit(kMissingFirstLanes, lane, width());
    if (!lanes_.ranked) write_first_end(vector, lane, {test.lower, test.upper});
    test.upper = second.upper;
    test.missing = test.missing || second.missing;
    write_test(vector, i, lane, test);
  }

  // Write where the first leaf of a lane ends, given its codes.
  void write_first_end(const Vector& vector, size_t lane, Interval codes) {
    lanes_.bounds[vector.bounds - width() + lane] = static_cast<uint16_t>(codes.upper - 1 - codes.lower);
  }

  // Return the bounds of a place of a vector.
  uint16_t* bounds(const Vector& vector, size_t i) {
    return lanes_.bounds.data() + vector.bounds + i * 2 * width();
  }

  void write_bounds(uint16_t* bounds, Interval codes) const {
    // If no code passes, the interval has the code below the one for missing values, which does not occur.
    const bool any = codes.lower < codes.upper;
    bounds[0] = static_cast<uint16_t>(any ? codes.lower : kMissingLaneCode - 1);
    bounds[width()] =
        static_cast<uint16_t>(any ? std::min<uint32_t>(codes.upper, kMissingLaneCode) - 1 - codes.lower : 0);
  }

  // Write the bounds of all chunks as ranks. Consecutive chunks have the same ranks, as far as 16 bits can
  // count the codes that their tests tell apart: to rank a row takes as long as to compare it with some 100
  // leaves.
  void rank_chunks() {
    std::vector<RankedCodes> columns(plan_.columns.size());
    for (size_t column = 0; column < columns.size(); ++column)
      columns[column].ranks.resize(n_thresholds(plan_.columns[column]) + 1);
    size_t first = 0;
    for (size_t i = 0; i < lanes_.chunks.size(); ++i) {
      check_interrupt();
      list_codes(lanes_.chunks[i], columns);
      if (std::any_of(columns.begin(), columns.end(),
                      [](const RankedCodes& column) { return column.is_full(); })) {
        rank_chunks(first, i, columns);
        first = i;
      }
      for (RankedCodes& column : columns) column.add();
    }
    rank_chunks(first, lanes_.chunks.size(), columns);
  }

  // List the codes that the tests of a chunk tell apart.
  void list_codes(const LaneChunk& chunk, std::vector<RankedCodes>& columns) const {
    for (size_t v = chunk.vectors; v < chunk.vectors_end; ++v)
      for (size_t place = vectors_[v].places, i = 0; i < vectors_[v].n_places(); ++i, ++place)
        for (size_t lane = 0; lane < width(); ++lane) {
          const Interval wide = interval(place, lane);
          for (const uint32_t code : {wide.lower, wide.upper, first_end(v, place, lane)})
            if (code > 0 && code < kMissingCode) columns[column_of(v, i, lane)].added.push_back(code);
        }
  }

  // Rank the codes of some chunks, and forget them.
  void rank_chunks(size_t begin, size_t end, std::vector<RankedCodes>& columns) {
    const size_t ranks = lanes_.ranks.size();
    for (size_t column = 0; column < columns.size(); ++column) {
      if (plan_.columns[column].categorical) continue;
      const size_t first = lanes_.ranked_codes.size();
      columns[column].rank(lanes_.ranked_codes);
      lanes_.ranks.push_back({static_cast<uint32_t>(column), first, lanes_.ranked_codes.size()});
    }
    for (size_t i = begin; i < end; ++i) {
      LaneChunk& chunk = lanes_.chunks[i];
      chunk.ranks = ranks;
      chunk.ranks_end = lanes_.ranks.size();
      for (size_t v = chunk.vectors; v < chunk.vectors_end; ++v) write_ranks(v, columns);
    }
    for (RankedCodes& column : columns) column.clear();
  }

  // Return where the first of the two leaves that a lane splits at a place ends; 0: the lane does not.
  uint32_t first_end(size_t v, size_t place, size_t lane) const {
    const bool is_split = lanes_.places[place].lanes & lane_bit(kSplitLanes, lane, width());
    return is_split ? first_ends_[v * width() + lane] : 0;
  }

  void write_ranks(size_t v, const std::vector<RankedCodes>& columns) {
    const Vector& vector = vectors_[v];
    for (size_t i = 0; i < vector.n_places(); ++i) {
      if (lanes_.places[vector.places + i].words < kMixed) continue;
      for (size_t lane = 0; lane < width(); ++lane) {
        const uint32_t column = column_of(v, i, lane);
        if (column == kNoFeature) continue;
        const auto rank = [&](uint32_t code) {
          return code == 0 || code == kMissingCode ? code : columns[column].ranks[code];
        };
        const Interval wide = interval(vector.places + i, lane);
        write_bounds(bounds(vector, i) + lane, {rank(wide.lower), rank(wide.upper)});
        const uint32_t end = first_end(v, vector.places + i, lane);
        if (end) write_first_end(vector, lane, {rank(wide.lower), rank(end)});
      }
    }
  }

  // Return the column of a lane of a place; kNoFeature: the lane of a mixed place has none.
  uint32_t column_of(size_t v, size_t i, size_t lane) const {
    const Vector& vector = vectors_[v];
    if (i < vector.n_features) return lanes_.places[vector.places + i].column;
    const uint16_t feature = mixed_features_[(vector.mixed + i - vector.n_features) * width() + lane];
    return feature == kNoFeature ? kNoFeature : column_of_feature_[feature];
  }

  // List the tests in the mixed places of all chunks, given their bounds, and number the slots of these
  // places.
  void list_mixed_tests() {
    std::vector<std::vector<MixedTest>> tests(features_.size());  // by feature
    for (LaneChunk& chunk : lanes_.chunks) {
      for (size_t v = chunk.vectors; v < chunk.vectors_end; ++v) list_mixed_tests(vectors_[v], chunk, tests);
      chunk.mixed = lanes_.mixed.size();
      for (size_t feature = 0; feature < tests.size(); ++feature)
        add_mixed_tests(column_of_feature_[feature], static_cast<uint16_t>(feature), tests[feature], chunk,
                        lanes_);
      chunk.mixed_end = lanes_.mixed.size();
    }
  }

  void list_mixed_tests(const Vector& vector, const LaneChunk& chunk,
                        std::vector<std::vector<MixedTest>>& tests) {
    for (size_t i = vector.n_features; i < vector.n_places(); ++i) {
      LanePlace& place = lanes_.places[vector.places + i];
      place.slot = static_cast<uint16_t>(chunk.n_slots + place.column);
      for (size_t lane = 0; lane < width(); ++lane) {
        const uint16_t feature = mixed_features_[(vector.mixed + i - vector.n_features) * width() + lane];
        if (feature == kNoFeature) continue;
        tests[feature].push_back({static_cast<uint16_t>(place.column * width() + lane),
                                  missing_code(place, bounds(vector, i), lane, width())});
      }
    }
  }

  Interval interval(size_t place, size_t lane) const { return intervals_[place * width() + lane]; }

  void write_categories(const LanePlace& place, const LeafTest& test, size_t lane) {
    const size_t n_codes = plan_.columns[place.column].categories.size() + 2;
    const uint32_t* const set = reader_.set(test);
    uint64_t* const words = lanes_.category_words.data() + place.words;
    for (size_t code = 0; code < n_codes; ++code) {
      if (set[code / 32] >> (code % 32) & 1) continue;
      const size_t bit = code * width() + lane;
      words[bit / 64] &= ~(uint64_t{1} << bit % 64);
    }
  }

  const Plan& plan_;
  LeafLanes& lanes_;
  LaneLeavesReader reader_{plan_};
  std::vector<int32_t> features_;  // by rank
  std::vector<uint16_t> rank_;     // by feature
  std::vector<uint16_t> column_of_feature_;
  std::vector<int32_t> slot_of_;  // by feature, in the last chunk, or -1
  LaneOrder order_;
  std::vector<size_t> lane_of_;  // by entry: vector * width + lane
  std::vector<Vector> vectors_;
  MixedPlaceChooser chooser_{plan_.features.size()};
  std::vector<LaneFeatures> lane_features_;  // of a vector
  std::vector<uint16_t> mixed_features_;     // [mixed place][lane]: features, or kNoFeature
  // Codes that are to be ranked: [place][lane] here, and [vector][lane] below, see first_end.
  std::vector<Interval> intervals_;
  std::vector<uint32_t> first_ends_;
  size_t n_bounds_ = 0, n_numbers_ = 0, n_values_ = 0, n_words_ = 0;
};

}  // namespace

bool can_have_lanes(const Plan& plan) {
  const auto is_narrow = [](const Column& column) { return column.categories.size() < kMostCodes; };
  std::vector<int32_t> features = column_features(plan);
  std::sort(features.begin(), features.end());
  const bool one_column_each = std::adjacent_find(features.begin(), features.end()) == features.end();
  return plan.order == 1 && plan.groups.empty() && !plan.tree_algorithm && !plan.tables.any() &&
         !plan.intervals.any() && !plan.lanes.any() && one_column_each && plan.features.size() < kMostCodes &&
         std::all_of(plan.columns.begin(), plan.columns.end(), is_narrow) &&
         std::all_of(
             plan.trees.begin(), plan.trees.end(),
             [&](const TreeProgram& tree) {
               return tree.walked && !tree.merged && static_cast<size_t>(tree.n_features) <= kMostPlaces &&
                      quadrature_nodes(plan.index, tree.n_features) <= kMaxLaneNodes;
             });
}

Plan make_lane_plan(const Plan& plan, size_t most_bytes) {
  Plan out{};
  static_cast<CodedColumns&>(out) = plan;
  out.set_like(plan);
  out.constant = plan.constant;
  out.base_value = plan.base_value;
  out.leaf_magnitude = plan.leaf_magnitude;
  out.n_leaves = plan.n_leaves;
  out.leaf_scale = plan.leaf_scale;
  LaneBuilder(plan, out.lanes).build(most_bytes);
  return out;
}

}  // namespace skshap
