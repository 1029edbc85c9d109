// Selects the kernels of the best instruction set, or of the instruction set that SKSHAPGPU_ISA names.
#include "simd/kernels.h"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include "simd/processor.h"

namespace skshap {
namespace {

struct InstructionSet {
  const char* name;
  bool (*is_supported)();
  const Kernels& (*kernels)();
};

// The compiled instruction sets, the best first.
constexpr InstructionSet kInstructionSets[] = {
#ifdef SKSHAP_KERNELS_AVX512
    {"avx512", has_avx512, kernels_avx512},
#endif
#ifdef SKSHAP_KERNELS_AVX2
    {"avx2", has_avx2, kernels_avx2},
#endif
#ifdef SKSHAP_KERNELS_NEON
    {"neon", has_neon, kernels_neon},
#endif
#ifdef SKSHAP_KERNELS_BASELINE
    {"baseline", [] { return true; }, kernels_baseline},
#endif
};

const Kernels& choose_kernels() {
  const char* const forced = std::getenv("SKSHAPGPU_ISA");
  for (const InstructionSet& set : kInstructionSets)
    if (set.is_supported() && (!forced || !*forced || std::string(forced) == set.name)) return set.kernels();
  const std::vector<std::string> supported = supported_kernels();
  if (supported.empty())
    throw std::runtime_error(
        "this skshapgpu was built with SKSHAPGPU_KERNELS=native on a machine with another processor; build "
        "it "
        "on this one, or with SKSHAPGPU_KERNELS=all");
  std::string message = std::string("SKSHAPGPU_ISA=") + forced + " is not available here; choose one of:";
  for (const std::string& name : supported) message += " " + name;
  throw std::runtime_error(message);
}

}  // namespace

std::vector<std::string> supported_kernels() {
  std::vector<std::string> names;
  for (const InstructionSet& set : kInstructionSets)
    if (set.is_supported()) names.push_back(set.name);
  return names;
}

const Kernels& kernels() {
  static const Kernels& chosen = choose_kernels();
  return chosen;
}

}  // namespace skshap
