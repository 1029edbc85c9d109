// GPUTreeShap (Mitchell, Frank, Holmes, arXiv:2010.13972): one lane for each element of a path, several paths
// in a warp, and the dynamic programming of TreeSHAP by shuffles.
//
// Weight i of a path (held by lane i of its lanes) is the sum, over all sets of i known features, of the
// product of the known features' one fractions and the other features' zero fractions, times the fraction i!
// (n - i)! / (n + 1)! of such a set among all orders. EXTEND adds one more feature to the weights:
//
//   w_i <- (z (n - i) w_i + o i w_(i-1)) / (n + 1)      n: features so far, including this one
//
// The value of feature i needs the sum of the weights without this feature. All these sums are computed at
// once, one in each lane. With o = 1, EXTEND is solved for the old weights, beginning with the highest. With
// o = 0, the old weight is w_j (n + 1) / (z (n - j)), and z cancels against the factor o - z of the value.
//
// The sums are added with atomics, in any order. So the last digits of results differ from run to run.
#include <algorithm>
#include <memory>
#include <stdexcept>
#include <vector>

#include "cuda/baselines/packing.h"
#include "cuda/batch_model.cuh"
#include "cuda/codes_model.cuh"
#include "cuda/margin_model.cuh"
#include "cuda/program/tuning.h"

namespace skshap {
// Names of kernels in an unnamed namespace contain the number of nvcc's process, so that two builds differ.
namespace gpu_paths {

// The number of rows that a warp takes through its bin, as in the paper.
constexpr int kPathRows = 1024;
constexpr int kPathThreads = 256;

struct CudaPathArgs {
  // From the PathSet.
  const PathElement* elements;
  const int64_t* bins;
  const LeafPath* paths;
  const uint32_t* category_bits;
  int64_t n_bins;
  // From the Plan.
  const double* leaf_values;
  const int32_t* features;
  int32_t n_used, n_outputs, n_features;
  // The rows, and how to code them: one CudaCodeColumn for each of Plan::columns, with an origin of 0.
  // `code.codes` is not used.
  CudaCodeArgs code;
  uint32_t* codes;  // [tile of kPathLanes rows][column][row of the tile]
  double* phi;      // [row][output][used feature]
  void* values;     // [row][output][feature]
};

// Code rows. A block takes a tile, and a warp takes a column of the tile.
template <class Read>
__global__ void __launch_bounds__(kPathThreads) code_path_rows(CudaPathArgs args) {
  const CudaCodeArgs& a = args.code;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kPathLanes + threadIdx.x % kPathLanes;
  const int64_t read = row < a.n_rows ? row : a.n_rows - 1;  // rows past the end repeat the last one
  const char* x_row = static_cast<const char*>(a.X) + read * a.row_stride;
  uint32_t* out =
      args.codes + static_cast<int64_t>(blockIdx.x) * a.n_columns * kPathLanes + threadIdx.x % kPathLanes;
  for (int c = threadIdx.x / kPathLanes; c < a.n_columns; c += kPathThreads / kPathLanes) {
    const CudaCodeColumn column = a.columns[c];
    const char* p = x_row + column.input * a.column_stride;
    const Read x = a.x_single ? static_cast<Read>(*reinterpret_cast<const float*>(p))
                              : static_cast<Read>(*reinterpret_cast<const double*>(p));
    out[static_cast<int64_t>(c) * kPathLanes] = full_code(a, column, x);
  }
}

// Return a bit for each row of a tile: whether it satisfies all splits of the path on the element's feature.
// These bits are the one fractions.
__device__ inline uint32_t one_fractions(const CudaPathArgs& a, const PathElement& e, int64_t tile) {
  const uint32_t* codes = a.codes + tile * a.code.n_columns * kPathLanes;
  const auto test = [&](uint32_t column, auto passes) {
    const uint4* p = reinterpret_cast<const uint4*>(codes + static_cast<int64_t>(column) * kPathLanes);
    uint32_t ones = 0;
    for (int r = 0; r < kPathLanes; r += 4) {
      const uint4 c = p[r / 4];
      const uint32_t four = passes(c.x) | passes(c.y) << 1 | passes(c.z) << 2 | passes(c.w) << 3;
      ones |= four << r;
    }
    return ones;
  };
  uint32_t ones = test(e.column, [&](uint32_t code) -> uint32_t {
    return (code >= e.lower && code < e.upper) || (e.missing && code == kMissingCode);
  });
  if (e.set != kNoSet)
    ones &= test(e.set_column,
                 [&](uint32_t code) { return a.category_bits[e.set + (code >> 5)] >> (code & 31) & 1; });
  return ones;
}

// A lane's element of a path, for a warp whose longest path has `longest` elements. All lanes of a warp take
// the steps of this path, because the shuffles need the whole warp.
template <class T>
struct LaneElement {
  T z;
  int place, first, length, longest;  // `first` is the lane of the path's first element
};

// Return the contribution of a lane's element to its feature, for a leaf of value 1. `one` is the element's
// one fraction, and reciprocal[0] is 0, for steps that a path does not have.
template <class T>
__device__ __forceinline__ T element_share(const LaneElement<T>& e, bool one, const T* reciprocal) {
  const uint32_t path_ones = __ballot_sync(~0u, one) >> e.first;
  // EXTEND by element n of each path.
  T w = e.place ? T(0) : T(1);
  for (int n = 1; n < e.longest; ++n) {
    const T added = __shfl_sync(~0u, e.z, e.first + n), previous = __shfl_up_sync(~0u, w, 1);
    const T gained = path_ones >> n & 1 ? T(e.place) * previous : T(0);
    w = n < e.length ? (added * T(n - e.place) * w + gained) * reciprocal[n + 1] : w;
  }
  // UNWOUND SUM, from weight length - 2 down to weight 0, divided by `length`.
  T next = __shfl_sync(~0u, w, e.first + e.length - 1), sum = 0;
  for (int n = 1; n < e.longest; ++n) {
    const int j = e.length - 1 - n;
    const T weight = __shfl_sync(~0u, w, e.first + j);
    const T old = (one ? next : weight) * reciprocal[j < 0 ? 0 : one ? j + 1 : n];
    sum += old;
    next = weight - old * e.z * T(n);  // only used with o = 1
  }
  return sum * T(e.length) * (one ? T(1) - e.z : T(-1));
}

template <class T>
__global__ void __launch_bounds__(kPathThreads) add_paths(CudaPathArgs a) {
  __shared__ T reciprocal[kPathLanes + 1];
  if (threadIdx.x <= kPathLanes) reciprocal[threadIdx.x] = threadIdx.x ? T(1) / threadIdx.x : T(0);
  __syncthreads();
  const int64_t bin =
      static_cast<int64_t>(blockIdx.x) * (kPathThreads / kPathLanes) + threadIdx.x / kPathLanes;
  if (bin >= a.n_bins) return;
  const int lane = threadIdx.x % kPathLanes;
  const int64_t at = a.bins[bin] + lane;
  // Lanes without an element act as paths of one element.
  PathElement e{};
  e.zero_fraction = 1;
  int length = 1, n_outputs = 0;  // the outputs that the path adds to
  const double* values = nullptr;
  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * kPathRows;
  const int64_t row_size = static_cast<int64_t>(a.n_outputs) * a.n_used;
  double* phi = a.phi + first_row * row_size;
  if (at < a.bins[bin + 1]) {
    e = a.elements[at];
    const LeafPath path = a.paths[e.path];
    length = static_cast<int>(path.length);
    if (e.feature >= 0) {
      n_outputs = path.output < 0 ? a.n_outputs : 1;
      values = a.leaf_values + path.values;
      phi += static_cast<int64_t>(path.output < 0 ? 0 : path.output) * a.n_used + e.feature;
    }
  }
  int longest = length;
  for (int offset = kPathLanes / 2; offset; offset /= 2)
    longest = max(longest, __shfl_xor_sync(~0u, longest, offset));
  const int place = e.place;
  const LaneElement<T> element{static_cast<T>(e.zero_fraction), place, lane - place, length, longest};

  for (int done = 0; done < kPathRows && first_row + done < a.code.n_rows; done += kPathLanes) {
    const int64_t row = first_row + done, rest = a.code.n_rows - row;
    const uint32_t ones = n_outputs ? one_fractions(a, e, row / kPathLanes) : 0;
    const int n_rows = rest < kPathLanes ? static_cast<int>(rest) : kPathLanes;
    for (int r = 0; r < n_rows; ++r, phi += row_size) {
      const double share = static_cast<double>(element_share(element, ones >> r & 1, reciprocal));
      for (int o = 0; o < n_outputs; ++o)
        atomicAdd(phi + static_cast<int64_t>(o) * a.n_used, share * values[o]);
    }
  }
}

template <class Out>
__global__ void __launch_bounds__(kPathThreads) write_path_values(CudaPathArgs a) {
  const int64_t n = a.code.n_rows * a.n_outputs * a.n_used,
                step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step)
    static_cast<Out*>(a.values)[i / a.n_used * a.n_features + a.features[i % a.n_used]] =
        static_cast<Out>(a.phi[i]);
}

// The paths of a plan on a device. A call needs neither codes, except for margins, nor slots.
class PathModel : public BatchModel {
 public:
  PathModel(const Plan& plan, const CudaColumns& columns)
      : BatchModel(plan, kTile),
        codes_(plan, columns.list()),
        path_codes_(plan, full_columns(plan)),
        margins_(plan, make_margins(plan, columns), kMarginTrees),
        features_(upload(plan.features)) {
    const PathSet set = make_paths(plan);
    const PackedPaths packed = pack_paths(set, Packing::kBestFitDecreasing);
    elements_ = upload(packed.elements);
    bins_ = upload(packed.bins);
    paths_ = upload(set.paths);
    category_bits_ = upload(set.category_bits);
    n_bins_ = static_cast<int64_t>(packed.bins.size()) - 1;
    for (const LeafPath& path : set.paths) longest_ = std::max(longest_, path.length);
  }

  size_t row_bytes(bool margins) const override {
    return sizeof(uint32_t) * plan.columns.size() + sizeof(double) * phi_elements(1) +
           (margins ? codes_.row_bytes() + margins_.row_bytes() : 0);
  }

  void reserve(Flight& flight, int64_t n_rows, bool margins, const Result&) const override {
    const size_t n = padded(n_rows);
    flight.reserve(flight.own[kCodes], sizeof(uint32_t) * n * plan.columns.size());
    flight.reserve(flight.own[kPhi], sizeof(double) * phi_elements(n_rows));
    if (!margins) return;
    codes_.reserve(flight, n);
    margins_.reserve(flight, n);
  }

  void explain(const Flight& flight, const Batch& batch, cudaStream_t s) const override {
    CudaPathArgs a{.elements = elements_.as<PathElement>(),
                   .bins = bins_.as<int64_t>(),
                   .paths = paths_.as<LeafPath>(),
                   .category_bits = category_bits_.as<uint32_t>(),
                   .n_bins = n_bins_,
                   .leaf_values = margins_.leaf_values(),
                   .features = features_.as<int32_t>(),
                   .n_used = static_cast<int32_t>(plan.features.size()),
                   .n_outputs = plan.n_outputs,
                   .n_features = plan.n_features,
                   .code = path_codes_.args(batch),
                   .codes = flight.own[kCodes].as<uint32_t>(),
                   .phi = flight.own[kPhi].as<double>(),
                   .values = batch.out.values};
    if (a.n_used < a.n_features)
      check(cudaMemsetAsync(a.values, 0, skshap::row_bytes(plan, batch.out)[0] * batch.rows.n_rows, s),
            "clearing the result");
    if (a.n_used) add_up(a, batch.out.is_float32, s);
    if (!batch.margins) return;
    const int32_t n = n_tiles(batch.rows.n_rows);
    codes_.run(flight, batch, 0, n, s);
    margins_.run(flight, batch, codes_.n_columns, codes_.category_bits(), n, s);
    margins_.find_gaps(flight, batch, multiprocessors, s);
  }

 private:
  static constexpr int kTile = 64;
  static_assert(kTile % kPathLanes == 0);
  enum { kCodes, kPhi };  // a flight's own buffers
  // The longest path, root included, that is explained in single precision. The recurrences lose accuracy
  // with every feature on a path, and float32 suffices for about 16 features.
  static constexpr uint32_t kMaxSinglePath = 17;

  static std::vector<CudaColumn> full_columns(const Plan& plan) {
    std::vector<CudaColumn> list;
    for (size_t c = 0; c < plan.columns.size(); ++c) list.push_back({static_cast<int32_t>(c), 0});
    return list;
  }

  size_t phi_elements(int64_t n_rows) const { return n_rows * plan.n_outputs * plan.features.size(); }

  void add_up(const CudaPathArgs& a, bool is_float32, cudaStream_t s) const {
    const size_t n_phi = phi_elements(a.code.n_rows);
    check(cudaMemsetAsync(a.phi, 0, sizeof(double) * n_phi, s), "clearing sums");
    const unsigned n_tiles = static_cast<unsigned>((a.code.n_rows + kPathLanes - 1) / kPathLanes);
    const auto code = plan.x_float32 ? code_path_rows<float> : code_path_rows<double>;
    code<<<n_tiles, kPathThreads, 0, s>>>(a);
    constexpr int kWarps = kPathThreads / kPathLanes;
    const dim3 grid(static_cast<unsigned>((a.n_bins + kWarps - 1) / kWarps),
                    static_cast<unsigned>((a.code.n_rows + kPathRows - 1) / kPathRows));
    const bool single = plan.precision == Precision::kSingle && longest_ <= kMaxSinglePath;
    const auto add = single ? add_paths<float> : add_paths<double>;
    add<<<grid, kPathThreads, 0, s>>>(a);
    const unsigned blocks =
        static_cast<unsigned>(std::min<size_t>((n_phi + kPathThreads - 1) / kPathThreads, 65536));
    const auto write = is_float32 ? write_path_values<float> : write_path_values<double>;
    write<<<blocks, kPathThreads, 0, s>>>(a);
    check_launch("running GPUTreeShap");
  }

  const CodesModel<kTile> codes_, path_codes_;
  const MarginModel<kTile> margins_;
  DeviceBuffer features_, elements_, bins_, paths_, category_bits_;
  int64_t n_bins_ = 0;
  uint32_t longest_ = 0;
};

std::unique_ptr<BatchModel> make_path_model(const Plan& plan) {
  if (plan.interactions() || plan.index == Index::kBanzhaf || !plan.groups.empty() || plan.tables.any() ||
      plan.intervals.any())
    throw std::invalid_argument("gputreeshap computes SHAP values only");
  return std::make_unique<PathModel>(plan, CudaColumns(plan));
}

const RegisteredModel gputreeshap("gputreeshap", make_path_model);

}  // namespace gpu_paths
}  // namespace skshap
