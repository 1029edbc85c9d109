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
