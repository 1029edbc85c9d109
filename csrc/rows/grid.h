// A grid of blocks of rows and parts of a plan, which lets many threads explain few rows.
//
// A cell is one part's work on one block. The sums of the cells are stored. Once the last cell of a block is
// done, they are added to the sums of the block's rows, in the order of parts. A single thread that takes all
// rows through one part after another makes the same additions, so the results have the same bits.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "base/aligned.h"
#include "base/threads.h"
#include "plan/plan.h"
#include "rows/coding.h"
#include "rows/tiles.h"

namespace skshap {

// Parts has
//   size_t count() const
//   size_t bytes(size_t part) const    the size of the part's sums for a block
//   Worker worker() const              what one thread needs for its work on cells:
//   void run(Worker&, size_t part, const CodeTile& codes, int block, int n_rows, void* sums) const
//   Writer writer() const              what one thread needs for its work on finished blocks:
//   void add(Writer&, size_t part, void* sums) const    called in the order of parts
// Writer::write(int64_t first_row, int n_rows) writes the results of a block, and begins the next block.
template <class Parts>
class Grid {
 public:
  Grid(const Plan& plan, const Rows& rows, const Parts& parts, int64_t n_threads)
      : plan_(plan), rows_(rows), parts_(parts), n_threads_(n_threads) {
    for (size_t part = 0; part < parts.count(); ++part) {
      begin_.push_back(block_bytes_);
      block_bytes_ += (parts.bytes(part) + 63) / 64 * 64;
    }
  }

  // Explain all rows. The blocks that are worked on at once take at most most_bytes, but there is at least
  // one block. Return false if the work was interrupted.
  bool run(size_t most_bytes, const Stop& interrupted) {
    const int64_t n_blocks = block_count(rows_.n_rows);
    const int64_t by_memory =
        static_cast<int64_t>(most_bytes / std::max<size_t>(block_bytes_ + code_bytes(plan_), 1));
    const int64_t at_once = std::max<int64_t>(1, std::min(n_blocks, by_memory));
    sums_.resize(at_once * block_bytes_);
    codes_.allocate(plan_, static_cast<int>(at_once * kBlockRows));
    n_unfinished_ = std::vector<std::atomic<size_t>>(at_once);
    for (first_block_ = 0; first_block_ < n_blocks; first_block_ += at_once) {
      n_blocks_ = std::min(at_once, n_blocks - first_block_);
      if (!code(interrupted) || !run_cells(interrupted)) return false;
    }
    return true;
  }

 private:
  // The count of numbers of X for which one more thread is worth using to code them.
  static constexpr int64_t kCodedNumbers = 1 << 14;

  int64_t first_row(int64_t block) const { return (first_block_ + block) * kBlockRows; }
  int n_rows(int64_t block) const {
    return static_cast<int>(std::min<int64_t>(kBlockRows, rows_.n_rows - first_row(block)));
  }
  char* sums(int64_t block, size_t part) const { return sums_.data() + block * block_bytes_ + begin_[part]; }

  bool code(const Stop& interrupted) {
    const int64_t numbers = n_blocks_ * kBlockRows * static_cast<int64_t>(plan_.columns.size());
    return work_off(n_blocks_, std::min(n_threads_, 1 + numbers / kCodedNumbers), interrupted, [this] {
      return [this](int64_t block, const Stop& stop) {
        code_block(plan_, kernels(), rows_, first_row(block), n_rows(block), static_cast<int>(block), codes_);
        return !stop();
      };
    });
  }

  bool run_cells(const Stop& interrupted) {
    for (int64_t block = 0; block < n_blocks_; ++block) n_unfinished_[block] = parts_.count();
    const int64_t n_parts = static_cast<int64_t>(parts_.count());
    return work_off(n_blocks_ * n_parts, n_threads_, interrupted, [this, n_parts] {
      return [this, n_parts, worker = parts_.worker(), writer = std::unique_ptr<Writer>()](
                 int64_t i, const Stop& stop) mutable {
        // Parts with higher numbers have trees with more quadrature nodes. Begin with them, because small
        // cells are best at the end. A thread often stays with one part, which is then in the thread's cache.
        const size_t part = static_cast<size_t>(n_parts - 1 - i / n_blocks_);
        const int64_t block = i % n_blocks_;
        parts_.run(worker, part, codes_, static_cast<int>(block), n_rows(block), sums(block, part));
        if (--n_unfinished_[block] == 0) {
          if (!writer) writer = std::make_unique<Writer>(parts_.writer());
          finish(block, *writer);
        }
        return !stop();
      };
    });
  }

  using Writer = decltype(std::declval<const Parts&>().writer());

  void finish(int64_t block, Writer& writer) const {
    for (size_t part = 0; part < parts_.count(); ++part) parts_.add(writer, part, sums(block, part));
    writer.write(first_row(block), n_rows(block));
  }

  const Plan& plan_;
  const Rows& rows_;
  const Parts& parts_;
  const int64_t n_threads_;
  std::vector<size_t> begin_;  // by part: where its sums begin among the sums of a block
  size_t block_bytes_ = 0;
  int64_t first_block_ = 0, n_blocks_ = 0;  // those explained at once
  Aligned<char> sums_;                      // [block][part]
  CodeTile codes_;
  std::vector<std::atomic<size_t>> n_unfinished_;  // by block: cells that are not done
};

}  // namespace skshap
