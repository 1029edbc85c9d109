// The coded columns of a plan on a GPU, and the nodes' tests on them.
#pragma once

#include <vector>

#include "plan/plan.h"

namespace skshap {

// Codes on the GPU are int16, and -1 is missing. A column with too many thresholds is split into several
// columns, each with its part of the ranks. Categorical columns are read as uint16. A column with too many
// categories takes two columns, for the low and the high halves of its codes.
constexpr uint32_t kCudaRanks = 32767, kCudaCategories = 65534;

struct CudaColumn {
  int32_t column;   // in Plan::columns
  uint32_t origin;  // rank that becomes code 0; if categorical, 0, or 1 for the high halves
};

// A node of the trees, in the form for the margin kernel.
struct alignas(16) CudaNode {
  uint32_t column_flags;  // column << 4 | flags
  uint32_t operand;
  int32_t left, right;  // < 0: leaf ~index, among all leaves
};
enum CudaNodeFlag : uint32_t { kNodeBias = 1, kNodeCategorical = 2, kNodeFlip = 4, kNodeWide = 8 };
constexpr int kNodeColumnShift = 4;
// The column and flags of a node of a merged tree that leads all rows to the left first, and then to the
// right.
constexpr uint32_t kJoinedNodes = 0xffffffff;

class CudaColumns {
 public:
  explicit CudaColumns(const Plan& plan);

  // A node's test on the columns of the GPU.
  struct Decision {
    uint32_t column, operand, flags;
  };
  Decision decision(const DecideNode& from) const;

  // Return the test of a node in the form for the margin kernel, without children.
  CudaNode margin_node(const DecideNode& node) const;

  // Return the first column on the GPU of each column of the plan; and whether a column has so many
  // categories that it takes two columns on the GPU.
  const std::vector<uint32_t>& first() const { return first_; }
  bool wide(size_t column) const { return plan_.columns[column].categories.size() > kCudaCategories; }

  const std::vector<CudaColumn>& list() const { return list_; }

 private:
  const Plan& plan_;
  std::vector<CudaColumn> list_;
  std::vector<uint32_t> first_;  // by column of the plan
};

}  // namespace skshap
