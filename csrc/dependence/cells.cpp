#include "dependence/cells.h"

#include <algorithm>
#include <numeric>

#include "rows/coded_tiles.h"

namespace skshap {
namespace {

// Return the codes of the rows of a tile in a column. In a numeric column, the code of missing values is
// kMissingCode.
std::vector<uint32_t> codes_of(const CodedColumns& coded, const CodedTile& tile, size_t column) {
  const size_t first = column * tile.codes.stride, end = first + tile.n_rows;
  const auto copy = [=](const auto& codes) {
    return std::vector<uint32_t>(codes.begin() + first, codes.begin() + end);
  };
  if (coded.columns[column].categorical) return copy(tile.categories);
  if (coded.wide_codes) return copy(tile.codes.wide);
  std::vector<uint32_t> codes = copy(tile.codes.narrow);
  std::replace(codes.begin(), codes.end(), kMissingCode & 0xffff, kMissingCode);
  return codes;
}

void append(Runs& runs, uint32_t cell) {
  if (!runs.empty() && runs.back().end == cell)
    ++runs.back().end;
  else
    runs.push_back({cell, cell + 1});
}

}  // namespace

Cells::Cells(const CodedColumns& coded, const std::vector<int32_t>& inputs, const Rows& points)
    : place_(coded.columns.size(), -1), cell_of_point_(points.n_rows) {
  const auto n_points = static_cast<size_t>(points.n_rows);
  CodedTile tile{.codes = {}, .categories = {}, .first = 0, .n_rows = static_cast<int>(n_points)};
  tile.codes.allocate(coded, static_cast<int>(whole_blocks(n_points)));
  tile.code(coded, points);
  std::vector<std::vector<uint32_t>> point_codes;
  for (size_t c = 0; c < coded.columns.size(); ++c) {
    if (std::find(inputs.begin(), inputs.end(), coded.columns[c].input) == inputs.end()) continue;
    place_[c] = static_cast<int32_t>(point_codes.size());
    point_codes.push_back(codes_of(coded, tile, c));
  }
  std::vector<uint32_t> order(n_points);
  std::iota(order.begin(), order.end(), 0u);
  const auto differ = [&](uint32_t a, uint32_t b) {
    return std::find_if(point_codes.begin(), point_codes.end(),
                        [=](const std::vector<uint32_t>& codes) { return codes[a] != codes[b]; });
  };
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const auto codes = differ(a, b);
    return codes != point_codes.end() && (*codes)[a] < (*codes)[b];
  });
  codes_.resize(point_codes.size());
  n_cells_ = 0;
  for (size_t i = 0; i < n_points; ++i) {
    if (i == 0 || differ(order[i], order[i - 1]) != point_codes.end()) {
      ++n_cells_;
      for (size_t place = 0; place < codes_.size(); ++place)
        codes_[place].push_back(point_codes[place][order[i]]);
    }
    cell_of_point_[order[i]] = static_cast<uint32_t>(n_cells_ - 1);
  }
}

void Cells::split(const DecideNode& test, const std::vector<uint32_t>& category_bits, const Runs& runs,
                  Runs& left, Runs& right) const {
  const std::vector<uint32_t>& codes = codes_[place_[test.column]];
  const uint32_t* const bits = category_bits.data() + test.operand;
  for (const Run& run : runs)
    for (uint32_t cell = run.begin; cell < run.end; ++cell) {
      const uint32_t code = codes[cell];
      bool goes_left;
      if (test.flags & kCategorical)
        goes_left = bits[code >> 5] >> (code & 31) & 1;
      else
        goes_left = code == kMissingCode ? test.bias != 0 : code + test.bias <= test.operand;
      append(goes_left ? left : right, cell);
    }
}

}  // namespace skshap
