// Adds the sums of parts to the sums of a tile in the order of the parts, so that the results do not depend
// on the number of threads.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/aligned.h"
#include "base/threads.h"
#include "rows/tiles.h"

namespace skshap {

// The sums that a part of a plan's cells computes for the rows of a tile.
template <class T>
struct PartSums {
  PartSums(size_t n_rows, size_t row_size, size_t n_outputs) {
    rows.resize(n_rows * row_size);
    margin.resize(n_outputs, 1, n_rows);
  }

  Aligned<T> rows;  // [row][row size of the part]
  TileSums margin;
  size_t ranges_left = 0;  // to which the sums have not been added
};

// The sums of parts that wait for earlier parts. A thread that has computed a part does not wait for them:
// its sums are added by the thread that adds those of the part before.
template <class T>
class SumsInOrder {
 public:
  using Sums = std::unique_ptr<PartSums<T>>;
  using Make = std::function<Sums()>;
  using Add = std::function<void(size_t part, const PartSums<T>& sums, size_t begin, size_t end)>;

  // `make` makes new sums, of which each thread has one, and as many may wait. `add` adds a part's sums to
  // the tile for the rows from `begin` to `end`.
  SumsInOrder(size_t n_parts, size_t n_rows, int64_t n_threads, Make make, Add add)
      : n_rows_(n_rows),
        make_(std::move(make)),
        add_(std::move(add)),
        finished_(n_parts),
        n_spare_(n_threads) {
    for (size_t begin = 0; begin < n_rows; begin += range_rows()) ranges_.emplace_back();
  }

  // Return sums for a thread's first part.
  Sums first() const { return make_(); }

  // Add the sums of a part as soon as those of the parts before have been added. Return sums for the thread's
  // next part, or null if `stop` returned true. A thread that computes a part has its sums already, so that
  // the first part that the others wait for always comes to its end.
  Sums exchange(size_t part, Sums sums, const Stop& stop) {
    sums->ranges_left = ranges_.size();
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      finished_[part] = std::move(sums);
    }
    for (size_t range = 0; range < ranges_.size(); ++range) add_in_turn(range);
    std::unique_lock<std::mutex> lock(mutex_);
    while (free_.empty() && !n_spare_) {
      freed_.wait_for(lock, std::chrono::milliseconds(10));
      if (stop()) return nullptr;
    }
    if (free_.empty()) {
      --n_spare_;
      lock.unlock();
      return make_();
    }
    Sums next = std::move(free_.back());
    free_.pop_back();
    return next;
  }

 private:
  // Rows to which one thread adds at a time. Meanwhile, another may add the next part to the ranges before.
  struct Range {
    size_t next = 0;  // part
    bool is_busy = false;
  };
  static constexpr size_t kRanges = 8;

  size_t range_rows() const { return whole_blocks((n_rows_ + kRanges - 1) / kRanges); }

  // Add the sums of all parts whose turn it is in a range, unless another thread does so.
  void add_in_turn(size_t number) {
    Range& range = ranges_[number];
    const size_t begin = number * range_rows(), end = std::min(begin + range_rows(), n_rows_);
    std::unique_lock<std::mutex> lock(mutex_);
    if (range.is_busy) return;
    for (; range.next < finished_.size() && finished_[range.next]; ++range.next) {
      Sums& sums = finished_[range.next];
      range.is_busy = true;
      lock.unlock();
      add_(range.next, *sums, begin, end);
      lock.lock();
      range.is_busy = false;
      if (--sums->ranges_left) continue;
      free_.push_back(std::move(sums));
      freed_.notify_all();
    }
  }

  const size_t n_rows_;
  const Make make_;
  const Add add_;
  std::mutex mutex_;
  std::condition_variable freed_;
  std::vector<Range> ranges_;
  std::vector<Sums> finished_;  // by part
  std::vector<Sums> free_;
  int64_t n_spare_;  // sums that may still be made
};

}  // namespace skshap
