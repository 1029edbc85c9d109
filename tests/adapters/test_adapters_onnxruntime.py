"""ONNX tree ensembles: margins equal onnxruntime's scores, values equal the converted models' values."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from helpers.families import library
from helpers.onnx_models import (
    MODES,
    STUMP,
    classifier,
    ensemble,
    hard_numbers,
    indexed,
    listed,
    margin,
    random_trees,
    regressor,
)
from scipy.special import expit, softmax
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from skshapgpu import TreeExplainer, UnsupportedModelError, explain
from skshapgpu.adapters import adapt

onnxruntime = pytest.importorskip("onnxruntime")

rng = np.random.default_rng(0)
# X has multiples of 1/8, so that their midpoints, which are thresholds of trees, are float32 numbers.
X = np.round(rng.normal(size=(300, 4)) * 8) / 8
X[:, 3] = rng.integers(0, 8, 300)
Y = X[:, 0] + X[:, 1] * np.where(X[:, 2] > 0, 2.0, -1.0) + X[:, 3] % 2
CLASSES = np.digitize(Y, [-0.5, 1.0])
BINARY = (CLASSES > 0).astype(int)


def run(content: bytes, rows: np.ndarray) -> list[np.ndarray]:
    """Predict with onnxruntime; probabilities of labels become columns."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    output = session.run(None, {session.get_inputs()[0].name: rows})
    return [
        np.array([list(row.values()) for row in each] if isinstance(each, list) else each) for each in output
    ]


@pytest.mark.parametrize(
    "modes", [*([mode] for mode in MODES[:-1]), ["LT", "GTE"], ["LEQ", "EQ"], MODES[:-1]], ids=" ".join
)
@pytest.mark.parametrize("dtype, double", [("float32", False), ("float64", False), ("float64", True)])
def test_comparisons(modes, dtype, double):
    for n_outputs in (1, 3):
        trees = random_trees(rng, modes, n_outputs=n_outputs)
        attributes = {**listed(trees, double=double), "n_targets": n_outputs, "aggregate_function": "AVERAGE"}
        base = np.linspace(1, 3, n_outputs)
        attributes |= {"base_values_as_tensor": base} if double else {"base_values": base.tolist()}
        content = regressor(attributes, dtype=dtype)
        rows = hard_numbers(rng, trees, dtype)
        expected = run(content, rows)[0]
        assert np.ptp(expected, axis=0).min() > 0
        np.testing.assert_allclose(margin(adapt(content), rows), expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    "modes", [["LEQ"], ["EQ"], ["MEMBER"], ["LT", "LEQ", "NEQ"], ["LEQ", "MEMBER"], MODES], ids=" ".join
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_tree_ensembles(modes, dtype):
    """Rows are integers, because onnxruntime 1.32 truncates other numbers before a lookup in some sets."""
    trees = random_trees(rng, modes, decimals=0)
    content = ensemble("TreeEnsemble", {**indexed(trees, dtype), "n_targets": 1}, dtype=dtype)
    rows = np.round(hard_numbers(rng, trees, dtype))
    expected = run(content, rows)[0]
    assert np.ptp(expected) > 0
    np.testing.assert_allclose(margin(adapt(content), rows), expected, rtol=0, atol=2e-6)


def test_integers_are_rounded_to_float32():
    trees = [[("LEQ", 1, 2.0**24, 1, 2, False), *STUMP[1:]]]
    rows = np.zeros((4, 3), np.int64)
    rows[:, 1] = 2**24 + np.arange(4)
    for dtype in ("int32", "int64"):
        content = classifier({**listed(trees, "class"), "classlabels_int64s": [0, 1]}, dtype=dtype)
        expected = run(content, rows.astype(dtype))[1][:, 1]
        assert expected.tolist() == [1, 1, -2, -2]
        np.testing.assert_array_equal(margin(adapt(content), rows)[:, 0], expected)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize(
    "ids", [[[0], [0]], [[1], [1]], [[0, 1], [0, 1]], [[0], [1]], [[0], [0, 1]]], ids=str
)
def test_two_classes(ids, transform):
    """Accepted models predict like onnxruntime; other combinations are rejected."""
    rows = np.array([[0, 0, 0], [0, 1, 0]], np.float32)
    accepted = 0
    for positive, n_base, opposite in product((True, False), (0, 1, 2), (False, True)):
        weights = [0.1, 0.3, 0.2, 0.5] if positive else [-0.1, 0.3, 0.2, 0.5]
        leaf = [
            ("LEAF", {i: -w if opposite and i == 0 else w for i in ids[at // 2]})
            for at, w in enumerate(weights)
        ]
        trees = [[*STUMP[:1], *leaf[:2]], [*STUMP[:1], *leaf[2:]]]
        attributes = {**listed(trees, "class"), "classlabels_int64s": [5, 6], "post_transform": transform}
        if n_base:
            attributes["base_values"] = [0.25, 4.0][:n_base]
        content = classifier(attributes)
        try:
            adapted = adapt(content)
        except UnsupportedModelError:
            continue
        accepted += 1
        expected = run(content, rows)[1]
        margins = margin(adapted, rows)
        if adapted.binary == "probability":
            margins = np.c_[1 - margins, margins]
        elif adapted.binary == "margin":
            margins = np.c_[-margins, margins]
        if adapted.link == "logistic":
            margins = expit(adapted.link_scale * margins)
        elif transform == "SOFTMAX" and adapted.binary is None:
            margins = softmax(margins, axis=1)
        np.testing.assert_allclose(margins, expected, rtol=0, atol=1e-6)
    assert (accepted == 0) == (ids == [[1], [1]])


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("base", [None, [0.1, -0.2, 0.3]], ids=str)
def test_classes_without_weights(transform, base):
    """A class without weights in a leaf, or in all leaves, has the score 0 or its base value."""
    tree = [STUMP[0], ("LEAF", {0: 0.25, 1: 0.5}), ("LEAF", {0: -0.5})]
    attributes = {**listed([tree], "class"), "classlabels_int64s": [5, 6, 7], "post_transform": transform}
    content = classifier({**attributes, "base_values": base} if base else attributes)
    rows = np.array([[0, 0, 0], [0, 1, 0]], np.float32)
    expected = run(content, rows)[1]
    output = "raw" if transform == "NONE" else "probability"
    device = "cpu" if transform == "SOFTMAX" else "auto"  # GPUs refuse the probabilities of a softmax
    explanation = explain(content, rows, data=rows, model_output=output, outputs="all", device=device)
    total = explanation.base_values + explanation.values.sum(axis=1)
    np.testing.assert_allclose(total, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("base", [[0.0, 0.0], [5.0, 0.0], [0.0, 5.0], [5.0, 6.0]], ids=str)
@pytest.mark.parametrize("targets", [[0, 1], [[0, 1], 1], [[0, 1], 0, 1]], ids=str)
def test_targets_without_weights(targets, base):
    """onnxruntime returns 0, not the base value, if a row reaches no weight of a target."""
    trees = [
        [STUMP[0], *(("LEAF", dict.fromkeys(np.atleast_1d(target).tolist(), w)) for w in (0.25, -0.5))]
        for target in targets
    ]
    trees[0][2] = ("LEAF", {1: 0.75})
    content = regressor({**listed(trees), "n_targets": 2, "base_values": base})
    rows = np.array([[0, 0, 0], [0, 1, 0]], np.float32)
    expected = run(content, rows)[0]
    try:
        margins = margin(adapt(content), rows)
    except UnsupportedModelError as error:
        assert "no tree whose leaves all have a weight for this target" in str(error)
        np.testing.assert_array_equal(expected[1, 0], 0)
        assert base[0] and len(targets) == 2
    else:
        np.testing.assert_allclose(margins, expected, rtol=0, atol=1e-6)


# Converted models


def converted(model: Any) -> bytes:
    """Convert a model with its converter, for X of float32."""
    family = type(model).__module__.partition(".")[0]
    n_features = X.shape[1]
    if family == "sklearn":
        skl2onnx = pytest.importorskip("skl2onnx")
        return skl2onnx.to_onnx(model, X[:1].astype(np.float32)).SerializeToString()
    if family == "catboost":
        pytest.importorskip("onnx")
        return _catboost(model)
    onnxmltools = pytest.importorskip("onnxmltools")
    from onnxmltools.convert.common.data_types import FloatTensorType

    convert = {"xgboost": onnxmltools.convert_xgboost, "lightgbm": onnxmltools.convert_lightgbm}[family]
    return convert(model, initial_types=[("input", FloatTensorType([None, n_features]))]).SerializeToString()


def _catboost(model: Any) -> bytes:
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        model.save_model(str(path), format="onnx")
        return path.read_bytes()


def check(model: Any, raw: np.ndarray, atol: float = 5e-6) -> bytes:
    """Check margins, also on rows next to thresholds, and values against the values of the model itself.

    Parameters
    ----------
    model : fitted model
    raw : ndarray
        Raw predictions of the model for ``X``.
    """
    content = converted(model)
    adapted = adapt(content)
    expected = raw.reshape(len(X), -1)
    if adapted.binary == "probability":
        expected = expected[:, 1:]
    single = X.astype(np.float32)
    np.testing.assert_allclose(margin(adapted, single), expected, rtol=0, atol=atol)
    assert np.ptp(expected, axis=0).min() > 0
    options = {"data": single[:30], "precision": "double", "device": "cpu"}
    explanation, own = (TreeExplainer(each, **options).explain(single[30:60]) for each in (content, model))
    assert np.ptp(own.values) > 0
    np.testing.assert_allclose(
        explanation.values, own.values.reshape(explanation.values.shape), rtol=0, atol=atol
    )
    np.testing.assert_allclose(
        np.ravel(explanation.base_values), np.ravel(own.base_values), rtol=0, atol=atol
    )
    return content


def scores_of(content: bytes, rows: np.ndarray) -> np.ndarray:
    return run(content, rows)[-1].reshape(len(rows), -1)


SKLEARN = {
    "tree": (DecisionTreeRegressor(max_depth=4, random_state=0), Y),
    "forest": (RandomForestRegressor(5, max_depth=5, random_state=0), Y),
    "targets": (RandomForestRegressor(5, max_depth=5, random_state=0), np.c_[Y, 3 * Y - X[:, 0]]),
    "boosting": (GradientBoostingRegressor(n_estimators=8, random_state=0), Y + 100),
    "tree of classes": (DecisionTreeClassifier(max_depth=4, random_state=0), CLASSES),
    "two classes": (RandomForestClassifier(5, max_depth=5, random_state=0), BINARY),
    "classes": (ExtraTreesClassifier(5, max_depth=5, random_state=0), CLASSES),
    "names": (RandomForestClassifier(5, max_depth=5, random_state=0), np.array(["b", "a", "c"])[CLASSES]),
    "boosting of two classes": (GradientBoostingClassifier(n_estimators=8, random_state=0), BINARY),
    "boosting of classes": (GradientBoostingClassifier(n_estimators=8, random_state=0), CLASSES),
}


@pytest.mark.parametrize("name", SKLEARN)
def test_scikit_learn(name):
    model, label = SKLEARN[name]
    model.fit(X, label)
    single = X.astype(np.float32)
    if hasattr(model, "decision_function"):
        content = check(model, model.decision_function(X))
        total = model.predict_proba(X)
    elif hasattr(model, "predict_proba"):
        content = check(model, model.predict_proba(X))
        total = model.predict_proba(X)
    else:
        content = check(model, model.predict(X), atol=2e-5 * np.abs(model.predict(X)).max())
        total = model.predict(X)
    # The file is the model, so onnxruntime's predictions are the model's own predictions.
    np.testing.assert_allclose(scores_of(content, single), total.reshape(len(X), -1), rtol=1e-5, atol=1e-5)
    if hasattr(model, "classes_"):
        adapted = adapt(content)
        names = adapted.class_names if adapted.binary else adapted.output_names
        assert names == tuple(model.classes_.tolist())


@pytest.mark.parametrize("name", ["regression", "binary", "classes", "categories", "poisson"])
def test_lightgbm(name):
    lightgbm = library("lightgbm")
    options = {"n_estimators": 6, "num_leaves": 8, "verbose": -1, "n_jobs": 1}
    if name in ("binary", "classes"):
        model = lightgbm.LGBMClassifier(**options).fit(X, CLASSES if name == "classes" else BINARY)
    elif name == "categories":
        options |= {"min_data_per_group": 1, "cat_smooth": 1, "max_cat_to_onehot": 1}
        model = lightgbm.LGBMRegressor(**options).fit(X, Y + 3 * (X[:, 3] % 2), categorical_feature=[3])
        assert " cat_threshold=" in model.booster_.model_to_string().replace("\n", " ")
    elif name == "poisson":
        model = lightgbm.LGBMRegressor(objective="poisson", **options).fit(X, np.exp(Y))
    else:
        model = lightgbm.LGBMRegressor(**options).fit(X, Y)
    content = check(model, model.predict(X, raw_score=True))
    expected = model.predict_proba(X) if name in ("binary", "classes") else model.predict(X)
    scores = scores_of(content, X.astype(np.float32))
    np.testing.assert_allclose(scores, expected.reshape(len(X), -1), rtol=1e-5, atol=1e-5)
    assert bool(adapt(content).schema.encoders) == (name == "categories")


@pytest.mark.parametrize("name", ["regression", "binary", "classes"])
def test_xgboost(name):
    xgboost = library("xgboost")
    options = {"n_estimators": 6, "max_depth": 3, "n_jobs": 1}
    if name == "regression":
        model = xgboost.XGBRegressor(**options).fit(X, Y)
    else:
        model = xgboost.XGBClassifier(**options).fit(X, CLASSES if name == "classes" else BINARY)
    content = check(model, model.predict(X, output_margin=True))
    expected = model.predict(X) if name == "regression" else model.predict_proba(X)
    scores = scores_of(content, X.astype(np.float32))
    np.testing.assert_allclose(scores, expected.reshape(len(X), -1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["regression", "binary", "classes"])
def test_catboost(name):
    catboost = library("catboost")
    options = {"iterations": 6, "depth": 3, "verbose": 0, "allow_writing_files": False, "thread_count": 1}
    if name == "regression":
        model = catboost.CatBoostRegressor(**options).fit(X, Y)
    else:
        model = catboost.CatBoostClassifier(**options).fit(X, CLASSES if name == "classes" else BINARY)
    content = check(model, model.predict(X, prediction_type="RawFormulaVal"))
    if name == "binary":
        assert adapt(content).binary == "margin"
    expected = model.predict(X) if name == "regression" else model.predict_proba(X)
    scores = scores_of(content, X.astype(np.float32))
    np.testing.assert_allclose(scores, expected.reshape(len(X), -1), rtol=1e-5, atol=1e-5)


def test_probabilities_against_the_model():
    """``model_output="probability"`` explains the probability that onnxruntime returns."""
    model = GradientBoostingClassifier(n_estimators=8, random_state=0).fit(X, BINARY)
    content, single = converted(model), X.astype(np.float32)
    explanation = explain(content, single[:20], data=single[20:50], model_output="probability")
    total = explanation.base_values + explanation.values.sum(axis=1)
    np.testing.assert_allclose(total, scores_of(content, single[:20])[:, 1], rtol=0, atol=1e-5)


def test_messages_and_files_are_read_alike(tmp_path):
    onnx = pytest.importorskip("onnx")
    content = converted(RandomForestRegressor(4, max_depth=4, random_state=0).fit(X, Y))
    message = onnx.load_from_string(content)
    onnx.save(message, tmp_path / "model.onnx")
    for given in (message, tmp_path / "model.onnx", str(tmp_path / "model.onnx")):
        np.testing.assert_array_equal(adapt(given).ensemble.value, adapt(content).ensemble.value)
    with pytest.raises(UnsupportedModelError, match="GraphProto of ONNX"):
        adapt(message.graph)


@pytest.mark.parametrize("step", ["scaler", "imputer", "columns"])
def test_pipelines_are_refused_by_name(step):
    skl2onnx = pytest.importorskip("skl2onnx")
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    steps = {
        "scaler": (StandardScaler(), "Scaler"),
        "imputer": (SimpleImputer(), "Imputer"),
        "columns": (make_column_transformer(("passthrough", [2, 0])), "Concat|ArrayFeatureExtractor"),
    }
    transformer, kind = steps[step]
    model = make_pipeline(transformer, RandomForestRegressor(2, max_depth=2, random_state=0)).fit(X, Y)
    content = skl2onnx.to_onnx(model, X[:1].astype(np.float32)).SerializeToString()
    with pytest.raises(UnsupportedModelError, match=f"operator ({kind}) of the ONNX model changes X before"):
        adapt(content)
