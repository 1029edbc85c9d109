"""Treelite models: on the hardest rows, margins equal the predictions of treelite's GTIL."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.checks import assert_margin, hard_rows, refused_when_damaged
from helpers.families import library, values_by_definition
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
)

from skshapgpu import TreeExplainer, UnsupportedModelError, explain, reference
from skshapgpu.adapters import adapt
from skshapgpu.adapters.schema import AdaptedModel

treelite = pytest.importorskip("treelite")
from treelite.model_builder import (  # noqa: E402
    Metadata,
    ModelBuilder,
    PostProcessorFunc,
    TreeAnnotation,
)

VERSION = tuple(int(part) for part in treelite.__version__.split(".")[:2])

rng = np.random.default_rng(0)
X = rng.normal(size=(300, 4))
Y = X[:, 0] + X[:, 1] * np.where(X[:, 2] > 0, 2.0, -1.0)
CLASSES = np.digitize(Y, [-0.5, 0.5])


def gtil(model: Any, rows: Any) -> np.ndarray:
    """Compute margins (n_rows, n_outputs); the outputs of all targets are side by side, without padding."""
    margin = treelite.gtil.predict(model, rows, pred_margin=True, nthread=1)
    n_classes = model.get_header_accessor().get_field("num_class")
    return np.concatenate([margin[:, t, :n] for t, n in enumerate(n_classes)], axis=1).astype(np.float64)


def from_xgboost(booster: Any) -> Any:
    """Convert an XGBoost model; older releases of treelite may not support the format of a newer XGBoost."""
    try:
        return treelite.frontend.from_xgboost(booster)
    except treelite.TreeliteError as error:
        pytest.skip(f"treelite {treelite.__version__} cannot import the model: {error}")


def check(model: Any, rtol: float | None = None) -> AdaptedModel:
    """Check the margin on 2,000 hard rows; GTIL adds up float32 models in float32."""
    adapted = adapt(model)
    rows = hard_rows(adapted.ensemble)
    expected = gtil(model, rows)
    assert np.ptp(expected, axis=0).min() > 0
    if adapted.binary == "probability":
        expected = expected[:, 1:]
    assert_margin(
        adapted.ensemble, rows, expected, rtol or (1e-5 if model.input_type == "float32" else 1e-12)
    )
    return adapted


# ---- models of other libraries -------------------------------------------------------------------


def test_xgboost():
    xgb = library("xgboost")
    labels = {"reg:squarederror": Y, "binary:logistic": CLASSES > 0, "multi:softprob": CLASSES}
    for objective, label in labels.items():
        params = {"objective": objective, "nthread": 1, "max_depth": 4}
        params |= {"num_class": 3} if objective.startswith("multi") else {}
        booster = xgb.train(params, xgb.DMatrix(X, label), 6)
        model = from_xgboost(booster)
        adapted = check(model)
        own = adapt(booster)
        # Equal covers give equal values.
        np.testing.assert_allclose(
            TreeExplainer(model).shap_values(X[:20]),
            TreeExplainer(booster).shap_values(X[:20]),
            atol=1e-5,
        )
        assert (adapted.binary, adapted.link, adapted.output_names) == (
            own.binary,
            own.link,
            own.output_names,
        )
        assert adapted.ensemble.strict


def test_xgboost_vector_leaves_and_dart():
    xgb = library("xgboost")
    params = {"multi_strategy": "multi_output_tree", "tree_method": "hist", "nthread": 1}
    model = from_xgboost(xgb.train(params, xgb.DMatrix(X, np.c_[Y, -2 * Y]), 5))
    assert check(model).output_names == (0, 1)
    params = {"booster": "dart", "rate_drop": 0.5, "nthread": 1}
    check(from_xgboost(xgb.train(params, xgb.DMatrix(X, Y), 8)))


@pytest.mark.parametrize("boosting", ["gbdt", "rf"])
@pytest.mark.parametrize("objective", ["regression", "binary", "multiclass", "multiclassova"])
def test_lightgbm(boosting, objective):
    lgb = library("lightgbm")
    params = {"objective": objective, "boosting": boosting, "verbose": -1, "num_threads": 1}
    params |= {"bagging_freq": 1, "bagging_fraction": 0.6}
    params |= {"num_class": 3} if objective.startswith("multi") else {}
    label = {"regression": Y, "binary": CLASSES > 0}.get(objective, CLASSES)
    booster = lgb.train(params, lgb.Dataset(X, label), 5)
    model = treelite.frontend.from_lightgbm(booster)
    adapted = check(model)
    assert adapted.link == adapt(booster).link
    np.testing.assert_allclose(explain(model, X[:20]).values, explain(booster, X[:20]).values, atol=1e-5)


def test_probabilities_of_a_softmax():
    pd = pytest.importorskip("pandas")
    lgb = library("lightgbm")
    params = {"objective": "multiclass", "num_class": 3, "num_leaves": 7, "verbosity": -1}
    model = treelite.frontend.from_lightgbm(lgb.train(params, lgb.Dataset(X, CLASSES), 5))
    rows, background = pd.DataFrame(X[50:56]), pd.DataFrame(X[:7])

    def probability(mixed):
        return treelite.gtil.predict(model, mixed.to_numpy(), nthread=1)[:, 0]

    explanation = TreeExplainer(model, X[:7], model_output="probability").explain(X[50:56])
    expected = values_by_definition(probability, rows, background)
    assert np.abs(expected).max() > 0.1
    # GTIL computes exponentials in float32.
    np.testing.assert_allclose(explanation.values, expected, rtol=0, atol=1e-7)
    np.testing.assert_allclose(explanation.base_values, probability(background).mean(axis=0), atol=1e-7)


def test_lightgbm_categories():
    lgb = library("lightgbm")
    codes = rng.integers(0, 40, 300)
    frame = np.c_[X[:, :2], codes]
    label = np.isin(codes % 7, [1, 2, 4]) * 3.0 + X[:, 0]
    options = {"verbose": -1, "min_data_per_group": 5, "cat_smooth": 1, "num_threads": 1}
    booster = lgb.train(options, lgb.Dataset(frame, label, categorical_feature=[2]), 6)
    model = treelite.frontend.from_lightgbm(booster)
    adapted = check(model)
    assert list(adapted.schema.encoders) == [2]
    rows = np.array([[0.0, 0.0, c] for c in (-0.5, -1.0, 0.0, 0.5, 39.9, 40.0, 1e10, np.inf, np.nan)])
    # Rows as users pass them, not as the ensemble takes them.
    explanation = explain(model, rows)
    total = explanation.base_values + explanation.values.sum(axis=1)
    np.testing.assert_allclose(total, gtil(model, rows)[:, 0], atol=1e-5)
    with pytest.raises(ValueError, match="treelite knows only the codes of categories"):
        pd = pytest.importorskip("pandas")
        explain(model, pd.DataFrame(frame).assign(**{"2": 0}).astype({2: "category"}).iloc[:, :3])


SKLEARN = {
    "regressor": (RandomForestRegressor, {"n_estimators": 5}, Y),
    "extra trees": (ExtraTreesRegressor, {"n_estimators": 5}, Y),
    "targets": (RandomForestRegressor, {"n_estimators": 5}, np.c_[Y, 3 * Y]),
    "classes": (RandomForestClassifier, {"n_estimators": 5}, CLASSES),
    "two classes": (RandomForestClassifier, {"n_estimators": 5}, CLASSES > 0),
    "boosting": (GradientBoostingClassifier, {"n_estimators": 5}, CLASSES),
    "binary boosting": (GradientBoostingClassifier, {"n_estimators": 5}, CLASSES > 0),
    "histograms": (HistGradientBoostingRegressor, {"max_iter": 5}, Y),
    "histograms of classes": (HistGradientBoostingClassifier, {"max_iter": 5}, CLASSES),
    "isolation": (IsolationForest, {"n_estimators": 5}, None),
}


@pytest.mark.parametrize("case", SKLEARN)
def test_scikit_learn(case):
    cls, options, label = SKLEARN[case]
    model = cls(random_state=0, **options).fit(X, label)
    imported = treelite.sklearn.import_model(model)
    adapted, own = check(imported), adapt(model)
    assert adapted.ensemble.n_outputs == own.ensemble.n_outputs
    assert (adapted.binary, adapted.link) == (own.binary, own.link) or own.link == "logistic"
    if case == "isolation" and VERSION < (4, 5):
        return  # which has other average path lengths
    rows = X[:20].astype(np.float32)  # scikit-learn rounds X, treelite does not
    np.testing.assert_allclose(explain(imported, rows).values, explain(model, rows).values, atol=1e-5)


def test_several_targets_of_several_classes():
    model = RandomForestClassifier(5, random_state=0).fit(X, np.c_[CLASSES, CLASSES > 0])
    assert check(treelite.sklearn.import_model(model)).output_names == ("0_0", "0_1", "0_2", "1_0", "1_1")


def test_sparse_rows_have_missing_values():
    xgb = library("xgboost")
    sparse = sp.random(200, 4, 0.4, "csr", random_state=0)
    model = from_xgboost(xgb.train({"nthread": 1}, xgb.DMatrix(sparse, Y[:200]), 5))
    explanation = explain(model, sparse)
    total = explanation.base_values + explanation.values.sum(axis=1)
    expected = gtil(model, sparse)[:, 0]
    assert np.ptp(expected) > 0
    np.testing.assert_allclose(total, expected, atol=1e-5)


# ---- models that are built by hand ----------------------------------------------------------------


def built(
    operators: list[str],
    *,
    dtype: str = "float64",
    covers: str | None = "sum_hess",
    average: bool = False,
    postprocessor: str = "identity",
    thresholds: tuple[float, ...] = (0.25, -0.5, 0.0),
) -> Any:
    """Build trees of three numerical nodes, with these operators in turn, and four leaves."""
    builder = ModelBuilder(
        threshold_type=dtype,
        leaf_output_type=dtype,
        metadata=Metadata(
            num_feature=3,
            task_type="kRegressor",
            average_tree_output=average,
            num_target=1,
            num_class=[1],
            leaf_vector_shape=(1, 1),
        ),
        tree_annotation=TreeAnnotation(num_tree=2, target_id=[0, 0], class_id=[0, 0]),
        postprocessor=PostProcessorFunc(postprocessor),
        base_scores=[0.75],
    )
    for tree in range(2):
        builder.start_tree()
        for node in range(7):
            builder.start_node(node)
            if node < 3:
                at = 3 * tree + node
                builder.numerical_test(
                    feature_id=at % 3,
                    threshold=thresholds[at % 3],
                    default_left=bool(at % 2),
                    opname=operators[at % len(operators)],
                    left_child_key=2 * node + 1,
                    right_child_key=2 * node + 2,
                )
            else:
                builder.leaf(float(rng.normal()))
            count = [70, 30, 40, 10, 20, 25, 15][node]
            if covers == "sum_hess":
                builder.sum_hess(float(count))
            elif covers == "data_count":
                builder.data_count(count)
            builder.end_node()
        builder.end_tree()
    return builder.commit()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "operators",
    [["<"], ["<="], [">"], [">="], ["<", ">="], ["<=", ">"], ["<", "<=", ">", ">="], [">=", "<=", "<"]],
    ids=" ".join,
)
def test_operators(operators, dtype):
    """Rows are on and next to every threshold and both zeros; strict and other operators may be mixed."""
    model = built(operators, dtype=dtype)
    adapted = check(model)
    edges = [0.25, -0.5, 0.0, -0.0, np.nan, np.inf, -np.inf, 0.1]
    for edge in (0.25, -0.5, 0.0):
        edges += [np.nextafter(np.dtype(dtype).type(edge), np.dtype(dtype).type(to)) for to in (1, -1)]
    rows = np.array(np.meshgrid(edges, edges, edges)).reshape(3, -1).T.astype(dtype)
    assert_margin(adapted.ensemble, rows, gtil(model, rows), 1e-6 if dtype == "float32" else 1e-12)
    explanation = explain(model, rows, precision="double")
    total = explanation.base_values + explanation.values.sum(axis=1)
    np.testing.assert_allclose(total, gtil(model, rows)[:, 0], atol=1e-5)


@pytest.mark.parametrize("covers", ["sum_hess", "data_count"])
def test_values_by_definition(covers):
    model = built(["<", "<=", ">", ">="], covers=covers, average=True)
    if not len(model.get_tree_accessor(0).get_field(covers)):
        pytest.skip(f"treelite {treelite.__version__} does not keep what it was told")
    ensemble = adapt(model).ensemble
    assert ensemble.cover[:7].tolist() == [70, 30, 40, 10, 20, 25, 15]
    rows = hard_rows(ensemble, 40)
    values = TreeExplainer(model, precision="double").shap_values(rows)
    expected = reference.path_dependent(ensemble, rows).values
    assert np.ptp(expected) > 0
    np.testing.assert_allclose(values, expected.reshape(values.shape), atol=1e-10)


def test_without_covers():
    model = built(["<"], covers=None)
    for attempt in (TreeExplainer, lambda model: explain(model, X[:3, :3])):
        with pytest.raises(UnsupportedModelError, match=r"no covers.* data="):
            attempt(model)
    explainer = TreeExplainer(model, X[:10, :3], precision="double")
    expected = reference.interventional(adapt(model).ensemble, X[:30, :3], X[:10, :3]).values
    values = explainer.shap_values(X[:30, :3])
    assert np.ptp(expected) > 0
    np.testing.assert_allclose(values, expected.reshape(values.shape), atol=1e-10)


def test_without_covers_an_explainer_is_saved(tmp_path):
    explainer = TreeExplainer(built(["<"], covers=None), X[:10, :3])
    explainer.save(tmp_path / "explainer.npz")
    loaded = TreeExplainer.load(tmp_path / "explainer.npz")
    np.testing.assert_array_equal(loaded.shap_values(X[:5, :3]), explainer.shap_values(X[:5, :3]))


def test_trees_with_some_of_the_outputs():
    """Two targets of two and three classes; each tree belongs to one class, or to one target."""
    for class_id, shape, target_id in (([0, 1], (2, 1), [-1, -1]), ([-1, -1], (1, 3), [0, 1])):
        builder = ModelBuilder(
            threshold_type="float64",
            leaf_output_type="float64",
            metadata=Metadata(
                num_feature=2,
                task_type="kMultiClf",
                average_tree_output=True,
                num_target=2,
                num_class=[2, 3],
                leaf_vector_shape=shape,
            ),
            tree_annotation=TreeAnnotation(num_tree=2, target_id=target_id, class_id=class_id),
            postprocessor=PostProcessorFunc("identity_multiclass"),
            base_scores=[0.1, 0.2, 0.0, 0.3, 0.4, 0.5],
        )
        for tree in range(2):
            builder.start_tree()
            builder.start_node(0)
            builder.numerical_test(
                feature_id=tree,
                threshold=0.5,
                default_left=bool(tree),
                opname="<",
                left_child_key=1,
                right_child_key=2,
            )
            builder.sum_hess(10.0)
            builder.end_node()
            for leaf in (1, 2):
                builder.start_node(leaf)
                builder.leaf(rng.normal(size=shape[0] * shape[1]).tolist())
                builder.sum_hess(3.0 + leaf)
                builder.end_node()
            builder.end_tree()
        model = builder.commit()
        if (2, 1) == shape:  # the third class has no trees to average
            with pytest.raises(ValueError, match="averages the trees of an output that has none"):
                adapt(model)
            model.get_header_accessor().set_field("average_tree_output", np.zeros(1, np.uint8))
        adapted = adapt(model)
        assert adapted.ensemble.n_outputs == 5
        rows = hard_rows(adapted.ensemble)
        assert np.ptp(gtil(model, rows)) > 0
        assert_margin(adapted.ensemble, rows, gtil(model, rows), 1e-12)


@pytest.mark.parametrize("field", ["category_list_begin", "leaf_vector_begin"])
def test_shared_segments_are_refused(field):
    """Shared segments would allow a small file to define a huge model."""
    lgb = library("lightgbm")
    if field.startswith("category"):
        options = {"verbose": -1, "min_data_per_group": 5, "cat_smooth": 1, "num_threads": 1}
        data = lgb.Dataset(np.c_[X[:, :2], rng.integers(0, 40, 300)], Y, categorical_feature=[0, 1, 2])
        model = treelite.frontend.from_lightgbm(lgb.train(options | {"max_cat_to_onehot": 1}, data, 2))
    else:
        model = treelite.sklearn.import_model(RandomForestClassifier(2, random_state=0).fit(X, CLASSES))
    accessor = model.get_tree_accessor(0)
    begin = np.array(accessor.get_field(field))
    end = np.array(accessor.get_field(field.replace("begin", "end")))
    used = np.flatnonzero(begin < end)
    assert len(used) > 1
    begin[used], end[used] = begin[used].min(), end[used].max()
    accessor.set_field(field, begin)
    accessor.set_field(field.replace("begin", "end"), end)
    with pytest.raises(ValueError, match=r"overlap|does not hold"):
        adapt(model)


def test_equality_of_numbers_is_refused():
    with pytest.raises(UnsupportedModelError, match="operator =="):
        adapt(built(["=="]))


def test_infinite_thresholds():
    check(built(["<"], thresholds=(0.25, np.inf, 0.0)))
    check(built(["<=", ">"], thresholds=(0.25, -np.inf, 0.0)))
    with pytest.raises(UnsupportedModelError, match="minus infinity"):
        adapt(built(["<=", "<"], thresholds=(0.25, -np.inf, 0.0)))


def test_postprocessors():
    links = {"identity": None, "sigmoid": "logistic", "exponential": None, "signed_square": None}
    for name, link in links.items():
        adapted = check(built(["<"], postprocessor=name))
        assert (adapted.link, adapted.binary) == (link, None)


def edited(model: Any, name: str, value: np.ndarray, tree: int = 0) -> Any:
    model.get_tree_accessor(tree).set_field(name, value)
    return model


@pytest.mark.parametrize(
    "name, node, value",
    [
        ("cleft", 0, 99),
        ("cright", 1, 0),
        ("split_index", 0, 7),
        ("threshold", 0, np.nan),
    ],
)
def test_edited_trees_are_refused(name, node, value):
    model = built(["<"])
    field = np.array(model.get_tree_accessor(0).get_field(name))
    field[node] = value
    with pytest.raises(ValueError):
        adapt(edited(model, name, field))


def test_concatenated_models():
    model = treelite.Model.concatenate([built(["<"]), built(["<="])])
    assert check(model).ensemble.n_trees == 4


# ---- files and cuML -------------------------------------------------------------------------------


def test_checkpoint(tmp_path):
    models = {
        "classes": treelite.sklearn.import_model(RandomForestClassifier(3, random_state=0).fit(X, CLASSES)),
        "built": built(["<", ">"], dtype="float32"),
    }
    for name, model in models.items():
        model.serialize(tmp_path / name)
        adapted = adapt(tmp_path / name)
        rows = hard_rows(adapted.ensemble)
        assert_margin(adapted.ensemble, rows, gtil(model, rows), 1e-5)
        np.testing.assert_array_equal(adapted.ensemble.cover, adapt(model).ensemble.cover)
        assert adapted.output_names == adapt(model).output_names


def test_damaged_checkpoints(tmp_path):
    built(["<"]).serialize(tmp_path / "model")
    content = (tmp_path / "model").read_bytes()
    assert refused_when_damaged(tmp_path / "model", 100) > 100
    for version in (3, 5):
        (tmp_path / "model").write_bytes(bytes([version]) + content[1:])
        with pytest.raises(ValueError, match=f"version {version} of the format"):
            adapt(tmp_path / "model")


def stand_in(**methods: Any) -> Any:
    """Wrap a model in a class of cuML, which cannot be installed without a GPU."""
    cls = type(
        "RandomForestClassifier", (), {"__module__": "cuml.ensemble.randomforestclassifier", **methods}
    )
    return cls()


def test_cuml():
    forest = RandomForestClassifier(5, random_state=0).fit(X, np.where(CLASSES > 0, "high", "low"))
    exported = treelite.sklearn.import_model(forest)
    on_gpu = SimpleNamespace(get=lambda: forest.classes_)
    model = stand_in(as_treelite=lambda self: exported, classes_=on_gpu)
    adapted = adapt(model)
    assert (adapted.binary, adapted.class_names) == ("probability", ("high", "low"))
    rows = X[:20].astype(np.float32)
    np.testing.assert_allclose(explain(model, rows).values, explain(forest, rows).values, atol=1e-6)

    older = SimpleNamespace(to_treelite_checkpoint=exported.serialize)
    model = stand_in(convert_to_treelite_model=lambda self: older)
    np.testing.assert_allclose(explain(model, rows).values, explain(forest, rows).values, atol=1e-6)


def test_cuml_without_a_forest():
    with pytest.raises(
        UnsupportedModelError, match=r"neither a treelite\.Model nor a model that exports one"
    ):
        adapt(stand_in())
    with pytest.raises(UnsupportedModelError, match="exports a int"):
        adapt(stand_in(as_treelite=lambda self: 1))
