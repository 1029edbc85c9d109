// A plan on a device: the data and buffers that are the same in all calls.
#pragma once

#include <algorithm>
#include <vector>

#include "cuda/general.cuh"
#include "cuda/gputreeshap.cuh"
#include "cuda/intervals.cuh"
#include "cuda/kernels.h"
#include "cuda/leaves.cuh"
#include "cuda/memory.h"
#include "cuda/owen_model.cuh"
#include "cuda/pattern_model.cuh"
#include "cuda/rows.cuh"
#include "cuda/tables.cuh"
#include "plan/quadrature.h"

namespace skshap {

// The memory of the general walk. It limits the number of warps that run this walk.
constexpr size_t kGeneralBytes = size_t{1} << 28;
// The trees of a margin group. A thread descends them one after another. For few rows, this takes as long as
// all other work.
constexpr size_t kMarginTrees = 2;
// The shared memory for the decisions of a tree, for all warps of a block. Larger trees use global memory.
constexpr size_t kMaxSharedWords = size_t{1} << 15;
// The largest number of features for which add_matrices writes matrices. In larger matrices, most elements
// are zeros, and add_matrices would be slow.
constexpr int kMaxSmallMatrix = 128;
// The shared memory that a block has without requesting more.
constexpr size_t kSharedBytes = size_t{48} << 10;
// The shared memory that the kernels of the walk use in addition to the segments and phi.
constexpr size_t kStaticSharedBytes = 256;
// Return the bytes for a stage of tables by intervals. The shared memory of a block holds two stages.
constexpr size_t interval_stage_bytes(size_t shared) {
  constexpr size_t kUnit = 128;
  return (shared - kStaticSharedBytes) / 2 / kUnit * kUnit;
}

template <class T>
struct CudaModel {
  static constexpr int kTile = cuda_tile_rows<T>();

  // One launch, for all chunks with the same K.
  struct WalkLaunch {
    CudaWalkArgs<T> args;
    WalkKernel<T> kernel;
    int n_chunks;
    size_t segment_bytes, phi_bytes;  // shared memory: of a block; additional for each of its warps
    std::vector<int> n_blocks;        // that run at a time, by the number of warps of a block, from 1
    DeviceBuffer list;

    // Return the number of warps of a block, given the number of tiles. With few rows, the tiles are divided
    // among all multiprocessors.
    int n_warps(int32_t n_tiles, int multiprocessors) const {
      const int64_t n = (static_cast<int64_t>(n_tiles) * n_chunks + multiprocessors - 1) / multiprocessors,
                    most = std::min<int64_t>(static_cast<int64_t>(n_blocks.size()), n_tiles);
      return static_cast<int>(std::clamp<int64_t>(n, 1, most));
    }
    size_t shared(int n_warps) const { return segment_bytes + n_warps * phi_bytes; }
  };
  struct General {
    CudaGeneralArgs<T> args{};
    int n_chunks = 0, n_blocks = 0;
    DeviceBuffer list;
  };

  // The trees that are explained by tables.
  struct TableModel {
    CudaTableArgs<T> args{};
    int n_chunks = 0, n_blocks = 0;
    int n_warps = kTableWarps;  // of a block
    size_t shared = 0;
    size_t words_bytes = 0;  // of all blocks; used if the words are not in shared memory
    DeviceBuffer chunks, trees, nodes, lookups, bits, targets, factors, entries;
  };

  // The tables by intervals.
  struct Intervals {
    CudaIntervalArgs<T> args{};
    size_t n_parts[std::size(kIntervalForms)] = {};  // by form
    size_t shared = 0;
    DeviceBuffer parts, columns, targets, stages, stream;
  };

  // The leaves of a model, for few rows. They replace the walk.
  struct Leaves {
    CudaLeafArgs<T> args{};
    // Consecutive chunks of the same number of quadrature nodes.
    struct LeafLaunch {
      size_t first_chunk;
      unsigned n_chunks;
      int n_nodes;
      size_t shared;
      T t[kMaxFixedNodes], weight[kMaxFixedNodes];
    };
    std::vector<LeafLaunch> launches;
    DeviceBuffer chunks, tests, zero_fractions, values, slot_begins, slot_elements, category_bits;
  };

  // The model in the form that GPUTreeShap needs. It replaces codes, walk and sums.
  struct Paths {
    bool used = false;
    DeviceBuffer elements, bins, paths, category_bits;
    int64_t n_bins = 0;
    uint32_t longest = 0;
  };

  const Plan& plan;
  int multiprocessors = 0, n_groups = 0;
  size_t max_shared = 0;  // of a block; if phi does not fit, it is summed in the caches
  int32_t n_columns = 0, n_sums = 0;
  uint32_t n_slots = 0;
  size_t frame_bytes = 0;  // memory of all warps of a walk for their frames
  DeviceBuffer stream, chunks, category_bits, category_sets, nodes, tree_nodes, leaf_values, constant, base,
      columns, full_columns, thresholds, categories, groups, offsets, parts, part_weights, features,
      partner_offsets, partners, place_of;
  bool small_matrices = false;  // whether add_matrices can be used
  bool codes_all = false;       // whether every column of X is coded in each call
  std::vector<WalkLaunch> launches;
  General general;
  TableModel tables;
  PatternModel<T> pattern_leaves;
  OwenModel<T> owen_leaves;
  Intervals intervals;
  Leaves leaves;
  Paths paths;

  // Upload the model to the current device.
  CudaModel(const Plan& of, CudaMethod method) : plan(of) {
    int device = 0;
    check(cudaGetDevice(&device), "no current device");
    check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
          "device attribute");
    int shared = 0;
    check(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
          "device attribute");
    max_shared = static_cast<size_t>(shared) - kStaticSharedBytes;
    const size_t stage_bytes = interval_stage_bytes(static_cast<size_t>(shared));
    if (plan.intervals.any() && stage_bytes < kLeastStageBytes)
      throw std::invalid_argument("tables by intervals do not fit the shared memory of this GPU");
    const CudaProgram<T> program = make_cuda_program<T>(plan, method, stage_bytes);
    const bool gputreeshap = method == CudaMethod::kGpuTreeShap;
    n_columns = static_cast<int32_t>(program.columns.size());
    n_slots = gputreeshap ? 0 : static_cast<uint32_t>(program.slots.size());
    upload_columns(program);
    category_bits = upload(plan.category_bits);
    nodes = upload(program.nodes);
    tree_nodes = upload(program.tree_nodes);
    leaf_values = upload(plan.leaf_values);
    constant = upload(plan.constant);
    base = upload(plan.base_value);
    plan_sums(program, gputreeshap);
    if (gputreeshap) {
      upload_paths();
      return;
    }
    codes_all = n_columns > 0 && plan.n_used_inputs == plan.n_inputs;
    stream = upload(program.stream);
    chunks = upload(program.chunks);
    category_sets = upload(program.category_sets);
    plan_launches(program);
    if (!program.leaves.chunks.empty()) plan_leaves(program.leaves);
    if (!program.tables.chunks.empty()) plan_tables(program.tables);
    pattern_leaves.upload(program.pattern_leaves,
                          plan.order > 1 ? PatternResults::kPairs : PatternResults::kValues, plan.index,
                          max_shared, kTile, n_columns, n_slots, category_bits);
    owen_leaves.upload(program.owen_leaves, max_shared, multiprocessors, n_columns, n_slots, category_bits);
    if (plan.intervals.any()) plan_intervals(program.intervals, stage_bytes);
  }

 private:
  void upload_columns(const CudaProgram<T>& program) {
    std::vector<CudaCodeColumn> columns, full_columns;
    std::vector<float> floats;
    std::vector<double> doubles;
    std::vector<int32_t> categories;
    std::vector<int64_t> begins;
    for (const Column& column : plan.columns) {
      begins.push_back(column.categorical ? categories.size()
                       : plan.x_float32   ? floats.size()
                                          : doubles.size());
      floats.insert(floats.end(), column.thresholds_float.begin(), column.thresholds_float.end());
      doubles.insert(doubles.end(), column.thresholds_double.begin(), column.thresholds_double.end());
      categories.insert(categories.end(), column.categories.begin(), column.categories.end());
    }
    for (const CudaColumn& c : program.columns) {
      const Column& column = plan.columns[c.column];
      const size_t n = column.categorical ? column.categories.size()
                                          : column.thresholds_float.size() + column.thresholds_double.size();
      columns.push_back({.input = column.input,
                         .n = static_cast<uint32_t>(n),
                         .origin = c.origin,
                         .categorical = column.categorical,
                         .zero_missing = column.zero_missing,
                         .values = begins[c.column]});
    }
    for (const CudaCodeColumn& column : columns)
      if (column.origin == 0) full_columns.push_back(column);
    this->columns = upload(columns);
    this->full_columns = upload(full_columns);
    thresholds = plan.x_float32 ? upload(floats) : upload(doubles);
    this->categories = upload(categories);
  }

  void upload_paths() {
    const PathSet set = make_paths(plan, Packing::kBestFitDecreasing);
    Paths& p = paths;
    p.elements = upload(set.elements);
    p.bins = upload(set.bins);
    p.paths = upload(set.paths);
    p.category_bits = upload(set.category_bits);
    p.n_bins = static_cast<int64_t>(set.n_bins);
    for (const LeafPath& path : set.paths) p.longest = std::max(p.longest, path.length);
    p.used = true;
  }

  // List the chunks of one launch. Long tasks come first, so that the device does not wait for a long task at
  // the end.
  static std::vector<int32_t> list_chunks(const CudaProgram<T>& program, int32_t quadrature) {
    std::vector<int32_t> list;
    for (size_t i = 0; i < program.chunks.size(); ++i)
      if (program.chunks[i].quadrature == quadrature) list.push_back(static_cast<int32_t>(i));
    std::stable_sort(list.begin(), list.end(), [&](int32_t a, int32_t b) {
      return program.chunks[a].n_leaves > program.chunks[b].n_leaves;
    });
    return list;
  }

  void plan_launches(const CudaProgram<T>& program) {
    for (size_t n_nodes = 1; n_nodes <= kMaxFixedNodes; ++n_nodes)
      for (size_t i = 0; i < program.quadratures.size(); ++i) {
        const CudaQuadrature& nodes = program.quadratures[i];
        if (nodes.t.size() != n_nodes) continue;
        const std::vector<int32_t> list = list_chunks(program, static_cast<int32_t>(i));
        launches.push_back(plan_launch(program, nodes, list));
      }
    const std::vector<int32_t> list = list_chunks(program, -1);
    if (!list.empty()) plan_general(program, list);
  }

  WalkLaunch plan_launch(const CudaProgram<T>& program, const CudaQuadrature& nodes,
                         const std::vector<int32_t>& list) {
    const int n_nodes = static_cast<int>(nodes.t.size());
    uint32_t max_slots = 0, max_frames = 0;
    for (const int32_t i : list) {
      max_slots = std::max(max_slots, program.chunks[i].n_slots);
      max_frames = std::max(max_frames, program.chunks[i].n_frames);
    }
    WalkLaunch launch;
    const bool triples = plan.order > 2;
    const auto kernel = plan.interactions() ? pairs_kernel<T> : walk_kernel<T>;
    const WalkKernel<T> shared = triples ? triples_kernel<T>(n_nodes) : kernel(n_nodes, true);
    const int most_warps = shared.n_threads / kWarp;
    launch.segment_bytes = 2 * kCudaSegment * sizeof(T);
    const size_t slot_bytes = sizeof(T) * kTile,
                 shared_slots = std::min<size_t>(
                     max_slots, (max_shared - launch.segment_bytes) / (slot_bytes * most_warps));
    const bool in_shared = triples || shared_slots == max_slots;
    launch.kernel = in_shared ? shared : kernel(n_nodes, false);
    launch.phi_bytes = in_shared ? slot_bytes * shared_slots : 0;
    allow_shared(launch.kernel.kernel);
    int most_running = 0;  // warps
    for (int n_warps = 1; n_warps <= most_warps; ++n_warps) {
      int blocks = 0;
      check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, launch.kernel.kernel, n_warps * kWarp,
                                                          launch.shared(n_warps)),
            "this device cannot run the kernels");
      launch.n_blocks.push_back(std::max(blocks, 1) * multiprocessors);
      most_running = std::max(most_running, launch.n_blocks.back() * n_warps);
    }
    launch.n_chunks = static_cast<int>(list.size());
    launch.list = upload(list);
    CudaWalkArgs<T>& a = launch.args;
    a = {};
    a.stream = stream.as<typename CudaProgram<T>::Element>();
    a.chunks = chunks.as<CudaChunk>();
    a.chunk_list = launch.list.template as<int32_t>();
    a.n_columns = n_columns;
    a.n_slots = n_slots;
    a.max_slots = max_slots;
    a.shared_slots = static_cast<uint32_t>(shared_slots);
    a.category_bits = category_bits.as<uint32_t>();
    a.category_sets = category_sets.as<uint32_t>();
    const int in_memory = std::max(0, static_cast<int>(max_frames) - kCudaRegisterFrames);
    a.warp_frames = in_memory * cuda_frame_elements(n_nodes) * kTile;
    frame_bytes = std::max(frame_bytes, sizeof(T) * a.warp_frames * most_running);
    const std::vector<double>& repeated = nodes.s.empty() ? nodes.t : nodes.s;
    for (int k = 0; k < n_nodes; ++k) {
      a.dead[k] = static_cast<T>(dead_lambda(plan.index, nodes.t[k]));
      a.t[k] = static_cast<T>(nodes.t[k]);
      a.weight[k] = static_cast<T>(nodes.weights[k]);
      a.tau[k] = static_cast<T>(1 / (repeated[k] * (1 - repeated[k])));
    }
    return launch;
  }

  void plan_general(const CudaProgram<T>& program, const std::vector<int32_t>& list) {
    CudaGeneralArgs<T>& a = general.args;
    for (const int32_t i : list) {
      const CudaChunk& chunk = program.chunks[i];
      const size_t outputs = chunk.output < 0 ? plan.n_outputs : 1,
                   height = static_cast<size_t>(program.stream[chunk.begin + 2]);
      a.warp_memory = std::max(a.warp_memory, kWarp * general_elements(chunk.n_nodes, outputs, height));
    }
    const size_t block_bytes = 2 * sizeof(T) * a.warp_memory;
    general.n_blocks = static_cast<int>(
        std::clamp<size_t>(kGeneralBytes / block_bytes, 1, static_cast<size_t>(16) * multiprocessors));
    general.n_chunks = static_cast<int>(list.size());
    general.list = upload(list);
    frame_bytes = std::max(frame_bytes, block_bytes * general.n_blocks);
    a.stream = stream.as<typename CudaProgram<T>::Element>();
    a.chunks = chunks.as<CudaChunk>();
    a.chunk_list = general.list.template as<int32_t>();
    a.n_columns = n_columns;
    a.n_slots = n_slots;
    a.category_bits = category_bits.as<uint32_t>();
    a.pairs = plan.interactions();
  }

  void plan_leaves(const CudaLeaves<T>& from) {
    leaves.chunks = upload(from.chunks);
    leaves.tests = upload(from.tests);
    leaves.zero_fractions = upload(from.zero_fractions);
    leaves.values = upload(from.values);
    leaves.slot_begins = upload(from.slot_begins);
    leaves.slot_elements = upload(from.slot_elements);
    leaves.category_bits = upload(from.category_bits);
    CudaLeafArgs<T>& a = leaves.args;
    a.chunks = leaves.chunks.template as<CudaLeafChunk>();
    a.tests = leaves.tests.template as<CudaLeafTest>();
    a.zero_fractions = leaves.zero_fractions.template as<T>();
    a.values = leaves.values.template as<T>();
    a.slot_begins = leaves.slot_begins.template as<uint32_t>();
    a.slot_elements = leaves.slot_elements.template as<uint16_t>();
    a.category_bits = leaves.category_bits.template as<uint32_t>();
    a.n_columns = n_columns;
    a.n_slots = n_slots;
    for (size_t i = 0; i < from.chunks.size(); ++i) {
      const CudaLeafChunk& chunk = from.chunks[i];
      if (leaves.launches.empty() || leaves.launches.back().n_nodes != chunk.n_nodes)
        begin_leaf_launch(i, chunk.n_nodes);
      auto& launch = leaves.launches.back();
      ++launch.n_chunks;
      launch.shared = std::max(launch.shared, sizeof(T) * chunk.length * kChunkOfLeaves);
    }
  }

  void begin_leaf_launch(size_t chunk, int n_nodes) {
    typename Leaves::LeafLaunch launch{};
    launch.first_chunk = chunk;
    launch.n_nodes = n_nodes;
    std::vector<double> t, weights;
    quadrature(plan.index, n_nodes, t, weights);
    for (int k = 0; k < n_nodes; ++k) {
      launch.t[k] = static_cast<T>(t[k]);
      launch.weight[k] = static_cast<T>(weights[k]);
    }
    allow_shared(leaf_kernel<T>(n_nodes));
    leaves.launches.push_back(launch);
  }

  void plan_tables(const CudaTables<T>& from) {
    tables.chunks = upload(from.chunks);
    tables.trees = upload(from.trees);
    tables.nodes = upload(from.nodes);
    tables.lookups = upload(from.lookups);
    tables.bits = upload(from.bits);
    tables.targets = upload(from.targets);
    tables.factors = upload(from.factors);
    tables.entries = upload(from.entries);
    tables.n_chunks = static_cast<int>(from.chunks.size());
    CudaTableArgs<T>& a = tables.args;
    a.chunks = tables.chunks.template as<CudaTableChunk>();
    a.trees = tables.trees.template as<CudaTableTree>();
    a.nodes = tables.nodes.template as<CudaTableNode>();
    a.lookups = tables.lookups.template as<CudaLookup>();
    a.bits = tables.bits.template as<uint32_t>();
    a.targets = tables.targets.template as<uint32_t>();
    a.factors = tables.factors.template as<T>();
    a.tables = tables.entries.template as<T>();
    a.category_bits = category_bits.as<uint32_t>();
    a.n_columns = n_columns;
    a.n_slots = n_slots;
    for (const CudaTableChunk& chunk : from.chunks) a.max_slots = std::max(a.max_slots, chunk.n_slots);
    for (const CudaTableTree& tree : from.trees)
      a.max_words = std::max(a.max_words, static_cast<uint32_t>(kFirstWord + 2 * tree.n_nodes));
    size_t phi_bytes = 0, words_bytes = 0;
    const auto fits = [&](int n_warps) {
      tables.n_warps = n_warps;
      phi_bytes = sizeof(T) * n_warps * kWarp * a.max_slots;
      words_bytes = sizeof(uint32_t) * n_warps * a.max_words;
      tables.shared = words_bytes <= kMaxSharedWords ? words_bytes : 0;
      return tables.shared + phi_bytes <= max_shared / 2;  // two blocks at a time
    };
    int n_warps = kTableWarps;
    while (n_warps && !fits(n_warps)) n_warps /= 2;
    if (!n_warps) {  // sum phi in the caches
      a.max_slots = 0;
      fits(kTableWarps);
    }
    tables.shared += phi_bytes;
    const auto kernel = lookup_tables<T, kTile>;
    allow_shared(kernel);
    int blocks = 0;
    check(
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, tables.n_warps * kWarp, tables.shared),
        "this device cannot run the kernels");
    tables.n_blocks = std::max(blocks, 1) * multiprocessors;
    if (words_bytes > kMaxSharedWords) tables.words_bytes = words_bytes * tables.n_blocks;
    frame_bytes = std::max(frame_bytes, tables.words_bytes);
  }

  void plan_intervals(const CudaIntervals& from, size_t stage_bytes) {
    intervals.parts = upload(from.parts);
    intervals.columns = upload(from.columns);
    intervals.targets = upload(from.targets);
    intervals.stages = upload(from.stages);
    intervals.stream = upload_stream(from);
    std::copy(std::begin(from.n_parts), std::end(from.n_parts), intervals.n_parts);
    intervals.shared = 2 * stage_bytes;
    CudaIntervalArgs<T>& a = intervals.args;
    a.parts = intervals.parts.template as<CudaIntervalPart>();
    a.columns = intervals.columns.template as<uint32_t>();
    a.targets = intervals.targets.template as<int32_t>();
    a.stages = intervals.stages.template as<uint64_t>();
    a.stream = intervals.stream.template as<char>();
    a.stage_bytes = static_cast<uint32_t>(stage_bytes);
    a.n_columns = n_columns;
    a.n_slots = n_slots;
    a.n_sums = n_sums;
    a.first_sum = n_sums - static_cast<int32_t>(from.margins.size());
    a.scale = plan.leaf_scale;
    for (size_t form = 0; form < std::size(kIntervalForms); ++form)
      for (const bool margins : {false, true})
        if (from.n_parts[form]) allow_shared(interval_kernel<T>(kIntervalForms[form], margins).kernel);
  }

  // Write the stream of the tables by intervals to the device, piece by piece.
  DeviceBuffer upload_stream(const CudaIntervals& from) const {
    DeviceBuffer buffer;
    buffer.reserve(from.stream_bytes, kNoModelRoom);
    char* to = buffer.template as<char>();
    write_intervals<T>(plan, from, [&](const char* piece, size_t bytes) {
      check(cudaMemcpy(to, piece, bytes, cudaMemcpyHostToDevice), kCopyingModel);
      to += bytes;
    });
    check(cudaStreamSynchronize(nullptr), kCopyingModel);  // see upload()
    return buffer;
  }

  // Allow a kernel all shared memory of a block. The limit belongs to the kernel, not to a launch. If it were
  // the limit of one model, launches for another model that needs more would fail.
  template <class Kernel>
  void allow_shared(Kernel kernel) const {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(max_shared)),
          "this device cannot run the kernels");
  }

  void plan_sums(const CudaProgram<T>& program, bool gputreeshap) {
    const size_t n_places = cuda_places(plan), n_outputs = plan.n_outputs;
    std::vector<std::vector<int32_t>> parts((n_places + 1) * n_outputs);
    std::vector<std::vector<double>> weights(parts.size());  // of the last parts; earlier parts count once
    for (size_t slot = 0; slot < program.slots.size() && !gputreeshap; ++slot)
      if (const auto [output, place] = program.slots[slot]; place != kNoPlace)
        parts[output * n_places + place].push_back(static_cast<int32_t>(slot));
    for (const CudaShare& share : program.shares) {
      const size_t column = share.to.output * n_places + share.to.place;
      parts[column].push_back(share.slot);
      weights[column].push_back(share.weight);
    }
    std::vector<CudaMarginGroup> groups;
    n_sums = 0;
    for (size_t tree = 0; tree < program.tree_output.size();) {
      const int32_t output = program.tree_output[tree], width = output < 0 ? plan.n_outputs : 1;
      const bool merged = program.tree_merged[tree];
      size_t end = tree;
      while (end < program.tree_output.size() && end < tree + kMarginTrees &&
             program.tree_output[end] == output && program.tree_merged[end] == merged)
        ++end;
      groups.push_back({static_cast<int32_t>(tree), static_cast<int32_t>(end), n_sums, width, merged});
      for (int32_t o = 0; o < width; ++o)
        parts[n_outputs * n_places + std::max(output, 0) + o].push_back(n_sums + o);
      n_sums += width;
      tree = end;
    }
    for (const int32_t output : program.intervals.margins)
      parts[n_outputs * n_places + output].push_back(n_sums++);
    std::vector<int64_t> offsets{0};
    std::vector<int32_t> flat;
    std::vector<double> flat_weights;
    for (size_t i = 0; i < parts.size(); ++i) {
      flat.insert(flat.end(), parts[i].begin(), parts[i].end());
      flat_weights.resize(flat.size() - weights[i].size(), 1.0);
      flat_weights.insert(flat_weights.end(), weights[i].begin(), weights[i].end());
      offsets.push_back(static_cast<int64_t>(flat.size()));
    }
    if (!program.shares.empty()) part_weights = upload(flat_weights);
    n_groups = static_cast<int>(groups.size());
    this->groups = upload(groups);
    this->offsets = upload(offsets);
    this->parts = upload(flat);
    features = upload(plan.features);
    if (plan.order == 2) list_partners();
  }

  // List the pairs of each feature, by the other feature.
  void list_partners() {
    std::vector<std::vector<CudaPartner>> partners(plan.features.size());
    for (size_t i = 0; i < plan.pairs.size(); ++i) {
      const FeaturePair pair = plan.pairs[i];
      const int32_t place = static_cast<int32_t>(plan.features.size() + i);
      partners[pair.first].push_back({plan.features[pair.second], place});
      partners[pair.second].push_back({plan.features[pair.first], place});
    }
    std::vector<int64_t> offsets{0};
    std::vector<CudaPartner> flat;
    for (const std::vector<CudaPartner>& p : partners) {
      flat.insert(flat.end(), p.begin(), p.end());
      offsets.push_back(static_cast<int64_t>(flat.size()));
    }
    partner_offsets = upload(offsets);
    this->partners = upload(flat);
    small_matrices =
        matrix_bytes(plan.features.size() + plan.pairs.size(), plan.features.size()) <= kSharedBytes &&
        plan.n_features <= kMaxSmallMatrix;
    if (small_matrices) list_places();
  }

  void list_places() {
    const size_t n = plan.n_features, n_used = plan.features.size(), n_places = n_used + plan.pairs.size();
    std::vector<int32_t> places(n * n, -1);
    for (size_t i = 0; i < n_used; ++i)
      places[plan.features[i] * (n + 1)] = static_cast<int32_t>(n_places + i);
    for (size_t i = 0; i < plan.pairs.size(); ++i) {
      const size_t first = plan.features[plan.pairs[i].first], second = plan.features[plan.pairs[i].second];
      places[first * n + second] = places[second * n + first] = static_cast<int32_t>(n_used + i);
    }
    place_of = upload(places);
  }
};

}  // namespace skshap
