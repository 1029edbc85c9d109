"""Malicious models, files and rows: documented errors, no crash, bounded time and memory.

A fuzzer (tests/fuzz) found each of these inputs, or a similar one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import TESTS
from helpers.ensemble_model import EnsembleModel
from helpers.ensembles import random_ensemble, random_rows
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor

from skshapgpu import TreeExplainer
from skshapgpu._files import storage
from skshapgpu._rows import inputs
from skshapgpu.adapters import _ubjson, lightgbm, xgboost
from skshapgpu.adapters.catboost import model as catboost
from skshapgpu.adapters.ensemble import Ensemble, Tree
from skshapgpu.adapters.schema import InputSchema
from skshapgpu.adapters.sklearn_categories import OrdinalCategories

X = np.random.default_rng(0).integers(0, 5, size=(80, 3)).astype(float)
Y = X[:, 0] + (X[:, 1] == 2)


@pytest.fixture(scope="module")
def explainer() -> TreeExplainer:
    return TreeExplainer(RandomForestRegressor(3, max_depth=3, random_state=0).fit(X, Y), device="cpu")


# Rows


def changed(matrix: Any, **parts: Any) -> Any:
    for name, part in parts.items():
        setattr(matrix, name, np.asarray(part))
    return matrix


@pytest.mark.parametrize(
    "rows",
    [
        changed(sp.csr_matrix(np.eye(3)), indices=[0, 1, 3]),
        changed(sp.csr_matrix(np.eye(3)), indices=[0, -1, 2]),
        changed(sp.csr_matrix(np.eye(3)), indices=[0.0, 1.0, 2.0]),
        changed(sp.csr_matrix(np.eye(3)), indices=[0]),
        changed(sp.csr_matrix(np.eye(3)), indptr=[0, 1, 2, 2**31 - 1]),
        changed(sp.csr_matrix(np.eye(3)), indptr=[0, 3, 1, 3]),
        changed(sp.csr_matrix(np.eye(3)), indptr=[1, 1, 2, 3]),
        changed(sp.csr_matrix(np.eye(3)), indptr=[0, 1]),
        changed(sp.csr_matrix(np.eye(3)), data=[1.0]),
        changed(sp.csc_matrix(np.eye(3)), indices=[0, 1, 10**6]),
        changed(sp.csc_matrix(np.eye(3)), indptr=[0, 1, 2, 10**6]),
        changed(sp.bsr_matrix(np.eye(3)), indices=[0, 1, 10**6]),
        changed(sp.coo_matrix(np.eye(3)), row=[0, 1, 10**6]),
        changed(sp.coo_matrix(np.eye(3)), col=[0, 1, -1]),
        changed(sp.coo_matrix(np.eye(3)), col=[0, 1]),
    ],
)
def test_sparse_rows_whose_parts_contradict_each_other(explainer: TreeExplainer, rows: Any) -> None:
    with pytest.raises(ValueError, match="contradict"):
        explainer.shap_values(rows)
    with pytest.raises(ValueError, match="contradict"):
        TreeExplainer(EnsembleModel(explainer._adapted.ensemble), rows, device="cpu")


@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csc_matrix, sp.coo_matrix, sp.bsr_matrix, sp.csr_array])
def test_sparse_rows_of_each_kind_are_read(explainer: TreeExplainer, kind: Any) -> None:
    rows = X[:6] * (X[:6] > 2)
    np.testing.assert_array_equal(explainer.shap_values(kind(rows)), explainer.shap_values(rows))
    assert explainer.shap_values(kind((0, 3))).shape == (0, 3)


def test_integers_that_no_float_holds(explainer: TreeExplainer) -> None:
    rows = X[:2].astype(object)
    rows[1, 2] = 10**400
    with pytest.raises(ValueError, match="column '2' holds a number that is too large"):
        explainer.shap_values(rows)


def test_columns_that_their_own_library_cannot_read(explainer: TreeExplainer) -> None:
    pandas = pytest.importorskip("pandas")

    class Broken(pandas.arrays.StringArray):
        def __getitem__(self, item: Any) -> Any:
            raise LookupError("no such text")

    rows = pandas.DataFrame({"a": [1.0], "b": [2.0], "c": Broken(np.array(["x"], object))})
    with pytest.raises(ValueError, match="column 'c' cannot be read: no such text"):
        explainer.shap_values(rows)


# Models


def test_histograms_with_categories_that_are_nowhere() -> None:
    model = HistGradientBoostingRegressor(max_iter=1, min_samples_leaf=2, categorical_features=[1])
    model.fit(X, 3.0 * (X[:, 1] % 2))
    nodes = model._predictors[0][0].nodes
    assert nodes["is_categorical"].any()
    nodes["bitset_idx"] = 1000
    with pytest.raises(ValueError, match="HistGradientBoostingRegressor contradicts itself: IndexError"):
        TreeExplainer(model, device="cpu")


@pytest.mark.parametrize(
    "document",
    [None, [], {}, "learner", {"learner": None}, {"learner": {"gradient_booster": {"name": "gbtree"}}}],
)
def test_xgboost_documents_that_are_none(document: Any) -> None:
    with pytest.raises(ValueError, match="the XGBoost model is malformed"):
        xgboost.read_document(document)


@pytest.mark.parametrize("data", [None, X])
def test_features_that_no_tree_splits_on_change_nothing(data: np.ndarray | None) -> None:
    """There are so many columns that the compiler renumbers the trees' columns."""
    ensemble = random_ensemble(3, n_features=5, categorical=True, zero_missing=True, vector=True, n_outputs=2)
    rows = random_rows(3, ensemble, 30)
    places = np.array([0, 7, 70_000, 99_998, 99_999])
    zero_missing, wide_rows = np.zeros(100_000, bool), np.zeros((30, 100_000), rows.dtype)
    zero_missing[places], wide_rows[:, places] = ensemble.zero_missing, rows
    state = {name: getattr(ensemble, name) for name in Ensemble.__dataclass_fields__}
    state |= {"n_features": 100_000, "feature": places[ensemble.feature], "zero_missing": zero_missing}
    wide = Ensemble(**state)
    backgrounds = (None, None) if data is None else (rows[:9], wide_rows[:9])
    expected, result = (
        TreeExplainer(EnsembleModel(model), background, device="cpu")
        for model, background in zip((ensemble, wide), backgrounds)
    )
    values = result.shap_values(wide_rows)
    np.testing.assert_array_equal(values[:, places], expected.shap_values(rows))
    assert not np.delete(values, places, axis=1).any()
    if data is None:
        pairs = result.occurring_interactions()
        np.testing.assert_array_equal(pairs, places[expected.occurring_interactions()])
        assert len(pairs)


@pytest.mark.parametrize("name", ["background", "plain", "tables"])
def test_the_fuzzer_starts_with_explainer_files_that_load(name: str) -> None:
    """If the format has changed, tests/fuzz/make_corpus.py must write them again."""
    explainer = TreeExplainer.load(TESTS / "fuzz" / "corpus" / "explainer_file" / name)
    assert explainer.explain(np.array([[0.5, 2.0, -1.0]])).values.any()


def xgboost_document(name: str) -> Any:
    """Read a document of the fuzzer's corpus, with arrays that can be changed."""
    data = (TESTS / "fuzz" / "corpus" / "xgboost" / name).read_bytes()

    def copied(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: copied(item) for key, item in value.items()}
        if isinstance(value, list):
            return [copied(item) for item in value]
        return value.copy() if isinstance(value, np.ndarray) else value

    return copied(_ubjson.loads(data))


def xgboost_forest(document: Any) -> Any:
    return document["learner"]["gradient_booster"]["model"]


def test_catboost_columns_that_are_nowhere() -> None:
    """With CTRs, each column takes memory, so a number in the document must not determine the columns."""
    path = TESTS / "fuzz" / "corpus" / "catboost" / "ctrs"
    document = json.loads(path.read_bytes())
    assert catboost.read_document(document, 3).derived is not None
    document["features_info"]["categorical_features"][0]["flat_feature_index"] = 10**8
    with pytest.raises(ValueError, match="column number 100000000; with CTRs there may be at most 65536"):
        catboost.read_document(document, 3)


def test_xgboost_categories_that_many_nodes_list() -> None:
    """A list of all m categories for each of n nodes would take n m numbers."""
    document = xgboost_document("categories")
    assert xgboost.read_document(document).ensemble.n_trees == 2
    tree = next(tree for tree in xgboost_forest(document)["trees"] if len(tree["categories"]))
    n_values = len(tree["categories"])
    tree["categories_nodes"] = np.arange(2, dtype=np.int32)
    for segments, sizes, message in (
        ([0, 0], [n_values, n_values], "categories_sizes does not add up to the number of categories"),
        ([0, n_values], [n_values, 2**63 - 1], "categories_sizes does not add up"),
        ([2**63 - 1, 0], [0, n_values], "categories_sizes does not add up"),
    ):
        tree["categories_segments"], tree["categories_sizes"] = np.array(segments), np.array(sizes)
        with pytest.raises(ValueError, match=message):
            xgboost.read_document(document)


def test_xgboost_leaves_of_many_outputs_among_others() -> None:
    """Each node of the other trees would take memory for all outputs."""
    document = xgboost_document("vector_leaves")
    assert xgboost.read_document(document).ensemble.n_outputs == 2
    n_outputs, trees = 5000, xgboost_forest(document)["trees"]
    leaf = trees[0] | {
        name: array[:1] for name, array in trees[0].items() if isinstance(array, np.ndarray) and len(array)
    }
    leaf |= {
        "left_children": np.array([-1], np.int32),
        "right_children": np.array([0], np.int32),
        "leaf_weights": np.ones(n_outputs, np.float32),
        "base_weights": np.ones(n_outputs, np.float32),
    }
    params = leaf["tree_param"] | {"num_nodes": "1"}
    leaf["tree_param"] = params | {"size_leaf_vector": str(n_outputs)}
    plain = leaf | {"tree_param": params | {"size_leaf_vector": "1"}, "base_weights": np.ones(1, np.float32)}
    for n_plain, message in ((0, None), (10, "only a small part")):
        xgboost_forest(document).update(
            trees=[leaf, *({**plain, "id": 1 + i} for i in range(n_plain))],
            tree_info=[0] * (1 + n_plain),
            iteration_indptr=list(range(2 + n_plain)),
            gbtree_model_param={"num_trees": str(1 + n_plain), "num_parallel_tree": "1"},
        )
        document["learner"]["learner_model_param"] |= {"num_target": str(n_outputs), "base_score": "0"}
        if message is None:
            assert xgboost.read_document(document).ensemble.n_outputs == n_outputs
        else:
            with pytest.raises(ValueError, match=message):
                xgboost.read_document(document)


@pytest.mark.skipif(
    "libasan" in os.environ.get("LD_PRELOAD", ""),
    reason="the address sanitizer maps more memory than the limit of this test",
)
def test_a_model_that_says_it_has_two_thousand_million_features() -> None:
    program = """
import resource, tracemalloc
from skshapgpu import TreeExplainer, register_adapter
from skshapgpu.adapters.ensemble import Ensemble, Tree
from skshapgpu.adapters.schema import AdaptedModel, InputSchema

n = 2**31 - 1
tree = Tree([1, -1, -1], [2, -1, -1], [n - 1, 0, 0], [0.5, 0, 0], [True] * 3, [2, 1, 1], [0.0, 1.0, 2.0])
class Model: ...
ensemble = Ensemble.from_trees([tree], n_features=n, intercept=0.0)
register_adapter("__main__.Model", lambda _: AdaptedModel(ensemble, InputSchema(n), "test"))
resource.setrlimit(resource.RLIMIT_AS, (2**32, 2**32))
tracemalloc.start()
assert TreeExplainer(Model(), device="cpu").expected_value == 1.5
assert tracemalloc.get_traced_memory()[1] < 2**24
"""
    subprocess.run([sys.executable, "-c", program], check=True)


LIGHTGBM = """tree
version=v4
num_class=1
num_tree_per_iteration=1
label_index=0
max_feature_idx=1
feature_names=a b
feature_infos=none none

Tree=0
num_leaves=2
num_cat=0
split_feature=0
threshold=0.5
decision_type=2
left_child=-1
right_child=-2
leaf_value=1 2
leaf_count=1 1
internal_count=2
is_linear=0
shrinkage=1


end of trees

pandas_categorical:null
"""


def test_lightgbm_texts_that_are_none() -> None:
    assert lightgbm.read_text(LIGHTGBM).ensemble.n_leaves == 2
    for n_outputs in (0, -1, 2, 2**31 - 1, 10**30):
        with pytest.raises(ValueError, match=r"outputs for 1 trees|num_tree_per_iteration is '-?\d+', not"):
            lightgbm.read_text(
                LIGHTGBM.replace("num_tree_per_iteration=1", f"num_tree_per_iteration={n_outputs}")
            )
    for lists in ("[" * 10**6, "5", "[5]", "{", "[[1]] 2"):
        with pytest.raises(ValueError):
            lightgbm.read_text(LIGHTGBM.replace("pandas_categorical:null", f"pandas_categorical:{lists}"))


def chain(n_levels: int, n_features: int) -> Ensemble:
    node = np.arange(2 * n_levels + 1)
    inner = (node % 2 == 0) & (node < 2 * n_levels)
    tree = Tree(
        left=np.where(inner, node + 1, -1),
        right=np.where(inner, node + 2, -1),
        feature=node // 2 % n_features,
        threshold=np.full(len(node), 0.5),
        missing_left=np.zeros(len(node), bool),
        cover=np.where(node % 2, 1.0, n_levels + 1 - node // 2),
        value=np.where(inner, 0.0, node / len(node)),
    )
    return Ensemble.from_trees([tree], n_features=n_features, intercept=0.0)


def test_paths_of_many_features() -> None:
    ensemble = chain(1024, 1024)
    explanation = TreeExplainer(EnsembleModel(ensemble), device="cpu", precision="double").explain(
        np.ones((1, 1024))
    )
    total = explanation.base_values + explanation.values.sum()
    np.testing.assert_allclose(total, ensemble.margin(np.ones((1, 1024)))[0], rtol=1e-9)
    with pytest.raises(ValueError, match="tree 0 has a path of 1025 different features, more than 1024"):
        TreeExplainer(EnsembleModel(chain(1025, 1025)), device="cpu")


def test_memory_of_long_chains() -> None:
    """Reading, compiling and explaining stay within the documented limits; longer chains are rejected."""
    with pytest.raises(ValueError, match="tree 0 is too deep: it has 10000 levels, and a path of 1000"):
        TreeExplainer(EnsembleModel(chain(10_000, 1000)), device="cpu")
    program = f"""
import resource, sys
sys.path[:0] = [{str(TESTS)!r}, {str(Path(__file__).parent)!r}]
from test_hostile_input import *

TreeExplainer(EnsembleModel(chain(10, 10)), device="cpu").shap_values(np.ones((1, 10)))
ensemble = chain(2000, 1000)
n_bytes = 4001 * 22  # as compact as in a file of XGBoost
in_use = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (in_use + 2000 * n_bytes + 2**30,) * 2)
TreeExplainer(EnsembleModel(ensemble), device="cpu", precision="double").shap_values(np.ones((1, 1000)))
"""
    subprocess.run([sys.executable, "-c", program], check=True)


# Files


@pytest.mark.parametrize(
    "change",
    [
        {"options": True},
        {"options": {"list": []}},
        {"model": {"binary": 1}},
        {"model": {"link": {"list": []}}},
        {"model": {"link_scale": 0.0}},
        {"model": {"link_scale": True}},
        {"model": {"family": None}},
        {"model": {"squared_error": 1}},
        {"schema": {"feature_names": {"tuple": [1, 2, 3]}}},
        {"schema": {"feature_names": {"tuple": []}}},
        {"schema": {"array_dtype": "O"}},
        {"schema": {"allow_nan": None}},
        {"schema": {"missing_value": "1"}},
        {"schema": {"encoders": None}},
        {"schema": {"encoders": {"mapping": [[0, 1]]}}},
        {"schema": {"encoders": {"mapping": [[7, {"encoder": "catboost categories", "fields": {}}]]}}},
        {"schema": {"frame_encoder": 1}},
        {"schema": {"n_categorical": "1"}},
    ],
)
def test_files_of_explainers_that_are_none(
    explainer: TreeExplainer, change: dict[str, Any], tmp_path: Any
) -> None:
    explainer.save(tmp_path / "file")
    header, arrays = storage.read(tmp_path / "file")
    model = dict_of(header["model"])
    if "schema" in change:
        model["schema"] = mapping_of(dict_of(model["schema"]) | change["schema"])
    if "options" in change:
        header["options"] = change["options"]
    header["model"] = mapping_of(model | change.get("model", {}))
    storage.write(tmp_path / "file", header, arrays)
    with pytest.raises(ValueError, match="is damaged"):
        TreeExplainer.load(tmp_path / "file", device="cpu")


def dict_of(packed: Any) -> dict[str, Any]:
    return dict(packed["mapping"])


def mapping_of(content: dict[str, Any]) -> dict[str, Any]:
    return {"mapping": [[key, value] for key, value in content.items()]}


def test_encoders_of_files_that_know_no_category() -> None:
    schema = InputSchema(1, encoders={0: OrdinalCategories(np.empty(0))})
    rows = inputs.read(np.zeros((2, 1)), schema, "float64")
    with pytest.raises(ValueError, match="column '0' cannot be encoded: IndexError"):
        rows.chunk(0, 2)
