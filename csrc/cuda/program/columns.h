// The coded columns of a plan on a GPU, and the nodes' tests on them.
#pragma once

#include <vector>

#include "cuda/program/program.h"

namespace skshap {

class CudaColumns {
 public:
  explicit CudaColumns(const Plan& plan);

  // A node's test on the columns of the GPU.
  struct Decision {
    uint32_t column, operand, flags;
  };
  Decision decision(const DecideNode& from) const;

  // Return a node without children, in the form for the margin kernel.
  CudaNode margin_node(const DecideNode& node) const;

  // Return the first column on the GPU of each column of the plan, and whether the categories of one need
  // two.
  const std::vector<uint32_t>& first() const { return first_; }
  bool wide(size_t column) const { return plan_.columns[column].categories.size() > kCudaCategories; }

  const std::vector<CudaColumn>& list() const { return list_; }

 private:
  const Plan& plan_;
  std::vector<CudaColumn> list_;
  std::vector<uint32_t> first_;  // by column of the plan
};

}  // namespace skshap
