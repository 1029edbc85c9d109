// Digits of a table's index: for each column, which of its codes the leaves of the table tell apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace skshap {

// The classes of a column's codes. Code c of a numeric column lies in the interval after as many operands as
// are less than c; each category code is an interval of its own. Intervals of the same class are not told
// apart. Missing values have a class, too.
struct Digit {
  uint32_t column;
  bool categorical;
  uint16_t n_intervals;
  uint16_t n_classes;
  uint16_t missing;  // class of missing values
  size_t numbers;    // in Digits: n_intervals - 1 operands, ascending, then the class of each interval
};

// The numbers of many digits.
class Digits {
 public:
  const uint16_t* operands(const Digit& digit) const { return numbers_.data() + digit.numbers; }
  const uint16_t* classes(const Digit& digit) const {
    return numbers_.data() + digit.numbers + digit.n_intervals - 1;
  }

  // Add a digit; its classes are numbered in the order in which they occur, missing values last.
  Digit add(uint32_t column, bool categorical, const std::vector<uint16_t>& operands,
            const std::vector<uint32_t>& classes, uint32_t missing);

  // Return how many classes the codes have that either of two digits of the same column tells apart.
  uint32_t merged_classes(const Digit& a, const Digit& b);
  // Add the digit with these classes.
  Digit merge(const Digit& a, const Digit& b);

 private:
  // Call take(operand of the end of an interval, class in a, class in b) for each interval of both digits.
  template <class Take>
  void for_intervals(const Digit& a, const Digit& b, const Take& take) const;
  // Return a number below n for each of n different pairs of classes, in the order of the calls since
  // start().
  void start(const Digit& a, const Digit& b);
  uint32_t number_of(uint32_t a, uint32_t b);

  std::vector<uint16_t> numbers_;
  std::vector<uint32_t> seen_, number_;
  uint32_t time_ = 0, n_numbers_ = 0, width_ = 0;
  std::vector<uint16_t> operands_;
  std::vector<uint32_t> classes_;
  std::vector<int32_t> renumbered_;
};

}  // namespace skshap
