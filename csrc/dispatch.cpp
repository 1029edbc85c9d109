// explain(): which kernels run, and over which rows and trees. The one place for both.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "coding.h"
#include "plan.h"
#include "recursive.h"

namespace skshap {
namespace {

// Codes and sums of a tile of rows, per thread; larger tiles stream a large model less often.
constexpr size_t kTileBytes = 4 << 20;
constexpr int kMaxTileRows = 1024;

size_t n_used_outputs(const Plan& plan, const Chunk& chunk) { return chunk.output < 0 ? plan.n_outputs : 1; }

// What is summed for each row and output.
size_t n_sums(const Plan& plan) { return plan.features.size() + plan.pairs.size() + plan.triples.size(); }

// Rows of a tile: bounded by memory, and few enough that every thread gets some.
int tile_rows(const Plan& plan, int64_t n_rows, int64_t n_threads) {
  const size_t row_bytes =
      plan.columns.size() * (plan.wide_codes ? 4 : 2) + sizeof(double) * n_sums(plan) * plan.n_outputs + 1;
  const int64_t by_memory = static_cast<int64_t>(kTileBytes / row_bytes);
  const int64_t by_threads = (n_rows + 4 * n_threads - 1) / (4 * n_threads);
  const int64_t rows = std::min<int64_t>({kMaxTileRows, by_memory, by_threads});
  return static_cast<int>(std::max<int64_t>(1, rows / kBlockRows)) * kBlockRows;
}

// leaf_sums takes time for each leaf, descend for each level; measured, they break even here.
constexpr size_t kLeavesPerLevel = 9;

// A buffer aligned to cache lines and to the widest vectors.
template <class T>
class Aligned {
 public:
  void resize(size_t n) {
    size_ = n;
    data_.reset(static_cast<T*>(std::aligned_alloc(64, (n * sizeof(T) + 63) / 64 * 64)));
    if (!data_ && n) throw std::bad_alloc();
  }
  T* data() const { return data_.get(); }
  size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  std::unique_ptr<T, Free> data_;
  size_t size_ = 0;
};

struct StackSizes {
  size_t phi = 0, pair_phi = 0, triple_phi = 0, stack = 0, inner = 0;
};

StackSizes stack_sizes(const Plan& plan, size_t element) {
  StackSizes sizes;
  for (const Chunk& chunk : plan.chunks) {
    const size_t outputs = n_used_outputs(plan, chunk);
    const size_t rows = chunk.output < 0 ? kVectorWalkRows
                        : element == 4   ? walk_rows<float>(plan.interactions())
                                         : walk_rows<double>(plan.interactions());
    sizes.phi = std::max(sizes.phi, outputs * chunk.slots.size() * kBlockRows);
    sizes.pair_phi = std::max(sizes.pair_phi, outputs * chunk.pairs.size() * kBlockRows);
    sizes.triple_phi = std::max(sizes.triple_phi, outputs * chunk.triples.size() * kBlockRows);
    sizes.stack = std::max(
        sizes.stack, rows * stack_size(chunk.n_nodes, static_cast<int>(outputs), chunk.height, plan.order));
    sizes.inner = std::max(sizes.inner, chunk.max_inner);
  }
  return sizes;
}

template <class T>
const std::vector<T>& constants(const Plan& plan) {
  if constexpr (sizeof(T) == 4)
    return plan.constants_float;
  else
    return plan.constants_double;
}

// One thread's work: tiles of rows, through all trees, into the result.
template <class T>
class Worker {
 public:
  Worker(const Plan& plan, const Kernels& kernels, const Rows& rows, const Result& result, int tile)
      : plan_(plan), kernels_(kernels), rows_(rows), result_(result), tile_(tile) {
    const StackSizes sizes = stack_sizes(plan, sizeof(T));
    codes_.allocate(plan, tile);
    phi_.resize(sizes.phi);
    pair_phi_.resize(sizes.pair_phi);
    triple_phi_.resize(sizes.triple_phi);
    stack_.resize(sizes.stack);
    const size_t n_nodes = 2 * sizes.inner + 1;
    words_.resize(kFirstWord + 2 * n_nodes);
    std::fill_n(words_.data(), words_.size(), uint64_t{0});  // those of leaves are read, too
    reach_.resize(n_nodes);
    sums_.resize(plan.features.size() * plan.n_outputs * tile);
    pair_sums_.resize(plan.pairs.size() * plan.n_outputs * tile);
    triple_sums_.resize(plan.triples.size() * plan.n_outputs * tile);
    margin_.resize(static_cast<size_t>(plan.n_outputs) * tile);
    main_.resize(plan.features.size());
    if (plan.method != Method::kWalk) recursion_ = std::make_unique<Recursion<T>>(plan);
  }

  // Returns false when `stop` asked to.
  template <class Stop>
  bool run(int64_t first_row, int n_rows, const Stop& stop) {
    code_tile(plan_, kernels_, rows_, first_row, n_rows, codes_);
    std::fill_n(sums_.data(), sums_.size(), 0.0);
    std::fill_n(pair_sums_.data(), pair_sums_.size(), 0.0);
    std::fill_n(triple_sums_.data(), triple_sums_.size(), 0.0);
    for (int32_t o = 0; o < plan_.n_outputs; ++o)
      std::fill_n(margin_.data() + static_cast<size_t>(o) * tile_, tile_, plan_.constant[o]);
    for (const Chunk& chunk : plan_.chunks) {
      for (int block = 0; block * kBlockRows < n_rows; ++block)
        run_chunk(chunk, block, std::min(kBlockRows, n_rows - block * kBlockRows));
      if (stop()) return false;
    }
    if (result_.is_float32)
      write(static_cast<float*>(result_.values), first_row, n_rows);
    else
      write(static_cast<double*>(result_.values), first_row, n_rows);
    return true;
  }

 private:
  void run_chunk(const Chunk& chunk, int block, int n_rows) {
    const T* nodes = constants<T>(plan_).data() + chunk.quadrature;
    const size_t n_slots = chunk.slots.size(), n_outputs = n_used_outputs(plan_, chunk);
    const size_t n_pairs = chunk.pairs.size(), n_triples = chunk.triples.size();
    std::fill_n(phi_.data(), n_outputs * n_slots * kBlockRows, T(0));
    std::fill_n(pair_phi_.data(), n_outputs * n_pairs * kBlockRows, T(0));
    std::fill_n(triple_phi_.data(), n_outputs * n_triples * kBlockRows, T(0));
    const CategoryRows* categories =
        codes_.category_rows.empty() ? nullptr : codes_.category_rows.data() + block * plan_.columns.size();
    for (size_t i = chunk.tree_begin; i < chunk.tree_end; ++i) {
      const TreeProgram& tree = plan_.trees[i];
      const DecideArgs decide{plan_.decide.data() + tree.decide,
                              tree.n_inner,
                              codes_.codes(plan_, block),
                              codes_.stride,
                              categories,
                              plan_.category_bits.data(),
                              words_.data()};
      (plan_.wide_codes ? kernels_.decide32 : kernels_.decide16)(decide);
      if (result_.margin) add_margin(chunk, tree, block);
      if (plan_.interventional) {
        look_up(chunk, i, n_rows, n_slots * kBlockRows);
        // A table is added for every few leaves: too many for the sum of many trees in single precision.
        add_sums(chunk, block, chunk.slots, plan_.features.size(), plan_.leaf_scale, phi_, sums_);
        std::fill_n(phi_.data(), n_outputs * n_slots * kBlockRows, T(0));
        continue;
      }
      if (recursion_) {
        recursion_->add_tree(chunk, tree, words_.data(), n_rows, phi_.data());
        continue;
      }
      const WalkArgs<T> walk{plan_.ops.data() + tree.ops,
                             constants<T>(plan_).data() + tree.constants,
                             words_.data(),
                             nodes,
                             nodes + chunk.n_nodes,
                             chunk.n_nodes,
                             static_cast<int>(n_outputs),
                             chunk.height,
                             n_rows,
                             phi_.data(),
                             n_slots * kBlockRows,
                             stack_.data(),
                             nodes + 2 * chunk.n_nodes,
                             pair_phi_.data(),
                             n_pairs * kBlockRows,
                             triple_phi_.data(),
                             n_triples * kBlockRows};
      run_walk(chunk, walk);
    }
    add_sums(chunk, block, chunk.slots, plan_.features.size(), plan_.leaf_scale, phi_, sums_);
    // The walk finds twice the interaction of a pair.
    add_sums(chunk, block, chunk.pairs, plan_.pairs.size(), plan_.leaf_scale / 2, pair_phi_, pair_sums_);
    add_sums(chunk, block, chunk.triples, plan_.triples.size(), plan_.leaf_scale, triple_phi_, triple_sums_);
  }

  // Adds the sums of a chunk to those of the tile; `places` tells where each of its slots is among
  // `n_places`.
  void add_sums(const Chunk& chunk, int block, const std::vector<int32_t>& places, size_t n_places,
                double scale, const Aligned<T>& phi, const Aligned<double>& sums) const {
    const size_t n_outputs = n_used_outputs(plan_, chunk), first_output = std::max(chunk.output, 0);
    const T* from = phi.data();
    for (size_t o = 0; o < n_outputs; ++o)
      for (const int32_t place : places) {
        double* to = sums.data() + ((first_output + o) * n_places + place) * tile_ + block * kBlockRows;
        for (int row = 0; row < kBlockRows; ++row) to[row] += scale * from[row];
        from += kBlockRows;
      }
  }

  void look_up(const Chunk& chunk, size_t tree, int n_rows, size_t output_stride) {
    const BackgroundTables& b = plan_.background;
    for (size_t i = b.tree_look_ups[tree]; i < b.tree_look_ups[tree + 1]; ++i) {
      const LookUp& group = b.look_ups[i];
      const auto run = [&](auto kernel, const T* tables) {
        kernel({words_.data(), b.bits.data() + group.bits, group.n_bits, b.targets.data() + group.targets,
                group.n_targets, tables + group.tables, phi_.data()});
      };
      if constexpr (sizeof(T) == 4)
        run(kernels_.look_up_float, b.tables_float.data());
      else
        run(kernels_.look_up_double, b.tables_double.data());
    }
    for (size_t i = b.tree_leaves[tree]; i < b.tree_leaves[tree + 1]; ++i)
      add_pattern_leaf<T>(plan_, b.leaves[i], words_.data(), n_rows, phi_.data(), output_stride,
                          n_used_outputs(plan_, chunk));
  }

  void run_walk(const Chunk& chunk, const WalkArgs<float>& args) const {
    run_walk(chunk, args, kernels_.walk_float[plan_.order - 1], kernels_.walk_vector_float[plan_.order - 1]);
  }
  void run_walk(const Chunk& chunk, const WalkArgs<double>& args) const {
    run_walk(chunk, args, kernels_.walk_double[plan_.order - 1],
             kernels_.walk_vector_double[plan_.order - 1]);
  }
  template <class Walks, class Walk>
  void run_walk(const Chunk& chunk, const WalkArgs<T>& args, const Walks& walks, Walk vector) const {
    (chunk.output < 0 ? vector : walks[chunk.n_nodes <= kMaxFixedNodes ? chunk.n_nodes : 0])(args);
  }

  // Adds the leaf values that the rows reach, by the decisions already made.
  void add_margin(const Chunk& chunk, const TreeProgram& tree, int block) {
    const int32_t* children = plan_.children.data() + tree.children;
    const double* leaves = plan_.leaf_values.data() + tree.leaves;
    const size_t width = n_used_outputs(plan_, chunk);
    double* margin =
        margin_.data() + static_cast<size_t>(std::max(chunk.output, 0)) * tile_ + block * kBlockRows;
    int32_t reached[kBlockRows];
    const ReachArgs args{children,    static_cast<int32_t>(tree.n_inner),
                         tree.height, words_.data(),
                         leaves,      reach_.data(),
                         margin,      reached};
    if (width == 1 && tree.n_inner < kLeavesPerLevel * tree.height) {
      kernels_.leaf_sums(args);
      return;
    }
    kernels_.descend(args);
    for (size_t o = 0; o < width; ++o)
      for (int row = 0; row < kBlockRows; ++row) margin[o * tile_ + row] += leaves[reached[row] * width + o];
  }

  template <class Out>
  void write(Out* values, int64_t first_row, int n_rows) {
    const size_t row_size = static_cast<size_t>(plan_.n_outputs) * plan_.n_features,
                 n_used = plan_.features.size();
    for (int row = 0; row < n_rows; ++row) {
      Out* out = values + (first_row + row) * row_size;
      if (n_used < static_cast<size_t>(plan_.n_features)) std::fill_n(out, row_size, Out(0));
      for (int32_t o = 0; o < plan_.n_outputs; ++o, out += plan_.n_features) {
        const double* sums = sums_.data() + o * n_used * tile_ + row;
        for (size_t i = 0; i < n_used; ++i) out[plan_.features[i]] = static_cast<Out>(sums[i * tile_]);
        if (result_.margin)
          result_.margin[(first_row + row) * plan_.n_outputs + o] =
              margin_.data()[static_cast<size_t>(o) * tile_ + row];
      }
      for (int32_t o = 0; o < plan_.n_outputs; ++o) {
        const size_t index = (first_row + row) * plan_.n_outputs + o;
        if (result_.pairs)
          write_sums(static_cast<Out*>(result_.pairs), index, o, row, pair_sums_, plan_.pairs.size());
        if (result_.triples)
          write_sums(static_cast<Out*>(result_.triples), index, o, row, triple_sums_, plan_.triples.size());
        if (result_.matrices)
          write_matrix(static_cast<Out*>(result_.matrices) + index * plan_.n_features * plan_.n_features, o,
                       row);
      }
    }
  }

  template <class Out>
  void write_sums(Out* out, size_t index, int32_t o, int row, const Aligned<double>& from, size_t n) const {
    const double* sums = from.data() + o * n * tile_ + row;
    for (size_t i = 0; i < n; ++i) out[index * n + i] = static_cast<Out>(sums[i * tile_]);
  }

  // What a feature does alone is what its pairs leave of its value, or its Banzhaf value.
  template <class Out>
  void write_matrix(Out* out, int32_t o, int row) {
    const size_t n = plan_.n_features, n_used = plan_.features.size();
    std::fill_n(out, n * n, Out(0));
    const double* sums = sums_.data() + o * n_used * tile_ + row;
    for (size_t i = 0; i < n_used; ++i) main_[i] = sums[i * tile_];
    const double* pair_sums = pair_sums_.data() + o * plan_.pairs.size() * tile_ + row;
    for (size_t i = 0; i < plan_.pairs.size(); ++i) {
      const FeaturePair pair = plan_.pairs[i];
      const double x = pair_sums[i * tile_];
      const size_t first = plan_.features[pair.first], second = plan_.features[pair.second];
      if (plan_.index != Index::kBanzhaf) {
        main_[pair.first] -= x;
        main_[pair.second] -= x;
      }
      out[first * n + second] = out[second * n + first] = static_cast<Out>(x);
    }
    for (size_t i = 0; i < n_used; ++i) out[plan_.features[i] * (n + 1)] = static_cast<Out>(main_[i]);
  }

  const Plan& plan_;
  const Kernels& kernels_;
  const Rows& rows_;
  const Result& result_;
  const size_t tile_;
  CodeTile codes_;
  Aligned<T> phi_, pair_phi_, triple_phi_, stack_;
  Aligned<uint64_t> words_, reach_;
  Aligned<double> sums_, pair_sums_, triple_sums_, margin_;
  std::vector<double> main_;  // main effects of one row
  std::unique_ptr<Recursion<T>> recursion_;
};

template <class T>
bool explain_tiles(const Plan& plan, const Rows& rows, const Result& result, int64_t n_threads,
                   const std::function<bool()>& interrupted) {
  const Kernels& table = kernels();
  const int tile = tile_rows(plan, rows.n_rows, n_threads);
  const int64_t n_tiles = (rows.n_rows + tile - 1) / tile;
  std::atomic<int64_t> next{0};
  std::atomic<bool> stopped{false};
  std::exception_ptr error;
  std::mutex error_mutex;
  const auto work = [&](const auto& stop) {
    try {
      Worker<T> worker(plan, table, rows, result, tile);
      for (int64_t i; !stopped && (i = next++) < n_tiles;) {
        const int64_t first = i * tile;
        if (!worker.run(first, static_cast<int>(std::min<int64_t>(tile, rows.n_rows - first)), stop))
          stopped = true;
      }
    } catch (...) {
      const std::lock_guard<std::mutex> lock(error_mutex);
      error = std::current_exception();
      stopped = true;
    }
  };
  std::vector<std::thread> threads;
  try {
    for (int64_t i = 1; i < std::min(n_threads, n_tiles); ++i)
      threads.emplace_back(work, [&] { return stopped.load(); });
  } catch (const std::system_error&) {
    // The system has no more threads: those that started, and this one, do all the work.
  }
  work([&] {
    if (interrupted()) stopped = true;
    return stopped.load();
  });
  for (std::thread& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
  return !stopped;
}

}  // namespace

bool explain(const Plan& plan, const Rows& rows, const Result& result, int n_threads,
             const std::function<bool()>& interrupted) {
  return (plan.precision == Precision::kSingle
              ? explain_tiles<float>
              : explain_tiles<double>)(plan, rows, result, n_threads, interrupted);
}

size_t scratch_bytes(const Plan& plan) {
  const size_t element = plan.precision == Precision::kSingle ? 4 : 8;
  const StackSizes sizes = stack_sizes(plan, element);
  const size_t tile = tile_rows(plan, INT64_MAX / 8, 1);
  const size_t recursion = plan.method == Method::kWalk ? 0
                           : element == 4               ? Recursion<float>::bytes(plan)
                                                        : Recursion<double>::bytes(plan);
  return recursion + element * (sizes.phi + sizes.pair_phi + sizes.triple_phi + sizes.stack) +
         8 * (6 * sizes.inner + 5) +
         tile * (plan.columns.size() * (plan.wide_codes ? 4 : 2) + 8 * plan.n_outputs * (n_sums(plan) + 1)) +
         tile / kBlockRows * plan.columns.size() * sizeof(CategoryRows);
}

std::vector<std::string> supported_kernels() {
  std::vector<std::string> names;
#ifdef SKSHAP_X86_64
  __builtin_cpu_init();
  const bool avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
    names.push_back("avx512");
  if (avx2) names.push_back("avx2");
#endif
  names.push_back("baseline");
  return names;
}

const Kernels& kernels() {
  static const Kernels& chosen = []() -> const Kernels& {
    const std::vector<std::string> supported = supported_kernels();
    std::string name = supported.front();
    if (const char* forced = std::getenv("SKSHAPGPU_ISA"); forced && *forced) {
      if (std::find(supported.begin(), supported.end(), forced) == supported.end()) {
        std::string message =
            std::string("SKSHAPGPU_ISA=") + forced + " is not available here; choose one of:";
        for (const std::string& s : supported) message += " " + s;
        throw std::runtime_error(message);
      }
      name = forced;
    }
#ifdef SKSHAP_X86_64
    if (name == "avx512") return kernels_avx512();
    if (name == "avx2") return kernels_avx2();
#endif
    return kernels_baseline();
  }();
  return chosen;
}

}  // namespace skshap
