// Numbers in a text.
#pragma once

#include <cctype>
#include <charconv>
#include <cstddef>
#include <string_view>
#include <system_error>

namespace skshap {

// Read numbers, separated by white space, into an array of n. Return how many the text has before its end or
// before what is no number of this type; n + 1 means more than n.
template <class T>
size_t read_numbers(std::string_view text, T* numbers, size_t n) {
  const char *p = text.data(), *const end = p + text.size();
  const auto is_space = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  for (size_t i = 0;; ++i) {
    while (p != end && is_space(*p)) ++p;
    if (p == end) return i;
    T number{};
    const auto [next, error] = std::from_chars(p, end, number);
    if (error != std::errc() || (next != end && !is_space(*next))) return i;
    if (i == n) return n + 1;
    numbers[i] = number;
    p = next;
  }
}

}  // namespace skshap
