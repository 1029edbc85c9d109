// Kernels for cells that occur: numbers of cells, and the decisions of cells.
//
// simd/cell_kernels.cpp.in includes this file once, after simd/simd_*.h. Everything in this file has internal
// linkage, because the linker must not merge functions compiled for different instruction sets.
#pragma once

#include <algorithm>

#include "simd/cell_kernels.h"
#include "simd/kernels.h"
#include "simd/transpose-inl.h"

namespace skshap {
namespace {

// Rows that look up their numbers before the cells among them that are new get numbers. At first, all rows
// are in new cells.
constexpr size_t kFirstNumbered = 64, kMostNumberedRows = 512;
// The places of a map in which a cell of two keys may be.
constexpr uint32_t kMapPlaces = 3;
// By place: a factor whose products with second keys, plus the place, scatter the first keys. Without the
// place, the second key 0 would have only one place.
constexpr uint32_t kScatter[kMapPlaces] = {0x9e3779b1, 0x85ebca77, 0xc2b2ae3d};

// Read the entries of rows at their places, 16 rows at a time. One load for each row takes less time than
// instructions that gather. As the stores are volatile, compilers do not assemble vectors instead.
inline void read_entries(const uint32_t* map, const uint16_t* places, size_t n_rows,
                         volatile uint32_t* entries) {
  for (const uint16_t* const end = places + n_rows; places < end; places += 16, entries += 16)
    for (int i = 0; i < 16; ++i) entries[i] = map[places[i]];
}

// Find the numbers of 16 rows, given the entries at their places. Append the rows that are not in their first
// place to `others`. Return the new end of the list.
#ifdef __AVX512BW__
inline uint32_t* take_numbers(const uint32_t* entries, const uint16_t* tags, uint16_t first, uint32_t row,
                              uint16_t* numbers, uint32_t* others) {
  __m512i entry = _mm512_loadu_si512(entries);
  if (tags) {
    const __m256i tag = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(tags));
    entry = _mm512_xor_si512(entry,
                             _mm512_maskz_slli_epi32(0xffff, _mm512_maskz_cvtepu16_epi32(0xffff, tag), 16));
  }
  const __mmask16 missed = _mm512_cmpge_epu32_mask(entry, _mm512_set1_epi32(kCellNumbers));
  const __m512i number = _mm512_add_epi32(entry, _mm512_set1_epi32(first));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(numbers), _mm512_maskz_cvtepi32_epi16(0xffff, number));
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  _mm512_storeu_si512(others, _mm512_maskz_compress_epi32(
                                  missed, _mm512_add_epi32(lanes, _mm512_set1_epi32(static_cast<int>(row)))));
  return others + __builtin_popcount(missed);
}
#else
inline uint32_t* take_numbers(const uint32_t* entries, const uint16_t* tags, uint16_t first, uint32_t row,
                              uint16_t* numbers, uint32_t* others) {
  for (uint32_t i = 0; i < 16; ++i) {
    const uint32_t entry = entries[i] ^ (tags ? uint32_t{tags[i]} << 16 : 0);
    numbers[i] = static_cast<uint16_t>(first + entry);
    *others = row + i;
    others += entry >= kCellNumbers;
  }
  return others;
}
#endif

// A cell of two keys has an entry in one of several places, each of which is determined by both keys. The
// entry has the second key and the number of the place, with which the place determines the first key.
inline uint16_t cell_place(uint32_t key, uint32_t second, uint32_t place) {
  return static_cast<uint16_t>(key + ((second + place) * kScatter[place] >> 16));
}

// Return the number of a cell of two keys whose first place has another cell, and set the place of its entry.
uint32_t number_elsewhere(const CellNumberArgs& args, uint32_t row, uint32_t n, uint16_t& taken) {
  const uint32_t key = args.keys[row], tag = args.second[row];
  for (uint32_t place = 1; place < kMapPlaces; ++place) {
    const uint16_t at = cell_place(key, tag, place);
    uint32_t& entry = args.map[at];
    const uint32_t numbered = tag << 16 | place * kCellNumbers;
    if (entry == kNoCell) entry = numbered | n;
    if ((entry ^ numbered) >= kCellNumbers) continue;
    taken = at;
    return entry ^ numbered;
  }
  // All places are taken, which is rare.
  uint32_t i = 0;
  while (i < n && (args.keys[args.representatives[i]] != key || args.second[args.representatives[i]] != tag))
    ++i;
  return i;
}

// Return the number of the cell of a row with this first place, which becomes the place of its entry. A new
// cell has the number n, and sets `is_new` to 1. Entries are chosen without branches, as these would be
// unpredictable.
template <bool kTwoKeys>
uint32_t number_of_cell(const CellNumberArgs& args, uint32_t row, uint32_t n, uint16_t& place,
                        uint32_t& is_new) {
  const uint32_t tag = kTwoKeys ? uint32_t{args.second[row]} << 16 : 0;
  uint32_t& entry = args.map[place];
  is_new = entry == kNoCell;
  entry ^= (entry ^ (tag | n)) & (0 - is_new);
  uint32_t number = entry ^ tag;
  if (kTwoKeys && number >= kCellNumbers) {
    number = number_elsewhere(args, row, n, place);
    is_new = number == n;
  }
  return number;
}

// The arguments are a copy, so that the compiler keeps them in registers although numbers are stored.
template <bool kTwoKeys>
size_t number_keys(const CellNumberArgs args) {
  const uint16_t* places = args.keys;
  // By cell: the place of its entry. Rows whose places are overwritten have been read.
  uint16_t* const taken = args.places;
  if (kTwoKeys) {
    uint16_t* __restrict const to = args.places;
    const uint16_t* __restrict const keys = args.keys, * __restrict const second = args.second;
    for (size_t row = 0; row < args.n_rows; ++row) to[row] = cell_place(keys[row], second[row], 0);
    places = to;
  }
  uint32_t others[kMostNumberedRows + 16], entries[kMostNumberedRows + 16];
  uint32_t n = 0;
  for (size_t begin = 0, end, most = kFirstNumbered; begin < args.n_rows; begin = end) {
    end = std::min(begin + most, args.n_rows);
    most = std::min(2 * most, kMostNumberedRows);
    read_entries(args.map, places + begin, end - begin, entries);
    uint32_t* last = others;
    for (size_t row = begin; row < end; row += 16)
      last = take_numbers(entries + (row - begin), kTwoKeys ? args.second + row : nullptr, args.first,
                          static_cast<uint32_t>(row), args.numbers + row, last);
    while (last != others && last[-1] >= args.n_rows) --last;
    for (const uint32_t* row = others; row != last; ++row) {
      uint16_t place = places[*row];
      uint32_t is_new;
      const uint32_t number = number_of_cell<kTwoKeys>(args, *row, n, place, is_new);
      args.numbers[*row] = static_cast<uint16_t>(args.first + number);
      // The next new cell has this first row, if it is this row's.
      args.representatives[n] = static_cast<uint16_t>(*row);
      taken[n] = place;
      n += is_new;
    }
  }
  for (uint32_t i = 0; i < n; ++i) args.map[taken[i]] = kNoCell;
  return n;
}

size_t number_cells(const CellNumberArgs& args) {
  return args.second ? number_keys<true>(args) : number_keys<false>(args);
}

// Return the cells whose codes are in a box.
uint64_t in_box(const uint16_t* codes, const CellBox& box) {
  uint64_t in = box.kind < CellBox::kOnlyMissing ? passes(codes, box.bias, box.width) : 0;
  if (box.kind == CellBox::kAlsoMissing || box.kind == CellBox::kOnlyMissing) in |= passes(codes, 1, 0);
  return in;
}

uint64_t in_categories(const uint16_t* codes, const uint32_t* bits) {
  uint64_t in = 0;
  for (int i = 0; i < kBlockRows; ++i)
    in |= static_cast<uint64_t>(bits[codes[i] >> 5] >> (codes[i] & 31) & 1) << i;
  return in;
}

// The columns of a unit from which on those side by side are copied together.
constexpr size_t kLeastTogether = 3;
using RowCodes = RowPart<uint16_t, kSideBySide>::Type;

// Take the elements of the lower or the upper halves of two vectors in turn.
template <bool kUpper, size_t... i>
[[gnu::always_inline]] inline void take_in_turn(const RowCodes& a, const RowCodes& b, RowCodes& result,
                                                std::index_sequence<i...>) {
  constexpr size_t n = sizeof...(i);
  gather<(i % 2 * n + (kUpper ? n / 2 : 0) + i / 2)...>(a, b, result);
}

// Transpose a square of codes, by instructions that all instruction sets have for 16 bits: the exchanges of
// transpose() are several instructions each.
[[gnu::always_inline]] inline void transpose_codes(RowCodes (&square)[kSideBySide]) {
  constexpr size_t n = kSideBySide;
  constexpr std::make_index_sequence<n> lanes{};
  for (size_t bit = 1; bit < n; bit *= 2) {
    RowCodes next[n];
    for (size_t i = 0; i < n / 2; ++i) {
      take_in_turn<false>(square[i], square[i + n / 2], next[2 * i], lanes);
      take_in_turn<true>(square[i], square[i + n / 2], next[2 * i + 1], lanes);
    }
    std::copy_n(next, n, square);
  }
}

void put_side_by_side(const SideBySideArgs& args) {
  for (size_t first = 0; first < args.n_columns; first += kSideBySide) {
    const size_t n = std::min(kSideBySide, args.n_columns - first);
    RowCodes* to = reinterpret_cast<RowCodes*>(args.side_by_side + first * args.stride);
    for (size_t row = 0; row < kBlockRows; row += kSideBySide, to += kSideBySide) {
      RowCodes square[kSideBySide] = {};
      for (size_t i = 0; i < n; ++i)
        square[i] = *reinterpret_cast<const RowCodes*>(args.codes + (first + i) * args.stride + row);
      transpose_codes(square);
      std::copy_n(square, kSideBySide, to);
    }
  }
}

// Copy the codes of columns that are side by side.
void copy_rows(const CellCodeArgs& args, const uint16_t* side_by_side, uint16_t* const* to) {
  const RowCodes* const from = reinterpret_cast<const RowCodes*>(side_by_side);
  for (size_t cell = 0; cell < args.n_cells; cell += kSideBySide) {
    RowCodes square[kSideBySide];
    for (size_t i = 0; i < kSideBySide; ++i) square[i] = from[args.rows[cell + i]];
    transpose_codes(square);
    for (size_t i = 0; i < kSideBySide; ++i) *reinterpret_cast<RowCodes*>(to[i] + cell) = square[i];
  }
}

// Copy the codes of a column: the rows ascend, and the codes fit into a cache.
void copy_column(const CellCodeArgs& args, size_t column) {
  const uint16_t* __restrict const rows = args.rows;
  const uint16_t* __restrict const from = args.row_codes + args.columns[column].column * args.row_stride;
  uint16_t* __restrict const to = args.codes + column * args.code_stride;
  for (size_t i = 0; i < args.n_cells; ++i) to[i] = from[rows[i]];
}

// Columns that are side by side are copied together, if the unit has some of them. Those that the unit lacks
// go to a place that nobody reads.
void copy_cell_codes(const CellCodeArgs& args) {
  uint16_t* to[kMostSideBySide];
  uint16_t* const nowhere = args.codes + args.n_columns * args.code_stride;
  std::fill_n(to, kMostSideBySide, nowhere);
  size_t n_used[kMostSideBySide / kSideBySide] = {};
  for (size_t i = 0; i < args.n_columns; ++i) {
    const size_t column = args.columns[i].column;
    if (column >= kMostSideBySide) continue;
    to[column] = args.codes + i * args.code_stride;
    ++n_used[column / kSideBySide];
  }
  const auto are_together = [&](size_t column) {
    return column < kMostSideBySide && n_used[column / kSideBySide] >= kLeastTogether;
  };
  for (size_t first = 0; first < kMostSideBySide; first += kSideBySide)
    if (are_together(first)) copy_rows(args, args.side_by_side + first * args.row_stride, to + first);
  for (size_t i = 0; i < args.n_columns; ++i) {
    if (!are_together(args.columns[i].column)) copy_column(args, i);
    uint16_t* const codes = args.codes + i * args.code_stride;
    std::fill(codes + args.n_cells, codes + args.code_stride, 0);  // any codes of the column
  }
}

void decide_cells(const CellDecideArgs& args) {
  uint64_t* out = args.words;
  for (int i = 0; i < kFirstWord; ++i) *out++ = ~uint64_t{0};
  for (size_t i = 0; i < args.n_tests; ++i) {
    const CellTest& test = args.tests[i];
    const uint8_t flags = args.flags[i], bias = (flags & kBiasFlags) >> kBiasShift;
    const uint16_t* const codes = args.codes + test.column * args.code_stride;
    uint64_t left;
    if (flags & kCategorical)
      left = in_categories(codes, args.category_bits + test.operand);
    else if (i < args.n_above)
      left = in_box(codes, CellBox::of(test.operand, bias));
    else
      left = passes(codes, bias, test.operand);
    const uint64_t flip = flags & kFlip ? ~uint64_t{0} : 0;
    const uint64_t right = flags & kPreviousRight ? ~uint64_t{0} : 0;
    const uint64_t* previous = args.words + test.previous;
    const uint64_t alive = (previous[0] & right) ^ previous[1];
    *out++ = alive;
    *out++ = (left ^ flip) & alive;
  }
}

// Number the leaves that cells reach. The order of the leaves is that of their parents. Leaf 0 is reached by
// cells that fail a test above.
void cell_margins(const CellMarginArgs& args) {
  BlockIndex index;
  uint16_t leaf = 0;
  uint64_t reach = ~uint64_t{0};
  uint64_t* stack = args.reach;
  *stack++ = 0;
  for (size_t i = 0; i < args.n_tests; ++i) {
    const uint64_t left = reach & args.words[kFirstWord + 2 * i + 1], right = reach & ~left;
    reach = left;
    if (i < args.n_above) continue;
    const uint8_t flags = args.flags[i];
    if (flags & kRightInner) {
      *stack++ = right;
    } else {
      if (!(flags & kLeftInner)) {
        index.add(left, ++leaf);
        reach = *--stack;
      }
      index.add(right, ++leaf);
    }
  }
  uint16_t leaves[kBlockRows];
  index.store(leaves);
  for (size_t cell = 0; cell < args.n_cells; ++cell)
    for (size_t o = 0; o < args.n_outputs; ++o)
      args.margins[cell * args.n_outputs + o] += args.leaf_values[leaves[cell] * args.n_outputs + o];
}

#ifdef __AVX512BW__
template <size_t kTables, bool kMargin>
void add_narrow_rows(const NarrowEntryArgs& args) {
  const auto permuted = [](__m512i lanes, __m512 x) { return _mm512_maskz_permutexvar_ps(0xffff, lanes, x); };
  __m512i low[kTables], high[kTables];
  for (size_t table = 0; table < kTables; ++table) {
    low[table] = _mm512_loadu_si512(args.lanes + table * kWideRow);
    high[table] = _mm512_loadu_si512(args.lanes + table * kWideRow + 16);
  }
  const size_t n_rows = args.n_rows, stride = args.index_stride;
  const uint16_t* const indices = args.index;
  const float* const entries = args.entries;
  float* sums = args.sums;
  for (size_t row = 0; row < n_rows; ++row, sums += kWideRow) {
    __m512 first = _mm512_load_ps(sums), second = _mm512_load_ps(sums + 16);
    double margin = kMargin ? args.margin[row] : 0;
    for (size_t table = 0; table < kTables; ++table) {
      const size_t index = indices[table * stride + row];
      const __m512 entry = _mm512_load_ps(entries + index * kNarrowEntry);
      first = _mm512_add_ps(first, permuted(low[table], entry));
      second = _mm512_add_ps(second, permuted(high[table], entry));
      if (kMargin) margin += args.margins[index];
    }
    _mm512_store_ps(sums, first);
    _mm512_store_ps(sums + 16, second);
    if (kMargin) args.margin[row] = margin;
  }
}

template <size_t kTables>
void add_narrow_tables(NarrowEntryArgs args) {
  for (; args.n_tables >= kTables; args.n_tables -= kTables) {
    args.margins ? add_narrow_rows<kTables, true>(args) : add_narrow_rows<kTables, false>(args);
    args.index += kTables * args.index_stride;
    args.lanes += kTables * kWideRow;
  }
  if constexpr (kTables > 1) add_narrow_tables<kTables / 2>(args);
}

void add_narrow(const NarrowEntryArgs& args) { add_narrow_tables<kMostNarrow>(args); }
constexpr auto kAddNarrow = &add_narrow;
#else
constexpr void (*kAddNarrow)(const NarrowEntryArgs&) = nullptr;
#endif

void clear_arrays(void* const* arrays, size_t n_arrays, size_t bytes) {
  using V = RowPart<float, 8>::Type;
  for (size_t i = 0; i < n_arrays; ++i)
    for (char *p = static_cast<char*>(arrays[i]), *end = p + bytes; p != end; p += sizeof(V))
      *reinterpret_cast<V*>(p) = V{};
}

template <class T>
void add_cell_sums(const CellSumArgs<T>& args) {
  constexpr size_t n = 8;
  using V = typename RowPart<T, n>::Unaligned;
  using Doubles = typename RowPart<double, n>::Type;
  for (size_t row = 0; row < args.n_rows; row += n)
    for (size_t i = 0; i < args.n_columns; i += n) {
      typename RowPart<T, n>::Type square[n];
      for (size_t j = 0; j < n; ++j)
        square[j] = *reinterpret_cast<const V*>(args.rows + (row + j) * args.row_size + i);
      transpose<1, n>(square);
      for (size_t j = 0; j < n && i + j < args.n_columns; ++j) {
        Doubles* const to = reinterpret_cast<Doubles*>(args.sums[i + j] + row);
        *to += args.scale * __builtin_convertvector(square[j], Doubles);
      }
    }
}

// The vectors of cells in flight.
constexpr int kChainVectors = 4;

// The arguments are copies, so that the compiler keeps them in registers although numbers are stored.
void begin_chain(const CellChainArgs& chain) {
  using S = FloatVector;
  constexpr size_t W = S::kWidth;
  const CellChainArgs args = chain;
  for (size_t first = 0; first < args.n_cells; first += kChainVectors * W) {
    float* delta = args.deltas + first;
    for (size_t j = 0; j < args.n_features; ++j, delta += kBlockRows) {
      const S::V off = S::set1(-args.zero_fractions[j]), on = S::set1(1 - args.zero_fractions[j]);
      for (int i = 0; i < kChainVectors; ++i)
        S::store(delta + i * W,
                 S::select(S::mask(args.words + 2 * j + 1, static_cast<int>(first / W) + i), off, on));
    }
    for (int k = 0; k < args.n_nodes; ++k) {
      const S::V t = S::set1(args.nodes[k]);
      S::V c[kChainVectors];
      for (S::V& factor : c) factor = S::set1(args.weights[k]);
      delta = args.deltas + first;
      for (size_t j = 0; j < args.n_features; ++j, delta += kBlockRows) {
        const S::V z = S::set1(args.zero_fractions[j]);
        for (int i = 0; i < kChainVectors; ++i) c[i] = S::mul(c[i], S::fma(S::load(delta + i * W), t, z));
      }
      for (int i = 0; i < kChainVectors; ++i) S::store(args.c + k * kBlockRows + first + i * W, c[i]);
    }
  }
}

void end_chain(const CellChainArgs& chain) {
  using S = FloatVector;
  constexpr size_t W = S::kWidth;
  const CellChainArgs args = chain;
  const S::V leaf = S::set1(args.leaf);
  for (size_t first = 0; first < args.n_cells; first += kChainVectors * W) {
    S::V lost[kChainVectors];
    for (S::V& sum : lost) sum = S::zero();
    float* e = args.c + first;
    const float* b = args.b + first;
    for (int k = 0; k < args.n_nodes; ++k, e += kBlockRows, b += kBlockRows) {
      const S::V dead = S::set1(args.dead[k]);
      for (int i = 0; i < kChainVectors; ++i) {
        const S::V product = S::mul(S::load(e + i * W), S::sub(S::load(b + i * W), leaf));
        lost[i] = S::fma(product, dead, lost[i]);
        S::store(e + i * W, product);
      }
    }
    for (size_t j = 0; j < args.n_features; ++j) {
      const float z = args.zero_fractions[j], end = args.ends[j];
      S::V gained[kChainVectors];
      for (S::V& sum : gained) sum = S::set1((1 - z) * end);
      e = args.c + first;
      for (int k = 0; k < args.n_nodes; ++k, e += kBlockRows) {
        const S::V gain = S::set1(args.gains[j * args.n_nodes + k]);
        for (int i = 0; i < kChainVectors; ++i) gained[i] = S::fma(S::load(e + i * W), gain, gained[i]);
      }
      const S::V end_lost = S::set1(z * end);
      float* const phi = args.phi[j] + first;
      for (int i = 0; i < kChainVectors; ++i) {
        const S::M alive = S::mask(args.words + 2 * j + 1, static_cast<int>(first / W) + i);
        const S::V loss = S::sub(S::zero(), S::add(lost[i], end_lost));
        S::store(phi + i * W, S::add(S::load(phi + i * W), S::select(alive, loss, gained[i])));
      }
    }
  }
}

constexpr CellKernels kCellKernels{.number = &number_cells,
                                   .put_side_by_side = &put_side_by_side,
                                   .copy_codes = &copy_cell_codes,
                                   .decide = &decide_cells,
                                   .margins = &cell_margins,
                                   .clear = &clear_arrays,
                                   .add_narrow = kAddNarrow,
                                   .add_sums_float = &add_cell_sums<float>,
                                   .add_sums_double = &add_cell_sums<double>,
                                   .begin_chain = &begin_chain,
                                   .end_chain = &end_chain};

}  // namespace
}  // namespace skshap
