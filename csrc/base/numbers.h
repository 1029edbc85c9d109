// Numbers in a text.
#pragma once

#include <cctype>
#include <charconv>
#include <cstddef>
#include <string_view>
#include <system_error>

#ifdef __APPLE__
#include <stdlib.h>
#include <xlocale.h>

#include <cerrno>
#include <cmath>
#endif

namespace skshap {

// Read the number that begins at p, in any locale. Return the end of the number, or null if there is no
// number of this type at p.
template <class T>
const char* read_number(const char* p, const char* end, T& number) {
  const auto [next, error] = std::from_chars(p, end, number);
  return error == std::errc() ? next : nullptr;
}

#ifdef __APPLE__
// libc++ cannot read floating-point numbers by from_chars before LLVM 20. The string must end with a null
// character.
inline const char* read_number(const char* p, const char*, double& number) {
  char* next;
  errno = 0;
  number = strtod_l(p, &next, nullptr);  // null is the locale "C"
  const bool is_too_large = errno == ERANGE && std::abs(number) == HUGE_VAL;
  return next == p || is_too_large ? nullptr : next;
}
#endif

// Read numbers, separated by white space, into an array of n. Return how many numbers come before the end of
// the string or before the first word that is no number of this type. A result of n + 1 means that there are
// more than n.
template <class T>
size_t read_numbers(std::string_view text, T* numbers, size_t n) {
  const char *p = text.data(), *const end = p + text.size();
  const auto is_space = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  for (size_t i = 0;; ++i) {
    while (p != end && is_space(*p)) ++p;
    if (p == end) return i;
    T number{};
    const char* const next = read_number(p, end, number);
    if (!next || (next != end && !is_space(*next))) return i;
    if (i == n) return n + 1;
    numbers[i] = number;
    p = next;
  }
}

}  // namespace skshap
