#include "tables/stored_tables.h"

#include <cmath>
#include <stdexcept>

namespace skshap {
namespace {

// The FNV-1a hash of 64-bit words.
class Digest {
 public:
  // Add numbers, and lists of numbers with their sizes.
  template <class... X>
  void add(const X&... x) {
    (add_one(x), ...);
  }
  uint64_t value() const { return value_; }

 private:
  template <class X>
  void add_one(X x) {
    value_ = (value_ ^ static_cast<uint64_t>(x)) * 0x100000001b3;
    value_ ^= value_ >> 32;  // the product moves bits to the left only
  }
  template <class X>
  void add_one(const std::vector<X>& list) {
    add_one(list.size());
    for (const X x : list) add_one(x);
  }

  uint64_t value_ = 0xcbf29ce484222325;
};

void require(bool fits, const char* what) {
  if (!fits) throw std::invalid_argument(std::string("the stored tables have ") + what);
}

}  // namespace

uint64_t layout_digest(const Plan& plan) {
  const Tables& tables = plan.tables;
  Digest digest;
  digest.add(plan.precision == Precision::kSingle, plan.index, plan.n_outputs, plan.features,
             tables.against_background, !tables.leaf_tables.empty(), tables.bits, tables.targets);
  digest.add(tables.lookups.size());
  for (const Lookup& lookup : tables.lookups) digest.add(lookup.n_bits, lookup.n_targets, lookup.table);
  digest.add(tables.leaves.size());
  for (const PatternLeaf& leaf : tables.leaves) digest.add(leaf.n_bits, leaf.leaf);
  digest.add(tables.leaf_tables.size());
  for (const LeafTable& leaf : tables.leaf_tables) digest.add(leaf.features, leaf.table);
  for (const LeafFeature& feature : tables.leaf_features) digest.add(feature.bit, feature.slot);
  digest.add(tables.trees.size());
  for (const TableTree& tree : tables.trees) digest.add(tree.tree, tree.lookups, tree.leaves, tree.n_levels);
  digest.add(tables.batches.size());
  for (const TableBatch& batch : tables.batches) digest.add(batch.trees, batch.places);
  digest.add(tables.places, tables.n_elements);
  return digest.value();
}

std::vector<uint64_t> pattern_counts(const Plan& plan) {
  std::vector<uint64_t> counts;
  for (const PatternLeaf& leaf : plan.tables.leaves) counts.push_back(leaf.n_patterns);
  return counts;
}

void take_tables(Plan& plan, const StoredTables& stored) {
  Tables& tables = plan.tables;
  if (stored.layout != layout_digest(plan))
    throw std::invalid_argument(
        "the stored tables have another layout: they are of another model or of another version");
  const bool single = plan.precision == Precision::kSingle;
  require(stored.floats.size() == (single ? tables.n_elements : 0) &&
              stored.doubles.size() == (single ? 0 : tables.n_elements),
          "a wrong size");
  const size_t n_outputs = tables.against_background ? plan.n_outputs : 0;
  require(stored.base_value.size() == n_outputs, "a wrong number of base values");
  for (size_t o = 0; o < n_outputs; ++o)
    require(std::isfinite(stored.base_value[o]), "a base value that is not finite");
  require(stored.counts.size() == tables.leaves.size() && stored.weights.size() == stored.patterns.size(),
          "a wrong number of patterns");
  size_t n_patterns = 0;
  for (size_t i = 0; i < tables.leaves.size(); ++i) {
    const uint64_t count = stored.counts[i];  // read once, as it may be in a mapped file
    require(count && count <= stored.patterns.size() - n_patterns, "a wrong number of patterns");
    tables.leaves[i].patterns = n_patterns;
    tables.leaves[i].n_patterns = count;
    n_patterns += count;
  }
  require(n_patterns == stored.patterns.size(), "a wrong number of patterns");
  tables.floats = stored.floats;
  tables.doubles = stored.doubles;
  tables.patterns = stored.patterns;
  tables.weights = stored.weights;
  if (n_outputs) plan.base_value.assign(stored.base_value.data(), stored.base_value.data() + n_outputs);
}

}  // namespace skshap
