// Units for values against background data, whose leaves have tables already.
#pragma once

#include <memory>

#include "intervals/unit_values.h"

namespace skshap {

// Compute the values of units from the background tables of a plan.
template <class T>
std::unique_ptr<UnitValues<T>> make_background_units(const Plan& plan);

// Return a plan of the trees that have no units in a layout of a plan. It borrows their background tables.
Plan trees_without_units(const Plan& plan, const IntervalLayout& layout);

}  // namespace skshap
