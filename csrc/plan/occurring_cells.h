// Cells that occur, for calls of many rows; see cells/program.h.
#pragma once

#include <cstddef>
#include <memory>

namespace skshap {

struct CellProgram;

struct OccurringCells {
  std::shared_ptr<const CellProgram> program;  // or null
  size_t n_trees = 0;

  bool any() const { return program != nullptr; }
  size_t bytes() const;
};

}  // namespace skshap
