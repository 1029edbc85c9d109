#include "cells/overlay.h"

#include <algorithm>

#include "base/threads.h"

namespace skshap {
namespace {

// The nodes that are added between two checks for interrupts, which take as long as some nodes.
constexpr int32_t kUncheckedNodes = 64;
constexpr size_t kLeftOut = ~size_t{0};

}  // namespace

void Overlay::lay(const std::vector<size_t>& trees) {
  trees_ = trees;
  nodes_.clear();
  members_.clear();
  if (trees.size() < least_members_) return;
  for (uint32_t tree = 0; tree < trees.size(); ++tree) open_members_.push_back({tree, 0});
  open_.push_back({0, -1});
  while (!open_.empty()) {
    const OpenNode next = open_.back();
    open_.pop_back();
    add_node(next);
  }
  find_ends();
}

// Plan a node for each test among the nodes of side_. The first test is on top of the stack then.
void Overlay::open(int32_t parent) {
  firsts_.clear();
  group_of_.clear();
  for (const Member& member : side_) {
    const auto group = std::find_if(firsts_.begin(), firsts_.end(), [&](const Member& first) {
      return is_same_test(plan_, test(first), test(member));
    });
    group_of_.push_back(static_cast<size_t>(group - firsts_.begin()));
    if (group == firsts_.end()) firsts_.push_back(member);
  }
  // The members of a group follow those of the next group.
  places_.assign(firsts_.size(), 0);
  for (const size_t group : group_of_) ++places_[group];
  size_t place = open_members_.size();
  for (size_t group = firsts_.size(); group-- > 0;) {
    const size_t n_members = places_[group];
    places_[group] = n_members < least_members_ ? kLeftOut : place;
    if (n_members < least_members_) continue;
    open_.push_back({place, parent});
    place += n_members;
  }
  open_members_.resize(place);
  for (size_t i = 0; i < side_.size(); ++i)
    if (size_t& member = places_[group_of_[i]]; member != kLeftOut) open_members_[member++] = side_[i];
}

void Overlay::add_node(const OpenNode& open_node) {
  const int32_t number = static_cast<int32_t>(nodes_.size());
  if (number % kUncheckedNodes == 0) check_interrupt();
  const size_t begin = members_.size();
  members_.insert(members_.end(), open_members_.begin() + static_cast<std::ptrdiff_t>(open_node.members),
                  open_members_.end());
  open_members_.resize(open_node.members);
  nodes_.push_back({.members = begin,
                    .members_end = members_.size(),
                    .parent = open_node.parent,
                    .end = 0,
                    .n_sides_with_leaves = 0,
                    .n_leaves = 0});
  const uint8_t flip = test(members_[begin]).flags & kFlip;
  for (const bool right : {true, false}) {
    side_.clear();
    for (size_t i = begin; i < members_.size(); ++i) {
      const Member member = members_[i];
      const bool swapped = (test(member).flags & kFlip) != flip;
      const size_t children = tree(member).children + 2 * static_cast<size_t>(member.node);
      const int32_t child = plan_.children[children + (right != swapped)];
      if (static_cast<size_t>(child) < tree(member).n_inner) side_.push_back({member.tree, child});
    }
    const uint32_t n_leaves = static_cast<uint32_t>(members_.size() - begin - side_.size());
    nodes_[number].n_sides_with_leaves += n_leaves > 0;
    nodes_[number].n_leaves += n_leaves;
    open(number);
  }
}

void Overlay::find_ends() {
  for (size_t i = nodes_.size(); i-- > 0;) {
    Node& node = nodes_[i];
    node.end = std::max(node.end, static_cast<int32_t>(i) + 1);
    if (node.parent >= 0) nodes_[node.parent].end = std::max(nodes_[node.parent].end, node.end);
  }
}

}  // namespace skshap
