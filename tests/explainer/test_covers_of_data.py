"""Path-dependent values with covers counted from ``data``: every family, the public interface, errors."""

from __future__ import annotations

import json
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import catboost_ctrs
from helpers.cases import CASES
from helpers.covers import counted
from helpers.ensembles import leaf_scale
from helpers.families import forest, frame_with_categories, library, regressor, with_categories
from helpers.kernels import TOLERANCE
from helpers.own_values import fitted
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skshapgpu import (
    ShapInteractionTransformer,
    ShapTransformer,
    TreeExplainer,
    UnsupportedModelError,
    cross_val_explain,
    explain,
    explain_batches,
    explain_interactions,
    reference,
    shap_importance,
)
from skshapgpu._rows.inputs import read
from skshapgpu.adapters import adapt
from skshapgpu.batches.fingerprint import fingerprint

X, Y = load_diabetes(return_X_y=True)
Y = Y + 1e4
COUNTED = {"feature_perturbation": "tree_path_dependent", "device": "cpu"}
DATA, WEIGHT = X[:40], np.arange(40) % 5


def assert_by_definition(model: Any, data: Any, rows: Any, margin: np.ndarray, weights: Any) -> None:
    """Check values and base values; ``margin`` is the margin of ``data`` by the model's library."""
    adapted = adapt(model)
    encoded = [read(each, adapted.schema, adapted.ensemble.x_dtype) for each in (data, rows)]
    ensemble, _ = counted(
        adapted.ensemble, encoded[0].chunk(0, encoded[0].n_rows), weights, has_cover=adapted.has_cover
    )
    expected, base_value, _ = reference.path_dependent(ensemble, encoded[1].chunk(0, encoded[1].n_rows))
    expected = expected.transpose(0, 2, 1)
    if adapted.shared:
        expected = np.einsum("rpk,pc->rck", expected, catboost_ctrs.shares(adapted))
    scale = leaf_scale(ensemble)
    assert np.ptp(expected) > 0
    for precision in ("single", "double"):
        explainer = TreeExplainer(model, data, data_weight=weights, precision=precision, **COUNTED)
        values = explainer.shap_values(rows).reshape(expected.shape)
        assert (np.abs(values - expected) <= TOLERANCE[precision] * scale).all(), precision
        base = np.ravel(explainer.expected_value)
        largest = scale + np.abs(ensemble.intercept)
        assert (np.abs(base - base_value) <= 1e-12 * largest).all()
        # XGBoost and others predict in float32.
        mean = np.average(margin, axis=0, weights=weights)
        assert (np.abs(base - mean) <= 2e-6 * largest).all()


@pytest.mark.parametrize("name", CASES)
def test_every_family_by_definition(name: str) -> None:
    """The data have rows at the edges of comparisons, missing values, and unseen categories."""
    case = fitted(name)
    n_rows = len(case.X)
    data, margin = case.X[: n_rows // 2], case.margin[: n_rows // 2]
    weights = np.linspace(0, 3, n_rows // 2) if len(name) % 2 else None
    assert_by_definition(case.model, data, case.X[n_rows // 2 :], margin, weights)


@pytest.mark.parametrize("kind", ["regressor", "classes"])
def test_ctrs_by_definition(kind: str) -> None:
    model = catboost_ctrs.fit(kind, iterations=8, depth=4, max_ctr_complexity=2)
    assert adapt(model).schema.derived is not None
    data = catboost_ctrs.unseen(catboost_ctrs.rows(2, 60, nan=True))
    rows = catboost_ctrs.unseen(catboost_ctrs.rows(3, 20))
    assert_by_definition(model, data, rows, catboost_ctrs.raw(model, data), np.arange(60))


def test_treelite_by_definition() -> None:
    treelite = pytest.importorskip("treelite.sklearn")
    forest = RandomForestRegressor(5, max_depth=4, random_state=0).fit(X, Y)
    assert_by_definition(
        treelite.import_model(forest), DATA, X[300:320], forest.predict(DATA)[:, np.newaxis], WEIGHT
    )


# Models without covers


def test_xgboost_vector_leaves_without_covers(tmp_path: Path) -> None:
    """The file has the form of XGBoost before 3.2: values of all nodes, and no sums of hessians."""
    xgboost = library("xgboost")
    if tuple(map(int, xgboost.__version__.split(".")[:2])) < (3, 2):
        pytest.skip("test_adapters_xgboost.py has models of this version")
    targets = np.column_stack([Y, -Y, X[:, 0] * 7])
    model = xgboost.XGBRegressor(
        n_estimators=5, max_depth=3, multi_strategy="multi_output_tree", tree_method="hist"
    ).fit(X[:, :6], targets)
    now, before = tmp_path / "now.json", tmp_path / "before.json"
    model.save_model(now)
    document = json.loads(now.read_text())
    for tree in document["learner"]["gradient_booster"]["model"]["trees"]:
        leaf = np.array(tree["left_children"]) == -1
        values = np.full((len(leaf), 3), 99.0)
        leaf_values = np.reshape(tree.pop("leaf_weights"), (-1, 3))
        values[leaf] = leaf_values[np.array(tree["right_children"])[leaf]]
        tree["base_weights"] = values.ravel().tolist()
        tree["right_children"] = np.where(leaf, -1, tree["right_children"]).tolist()
        del tree["sum_hessian"], tree["loss_changes"]
    before.write_text(json.dumps(document))
    with_covers, without = adapt(now), adapt(before)
    assert with_covers.has_cover and not without.has_cover and without.cover_kind is None
    np.testing.assert_array_equal(without.ensemble.value, with_covers.ensemble.value)
    with pytest.raises(UnsupportedModelError, match=r"no covers.* to count covers from them"):
        TreeExplainer(before)
    margin = model.predict(X[:40, :6])
    assert_by_definition(before, X[:40, :6], X[300:330, :6], margin, WEIGHT)
    # Covers center the leaves before these are rounded, so values are equal only up to rounding.
    interventional, expected = (
        TreeExplainer(path, X[:9, :6], device="cpu", precision="double").shap_values(X[300:330, :6])
        for path in (before, now)
    )
    scale = np.abs(with_covers.ensemble.value).max()
    np.testing.assert_allclose(interventional, expected, rtol=0, atol=1e-12 * scale)


@pytest.mark.parametrize("policy", ["SymmetricTree", "Depthwise"])
def test_catboost_without_leaf_weights(policy: str, tmp_path: Path) -> None:
    catboost = library("catboost")
    model = regressor("catboost", grow_policy=policy).fit(X, Y)
    path = tmp_path / "model.json"
    model.save_model(path, format="json")
    document = json.loads(path.read_text())

    def strip(part: Any) -> None:
        if isinstance(part, dict):
            part.pop("leaf_weights", None)
            part.pop("weight", None)
        for each in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
            strip(each)

    strip(document.get("oblivious_trees") or document["trees"])
    path.write_text(json.dumps(document))
    models: list[Any] = [path]
    if policy == "SymmetricTree":
        models.append(catboost.CatBoostRegressor().load_model(path, format="json"))
        models[1].save_model(tmp_path / "model.cbm")
        models.append(tmp_path / "model.cbm")
    margin = model.predict(DATA)[:, np.newaxis]
    for each in models:
        assert not adapt(each).has_cover
        with pytest.raises(UnsupportedModelError, match=r"no covers.* to count covers from them"):
            TreeExplainer(each)
        assert_by_definition(each, DATA, X[300:320], margin, WEIGHT)


def test_treelite_without_covers() -> None:
    treelite = pytest.importorskip("treelite")
    from treelite.model_builder import Metadata, ModelBuilder, PostProcessorFunc, TreeAnnotation

    builder = ModelBuilder(
        threshold_type="float64",
        leaf_output_type="float64",
        metadata=Metadata(3, "kRegressor", False, 1, [1], (1, 1)),
        tree_annotation=TreeAnnotation(1, [0], [0]),
        postprocessor=PostProcessorFunc("identity"),
        base_scores=[1e3],
    )
    builder.start_tree()
    for node, feature in ((0, 1), (1, 0)):
        builder.start_node(node)
        builder.numerical_test(feature, 0.0, bool(node), "<", 2 * node + 1, 2 * node + 2)
        builder.end_node()
    for node, value in ((2, 10.0), (3, -30.0), (4, 70.0)):
        builder.start_node(node)
        builder.leaf(value)
        builder.end_node()
    builder.end_tree()
    model = builder.commit()
    assert not adapt(model).has_cover
    rows = np.random.default_rng(0).normal(size=(40, 3)).round()
    rows[::7, 1] = np.nan
    margin = treelite.gtil.predict(model, rows, pred_margin=True).reshape(40, 1)
    assert_by_definition(model, rows, rows[:9], margin, WEIGHT)


# shap


@pytest.mark.parametrize("kind", ["forest", "xgboost", "lightgbm"])
def test_shap(kind: str) -> None:
    """The rows are float32 and reach every leaf, as shap rounds thresholds and refuses empty leaves."""
    shap = pytest.importorskip("shap")
    rows = X.astype(np.float32).astype(float)
    if kind == "forest":
        model = RandomForestRegressor(10, min_samples_leaf=30, random_state=0).fit(rows, Y)
    else:
        model = regressor(kind).fit(rows, Y)
    data = np.concatenate([rows, rows[:100]])
    _, weight = counted(adapt(model).ensemble, data)
    assert (weight > 0).all()
    masker = shap.maskers.Independent(data, max_samples=len(data))
    theirs = shap.TreeExplainer(model, masker, feature_perturbation="tree_path_dependent")
    expected = theirs.shap_values(rows[:50], check_additivity=False)
    scale = np.abs(expected).max()
    result = TreeExplainer(model, data, precision="double", **COUNTED)
    # shap reads XGBoost's numbers as float32.
    np.testing.assert_allclose(result.shap_values(rows[:50]), expected, rtol=0, atol=1e-6 * scale)
    assert result.expected_value == pytest.approx(np.ravel(theirs.expected_value)[0], rel=1e-6)
    own = TreeExplainer(model, precision="double", device="cpu").shap_values(rows[:50])
    assert np.abs(own - expected).max() > 1e-3 * scale


# The public interface


@pytest.fixture(scope="module")
def model() -> Any:
    return forest(6, 5).fit(X, Y)


def explainer_of(model: Any, data: Any = DATA, **options: Any) -> TreeExplainer:
    return TreeExplainer(model, data, **COUNTED | options)


def test_covers_are_those_of_the_data(model: Any) -> None:
    explainer = explainer_of(model)
    assert explainer.feature_perturbation == "tree_path_dependent"
    assert repr(explainer).endswith("single precision, covers counted from data>")
    assert explainer.expected_value == pytest.approx(model.predict(DATA).mean(), rel=1e-12)
    weighted = explainer_of(model, data_weight=WEIGHT)
    mean = np.average(model.predict(DATA), weights=WEIGHT)
    assert weighted.expected_value == pytest.approx(mean, rel=1e-12)
    values = explainer.shap_values(X)
    assert not np.allclose(values, TreeExplainer(model, device="cpu").shap_values(X), atol=1)
    assert not np.allclose(values, weighted.shap_values(X), atol=1)
    assert not np.allclose(values, TreeExplainer(model, DATA, device="cpu").shap_values(X), atol=1)
    explanation = explainer.explain(X)
    assert explanation.feature_perturbation == "tree_path_dependent"
    assert explanation.additivity_error < 1e-3
    np.testing.assert_array_equal(explanation.values, values)
    np.testing.assert_array_equal(explain(model, X, data=DATA, **COUNTED).values, values)


def test_weights_count_rows(model: Any) -> None:
    weighted = explainer_of(model, X[:4], data_weight=[2, 0, 1, 1], precision="double")
    repeated = explainer_of(model, X[[0, 0, 2, 3]], precision="double")
    np.testing.assert_allclose(weighted.shap_values(X), repeated.shap_values(X), rtol=0, atol=1e-9)
    huge = explainer_of(model, X[:4], data_weight=np.array([2, 0, 1, 1]) * 8e307, precision="double")
    np.testing.assert_allclose(huge.shap_values(X), weighted.shap_values(X), rtol=0, atol=1e-9)


def test_training_rows_give_the_counts_of_training() -> None:
    model = RandomForestRegressor(4, max_depth=5, bootstrap=False, max_features=3, random_state=0).fit(X, Y)
    result = explainer_of(model, X)
    np.testing.assert_array_equal(
        result._adapted.ensemble.cover, adapt(model).with_cover("count").ensemble.cover
    )
    own = TreeExplainer(model, cover="count", device="cpu")
    np.testing.assert_array_equal(result.shap_values(X), own.shap_values(X))


def test_results_other_than_values() -> None:
    model = RandomForestRegressor(3, max_depth=3, random_state=0).fit(X[:, :6], Y)
    data, rows = DATA[:, :6], X[300:305, :6]
    ensemble, _ = counted(adapt(model).ensemble, data, WEIGHT)
    explainer = explainer_of(model, data, data_weight=WEIGHT, precision="double")
    close = partial(np.testing.assert_allclose, rtol=0, atol=1e-10 * leaf_scale(ensemble)[0])
    close(
        explainer.explain(rows, index="BV").values,
        reference.path_dependent(ensemble, rows, index="BV").values[:, 0],
    )
    for index in ("SII", "STII", "BII"):
        pairs = reference.path_dependent(ensemble, rows, index=index).values[:, 0]
        close(explainer.explain_interactions(rows, index=index).matrices(), pairs)
    close(
        explain_interactions(
            model, rows, interactions=[(4, 2)], data=data, data_weight=WEIGHT, precision="double", **COUNTED
        ).values[:, 0],
        2 * reference.path_dependent(ensemble, rows, index="SII").values[:, 0, 2, 4],
    )
    expected, _, members = reference.path_dependent(ensemble, rows, index="SII", order=3)
    triples = explainer.explain_interactions(rows, interactions=members, order=3)
    close(triples.values, expected[:, 0])
    for algorithm in ("quadrature", "fast_v2", "treeshap", "fast_v1"):
        other = explainer_of(model, data, data_weight=WEIGHT, algorithm=algorithm, precision="double")
        close(other.shap_values(rows), explainer.shap_values(rows))


def test_used_columns_groups_and_plans(model: Any) -> None:
    used = explainer_of(RandomForestRegressor(2, max_depth=2, random_state=0).fit(X, Y), columns="used")
    assert len(used.feature_indices) < 10
    full_explainer = explainer_of(RandomForestRegressor(2, max_depth=2, random_state=0).fit(X, Y))
    np.testing.assert_array_equal(used.shap_values(X), full_explainer.shap_values(X)[:, used.feature_indices])
    groups = {"body": [2, 3], "blood": [4, 5, 6, 7, 8, 9]}
    grouped = explainer_of(model, feature_groups=groups, precision="double")
    adapted = adapt(model)
    player = np.array([0, 1, 2, 2, 3, 3, 3, 3, 3, 3], np.int32)
    state = vars(adapted.ensemble) | {"player": player}
    ensemble, _ = counted(type(adapted.ensemble)(**state), DATA)
    expected = reference.path_dependent(ensemble, X[:20]).values
    np.testing.assert_allclose(grouped.shap_values(X[:20]), expected[:, 0], rtol=0, atol=1e-6)
    plan, own = explainer_of(model).plan(10**6), TreeExplainer(model, device="cpu").plan(10**6)
    assert {group.algorithm for group in plan.tree_groups} == {group.algorithm for group in own.tree_groups}
    assert plan.result_bytes == own.result_bytes


def test_any_table_is_data(model: Any) -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    expected = explainer_of(model).shap_values(X)
    for data in (
        DATA.tolist(),
        np.asfortranarray(DATA),
        np.repeat(DATA, 2, axis=0)[::2],
        sp.csr_array(DATA),
        pandas.DataFrame(DATA),
        polars.DataFrame(DATA, schema=[f"c{i}" for i in range(10)]),
        DATA.astype(object),
    ):
        np.testing.assert_array_equal(explainer_of(model, data).shap_values(X), expected)


def test_wide_sparse_data() -> None:
    """Only the columns that trees test are converted, in several batches."""
    rows = sp.csr_array(sp.random(2000, 9000, density=0.002, random_state=0))
    y = 1e3 + rows[:, [0]].toarray().ravel() + rows[:, [8999]].toarray().ravel() * 5
    model = RandomForestRegressor(3, max_depth=4, random_state=0).fit(rows, y)
    ensemble, _ = counted(adapt(model).ensemble, rows[:50].toarray())
    covers = explainer_of(model, rows[:50])._adapted.ensemble.cover
    np.testing.assert_array_equal(covers, ensemble.cover)
    dense = explainer_of(model, rows.astype(np.float32).toarray())
    np.testing.assert_array_equal(
        explainer_of(model, rows)._adapted.ensemble.cover, dense._adapted.ensemble.cover
    )


def test_columns_of_a_frame_are_checked(model: Any) -> None:
    names = list("abcdefghij")
    pandas = pytest.importorskip("pandas")
    rows = pandas.DataFrame(X, columns=names)
    model = clone(model).fit(rows, Y)
    np.testing.assert_array_equal(
        explainer_of(model, rows[:40]).shap_values(rows), explainer_of(model, DATA).shap_values(X)
    )
    with pytest.raises(ValueError, match=r"^data: The feature names .*(\n.*)*same order"):
        explainer_of(model, rows[names[::-1]])


@pytest.mark.parametrize("family", ["sklearn", "xgboost", "lightgbm"])
def test_categories_in_another_order(family: str) -> None:
    """Categories of data are matched like categories of X: by label or, before XGBoost 3.1, by code."""
    library(family)
    rows, y = frame_with_categories()
    model = with_categories(family, rows, y + 1e3)
    mixed = rows.assign(color=rows["color"].cat.reorder_categories(list(rows["color"].cat.categories)[::-1]))
    adapted = adapt(model)
    for data in (rows[:50], mixed[:50]):
        encoded = read(data, adapted.schema, adapted.ensemble.x_dtype).chunk(0, 50)
        ensemble, _ = counted(adapted.ensemble, encoded)
        np.testing.assert_array_equal(explainer_of(model, data)._adapted.ensemble.cover, ensemble.cover)


def test_pipeline(model: Any) -> None:
    pipeline = make_pipeline(StandardScaler(), forest(4, 5)).fit(X * 50 + 3, Y)
    explainer = explainer_of(pipeline, X[:40] * 50 + 3, precision="double")
    inner = explainer_of(pipeline[-1], pipeline[0].transform(X[:40] * 50 + 3), precision="double")
    rows = X * 50 + 3
    np.testing.assert_array_equal(explainer.shap_values(rows), inner.shap_values(pipeline[0].transform(rows)))
    assert explainer.expected_value == pytest.approx(pipeline.predict(rows[:40]).mean(), rel=1e-12)


def test_save_pickle_and_fingerprint(model: Any, tmp_path: Path) -> None:
    explainer, own = explainer_of(model, data_weight=WEIGHT), TreeExplainer(model, device="cpu")
    expected = explainer.shap_values(X)
    explainer.save(tmp_path / "explainer.npz")
    loaded = TreeExplainer.load(tmp_path / "explainer.npz", device="cpu")
    np.testing.assert_array_equal(loaded.shap_values(X), expected)
    assert loaded.expected_value == explainer.expected_value and repr(loaded) == repr(explainer)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(explainer)).shap_values(X), expected)
    assert (
        fingerprint(loaded) == fingerprint(explainer) == fingerprint(explainer_of(model, data_weight=WEIGHT))
    )
    others = [own, explainer_of(model), explainer_of(model, X[:41]), TreeExplainer(model, DATA, device="cpu")]
    for other in others:
        assert fingerprint(other) != fingerprint(explainer)


def test_batches(model: Any, tmp_path: Path) -> None:
    explainer = explainer_of(model)
    explain_batches(explainer, X, tmp_path / "values.npy", batch_size=100)
    np.testing.assert_array_equal(np.load(tmp_path / "values.npy"), explainer.shap_values(X))


def test_transformers(model: Any) -> None:
    options = {"data": DATA, "data_weight": WEIGHT, **COUNTED}
    transformer = ShapTransformer(model, **options)
    values = transformer.fit_transform(X, Y)
    explainer = explainer_of(transformer.estimator_, data_weight=WEIGHT)
    np.testing.assert_array_equal(values, explainer.shap_values(X))
    assert transformer.base_values_ == explainer.expected_value
    np.testing.assert_array_equal(clone(transformer).fit(X, Y).transform(X), values)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(transformer)).transform(X), values)
    folds = ShapTransformer(model, cv=2, **options).fit_transform(X, Y)
    assert folds.shape == X.shape and not np.allclose(folds, values, atol=1)
    pairs = ShapInteractionTransformer(model, interactions=[(2, 8)], **options).fit_transform(X, Y)
    expected = explainer.explain_interactions(X, interactions=[(2, 8)]).values
    np.testing.assert_array_equal(pairs, expected)
    assert (
        ShapTransformer.from_fitted(model, **options).explain(X).feature_perturbation == "tree_path_dependent"
    )


def test_cross_validation_and_importance(model: Any) -> None:
    folds = KFold(3)
    explanation = cross_val_explain(model, X, Y, cv=folds, explain_params={"data": DATA, **COUNTED})[
        "explanation"
    ]
    for train, test in folds.split(X):
        of_fold = explainer_of(clone(model).fit(X[train], Y[train]))
        np.testing.assert_array_equal(explanation.values[test], of_fold.shap_values(X[test]))
    importance = shap_importance(model, X, explain_params={"data": DATA, **COUNTED})
    mean = np.abs(explainer_of(model).shap_values(X)).mean(axis=0)
    np.testing.assert_allclose(importance.importances_mean, mean, rtol=1e-6)


# Errors


@pytest.mark.parametrize(
    "options, message",
    [
        ({"cover": "count"}, "cover='count' selects covers that the model stores.*leave out cover or data"),
        ({"model_output": "log_loss"}, "'log_loss' is defined against background rows only"),
    ],
)
def test_options_that_contradict_each_other(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):  # before the model is looked at
        explainer_of(object(), **options)


@pytest.mark.parametrize(
    "data, error, message",
    [
        (X[:0], ValueError, "data has no rows"),
        (X[:3, :9], ValueError, "data has 9 features, but the model expects 10"),
        (X[0], ValueError, "Expected 2D array"),
        (np.where(X[:9] > 0.05, np.inf, X[:9]), ValueError, "Input data contains infinity"),
        (np.full((3, 10), "a"), ValueError, "data"),
        ("rows.csv", (TypeError, ValueError), "data"),
    ],
)
def test_data_that_the_model_does_not_accept(model: Any, data: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        explainer_of(model, data)


@pytest.mark.parametrize(
    "weights, error, message",
    [
        ([1, 2], ValueError, "one entry for each of the 40 rows of data"),
        (-np.arange(40.0), ValueError, "entry 1 is -1"),
        (np.zeros(40), ValueError, "is zero for all rows"),
        (["a"] * 40, ValueError, "data_weight must be numbers"),
        (np.ma.masked_less(np.arange(40.0), 5), TypeError, "data_weight is a masked array: fill it first"),
    ],
)
def test_invalid_weights(model: Any, weights: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        explainer_of(model, data_weight=weights)
