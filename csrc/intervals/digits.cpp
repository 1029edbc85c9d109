#include "intervals/digits.h"

#include <algorithm>

namespace skshap {

Digit Digits::add(uint32_t column, bool categorical, const std::vector<uint16_t>& operands,
                  const std::vector<uint32_t>& classes, uint32_t missing) {
  Digit digit{.column = column,
              .categorical = categorical,
              .n_intervals = static_cast<uint16_t>(classes.size()),
              .n_classes = 0,
              .missing = 0,
              .numbers = numbers_.size()};
  const uint32_t most = std::max(missing, *std::max_element(classes.begin(), classes.end()));
  renumbered_.assign(most + 1, -1);
  uint16_t n = 0;
  const auto numbered = [&](uint32_t old) {
    if (renumbered_[old] < 0) renumbered_[old] = n++;
    return static_cast<uint16_t>(renumbered_[old]);
  };
  numbers_.insert(numbers_.end(), operands.begin(), operands.end());
  numbers_.resize(digit.numbers + digit.n_intervals - 1);  // categorical digits have no operands
  for (const uint32_t old : classes) numbers_.push_back(numbered(old));
  digit.missing = numbered(missing);
  digit.n_classes = n;
  return digit;
}

template <class Take>
void Digits::for_intervals(const Digit& a, const Digit& b, const Take& take) const {
  const uint16_t *const classes_a = classes(a), *const classes_b = classes(b);
  if (a.categorical) {
    for (uint32_t i = 0; i < a.n_intervals; ++i) take(uint16_t{0}, classes_a[i], classes_b[i]);
    return;
  }
  const uint16_t *const end_a = operands(a), *const end_b = operands(b);
  const uint32_t last_a = a.n_intervals - 1u, last_b = b.n_intervals - 1u;
  constexpr uint32_t kNone = 1 << 16;
  for (uint32_t i = 0, j = 0;;) {
    const uint32_t next_a = i < last_a ? end_a[i] : kNone, next_b = j < last_b ? end_b[j] : kNone;
    const uint32_t next = std::min(next_a, next_b);
    take(static_cast<uint16_t>(next), classes_a[i], classes_b[j]);
    if (next == kNone) return;
    i += next_a == next;
    j += next_b == next;
  }
}

void Digits::start(const Digit& a, const Digit& b) {
  width_ = b.n_classes;
  const size_t n = size_t{a.n_classes} * b.n_classes;
  if (seen_.size() < n) {
    seen_.resize(n, 0);
    number_.resize(n);
  }
  ++time_;
  n_numbers_ = 0;
}

uint32_t Digits::number_of(uint32_t a, uint32_t b) {
  const size_t pair = size_t{a} * width_ + b;
  if (seen_[pair] != time_) {
    seen_[pair] = time_;
    number_[pair] = n_numbers_++;
  }
  return number_[pair];
}

uint32_t Digits::merged_classes(const Digit& a, const Digit& b) {
  start(a, b);
  for_intervals(a, b, [&](uint16_t, uint16_t x, uint16_t y) { number_of(x, y); });
  number_of(a.missing, b.missing);
  return n_numbers_;
}

Digit Digits::merge(const Digit& a, const Digit& b) {
  start(a, b);
  operands_.clear();
  classes_.clear();
  for_intervals(a, b, [&](uint16_t operand, uint16_t x, uint16_t y) {
    operands_.push_back(operand);
    classes_.push_back(number_of(x, y));
  });
  operands_.pop_back();
  if (a.categorical) operands_.clear();
  return add(a.column, a.categorical, operands_, classes_, number_of(a.missing, b.missing));
}

}  // namespace skshap
