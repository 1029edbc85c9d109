#include "plan/interactions.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "plan/coded_trees.h"

namespace skshap {
namespace {

// Places are stored as int32.
constexpr size_t kMaxPlaces = std::numeric_limits<int32_t>::max();

template <class Features>
void sort_places(std::vector<Features>& list, std::vector<Chunk>& chunks,
                 std::vector<int32_t> Chunk::* places) {
  const std::vector<Features> unsorted = list;
  std::sort(list.begin(), list.end());
  std::vector<int32_t> rank;
  for (const Features& features : unsorted) rank.push_back(static_cast<int32_t>(position(list, features)));
  for (Chunk& chunk : chunks)
    for (int32_t& place : chunk.*places) place = rank[place];
}

}  // namespace

void InteractionNumbers::begin_chunk() {
  pair_slots_.clear();
  triple_slots_.clear();
}

// Return the number of an interaction, and whether it is new.
std::pair<uint32_t, bool> InteractionNumbers::number(Numbers& numbers, uint32_t first, uint32_t second) {
  const uint64_t key = static_cast<uint64_t>(first) << 32 | second;
  const auto [entry, is_new] = numbers.try_emplace(key, static_cast<uint32_t>(numbers.size()));
  return {entry->second, is_new};
}

uint32_t InteractionNumbers::pair_place(int32_t first, int32_t second) {
  const auto [place, is_new] = number(pair_places_, first, second);
  if (!is_new) return place;
  if (program_.pairs.size() >= kMaxPlaces) throw std::invalid_argument("too many pairs of features");
  program_.pairs.push_back({first, second});
  return place;
}

uint32_t InteractionNumbers::pair(uint32_t a, uint32_t b) {
  const auto [slot, is_new] = number(pair_slots_, std::min(a, b), std::max(a, b));
  if (!is_new) return slot;
  Chunk& chunk = program_.chunks.back();
  const auto [first, second] = std::minmax(chunk.slots[a], chunk.slots[b]);
  chunk.pairs.push_back(static_cast<int32_t>(pair_place(first, second)));
  return slot;
}

uint32_t InteractionNumbers::triple(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t slots[] = {a, b, c};
  std::sort(slots, slots + 3);
  const auto [slot, is_new] = number(triple_slots_, pair(slots[0], slots[1]), slots[2]);
  if (!is_new) return slot;
  Chunk& chunk = program_.chunks.back();
  FeatureTriple features{chunk.slots[a], chunk.slots[b], chunk.slots[c]};
  std::sort(features.begin(), features.end());
  const auto [place, is_first] = number(triple_places_, pair_place(features[0], features[1]), features[2]);
  if (is_first) {
    if (program_.triples.size() >= kMaxPlaces) throw std::invalid_argument("too many triples of features");
    program_.triples.push_back(features);
  }
  chunk.triples.push_back(static_cast<int32_t>(place));
  return slot;
}

void sort_interactions(WalkProgram& program) {
  sort_places(program.pairs, program.chunks, &Chunk::pairs);
  sort_places(program.triples, program.chunks, &Chunk::triples);
}

}  // namespace skshap
