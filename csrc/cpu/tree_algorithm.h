// Algorithms that explain one tree at a time, for path-dependent values.
//
// Each algorithm has its own source file in csrc/baselines, which registers it. All other code reads the list
// of algorithms: the names in Python, the limits, the scratch memory, and the loop over the trees in
// cpu/chunk_walk.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <tuple>
#include <vector>

#include "plan/plan.h"

namespace skshap {

// One thread's work, for any tree of a plan.
template <class T>
class TreeWorker {
 public:
  virtual ~TreeWorker() = default;

  // Add the SHAP values of the rows of a block, divided by Plan::leaf_scale, to phi[output][slot][64].
  // `words` was written by `decide`.
  virtual void add_tree(const Chunk& chunk, const TreeProgram& tree, const uint64_t* words, int n_rows,
                        T* phi) = 0;
};

template <class T>
struct TreeWorkers {
  std::unique_ptr<TreeWorker<T>> (*make)(const Plan&);
  size_t (*bytes)(const Plan&);  // that one of them allocates
};

// How tables are made: they take at most table_bytes, or their contents are taken from `stored`.
struct TableRequest {
  size_t table_bytes;
  int64_t n_threads;
  const StoredTables* stored;
};

struct TreeAlgorithm {
  const char* name;          // `method` of a row of skshapgpu/_common/algorithms.py
  size_t max_path_features;  // the most different features on a path
  // Add tables to a plan without walks, for SHAP values or Banzhaf values. If this is null, the algorithm has
  // no tables, and computes SHAP values.
  void (*add_tables)(Plan&, const TableRequest&);
  std::tuple<TreeWorkers<float>, TreeWorkers<double>> workers;

  template <class T>
  const TreeWorkers<T>& of() const {
    return std::get<TreeWorkers<T>>(workers);
  }
};

// Return the list of algorithms. It is made at the first call, because algorithms are registered while the
// module is loaded, in any order of files.
std::vector<const TreeAlgorithm*>& tree_algorithms();

// Let an algorithm explain a plan of order 1. Throw std::invalid_argument if a path has too many features,
// and the errors of its tables.
void set_algorithm(Plan& plan, const TreeAlgorithm& algorithm, const TableRequest& request);

// The registration of an algorithm, which lives as long as the program. Worker<T> is a TreeWorker<T> that is
// made from a plan. Its static function bytes(plan) returns the bytes that a worker allocates.
template <template <class> class Worker>
class RegisteredTreeAlgorithm {
 public:
  explicit RegisteredTreeAlgorithm(const char* name, size_t max_path_features = SIZE_MAX,
                                   void (*add_tables)(Plan&, const TableRequest&) = nullptr)
      : algorithm_{name, max_path_features, add_tables, {workers<float>(), workers<double>()}} {
    tree_algorithms().push_back(&algorithm_);
  }
  RegisteredTreeAlgorithm(const RegisteredTreeAlgorithm&) = delete;

 private:
  template <class T>
  static TreeWorkers<T> workers() {
    return {
        [](const Plan& plan) -> std::unique_ptr<TreeWorker<T>> { return std::make_unique<Worker<T>>(plan); },
        &Worker<T>::bytes};
  }
  const TreeAlgorithm algorithm_;
};

}  // namespace skshap
