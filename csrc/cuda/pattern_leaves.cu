#include "cuda/pattern_leaves.cuh"

namespace skshap {
namespace {

template <class T, PatternResults kResults>
PatternKernel<T> kernel_of(size_t form) {
  switch (form) {
    case 0: return explain_pattern_leaves<T, uint32_t, kPatternForms[0], kResults>;
    case 1: return explain_pattern_leaves<T, uint32_t, kPatternForms[1], kResults>;
    default: return explain_pattern_leaves<T, uint64_t, kPatternForms[2], kResults>;
  }
}

}  // namespace

template <class T>
PatternKernel<T> pattern_kernel(size_t form, PatternResults results) {
  switch (results) {
    case PatternResults::kValues: return kernel_of<T, PatternResults::kValues>(form);
    case PatternResults::kPairs: return kernel_of<T, PatternResults::kPairs>(form);
    default: return kernel_of<T, PatternResults::kTerms>(form);
  }
}
template PatternKernel<float> pattern_kernel(size_t, PatternResults);
template PatternKernel<double> pattern_kernel(size_t, PatternResults);

}  // namespace skshap
