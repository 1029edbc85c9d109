"""CatBoost: models and edited documents that are refused."""

from __future__ import annotations

import copy
import json
import math

import numpy as np
import pytest
from helpers.catboost_models import RTOL, TINY, category_model, check, data, export, regressor
from helpers.checks import assert_margin
from sklearn.exceptions import NotFittedError

from skshapgpu.adapters import adapt
from skshapgpu.adapters.catboost.model import read_document
from skshapgpu.errors import UnsupportedModelError

catboost = pytest.importorskip("catboost")


def test_unfitted():
    for model in (catboost.CatBoost(), catboost.CatBoostClassifier(), catboost.CatBoostRegressor()):
        with pytest.raises(NotFittedError, match=type(model).__name__):
            adapt(model)


def test_not_a_model():
    with pytest.raises(UnsupportedModelError, match="Pool"):
        adapt(catboost.Pool(np.zeros((2, 1))))


def test_text_is_refused():
    pd = pytest.importorskip("pandas")
    X, y = data()
    frame = pd.DataFrame({"x": X[:, 0], "t": [f"word{i % 5} word{i % 3}" for i in range(300)]})
    model = catboost.CatBoostClassifier(text_features=["t"], **TINY).fit(frame, y > 0)
    with pytest.raises(UnsupportedModelError, match=r"text features \(columns \[1\]\)"):
        adapt(model)


def test_embeddings_are_refused():
    pd = pytest.importorskip("pandas")
    X, y = data()
    frame = pd.DataFrame({"x": X[:, 0], "e": list(X)})
    model = catboost.CatBoostClassifier(embedding_features=["e"], **TINY).fit(frame, y > 0)
    with pytest.raises(UnsupportedModelError, match=r"embedding features \(columns \[1\]\)"):
        adapt(model)


def test_model_without_leaf_weights(tmp_path):
    """CatBoost exports such a model only if it is symmetric; test_covers_of_data.py explains it."""
    X, y = data()
    document = export(regressor(X, y), tmp_path / "model.json")
    for tree in document["oblivious_trees"]:
        del tree["leaf_weights"]
    path = tmp_path / "edited.json"
    path.write_text(json.dumps(document))
    model = catboost.CatBoostRegressor().load_model(str(path), format="json")
    assert not check(model).has_cover
    assert not adapt(path).has_cover
    document = export(regressor(X, y, grow_policy="Depthwise"), path)

    def strip(node):
        node.pop("weight", None)
        for child in node.get("left", {}), node.get("right", {}):
            if child:
                strip(child)

    for tree in document["trees"]:
        strip(tree)
    path.write_text(json.dumps(document))
    model = catboost.CatBoostRegressor().load_model(str(path), format="json")
    assert not adapt(path).has_cover
    assert_margin(adapt(path).ensemble, X, model.predict(X), RTOL)
    for uneven in (model, tmp_path / "model.cbm"):
        if uneven is not model:
            model.save_model(str(uneven))
        with pytest.raises(
            UnsupportedModelError, match=r"not symmetric, and no leaf weights.*train it again"
        ):
            adapt(uneven)


def test_leaf_values_that_are_no_numbers():
    model = regressor(*data(), iterations=1)
    model.set_leaf_values(np.full(16, np.nan))
    with pytest.raises(ValueError, match="cannot export"):
        adapt(model)


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    folder = tmp_path_factory.mktemp("documents")
    return {
        policy: export(category_model(grow_policy=policy, iterations=3)[0], folder / f"{policy}.json")
        for policy in ("SymmetricTree", "Depthwise")
    }


def paths_of(node, path=()):
    """Yield every place in a nested document except inside model_info."""
    if path[:1] == ("model_info",):
        return
    if path:
        yield path
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in items:
        yield from paths_of(child, (*path, key))


@pytest.mark.parametrize("policy", ["SymmetricTree", "Depthwise"])
@pytest.mark.parametrize("wrong", ["delete", None, -1, 3, 1e9, "text", [], {}, math.nan])
def test_edited_document_never_crashes(documents, policy, wrong):
    """Replacing any single field leads to a documented error or to a valid ensemble."""
    document = documents[policy]
    refused = 0
    for path in list(paths_of(document))[::4]:
        edited = copy.deepcopy(document)
        parent = edited
        for key in path[:-1]:
            parent = parent[key]
        if wrong == "delete":
            del parent[path[-1]]
        else:
            parent[path[-1]] = wrong
        try:
            parts = read_document(edited, 3)
        except (ValueError, UnsupportedModelError):
            refused += 1
        else:
            ensemble = parts.ensemble
            assert ensemble.margin(np.zeros((1, ensemble.n_features))).shape == (1, ensemble.n_outputs)
            assert all(column < ensemble.n_features for column in parts.encoders)
    assert refused


FLOAT_SPLIT = {"split_type": "FloatFeature", "float_feature_index": 0, "border": 0.0}


def edit_trees(document, **fields):
    document["oblivious_trees"][0].update(fields)


@pytest.mark.parametrize(
    "edit",
    [
        lambda d: edit_trees(d, leaf_values=[0.0]),
        lambda d: edit_trees(d, leaf_values=[math.inf] * 16),
        lambda d: edit_trees(d, leaf_weights=[1.0]),
        lambda d: edit_trees(d, leaf_weights=[-1.0] * 16),
        lambda d: edit_trees(d, splits=d["oblivious_trees"][0]["splits"] * 20),
        lambda d: edit_trees(d, splits=[FLOAT_SPLIT | {"float_feature_index": 9}] * 4),
        lambda d: edit_trees(d, splits=[FLOAT_SPLIT | {"border": math.nan}] * 4),
        lambda d: edit_trees(
            d, splits=[{"split_type": "OneHotFeature", "cat_feature_index": 0, "value": 5}] * 4
        ),
        lambda d: d["features_info"]["float_features"][0].update(flat_feature_index=-1),
        lambda d: d["features_info"]["float_features"][0].update(flat_feature_index=0),
        lambda d: d["features_info"]["float_features"][0].update(flat_feature_index=0.5),
        lambda d: d.update(scale_and_bias=[math.nan, [0.0]]),
        lambda d: d.update(scale_and_bias=[1.0, [math.inf]]),
        lambda d: d.update(scale_and_bias=[1.0, []]),
        lambda d: d.update(scale_and_bias=[1.0, [[]]]),
        lambda d: d.update(scale_and_bias=[1.0, [0.0, 0.0]]),
        lambda d: d.pop("oblivious_trees"),
        lambda d: d.pop("features_info"),
    ],
)
def test_edited_document(documents, edit):
    document = copy.deepcopy(documents["SymmetricTree"])
    read_document(document, 3)
    edit(document)
    with pytest.raises(ValueError):
        read_document(document, 3)


def test_unknown_split(documents):
    document = copy.deepcopy(documents["SymmetricTree"])
    document["oblivious_trees"][0]["splits"][0]["split_type"] = "EstimatedFeature"
    with pytest.raises(UnsupportedModelError, match="EstimatedFeature"):
        read_document(document, 3)
