#include "lanes/runner.h"

#include <algorithm>

namespace skshap {
namespace {

size_t most_leaf_outputs(const Plan& plan) {
  const auto& chunks = plan.lanes.chunks;
  const bool has_vectors =
      std::any_of(chunks.begin(), chunks.end(), [](const LaneChunk& chunk) { return chunk.output < 0; });
  return has_vectors ? static_cast<size_t>(plan.n_outputs) : 1;
}

size_t most_slots(const Plan& plan) {
  size_t most = 0;
  for (const LaneChunk& chunk : plan.lanes.chunks) most = std::max(most, chunk.n_slots);
  return most;
}

// Return the number of sums of lanes for each row.
size_t n_totals(const Plan& plan) {
  return plan.features.size() * most_leaf_outputs(plan) * static_cast<size_t>(plan.lanes.width);
}

size_t n_sums(const Plan& plan) {
  return most_slots(plan) * most_leaf_outputs(plan) * static_cast<size_t>(plan.lanes.width);
}

}  // namespace

template <class T>
LaneRunner<T>::LaneRunner(const Plan& plan) : plan_(plan) {
  if (!plan.lanes.any()) return;
  codes_.resize(plan.columns.size() * kBlockRows);
  sums_.resize(n_sums(plan));
  totals_.resize(n_totals(plan) * kBlockRows);
  margins_.resize(most_leaf_outputs(plan));
}

template <class T>
size_t LaneRunner<T>::bytes(const Plan& plan) {
  if (!plan.lanes.any()) return 0;
  return plan.columns.size() * kBlockRows * sizeof(uint16_t) + n_sums(plan) * sizeof(T) +
         n_totals(plan) * kBlockRows * sizeof(double);
}

template <class T>
bool LaneRunner<T>::run(const CodeTile& codes, int n_rows, TileSums& sums, TileSums* margin,
                        const Stop& stop) {
  const std::vector<LaneChunk>& chunks = plan_.lanes.chunks;
  if (chunks.empty()) return true;
  read_codes(codes, n_rows);
  for (auto first = chunks.begin(); first != chunks.end();) {
    const int32_t output = first->output;
    const size_t n_outputs = output < 0 ? static_cast<size_t>(plan_.n_outputs) : 1;
    const size_t first_output = static_cast<size_t>(std::max(output, 0));
    std::fill_n(totals_.data(), n_totals(plan_) * static_cast<size_t>(n_rows), 0.0);
    // A chunk is in a cache until all rows have been compared with it.
    for (; first != chunks.end() && first->output == output; ++first) {
      for (int row = 0; row < n_rows; ++row) {
        std::fill(margins_.begin(), margins_.end(), 0.0);
        run_chunk(*first, row, margin ? margins_.data() : nullptr);
        for (size_t o = 0; o < n_outputs && margin; ++o) margin->at(first_output + o)[row] += margins_[o];
      }
      if (stop()) return false;
    }
    for (int row = 0; row < n_rows; ++row) add_totals(first_output, n_outputs, row, sums);
  }
  return true;
}

// Write the codes of each row, one after the other.
template <class T>
void LaneRunner<T>::read_codes(const CodeTile& tile, int n_rows) {
  const size_t n_columns = plan_.columns.size();
  for (size_t column = 0; column < n_columns; ++column) {
    uint16_t* const to = codes_.data() + column;
    if (plan_.columns[column].categorical) {
      const CategoryRows& rows = tile.category_rows[column];
      for (uint32_t i = 0; i < rows.n; ++i)
        for (int row = 0; row < n_rows; ++row)
          if (rows.rows[i] >> row & 1) to[row * n_columns] = static_cast<uint16_t>(rows.code[i]);
      continue;
    }
    for (int row = 0; row < n_rows; ++row) to[row * n_columns] = tile.narrow[column * tile.stride + row];
  }
}

template <class T>
void LaneRunner<T>::run_chunk(const LaneChunk& chunk, int row, double* margin) {
  const LeafLanes& lanes = plan_.lanes;
  const size_t n_outputs = chunk.output < 0 ? static_cast<size_t>(plan_.n_outputs) : 1;
  const LaneArgs<T> args{.n_places = lanes.n_places.data() + chunk.vectors,
                         .places = lanes.places.data() + chunk.places,
                         .bounds = lanes.bounds.data() + chunk.places * 2 * lanes.width,
                         .numbers = lane_numbers<T>(lanes) + chunk.numbers,
                         .leaf_values = lanes.leaf_values.data() + chunk.values,
                         .category_words = lanes.category_words.data(),
                         .n_vectors = chunk.vectors_end - chunk.vectors,
                         .n_outputs = n_outputs,
                         .codes = codes_.data() + row * plan_.columns.size(),
                         .nodes = lane_numbers<T>(lanes) + chunk.quadrature,
                         .weights = lane_numbers<T>(lanes) + chunk.quadrature + chunk.n_nodes,
                         .n_slots = chunk.n_slots,
                         .slots = lanes.slots.data() + chunk.slots,
                         .sums = sums_.data(),
                         .totals = totals_.data() + row * n_totals(plan_),
                         .margin = margin};
  kernels().of<T>().lanes[chunk.output < 0][chunk.n_nodes](args);
}

// Add up the lanes of the totals of a row.
template <class T>
void LaneRunner<T>::add_totals(size_t first_output, size_t n_outputs, int row, TileSums& sums) {
  const size_t width = static_cast<size_t>(plan_.lanes.width);
  const double* lanes = totals_.data() + row * n_totals(plan_);
  for (size_t feature = 0; feature < plan_.features.size(); ++feature)
    for (size_t o = 0; o < n_outputs; ++o, lanes += width) {
      double even = 0, odd = 0;
      for (size_t lane = 0; lane < width; lane += 2) {
        even += lanes[lane];
        odd += lanes[lane + 1];
      }
      sums.at(first_output + o, feature)[row] += plan_.leaf_scale * (even + odd);
    }
}

template class LaneRunner<float>;
template class LaneRunner<double>;

}  // namespace skshap
