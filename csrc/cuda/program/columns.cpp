#include "cuda/program/columns.h"

namespace skshap {

CudaColumns::CudaColumns(const Plan& plan) : plan_(plan) {
  for (size_t c = 0; c < plan_.columns.size(); ++c) {
    const Column& column = plan_.columns[c];
    first_.push_back(static_cast<uint32_t>(list_.size()));
    const auto add = [&](size_t origin) {
      list_.push_back({static_cast<int32_t>(c), static_cast<uint32_t>(origin)});
    };
    add(0);
    if (column.categorical) {
      if (wide(c)) add(1);
      continue;
    }
    const size_t n = column.thresholds_float.size() + column.thresholds_double.size();
    for (size_t origin = kCudaRanks; origin < n; origin += kCudaRanks) add(origin);
  }
}

CudaColumns::Decision CudaColumns::decision(const DecideNode& from) const {
  Decision d{first_[from.column], from.operand, 0};
  if (from.flags & kFlip) d.flags |= kNodeFlip;
  if (from.flags & kCategorical) {
    d.flags |= kNodeCategorical;
    if (wide(from.column)) d.flags |= kNodeWide;
  } else {
    const uint32_t rank = from.operand - from.bias;
    d.column += rank / kCudaRanks;
    d.operand = rank % kCudaRanks + from.bias;
    if (from.bias) d.flags |= kNodeBias;
  }
  return d;
}

CudaNode CudaColumns::margin_node(const DecideNode& node) const {
  const Decision d = decision(node);
  return {d.column << kNodeColumnShift | d.flags, d.operand, 0, 0};
}

}  // namespace skshap
