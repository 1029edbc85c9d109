// The trees in the form for the kernel that adds up margins.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/program/columns.h"

namespace skshap {

struct CudaMarginTree {
  int64_t root;    // in CudaMargins::nodes, or < 0: leaf ~root
  int32_t output;  // -1: leaves have all outputs
  bool merged;
};

struct CudaMargins {
  std::vector<CudaNode> nodes;
  std::vector<CudaMarginTree> trees;
};

// Write the trees of a plan that have a part in its margins.
CudaMargins make_margins(const Plan& plan, const CudaColumns& columns);

}  // namespace skshap
