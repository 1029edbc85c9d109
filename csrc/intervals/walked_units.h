// Units for path-dependent values: each is compiled as a tree of its own and walked.
#pragma once

#include <memory>

#include "intervals/unit_trees.h"
#include "intervals/unit_values.h"

namespace skshap {

// A tree of the plan that is a unit, or for Owen values one of its copies: with the features of a group apart
// (see plan/owen_trees.h), unless that is kNoGroup.
constexpr int32_t kNoGroup = -1;
struct UnitCopy {
  size_t tree;
  int32_t apart;
};

class WalkedUnits {
 public:
  // Compile the units of a layout of `plan`. For Owen values, the trees without tables may be `unwalked`.
  WalkedUnits(const Plan& plan, const IntervalLayout& layout, int64_t n_threads, bool unwalked);

  // The plan of the trees without tables and, behind these, of the units.
  Plan& plan() { return out_; }

  template <class T>
  std::unique_ptr<UnitValues<T>> make() const;

  // Remove the programs of the units from the plan.
  void drop_units();

 private:
  const IntervalLayout& layout_;
  int32_t n_walked_ = 0;
  Plan out_;
  std::vector<std::vector<UnitCopy>> trees_of_unit_;
};

}  // namespace skshap
