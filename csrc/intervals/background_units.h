// Units for values against background data, whose leaves have tables already.
#pragma once

#include <memory>

#include "intervals/unit_values.h"

namespace skshap {

class BackgroundUnits {
 public:
  // `plan` has the background tables, and `layout` is a layout of it.
  BackgroundUnits(const Plan& plan, const IntervalLayout& layout);

  // Return a plan of the trees without tables by intervals. It borrows their background tables.
  Plan other_trees() const;

  template <class T>
  std::unique_ptr<UnitValues<T>> make() const;

 private:
  const Plan& plan_;
  const IntervalLayout& layout_;
  std::vector<int32_t> parents_;  // by node and tree, in the order of Plan::children
};

}  // namespace skshap
