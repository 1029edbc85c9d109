#include "plan/owen_path.h"

namespace skshap {
namespace {

size_t number_of_groups(const Plan& plan) {
  return plan.groups.empty() ? 0 : 1 + *std::max_element(plan.groups.begin(), plan.groups.end());
}

}  // namespace

OwenPath::OwenPath(const Plan& plan)
    : plan_(plan),
      path_(plan.features.size()),
      walk_(plan),
      place_(number_of_groups(plan), kNone),
      most_(place_.size(), 0),
      count_(place_.size(), 0) {}

template <class Take>
void OwenPath::count_groups(const Take& take) {
  for (const PathStep& step : walk_.steps()) ++count_[plan_.groups[step.feature]];
  for (const PathStep& step : walk_.steps()) {
    int& n = count_[plan_.groups[step.feature]];
    if (n) take(plan_.groups[step.feature], n);
    n = 0;
  }
}

bool OwenPath::open(const TreeProgram& tree) {
  std::fill(most_.begin(), most_.end(), 0);
  if (!tree.n_inner) return true;
  const bool single = plan_.precision == Precision::kSingle;
  bool fits = true;
  const auto for_leaves = [&](const auto& take) {
    walk_.run<LeafOrder::kDepthFirst>(tree, [](const PathNode&) {}, [&](int32_t) { take(); });
  };
  for_leaves([&] {
    int n_groups = 0;
    count_groups([&](int32_t group, int n) {
      most_[group] = std::max(most_[group], n);
      fits &= ++n_groups <= kMostOwenPlayers && n <= kMostOwenPlayers;
    });
  });
  if (!fits) return false;
  const auto piece_bytes = single ? owen_piece_bytes<float> : owen_piece_bytes<double>,
             list_bytes = single ? owen_list_bytes<float> : owen_list_bytes<double>;
  for_leaves([&] {
    int n_bits = 0, n_groups = 0, n_single = 0;
    size_t bytes = 0;
    count_groups([&](int32_t group, int n) {
      if (most_[group] > 1) n_bits += most_[group];
      ++n_groups;
      n_single += n == 1;
      if (n > 1) bytes += piece_bytes(n, n);
    });
    bytes += piece_bytes(n_groups, n_single) + list_bytes(n_groups, n_groups - n_single);
    fits &= n_bits <= kOwenFieldBits && bytes <= kOwenTableBytes;
  });
  return fits;
}

uint32_t OwenPath::enter(int32_t feature) {
  const bool is_new = !path_.find(feature);
  path_.enter(feature);
  is_new_.push_back(is_new);
  if (!is_new) return bits_[path_.last_place()];
  const int32_t id = plan_.groups[feature];
  if (place_[id] == kNone) {
    place_[id] = static_cast<int32_t>(groups_.size());
    const int n_bits = most_[id] > 1 ? most_[id] : 0;
    groups_.push_back({id, 0, next_bit_, n_bits, {}});
    next_bit_ += n_bits;
  }
  Group& group = groups_[place_[id]];
  bits_.push_back(uint32_t{1} << place_[id]);
  if (group.n_bits) bits_.back() |= uint32_t{1} << (group.field + group.n_features);
  group.steps[group.n_features++] = path_.last_place();
  return bits_.back();
}

void OwenPath::leave() {
  if (is_new_.back()) {
    Group& group = groups_[place_[plan_.groups[path_.steps().back().feature]]];
    bits_.pop_back();
    if (--group.n_features == 0) {
      next_bit_ -= group.n_bits;
      place_[group.group] = kNone;
      groups_.pop_back();
    }
  }
  is_new_.pop_back();
  path_.leave();
}

bool has_owen_leaves(const Plan& plan) {
  if (!plan.unwalked || plan.groups.empty()) return false;
  OwenPath path(plan);
  return std::all_of(plan.chunks.begin(), plan.chunks.end(),
                     [](const Chunk& chunk) { return chunk.output >= 0; }) &&
         std::all_of(plan.trees.begin(), plan.trees.end(),
                     [&](const TreeProgram& tree) { return path.open(tree); });
}

}  // namespace skshap
