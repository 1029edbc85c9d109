// Selects the kernels: those of the best instruction set, or of the one that SKSHAPGPU_ISA names.
#include "simd/kernels.h"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

namespace skshap {

std::vector<std::string> supported_kernels() {
  std::vector<std::string> names;
#ifdef SKSHAP_X86_64
  __builtin_cpu_init();
  const bool avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
    names.push_back("avx512");
  if (avx2) names.push_back("avx2");
#endif
  names.push_back("baseline");
  return names;
}

const Kernels& kernels() {
  static const Kernels& chosen = []() -> const Kernels& {
    const std::vector<std::string> supported = supported_kernels();
    std::string name = supported.front();
    if (const char* forced = std::getenv("SKSHAPGPU_ISA"); forced && *forced) {
      if (std::find(supported.begin(), supported.end(), forced) == supported.end()) {
        std::string message =
            std::string("SKSHAPGPU_ISA=") + forced + " is not available here; choose one of:";
        for (const std::string& s : supported) message += " " + s;
        throw std::runtime_error(message);
      }
      name = forced;
    }
#ifdef SKSHAP_X86_64
    if (name == "avx512") return kernels_avx512();
    if (name == "avx2") return kernels_avx2();
#endif
    return kernels_baseline();
  }();
  return chosen;
}

}  // namespace skshap
