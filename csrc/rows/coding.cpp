#include "rows/coding.h"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

namespace skshap {
namespace {

// The number of columns whose values are copied together. If the columns of a row are neighbours in memory, a
// cache line holds values of several columns, and lines of other rows may displace it before the next column
// is read.
constexpr size_t kGatheredColumns = 64;
constexpr int kLineBytes = 64;  // of a cache line

// The most rows that are ranked one by one. The kernel ranks all 64 rows of a block.
constexpr int kMostScalarRows = 4;

// Copy columns of a block into an array [column][kBlockRows] of X, the type in which the model compares.
template <class From, class X>
void gather(const Rows& rows, const Column* columns, size_t n_columns, int64_t first_row, int n_rows,
            X* out) {
  const char* const first = static_cast<const char*>(rows.data) + first_row * rows.row_stride;
  const auto value = [](const char* p) { return static_cast<X>(*reinterpret_cast<const From*>(p)); };
  const auto place = [&](size_t c) { return rows.packed ? columns[c].packed : columns[c].input; };
  if (std::abs(rows.row_stride) <= std::abs(rows.column_stride)) {
    for (size_t c = 0; c < n_columns; ++c) {
      const char* p = first + place(c) * rows.column_stride;
      for (int i = 0; i < n_rows; ++i, p += rows.row_stride) out[c * kBlockRows + i] = value(p);
    }
  } else {
    int64_t offsets[kGatheredColumns];
    for (size_t c = 0; c < n_columns; ++c) offsets[c] = place(c) * rows.column_stride;
    for (int i = 0; i < n_rows; ++i) {
      const char* const row = first + i * rows.row_stride;
      // The columns that are copied next are often the neighbours of these.
      const char* const last = row + offsets[n_columns - 1];
      __builtin_prefetch(last + kLineBytes);
      __builtin_prefetch(last + 2 * kLineBytes);
      for (size_t c = 0; c < n_columns; ++c) out[c * kBlockRows + i] = value(row + offsets[c]);
    }
  }
  for (size_t c = 0; c < n_columns; ++c)
    std::fill(out + c * kBlockRows + n_rows, out + (c + 1) * kBlockRows, X(0));
}

// Return the rank that the kernel finds; see RankArgs.
template <class X>
uint32_t rank_of(const RankArgs<X>& args, X x) {
  if (is_missing(x, args.zero_missing)) return kMissingCode;
  const X *const first = args.thresholds, *const end = first + args.n_thresholds;
  return static_cast<uint32_t>(
      (args.strict ? std::upper_bound(first, end, x) : std::lower_bound(first, end, x)) - first);
}

// Write the codes of the first n_rows values, or of all 64.
template <class X>
void code_column(const Kernels& kernels, const Column& column, int n_rows, const RankArgs<X>& rank_args) {
  if (!column.categorical && n_rows > kMostScalarRows) {
    kernels.of<X>().rank(rank_args);
    return;
  }
  const uint32_t n = static_cast<uint32_t>(column.categories.size());
  for (int i = 0; i < n_rows; ++i) {
    const X x = rank_args.values[i];
    if (!column.categorical)
      rank_args.ranks[i] = rank_of(rank_args, x);
    else
      rank_args.ranks[i] =
          is_missing(x, column.zero_missing) ? kMissingCode : category_code(column.categories.data(), n, x);
  }
  std::fill(rank_args.ranks + n_rows, rank_args.ranks + kBlockRows, 0);
}

template <class X>
void code_columns(const CodedColumns& coded, const Kernels& kernels, std::vector<X> Column::* thresholds,
                  const Rows& rows, int64_t first_row, int n_rows, int block, CodeTile& tile) {
  alignas(64) X values[kGatheredColumns * kBlockRows];
  alignas(64) uint32_t ranks[kBlockRows];
  const size_t n_columns = coded.columns.size();
  for (size_t c = 0; c < n_columns; ++c) {
    const size_t gathered = c % kGatheredColumns;
    if (gathered == 0) {
      const auto copy = rows.is_float32 ? gather<float, X> : gather<double, X>;
      copy(rows, &coded.columns[c], std::min(kGatheredColumns, n_columns - c), first_row, n_rows, values);
    }
    const Column& column = coded.columns[c];
    code_column<X>(kernels, column, n_rows,
                   {.values = values + gathered * kBlockRows,
                    .thresholds = (column.*thresholds).data(),
                    .n_thresholds = (column.*thresholds).size(),
                    .strict = coded.strict,
                    .zero_missing = column.zero_missing,
                    .ranks = ranks});
    if (column.categorical) {
      group_by_category(column, ranks, tile.category_rows[block * n_columns + c], n_rows);
      continue;
    }
    const size_t begin = c * tile.stride + static_cast<size_t>(block) * kBlockRows;
    if (coded.wide_codes)
      std::copy(ranks, ranks + kBlockRows, tile.wide.begin() + begin);
    else  // the largest 32-bit code, for missing, becomes the largest 16-bit code
      std::transform(ranks, ranks + kBlockRows, tile.narrow.begin() + begin,
                     [](uint32_t code) { return static_cast<uint16_t>(code); });
  }
}

bool has_categories(const CodedColumns& coded) {
  return std::any_of(coded.columns.begin(), coded.columns.end(),
                     [](const Column& column) { return column.categorical; });
}

}  // namespace

void group_by_category(const Column& column, const uint32_t* codes, CategoryRows& out, int n_rows) {
  out.n = 0;
  for (int i = 0; i < n_rows; ++i) {
    const uint32_t code =
        codes[i] == kMissingCode ? static_cast<uint32_t>(column.categories.size()) + 1 : codes[i];
    uint32_t j = 0;
    while (j < out.n && out.code[j] != code) ++j;
    if (j == out.n) {
      out.code[j] = code;
      out.rows[j] = 0;
      ++out.n;
    }
    out.rows[j] |= uint64_t{1} << i;
  }
}

void CodeTile::allocate(const CodedColumns& coded, int tile_rows) {
  stride = static_cast<size_t>(tile_rows);
  if (coded.wide_codes)
    wide.resize(coded.columns.size() * stride);
  else
    narrow.resize(coded.columns.size() * stride);
  if (has_categories(coded)) category_rows.resize(coded.columns.size() * (stride / kBlockRows));
}

const void* CodeTile::codes(const CodedColumns& coded, int block) const {
  const size_t row = static_cast<size_t>(block) * kBlockRows;
  return coded.wide_codes ? static_cast<const void*>(wide.data() + row) : narrow.data() + row;
}

size_t code_bytes(const CodedColumns& coded) {
  return coded.columns.size() *
         (kBlockRows * (coded.wide_codes ? 4 : 2) + (has_categories(coded) ? sizeof(CategoryRows) : 0));
}

void code_block(const CodedColumns& coded, const Kernels& kernels, const Rows& rows, int64_t first_row,
                int n_rows, int block, CodeTile& tile) {
  if (coded.x_float32)
    code_columns(coded, kernels, &Column::thresholds_float, rows, first_row, n_rows, block, tile);
  else
    code_columns(coded, kernels, &Column::thresholds_double, rows, first_row, n_rows, block, tile);
}

void code_tile(const CodedColumns& coded, const Kernels& kernels, const Rows& rows, int64_t first_row,
               int n_rows, CodeTile& tile) {
  for (int block = 0; block * kBlockRows < n_rows; ++block)
    code_block(coded, kernels, rows, first_row + block * kBlockRows,
               std::min(kBlockRows, n_rows - block * kBlockRows), block, tile);
}

CodeTile code_all_rows(const CodedColumns& coded, const Rows& rows) {
  if (rows.n_rows > INT32_MAX - kBlockRows) throw std::invalid_argument("too many rows");
  const int n_rows = static_cast<int>(rows.n_rows);
  CodeTile tile;
  tile.allocate(coded, static_cast<int>(whole_blocks(n_rows)));
  code_tile(coded, kernels(), rows, 0, n_rows, tile);
  return tile;
}

void decide_block(const CodedColumns& coded, const Kernels& kernels, const DecideNode* nodes, size_t n_nodes,
                  const CodeTile& codes, int block, uint64_t* words) {
  const CategoryRows* const categories =
      codes.category_rows.empty() ? nullptr : codes.category_rows.data() + block * coded.columns.size();
  const DecideArgs args{.nodes = nodes,
                        .n_nodes = n_nodes,
                        .codes = codes.codes(coded, block),
                        .code_stride = codes.stride,
                        .category_rows = categories,
                        .category_bits = coded.category_bits.data(),
                        .words = words};
  (coded.wide_codes ? kernels.decide32 : kernels.decide16)(args);
}

void Decisions::index(const uint32_t* bits, uint32_t n_bits, uint16_t* out) const {
  kernels().index({.words = words,
                   .block_words = block_words,
                   .n_blocks = n_blocks,
                   .bits = bits,
                   .n_bits = n_bits,
                   .index = out});
}

Decisions decide_blocks(const CodedColumns& coded, const DecideNode* nodes, size_t n_nodes,
                        const CodeTile& codes, size_t first_block, size_t n_blocks, uint64_t* words) {
  const size_t stride = block_words(n_nodes);
  for (size_t i = 0; i < n_blocks; ++i)
    decide_block(coded, kernels(), nodes, n_nodes, codes, static_cast<int>(first_block + i),
                 words + i * stride);
  return {words, stride, n_blocks};
}

}  // namespace skshap
