// Digits of a table's index. For each column, a digit says which codes of the column the leaves of the table
// tell apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace skshap {

// The classes of a column's codes. The operands divide the codes of a numeric column into intervals: the
// number of a code's interval is the number of operands below the code. In a categorical column, each code is
// an interval of its own. Intervals of the same class are not told apart. Missing values have a class, too.
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

  // Add a digit. Its classes are numbered in the order in which they occur, and the class of missing values
  // comes last.
  Digit add(uint32_t column, bool categorical, const std::vector<uint16_t>& operands,
            const std::vector<uint32_t>& classes, uint32_t missing);

  // Return the number of classes of a digit that tells apart all codes that either of two digits tells apart.
  // Both digits are of the same column.
  uint32_t merged_classes(const Digit& a, const Digit& b);
  // Add the digit with these classes.
  Digit merge(const Digit& a, const Digit& b);

 private:
  // Call take(operand at the end of an interval, class in a, class in b) for each interval of the two digits
  // together.
  template <class Take>
  void for_intervals(const Digit& a, const Digit& b, const Take& take) const;
  // Return a number for a pair of classes. Different pairs have different numbers, which count from 0 in the
  // order of the calls since start().
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
