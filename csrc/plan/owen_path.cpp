#include "plan/owen_path.h"

namespace skshap {
namespace {

// A table has at least four entries, so the number of an entry takes at least two bits of the word.
constexpr int kLeastGroupBits = 2;

size_t number_of_groups(const Plan& plan) {
  return plan.groups.empty() ? 0 : 1 + *std::max_element(plan.groups.begin(), plan.groups.end());
}

}  // namespace

OwenPath::OwenPath(const Plan& plan)
    : plan_(plan),
      feature_of_column_(column_features(plan)),
      path_(plan.features.size()),
      place_(number_of_groups(plan), kNone) {}

bool OwenPath::open(const TreeProgram& tree) {
  tree_ = &tree;
  most_.assign(tree.n_inner, 0);
  most_groups_ = 0;
  if (!tree.n_inner) return true;
  bool few = true;
  for_leaves([&] {
    most_groups_ = std::max(most_groups_, static_cast<int>(groups_.size()));
    for (const PathGroup& group : groups_) {
      most_[group.first] = std::max(most_[group.first], group.n_features);
      few &= group.n_features <= kMostOwenPlayers;
    }
  });
  if (!few || most_groups_ > kMostOwenGroups) return false;
  bool all_fit = true;
  for_leaves([&] {
    all_fit &= in_precision(plan_.precision, [&](auto number) { return fits<decltype(number)>(); });
  });
  return all_fit;
}

void OwenPath::enter(int32_t node, bool right) {
  const int32_t feature = feature_of_column_[plan_.decide[tree_->decide + node].column];
  const bool is_new = !path_.find(feature);
  path_.enter(feature);
  const uint32_t bits = is_new ? enter_group(node, feature) : bits_[path_.last_place()];
  splits_.push_back({.node = node, .is_new = is_new, .right = right, .second = false, .bits = bits});
}

uint32_t OwenPath::enter_group(int32_t node, int32_t feature) {
  const int32_t id = plan_.groups[feature];
  if (place_[id] == kNone) {
    if (groups_.empty()) next_bit_ = std::max(most_groups_, kLeastGroupBits);
    place_[id] = static_cast<int32_t>(groups_.size());
    const int n_bits = most_[node] > 1 ? most_[node] : 0;
    groups_.push_back({.group = id, .first = node, .field = next_bit_, .n_bits = n_bits});
    next_bit_ += n_bits;
  }
  PathGroup& group = groups_[place_[id]];
  const auto bit = [](int i) { return uint32_t{1} << i % kOwenWordBits; };  // more bits do not fit
  bits_.push_back(bit(place_[id]) | (group.n_bits ? bit(group.field + group.n_features) : 0));
  if (group.n_features < kMostOwenPlayers) group.steps[group.n_features] = path_.last_place();
  ++group.n_features;
  return bits_.back();
}

void OwenPath::leave() {
  if (splits_.back().is_new) {
    PathGroup& group = groups_[place_[plan_.groups[path_.steps().back().feature]]];
    bits_.pop_back();
    if (--group.n_features == 0) {
      next_bit_ -= group.n_bits;
      place_[group.group] = kNone;
      groups_.pop_back();
    }
  }
  splits_.pop_back();
  path_.leave();
}

template <class T>
bool OwenPath::fits() const {
  return next_bit_ <= kOwenWordBits &&
         (has_table<T>() || own_bytes<T>() + owen_long_bytes<T>(groups_.size()) <= kOwenTableBytes);
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
