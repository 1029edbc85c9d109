"""Tree models in folders of Spark ML, written without Spark: margins follow the rules of Spark's trees."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pyarrow")

from helpers.checks import refused_when_damaged
from helpers.families import values_by_definition
from helpers.spark_models import N_CATEGORIES, hard_numbers, leaf, node, random_tree, write
from scipy.special import expit

from skshapgpu import TreeExplainer, UnsupportedModelError, explain, reference
from skshapgpu._rows.inputs import read
from skshapgpu.adapters import AdaptedModel, adapt
from skshapgpu.command_line import main

rng = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    """Draw the same numbers in each test, whichever tests ran before in the process."""
    rng.bit_generator.state = np.random.default_rng(2).bit_generator.state


#: A model's class, its number of trees and its number of classes, 0 for a regressor.
KINDS = [
    ("DecisionTreeRegressionModel", 1, 0),
    ("RandomForestRegressionModel", 5, 0),
    ("GBTRegressionModel", 5, 0),
    ("GBTClassificationModel", 5, 0),
    ("DecisionTreeClassificationModel", 1, 2),
    ("DecisionTreeClassificationModel", 1, 3),
    ("RandomForestClassificationModel", 5, 2),
    ("RandomForestClassificationModel", 5, 4),
]
WEIGHTS = [1.0, 0.1, 0.1, 0.3, -0.2]
STUMP = [
    node(0, [3, 0, 0], left=1, right=2, feature=1, values=[0.5]),
    node(1, [2, 0, 0], 1.0),
    node(2, [1, 0, 0], -2.0),
]


def forest(n_trees: int, n_classes: int) -> list:
    return [random_tree(rng, n_classes) for _ in range(n_trees)]


def saved(folder: Path, name: str, trees: list, n_classes: int, **options) -> Path:
    if n_classes:
        options["numClasses"] = n_classes
    if name.startswith("GBT"):
        options["weights"] = WEIGHTS[: len(trees)]
    return write(folder, name, trees, **options)


def predicted(name: str, trees: list, n_classes: int, X: np.ndarray) -> np.ndarray:
    """Compute a regressor's prediction, the margin of boosting, or the probabilities of all classes."""
    leaves = [[leaf(tree, row) for tree in trees] for row in np.asarray(X)]
    if n_classes:
        stats = np.array([[each["impurityStats"] for each in row] for row in leaves])
        votes = (stats / stats.sum(axis=2, keepdims=True)).sum(axis=1)
        result = votes / votes.sum(axis=1, keepdims=True)
        return result[:, 1:] if n_classes == 2 else result
    values = np.array([[each["prediction"] for each in row] for row in leaves])
    return (values @ WEIGHTS if name.startswith("GBT") else values.mean(axis=1))[:, None]


def encoded(adapted: AdaptedModel, X) -> np.ndarray:
    """Return rows as the trees receive them."""
    rows = read(X, adapted.schema, adapted.ensemble.x_dtype)
    return rows.chunk(0, rows.n_rows)


@pytest.mark.parametrize("name, n_trees, n_classes", KINDS)
def test_margins_and_covers(name, n_trees, n_classes, tmp_path):
    trees = forest(n_trees, n_classes)
    adapted = adapt(saved(tmp_path, name, trees, n_classes, n_parts=3))
    X = hard_numbers(rng, 2000)
    expected = predicted(name, trees, n_classes, X)
    assert np.ptp(expected, axis=0).min() > 0.02
    np.testing.assert_allclose(adapted.ensemble.margin(encoded(adapted, X)), expected, rtol=0, atol=1e-12)
    nodes = [each for tree in trees for each in tree]
    weights = [sum(each["impurityStats"]) if n_classes else each["impurityStats"][0] for each in nodes]
    np.testing.assert_allclose(adapted.ensemble.cover, weights, rtol=1e-15)
    assert adapted.other_covers["count"]().tolist() == [each["rawCount"] for each in nodes]


@pytest.mark.parametrize("name, n_trees, n_classes", KINDS)
def test_values_by_definition(name, n_trees, n_classes, tmp_path):
    pd = pytest.importorskip("pandas")
    trees = forest(n_trees, n_classes)
    saved(tmp_path, name, trees, n_classes)
    X, background = (
        pd.DataFrame(hard_numbers(rng, n), columns=[f"x{i}" for i in range(len(N_CATEGORIES))])
        for n in (12, 7)
    )
    expected = values_by_definition(lambda rows: predicted(name, trees, n_classes, rows), X, background)
    assert np.ptp(expected) > 0.1
    values = TreeExplainer(tmp_path, background, precision="double").shap_values(X)
    np.testing.assert_allclose(values.reshape(expected.shape), expected, rtol=0, atol=1e-10)

    adapted = adapt(tmp_path)
    expected = reference.path_dependent(adapted.ensemble, encoded(adapted, X)).values
    values = TreeExplainer(tmp_path, precision="double").shap_values(X).reshape(len(X), X.shape[1], -1)
    np.testing.assert_allclose(values, expected.transpose(0, 2, 1), rtol=0, atol=1e-10)


@pytest.mark.parametrize("name, n_trees, n_classes", KINDS)
def test_outputs_and_probabilities(name, n_trees, n_classes, tmp_path):
    trees = forest(n_trees, n_classes)
    saved(tmp_path, name, trees, n_classes, defaultParamMap={"lossType": "squared"})
    X = hard_numbers(rng, 30)
    expected = predicted(name, trees, n_classes, X)
    adapted = adapt(tmp_path)
    assert adapted.squared_error == ("Regression" in name)
    if "Regression" in name:
        assert (adapted.output_names, adapted.class_names, adapted.binary) == (None, None, None)
        return
    if n_classes > 2:
        assert explain(tmp_path, X).output_names == tuple(range(n_classes))
    else:
        assert adapted.class_names == (0, 1)
        both = explain(tmp_path, X, outputs="all", precision="double")
        total = both.base_values + both.values.sum(axis=1)
        negative = -expected if name.startswith("GBT") else 1 - expected
        np.testing.assert_allclose(total, np.hstack([negative, expected]), rtol=0, atol=1e-10)
    explanation = explain(tmp_path, X, data=X[:9], model_output="probability", precision="double")
    if name.startswith("GBT"):
        expected = expit(2 * expected)
    total = (explanation.base_values + explanation.values.sum(axis=1)).reshape(expected.shape)
    np.testing.assert_allclose(total, expected, rtol=0, atol=1e-10)


def test_command_line(tmp_path):
    saved(tmp_path / "model", "GBTRegressionModel", forest(5, 0), 0)
    X = hard_numbers(rng, 20)
    np.save(tmp_path / "rows.npy", X)
    names = [str(tmp_path / name) for name in ("model", "rows.npy", "values.npy")]
    assert main(["explain", *names[:2], "-o", names[2]]) == 0
    np.testing.assert_array_equal(
        np.load(tmp_path / "values.npy"), TreeExplainer(tmp_path / "model").shap_values(X)
    )


def test_loss_of_boosting(tmp_path):
    options = {"paramMap": {"lossType": "absolute"}, "defaultParamMap": {"lossType": "squared"}}
    assert not adapt(saved(tmp_path, "GBTRegressionModel", [STUMP], 0, **options)).squared_error


def test_saved_and_pickled_explainers(tmp_path):
    saved(tmp_path / "model", "GBTRegressionModel", forest(5, 0), 0)
    X = hard_numbers(rng, 50)
    explainer = TreeExplainer(tmp_path / "model")
    expected = explainer.shap_values(X)
    explainer.save(tmp_path / "explainer.npz")
    for again in (TreeExplainer.load(tmp_path / "explainer.npz"), pickle.loads(pickle.dumps(explainer))):
        np.testing.assert_array_equal(again.shap_values(X), expected)


def test_counts_are_unknown_in_models_of_spark_2(tmp_path):
    trees = [[each | {"rawCount": -1} for each in STUMP]]
    assert adapt(write(tmp_path / "kept", "DecisionTreeRegressionModel", trees)).other_covers == {}
    trees = [[{key: each[key] for key in each if key != "rawCount"} for each in STUMP]]
    old = write(tmp_path / "none", "DecisionTreeRegressionModel", trees, sparkVersion="2.4.8")
    assert adapt(old).other_covers == {}
    with pytest.raises(ValueError, match="it has no 'rawCount'"):
        adapt(write(tmp_path / "removed", "DecisionTreeRegressionModel", trees))


def test_weights_in_numbered_columns(tmp_path):
    """Spark 4.3 writes them so."""
    write(tmp_path, "GBTRegressionModel", [STUMP, STUMP], weights=[1.0, 0.5], weight_names=["_1", "_2", "_3"])
    assert adapt(tmp_path).ensemble.value.ravel().tolist() == [0.0, 1.0, -2.0, 0.0, 0.5, -1.0]


def test_single_leaf(tmp_path):
    write(tmp_path, "DecisionTreeRegressionModel", [[node(0, [3, 0, 0], 7.5)]])
    explanation = explain(tmp_path, np.ones((2, 5)))
    assert explanation.base_values == 7.5
    assert not explanation.values.any()


def test_categories_are_numbers(tmp_path):
    pd = pytest.importorskip("pandas")
    tree = [
        node(0, [3, 0, 0], left=1, right=2, feature=1, values=[0, 2], n_categories=4),
        node(1, [2, 0, 0], 1.0),
        node(2, [1, 0, 0], -2.0),
    ]
    write(tmp_path, "DecisionTreeRegressionModel", [tree], n_features=2)
    explainer = TreeExplainer(tmp_path)
    X = pd.DataFrame({"a": [0.0, 0.0, 0.0], "b": pd.Series([0, 1, 2])})
    assert (explainer.shap_values(X)[:, 1] > 0).tolist() == [True, False, True]
    for column in (["0", "1", "2"], pd.Series(["0", 1, 2], dtype=object), pd.Categorical([0, 1, 2])):
        with pytest.raises(ValueError, match=r"column 'b' is categorical or text.*StringIndexer"):
            explainer.shap_values(X.assign(b=column))


def with_split(**changes):
    """Return the stump with changes of its root's split."""
    return [STUMP[0] | {"split": STUMP[0]["split"] | changes}, *STUMP[1:]]


@pytest.mark.parametrize(
    "tree, message",
    [
        ([STUMP[0] | {"leftChild": 0}, *STUMP[1:]], "not reached exactly once"),
        ([STUMP[0] | {"leftChild": 3}, *STUMP[1:]], "child outside its tree"),
        ([STUMP[0] | {"leftChild": -1}, *STUMP[1:]], "exactly one child"),
        ([STUMP[0] | {"rightChild": 2**31 - 1}, *STUMP[1:]], "child outside its tree"),
        ([STUMP[0] | {"rightChild": 2**40}, *STUMP[1:]], "has the type int64"),
        ([STUMP[0], *STUMP], "numbered from 0 on"),
        (STUMP[1:], "numbered from 0 on"),
        ([STUMP[0], STUMP[1] | {"prediction": np.nan}, STUMP[2]], "non-finite value"),
        (
            [STUMP[0], STUMP[1] | {"impurityStats": [-1.0, 0.0, 0.0]}, STUMP[2]],
            "negative or non-finite cover",
        ),
        ([STUMP[0], STUMP[1] | {"impurityStats": []}, STUMP[2]], "not have the three sums"),
        ([STUMP[0], STUMP[1] | {"impurityStats": [1.0, 2.0]}, STUMP[2]], "not have the three sums"),
        ([STUMP[0] | {"prediction": None}, *STUMP[1:]], "'prediction' has nulls"),
        ([STUMP[0] | {"impurity": None}, *STUMP[1:]], "'impurity' has nulls"),
        ([{name: each[name] for name in each if name != "gain"} for each in STUMP], "it has no 'gain'"),
        ([{**each, "id": str(each["id"])} for each in STUMP], "'id' has the type"),
        ([{name: each[name] for name in each if name != "split"} for each in STUMP], "no 'split.feature"),
        (with_split(featureIndex=5), "splits on a feature outside"),
        (with_split(featureIndex=-1), "splits on a feature outside"),
        (with_split(leftCategoriesOrThreshold=[]), "one threshold"),
        (with_split(leftCategoriesOrThreshold=[np.nan]), "NaN threshold"),
        (with_split(leftCategoriesOrThreshold=None), "has nulls"),
        (with_split(leftCategoriesOrThreshold=[0.0, None]), "has nulls"),
        (with_split(numCategories=2**31 - 1), "or a number that is no category"),
        (with_split(leftCategoriesOrThreshold=[3.0], numCategories=3), r"outside 0\.\.2"),
        (with_split(leftCategoriesOrThreshold=[1.0, 1.0], numCategories=3), "a category twice"),
        (with_split(leftCategoriesOrThreshold=[], numCategories=-7), "has -7 categories"),
        (
            [
                node(0, [3, 0, 0], left=1, right=2, feature=1, values=[0.5]),
                node(1, [2, 0, 0], 1.0),
                node(2, [1, 0, 0], left=3, right=4, feature=1, values=[1], n_categories=2),
                node(3, [1, 0, 0], 1.0),
                node(4, [1, 0, 0], 1.0),
            ],
            "numeric and categorical",
        ),
    ],
)
def test_damaged_nodes(tree, message, tmp_path):
    write(tmp_path, "DecisionTreeRegressionModel", [tree])
    with pytest.raises(ValueError, match=f"cannot be read as a model of Spark ML: .*{message}"):
        adapt(tmp_path)


@pytest.mark.parametrize(
    "metadata, message",
    [
        ({"numFeatures": 1}, "splits on a feature outside"),
        ({"numFeatures": -1}, "its numFeatures is -1"),
        ({"numFeatures": True}, "its numFeatures is True"),
        ({"numFeatures": 10**12}, "n_features must be"),
        ({"numClasses": 3}, "3 classes, but a node"),
        ({"numClasses": 1}, "1 classes, but a node"),
        ({"numClasses": 10**9}, "1000000000 classes, but a node"),
        ({"numClasses": None}, "its numClasses is None"),
        ({"numTrees": 2}, "1 trees instead of 2"),
        ({"paramMap": {"numTrees": 3}}, "1 trees instead of 3"),
        ({"paramMap": None}, "not those of a model"),
    ],
)
def test_damaged_metadata(metadata, message, tmp_path):
    trees = [[each | {"impurityStats": [1.0, 2.0]} for each in STUMP]]
    write(tmp_path, "RandomForestClassificationModel", trees, **{"numClasses": 2} | metadata)
    with pytest.raises(ValueError, match=message):
        adapt(tmp_path)


def test_negative_weights_of_classes(tmp_path):
    trees = [[each | {"impurityStats": [-1.0, 3.0]} for each in STUMP]]
    write(tmp_path, "DecisionTreeClassificationModel", trees, numClasses=2)
    with pytest.raises(ValueError, match="a node has a negative weight of a class"):
        adapt(tmp_path)


def test_damaged_weights_of_trees(tmp_path):
    write(tmp_path / "few", "GBTRegressionModel", [STUMP, STUMP], weights=[1.0, 2.0])
    write(tmp_path / "one", "GBTRegressionModel", [STUMP], weights=[1.0])
    weights = tmp_path / "few" / "treesMetadata" / "part-0.parquet"
    weights.write_bytes((tmp_path / "one" / "treesMetadata" / "part-0.parquet").read_bytes())
    with pytest.raises(ValueError, match="does not have one weight for each tree"):
        adapt(tmp_path / "few")
    (tmp_path / "few" / "treesMetadata" / "part-1.parquet").write_bytes(weights.read_bytes())
    with pytest.raises(ValueError, match="weights of its trees are not numbered"):
        adapt(tmp_path / "few")
    write(tmp_path / "infinite", "GBTRegressionModel", [STUMP], weights=[np.inf])
    with pytest.raises(ValueError, match="non-finite value"):
        adapt(tmp_path / "infinite")


def test_files_that_are_missing_or_none_of_spark(tmp_path):
    write(tmp_path, "GBTRegressionModel", [STUMP])
    for name in ("treesMetadata/part-0.parquet", "data/part-00000.snappy.parquet", "metadata/part-00000"):
        (tmp_path / name).unlink()
        with pytest.raises(ValueError, match=f"folder '{Path(name).parent}' has no files of the form part-"):
            adapt(tmp_path)
    (tmp_path / "metadata" / "part-00000").write_text("no JSON")
    with pytest.raises(ValueError, match="cannot be read as a model of Spark ML"):
        adapt(tmp_path)
    (tmp_path / "data" / "_SUCCESS").unlink()
    with pytest.raises(
        ValueError, match="is a folder, not a regular file; expected a model file or an explainer file"
    ):
        adapt(tmp_path / "data")


def test_damaged_bytes(tmp_path):
    write(tmp_path, "GBTClassificationModel", [random_tree(rng, 0), STUMP])
    for name in ("treesMetadata/part-0.parquet", "data/part-00000.snappy.parquet", "metadata/part-00000"):
        assert refused_when_damaged(tmp_path / name, 30, tmp_path) > 30


def test_files_that_would_grow(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    write(tmp_path, "GBTRegressionModel", [STUMP])
    table = pa.table({"treeID": pa.array(np.zeros(10**6, np.int32)), "weights": pa.array(np.ones(10**6))})
    parquet.write_table(table, tmp_path / "treesMetadata" / "part-0.parquet")
    with pytest.raises(ValueError, match="too many numbers for files of"):
        adapt(tmp_path)


@pytest.mark.parametrize(
    "name, advice",
    [
        ("PipelineModel", "pass the folder of its last stage in 'stages'"),
        ("CrossValidatorModel", "pass the folder 'bestModel'"),
        ("LinearRegressionModel", "it is not a tree model of pyspark.ml"),
    ],
)
def test_other_models(name, advice, tmp_path):
    (tmp_path / "metadata").mkdir()
    content = {"class": f"org.apache.spark.ml.{name}", "paramMap": {}}
    (tmp_path / "metadata" / "part-00000-abc-c000.txt").write_text(json.dumps(content))
    with pytest.raises(UnsupportedModelError, match=f"cannot explain a {name} of Spark: {advice}"):
        adapt(tmp_path)


def test_one_class(tmp_path):
    """The file is not damaged: Spark trains such models."""
    write(tmp_path, "DecisionTreeClassificationModel", [[node(0, [20.0])]], numClasses=1)
    with pytest.raises(UnsupportedModelError, match="fewer than two classes"):
        adapt(tmp_path)


def test_leaves_without_weight(tmp_path):
    trees = [[STUMP[0] | {"impurityStats": [1.0, 2.0]}, node(1, [0, 0]), node(2, [1, 1])]]
    write(tmp_path, "DecisionTreeClassificationModel", trees, numClasses=2)
    with pytest.raises(UnsupportedModelError, match="rows have the weight 0"):
        adapt(tmp_path)


def test_needs_pyarrow(tmp_path, monkeypatch):
    write(tmp_path, "GBTRegressionModel", [STUMP])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match="need the package pyarrow"):
        adapt(tmp_path)
