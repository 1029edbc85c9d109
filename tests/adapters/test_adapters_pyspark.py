"""Tree models fitted by Spark ML, in memory and saved: margins equal Spark's own predictions."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from helpers.families import values_by_definition
from pyspark.ml import Pipeline, classification, regression
from pyspark.ml.evaluation import RegressionEvaluator
from pyspark.ml.feature import StringIndexer, VectorAssembler, VectorIndexer
from pyspark.ml.linalg import Vectors
from pyspark.ml.tuning import CrossValidator, ParamGridBuilder
from pyspark.sql import SparkSession
from sklearn.exceptions import NotFittedError

from skshapgpu import TreeExplainer, UnsupportedModelError, explain, reference
from skshapgpu._rows.inputs import read
from skshapgpu.adapters import adapt
from skshapgpu.distributed import explain_spark

pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")

rng = np.random.default_rng(0)
#: Columns 0 and 2 have numbers, multiples of 1/8. Column 1 has seven categories and column 3 three.
X = np.round(rng.normal(size=(400, 4)) * 8) / 8
X[:, 1], X[:, 3] = rng.integers(0, 7, 400), rng.integers(0, 3, 400)
Y = 50 + X[:, 0] + np.isin(X[:, 1], [1, 2, 5, 6]) * 2.0 + X[:, 2] * (X[:, 3] == 1) * 3
LABELS = {0: Y, 2: (Y > 51).astype(float), 3: np.digitize(Y, [50.5, 52.0]).astype(float)}

#: An estimator's class, its options, and the number of classes, 0 for a regressor.
ESTIMATORS: list[tuple[str, dict[str, Any], int]] = [
    ("DecisionTreeRegressor", {}, 0),
    ("RandomForestRegressor", {"numTrees": 4}, 0),
    ("GBTRegressor", {"maxIter": 4, "stepSize": 0.3}, 0),
    ("GBTRegressor", {"maxIter": 4, "lossType": "absolute", "weightCol": "weight"}, 0),
    ("GBTClassifier", {"maxIter": 4}, 2),
    ("DecisionTreeClassifier", {"impurity": "entropy", "weightCol": "weight"}, 2),
    ("DecisionTreeClassifier", {"thresholds": [0.2, 0.3, 0.5]}, 3),
    ("RandomForestClassifier", {"numTrees": 4, "thresholds": [0.9, 0.1]}, 2),
    ("RandomForestClassifier", {"numTrees": 4, "weightCol": "weight", "subsamplingRate": 0.7}, 3),
]


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[1]")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.log.level": "OFF",
    }.items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
    except Exception as error:  # the session's own, of many kinds
        pytest.skip(f"no Spark session, which needs Java: {error}")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def rows(spark: Any) -> Any:
    """Vectors, whose categorical columns are marked as such, weights and labels."""
    table = spark.createDataFrame(
        [
            (Vectors.dense(x), float(weight), *(float(y[i]) for y in LABELS.values()))
            for i, (x, weight) in enumerate(zip(X, rng.uniform(0.5, 3, len(X))))
        ],
        ["vectors", "weight", *(f"y{n}" for n in LABELS)],
    ).cache()
    indexer = VectorIndexer(inputCol="vectors", outputCol="features", maxCategories=7).fit(table)
    assert {i: sorted(result) for i, result in indexer.categoryMaps.items()} == {
        1: list(range(7)),
        3: list(range(3)),
    }
    return indexer.transform(table).cache()


def fitted(rows: Any, name: str, options: dict[str, Any], n_classes: int) -> Any:
    module = regression if name.endswith("Regressor") else classification
    options = dict(options)
    thresholds = options.pop("thresholds", None)
    estimator = getattr(module, name)(labelCol=f"y{n_classes}", maxDepth=4, seed=1, **options)
    if thresholds is not None:
        estimator = estimator.setThresholds(thresholds)
    return estimator.fit(rows)


def own_predictions(model: Any, rows: np.ndarray) -> np.ndarray:
    """Compute Spark's own predictions: values, a margin, or probabilities, (n_rows, n_outputs)."""
    vectors = [Vectors.dense(row) for row in rows]
    if not hasattr(model, "numClasses"):
        return np.array([[model.predict(vector)] for vector in vectors])
    if type(model).__name__.startswith("GBT"):
        return np.array([[model.predictRaw(vector)[1]] for vector in vectors])
    values = np.array([model.predictProbability(vector).toArray() for vector in vectors])
    return values if model.numClasses > 2 else values[:, 1:]


def hard_numbers(adapted: Any, n_rows: int) -> np.ndarray:
    """Return rows on and next to the thresholds of the trees, with values that are no categories."""
    trees, result = adapted.ensemble, X[rng.integers(0, len(X), n_rows)]
    for feature in (0, 2):
        at = trees.threshold[(trees.left >= 0) & (trees.feature == feature)]
        at = np.concatenate(
            [at, np.nextafter(at, np.inf), np.nextafter(at, -np.inf), [np.inf, -np.inf, -0.0]]
        )
        result[:, feature] = rng.choice(at, n_rows)
    for feature in (1, 3):
        others = rng.choice([-1.0, 0.5, 2.5, -0.0, 7.0, 3.0, 100.0, 1e12, np.inf, -np.inf], n_rows)
        result[:, feature] = np.where(rng.random(n_rows) < 0.4, others, result[:, feature])
    return np.where(rng.random(result.shape) < 0.1, np.nan, result)


def encoded(adapted: Any, X: Any) -> np.ndarray:
    result = read(X, adapted.schema, adapted.ensemble.x_dtype)
    return result.chunk(0, result.n_rows)


@pytest.mark.parametrize("name, options, n_classes", ESTIMATORS)
def test_fitted_models(rows: Any, tmp_path: Path, name: str, options: dict[str, Any], n_classes: int) -> None:
    model = fitted(rows, name, options, n_classes)
    adapted = adapt(model)
    ensemble = adapted.ensemble
    assert adapted.schema.encoders.keys() == {1, 3}
    sides = set(ensemble.category_listed_left.tolist())
    assert sides == {True, False} or "DecisionTree" in name  # one tree has few categorical splits
    hard = hard_numbers(adapted, 120)
    expected = own_predictions(model, hard)
    assert np.ptp(expected, axis=0).min() > 0.05
    np.testing.assert_allclose(ensemble.margin(encoded(adapted, hard)), expected, rtol=0, atol=1e-12)

    covers = ensemble.cover[ensemble.tree_offsets[:-1]]
    if "RandomForest" not in name:  # forests draw rows
        total = sum(row.weight for row in rows.collect()) if "weightCol" in options else len(X)
        np.testing.assert_allclose(covers, total, rtol=1e-12)
        np.testing.assert_array_equal(adapted.other_covers["count"]()[ensemble.tree_offsets[:-1]], len(X))
    inner = np.flatnonzero(ensemble.left >= 0)
    start = ensemble.tree_offsets[np.searchsorted(ensemble.tree_offsets, inner, "right") - 1]
    children = ensemble.cover[start + ensemble.left[inner]] + ensemble.cover[start + ensemble.right[inner]]
    np.testing.assert_allclose(ensemble.cover[inner], children, rtol=1e-12)

    model.write().save(str(tmp_path / "model"))
    read_again = adapt(tmp_path / "model")
    for field in ("left", "right", "feature", "threshold", "missing_left", "cover", "value", "tree_offsets"):
        np.testing.assert_array_equal(getattr(read_again.ensemble, field), getattr(ensemble, field))
    for field in ("category_set", "category_offsets", "category_values", "category_listed_left"):
        np.testing.assert_array_equal(getattr(read_again.ensemble, field), getattr(ensemble, field))
    for field in ("binary", "class_names", "output_names", "link", "link_scale", "squared_error", "family"):
        assert getattr(read_again, field) == getattr(adapted, field)
    assert adapted.squared_error == (n_classes == 0 and options.get("lossType") != "absolute")


@pytest.mark.parametrize("name, options, n_classes", ESTIMATORS[1:8:2])
def test_values(rows: Any, name: str, options: dict[str, Any], n_classes: int) -> None:
    pd = pytest.importorskip("pandas")
    model = fitted(rows, name, options, n_classes)
    adapted = adapt(model)
    hard, background = (pd.DataFrame(hard_numbers(adapted, n), columns=list("abcd")) for n in (6, 5))
    expected = values_by_definition(lambda X: own_predictions(model, X.to_numpy()), hard, background)
    values = TreeExplainer(model, background, precision="double").shap_values(hard)
    np.testing.assert_allclose(values.reshape(expected.shape), expected, rtol=0, atol=1e-10)
    expected = reference.path_dependent(adapted.ensemble, encoded(adapted, hard)).values
    values = TreeExplainer(model, precision="double").shap_values(hard).reshape(len(hard), 4, -1)
    np.testing.assert_allclose(values, expected.transpose(0, 2, 1), rtol=0, atol=1e-10)


def test_probability_of_boosting(rows: Any) -> None:
    model = fitted(rows, "GBTClassifier", {"maxIter": 4}, 2)
    expected = [model.predictProbability(Vectors.dense(row))[1] for row in X[:20]]
    explanation = explain(model, X[:20], data=X[20:40], model_output="probability", precision="double")
    np.testing.assert_allclose(
        explanation.base_values + explanation.values.sum(axis=1), expected, rtol=0, atol=1e-10
    )


def test_trees_inside_models(rows: Any) -> None:
    for name, n_classes in (("GBTClassifier", 2), ("RandomForestClassifier", 3)):
        tree = fitted(rows, name, {}, n_classes).trees[1]
        explanation = explain(tree, X[:20], precision="double")
        total = (explanation.base_values + explanation.values.sum(axis=1)).reshape(20, -1)
        np.testing.assert_allclose(total, own_predictions(tree, X[:20]), rtol=0, atol=1e-10)


def test_explain_spark(spark: Any, rows: Any) -> None:
    """X has the columns from which the vectors are assembled."""
    pytest.importorskip("pandas")
    model = fitted(rows, "GBTRegressor", {"maxIter": 3}, 0)
    table = spark.createDataFrame([tuple(map(float, row)) for row in X[:50]], list("abcd"))
    frame = explain_spark(model, table, features=list("abcd")).toPandas()
    np.testing.assert_array_equal(frame.to_numpy(), TreeExplainer(model).shap_values(X[:50]))


def test_refused_models(spark: Any, rows: Any, tmp_path: Path) -> None:
    with pytest.raises(NotFittedError, match=r"this GBTRegressor is not fitted"):
        TreeExplainer(regression.GBTRegressor())
    with pytest.raises(UnsupportedModelError, match="LinearRegressionModel of Spark: it is not a tree model"):
        TreeExplainer(regression.LinearRegression(labelCol="y0", maxIter=1).fit(rows))
    tree = regression.DecisionTreeRegressor(labelCol="y0", maxDepth=2)
    table = spark.createDataFrame([("a", 1.0, 0.0), ("b", 2.0, 1.0), ("a", 3.0, 5.0)], ["c", "x", "y0"])
    stages = [
        StringIndexer(inputCol="c", outputCol="i"),
        VectorAssembler(inputCols=["i", "x"], outputCol="features"),
        tree,
    ]
    pipeline = Pipeline(stages=stages).fit(table)
    with pytest.raises(UnsupportedModelError, match=r"pass its last stage, model.stages\[-1\], and X as"):
        TreeExplainer(pipeline)
    pipeline.write().save(str(tmp_path / "pipeline"))
    with pytest.raises(UnsupportedModelError, match="pass the folder of its last stage in 'stages'"):
        TreeExplainer(tmp_path / "pipeline")
    (last,) = (tmp_path / "pipeline" / "stages").glob("2_*")
    assembled = np.array([[0, 1], [1, 2], [0, 3.0]])
    for model in (pipeline.stages[-1], last):
        explanation = explain(model, assembled, precision="double")
        expected = [row.prediction for row in pipeline.transform(table).collect()]
        np.testing.assert_allclose(
            explanation.base_values + explanation.values.sum(axis=1), expected, rtol=0, atol=1e-10
        )
    search = CrossValidator(
        estimator=tree,
        estimatorParamMaps=ParamGridBuilder().build(),
        evaluator=RegressionEvaluator(labelCol="y0"),
        numFolds=2,
    ).fit(rows)
    with pytest.raises(UnsupportedModelError, match="CrossValidatorModel of Spark: pass its bestModel"):
        TreeExplainer(search)
    with pytest.raises(UnsupportedModelError, match="cannot explain a DataFrame of Spark"):
        TreeExplainer(table)


def test_models_of_a_server(rows: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = fitted(rows, "DecisionTreeRegressor", {}, 0)
    monkeypatch.setattr(model, "_java_obj", "a reference of Spark Connect")
    with pytest.raises(
        UnsupportedModelError, match=r"Spark Connect: save it with model.write\(\).save\(path\)"
    ):
        TreeExplainer(model)
