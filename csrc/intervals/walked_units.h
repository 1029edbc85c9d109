// Units for path-dependent values. Each unit is compiled as a tree of its own and walked.
#pragma once

#include <memory>

#include "intervals/unit_trees.h"
#include "intervals/unit_values.h"

namespace skshap {

// A tree of the plan that is a unit or, for Owen values, a copy of a unit in which the features of a group
// are apart (see plan/owen_trees.h). kNoGroup means that no features are apart.
constexpr int32_t kNoGroup = -1;
struct UnitCopy {
  size_t tree;
  int32_t apart;
};

class WalkedUnits {
 public:
  // Compile the units of a layout of `plan`. For Owen values, the trees without tables may be `unwalked`.
  WalkedUnits(const Plan& plan, const IntervalLayout& layout, int64_t n_threads, bool unwalked);

  // Return the plan of the trees without tables, followed by the units.
  Plan& plan() { return out_; }

  template <class T>
  std::unique_ptr<UnitValues<T>> make() const;

  // Remove the programs of the units from the plan.
  void drop_units();

 private:
  int32_t n_walked_ = 0;
  Plan out_;
  std::vector<std::vector<UnitCopy>> trees_of_unit_;
};

}  // namespace skshap
