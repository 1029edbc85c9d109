#include "cuda/baselines/packing.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <stdexcept>

namespace skshap {
namespace {

Bins next_fit(const std::vector<uint8_t>& sizes) {
  Bins out;
  int room = 0;
  for (const int size : sizes) {
    if (size > room) {
      room = kPathLanes;
      ++out.n_bins;
    }
    room -= size;
    out.bin.push_back(static_cast<uint32_t>(out.n_bins - 1));
  }
  return out;
}

// Pack the items in order of decreasing size. First fit takes the oldest bin into which the item fits. Best
// fit takes the bin that has the least space left for it; of several such bins, the oldest. Sizes are small
// integers, so bins are grouped by the space that they have left. Placing an item takes a look at each group,
// and a step in each of two heaps.
Bins decreasing(const std::vector<uint8_t>& sizes, bool best_fit) {
  std::vector<uint32_t> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return sizes[a] > sizes[b]; });
  using Heap = std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<uint32_t>>;
  Heap by_room[kPathLanes + 1];
  Bins out;
  out.bin.resize(sizes.size());
  for (const uint32_t item : order) {
    int room = -1;
    for (int r = sizes[item]; r <= kPathLanes && !(best_fit && room >= 0); ++r)
      if (!by_room[r].empty() && (room < 0 || by_room[r].top() < by_room[room].top())) room = r;
    if (room < 0) {
      room = kPathLanes;
      by_room[room].push(static_cast<uint32_t>(out.n_bins++));
    }
    const uint32_t bin = by_room[room].top();
    by_room[room].pop();
    by_room[room - sizes[item]].push(bin);
    out.bin[item] = bin;
  }
  return out;
}

}  // namespace

Packing packing_named(const std::string& name) {
  if (name == "none") return Packing::kNone;
  if (name == "next_fit") return Packing::kNextFit;
  if (name == "first_fit_decreasing") return Packing::kFirstFitDecreasing;
  if (name == "best_fit_decreasing") return Packing::kBestFitDecreasing;
  throw std::invalid_argument(
      "packing must be 'none', 'next_fit', 'first_fit_decreasing' or "
      "'best_fit_decreasing', not '" +
      name + "'");
}

Bins pack(const std::vector<uint8_t>& sizes, Packing packing) {
  for (const uint8_t size : sizes)
    if (size < 1 || size > kPathLanes)
      throw std::invalid_argument("sizes must lie between 1 and " + std::to_string(kPathLanes));
  if (packing == Packing::kNextFit) return next_fit(sizes);
  if (packing != Packing::kNone) return decreasing(sizes, packing == Packing::kBestFitDecreasing);
  Bins out;
  out.n_bins = sizes.size();
  out.bin.resize(sizes.size());
  std::iota(out.bin.begin(), out.bin.end(), 0);
  return out;
}

PackedPaths pack_paths(const PathSet& set, Packing packing) {
  std::vector<uint8_t> lengths;
  for (const LeafPath& path : set.paths) lengths.push_back(static_cast<uint8_t>(path.length));
  const Bins bins = pack(lengths, packing);
  const double n_lanes = static_cast<double>(kPathLanes) * bins.n_bins;
  PackedPaths out{.elements = std::vector<PathElement>(set.elements.size()),
                  .bins = std::vector<int64_t>(bins.n_bins + 1, 0),
                  .utilisation = bins.n_bins ? set.elements.size() / n_lanes : 0};
  for (size_t i = 0; i < lengths.size(); ++i) out.bins[bins.bin[i] + 1] += lengths[i];
  std::partial_sum(out.bins.begin(), out.bins.end(), out.bins.begin());
  std::vector<int64_t> next = out.bins;
  for (size_t i = 0; i < lengths.size(); ++i) {
    std::copy_n(set.elements.begin() + set.begins[i], lengths[i], out.elements.begin() + next[bins.bin[i]]);
    next[bins.bin[i]] += lengths[i];
  }
  return out;
}

}  // namespace skshap
