#include "lanes/runner.h"

#include <algorithm>

namespace skshap {
namespace {

size_t n_leaf_outputs(const Plan& plan, int32_t output) {
  return output < 0 ? static_cast<size_t>(plan.n_outputs) : 1;
}

size_t most_leaf_outputs(const Plan& plan) {
  size_t most = 1;
  for (const LanePart& part : plan.lanes.parts) most = std::max(most, n_leaf_outputs(plan, part.output));
  return most;
}

// Return the number of vectors of sums of a chunk: those of its slots, of its mixed places, and the position
// that fills up the tests in them.
size_t n_sum_vectors(const Plan& plan, const LaneChunk& chunk) {
  return chunk.n_slots * n_leaf_outputs(plan, chunk.output) + (chunk.n_mixed ? chunk.n_mixed + 1 : 0);
}

// Return the number of sums of a row in the lanes, and the most that a chunk has.
size_t n_totals(const Plan& plan) {
  return plan.features.size() * most_leaf_outputs(plan) * static_cast<size_t>(plan.lanes.width);
}
size_t n_sums(const Plan& plan) {
  return largest_of(plan.lanes.chunks, [&](const LaneChunk& chunk) { return n_sum_vectors(plan, chunk); }) *
         static_cast<size_t>(plan.lanes.width);
}

// Return the number of codes of the mixed places of a chunk, with the position that fills up their tests.
size_t n_mixed_codes(const Plan& plan) {
  const size_t most = largest_of(plan.lanes.chunks, &LaneChunk::n_mixed);
  return most ? (most + 1) * static_cast<size_t>(plan.lanes.width) : 0;
}

size_t most_part_sums(const Plan& plan) {
  return largest_of(plan.lanes.parts, [&](const LanePart& part) { return n_part_sums(plan, part); });
}

}  // namespace

size_t n_part_sums(const Plan& plan, const LanePart& part) {
  return n_leaf_outputs(plan, part.output) * (1 + plan.features.size()) * kBlockRows;
}

void add_part(const Plan& plan, const LanePart& part, const double* sums, int n_rows, TileSums& values,
              TileSums* margin) {
  const size_t first_output = static_cast<size_t>(std::max(part.output, 0));
  for (size_t o = 0; o < n_leaf_outputs(plan, part.output); ++o) {
    for (int row = 0; margin && row < n_rows; ++row) margin->at(first_output + o)[row] += sums[row];
    sums += kBlockRows;
    for (size_t feature = 0; feature < plan.features.size(); ++feature, sums += kBlockRows)
      for (int row = 0; row < n_rows; ++row) values.at(first_output + o, feature)[row] += sums[row];
  }
}

template <class T>
LaneRunner<T>::LaneRunner(const Plan& plan, int most_rows) : plan_(plan) {
  const size_t n_rows = static_cast<size_t>(most_rows);
  codes_.resize(plan.columns.size() * n_rows);
  if (plan.lanes.ranked) wide_codes_.resize(plan.columns.size() * n_rows);
  if (const size_t n = n_mixed_codes(plan)) {
    mixed_codes_.resize(n);
    std::fill_n(mixed_codes_.data(), n, uint16_t{0});  // those of lanes without a test are read, too
  }
  sums_.resize(n_sums(plan));
  totals_.resize(n_totals(plan) * n_rows);
  margins_.resize(most_leaf_outputs(plan) * n_rows);
  part_sums_.resize(most_part_sums(plan));
}

template <class T>
size_t LaneRunner<T>::bytes(const Plan& plan) {
  if (!plan.lanes.any()) return 0;
  const size_t n_doubles = (n_totals(plan) + most_leaf_outputs(plan)) * kBlockRows + most_part_sums(plan);
  return plan.columns.size() * kBlockRows * (plan.lanes.ranked ? 6 : 2) + n_mixed_codes(plan) * 2 +
         n_sums(plan) * sizeof(T) + n_doubles * sizeof(double);
}

template <class T>
bool LaneRunner<T>::run(const CodeTile& codes, int n_rows, TileSums& values, TileSums* margin,
                        const Stop& stop) {
  for (const LanePart& part : plan_.lanes.parts) {
    run_part(part, codes, 0, n_rows, part_sums_.data());
    add_part(plan_, part, part_sums_.data(), n_rows, values, margin);
    if (stop()) return false;
  }
  return true;
}

template <class T>
void LaneRunner<T>::run_part(const LanePart& part, const CodeTile& codes, int block, int n_rows,
                             double* sums) {
  const size_t n_outputs = n_leaf_outputs(plan_, part.output);
  read_codes(codes, block, n_rows);
  std::fill_n(totals_.data(), n_totals(plan_) * static_cast<size_t>(n_rows), 0.0);
  std::fill_n(margins_.data(), n_outputs * static_cast<size_t>(n_rows), 0.0);
  // A chunk is in a cache until all rows have been compared with it.
  for (size_t i = part.chunks; i < part.chunks_end; ++i) {
    const LaneChunk& chunk = plan_.lanes.chunks[i];
    const bool is_ranked = i > part.chunks && chunk.ranks == plan_.lanes.chunks[i - 1].ranks;
    for (int row = 0; row < n_rows; ++row) {
      if (!is_ranked) rank_codes(chunk, row);
      if (chunk.n_mixed) write_mixed_codes(chunk, row);
      run_chunk(chunk, row);
      if (chunk.n_mixed) add_mixed_values(chunk, row);
    }
  }
  add_lanes(n_outputs, n_rows, sums);
}

// Write the codes of each row, one after the other. Codes that are to be ranked are kept as they are.
template <class T>
void LaneRunner<T>::read_codes(const CodeTile& tile, int block, int n_rows) {
  const size_t n_columns = plan_.columns.size();
  const size_t first = static_cast<size_t>(block) * kBlockRows;
  for (size_t column = 0; column < n_columns; ++column) {
    uint16_t* const to = codes_.data() + column;
    if (plan_.columns[column].categorical) {
      const CategoryRows& rows = tile.category_rows[static_cast<size_t>(block) * n_columns + column];
      for (uint32_t i = 0; i < rows.n; ++i)
        for (int row = 0; row < n_rows; ++row)
          if (rows.rows[i] >> row & 1) to[row * n_columns] = static_cast<uint16_t>(rows.code[i]);
      continue;
    }
    for (int row = 0; row < n_rows; ++row) {
      const size_t from = column * tile.stride + first + row;
      if (!plan_.lanes.ranked)
        to[row * n_columns] = tile.narrow[from];
      else if (plan_.wide_codes)
        wide_codes_.data()[row * n_columns + column] = tile.wide[from];
      else
        wide_codes_.data()[row * n_columns + column] =
            tile.narrow[from] == kMissingLaneCode ? kMissingCode : tile.narrow[from];
    }
  }
}

template <class T>
void LaneRunner<T>::rank_codes(const LaneChunk& chunk, int row) {
  const LeafLanes& lanes = plan_.lanes;
  const size_t first = row * plan_.columns.size();
  for (size_t i = chunk.ranks; i < chunk.ranks_end; ++i) {
    const LaneRanks& ranks = lanes.ranks[i];
    const uint32_t code = wide_codes_.data()[first + ranks.column];
    const uint32_t* const codes = lanes.ranked_codes.data() + ranks.codes;
    const uint32_t* const end = lanes.ranked_codes.data() + ranks.codes_end;
    codes_.data()[first + ranks.column] =
        code == kMissingCode ? kMissingLaneCode
                             : static_cast<uint16_t>(std::upper_bound(codes, end, code) - codes);
  }
}

// Write the codes of a row into the lanes of mixed places. A missing value becomes a code of the leaf that it
// reaches, or of none.
template <class T>
void LaneRunner<T>::write_mixed_codes(const LaneChunk& chunk, int row) {
  const uint16_t* const codes = codes_.data() + row * plan_.columns.size();
  uint16_t* const to = mixed_codes_.data();
  for (size_t i = chunk.mixed; i < chunk.mixed_end; ++i) {
    const MixedTests& tests = plan_.lanes.mixed[i];
    const uint16_t code = codes[tests.column];
    if (code == kMissingLaneCode)
      for (size_t j = 0; j < kMixedTests; ++j) to[tests.positions[j]] = tests.missing[j];
    else
      for (size_t j = 0; j < kMixedTests; ++j) to[tests.positions[j]] = code;
  }
}

// Add the values in the lanes of mixed places to the sums of their features, in the first lane.
template <class T>
void LaneRunner<T>::add_mixed_values(const LaneChunk& chunk, int row) {
  const size_t width = static_cast<size_t>(plan_.lanes.width);
  const T* const values = sums_.data() + chunk.n_slots * width;
  double* const totals = totals_.data() + row * n_totals(plan_);
  for (size_t i = chunk.mixed; i < chunk.mixed_end; ++i) {
    const MixedTests& tests = plan_.lanes.mixed[i];
    const auto value = [&](size_t j) { return values[tests.positions[j]]; };
    static_assert(kMixedTests == 8);
    totals[tests.feature * width] +=
        ((value(0) + value(1)) + (value(2) + value(3))) + ((value(4) + value(5)) + (value(6) + value(7)));
  }
}

template <class T>
void LaneRunner<T>::run_chunk(const LaneChunk& chunk, int row) {
  const LeafLanes& lanes = plan_.lanes;
  const size_t n_outputs = n_leaf_outputs(plan_, chunk.output);
  const LaneArgs<T> args{.n_places = lanes.n_places.data() + chunk.vectors,
                         .n_mixed = lanes.n_mixed.data() + chunk.vectors,
                         .places = lanes.places.data() + chunk.places,
                         .bounds = lanes.bounds.data() + chunk.bounds,
                         .numbers = numbers_of<T>(lanes).data() + chunk.numbers,
                         .leaf_values = lanes.leaf_values.data() + chunk.values,
                         .category_words = lanes.category_words.data(),
                         .n_vectors = chunk.vectors_end - chunk.vectors,
                         .n_outputs = n_outputs,
                         .codes = codes_.data() + row * plan_.columns.size(),
                         .mixed_codes = mixed_codes_.data(),
                         .nodes = numbers_of<T>(lanes).data() + chunk.quadrature,
                         .weights = numbers_of<T>(lanes).data() + chunk.quadrature + chunk.n_nodes,
                         .n_slots = chunk.n_slots,
                         .slots = lanes.slots.data() + chunk.slots,
                         .sums = sums_.data(),
                         .n_sums = n_sum_vectors(plan_, chunk),
                         .totals = totals_.data() + row * n_totals(plan_),
                         .margin = margins_.data() + row * n_outputs};
  kernels().of<T>().lanes[chunk.output < 0][chunk.n_nodes](args);
}

// Write the sums of a part from the sums of the lanes.
template <class T>
void LaneRunner<T>::add_lanes(size_t n_outputs, int n_rows, double* sums) const {
  const size_t width = static_cast<size_t>(plan_.lanes.width), n_features = plan_.features.size();
  for (int row = 0; row < n_rows; ++row) {
    const double* lanes = totals_.data() + row * n_totals(plan_);
    for (size_t o = 0; o < n_outputs; ++o)
      sums[o * (1 + n_features) * kBlockRows + row] = margins_.data()[row * n_outputs + o];
    for (size_t feature = 0; feature < n_features; ++feature)
      for (size_t o = 0; o < n_outputs; ++o, lanes += width) {
        double even = 0, odd = 0;
        for (size_t lane = 0; lane < width; lane += 2) {
          even += lanes[lane];
          odd += lanes[lane + 1];
        }
        sums[(o * (1 + n_features) + 1 + feature) * kBlockRows + row] = plan_.leaf_scale * (even + odd);
      }
  }
}

template class LaneRunner<float>;
template class LaneRunner<double>;

}  // namespace skshap
