"""CatBoost's CTRs: CatBoost's own predictions and values, kinds of tables, and uses of explainers."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.catboost_ctrs import (
    CATEGORIES,
    N_ROWS,
    OPTIONS,
    SEVERAL,
    assert_margin,
    assert_values,
    ctr_types,
    edited_model,
    encoded,
    fit,
    own_values,
    rows,
    shares,
    target,
    unseen,
)
from sklearn.frozen import FrozenEstimator

from skshapgpu import ShapTransformer, TreeExplainer, cross_val_explain, explain, reference
from skshapgpu.adapters import adapt
from skshapgpu.adapters.catboost.ctr import Combination

catboost = pytest.importorskip("catboost")
pd = pytest.importorskip("pandas")


# Values


TYPES = {
    "Borders": "Borders",
    "several borders": "Borders:TargetBorderCount=4:Prior=0/1:Prior=0.25/1",
    "Buckets": "Buckets:TargetBorderCount=3",
    "mean": "BinarizedTargetMeanValue:TargetBorderCount=5:Prior=1/1",
    "Counter": "Counter:CtrBorderCount=40:Prior=0.5/1",
}


@pytest.mark.parametrize("kind", ["regressor", "binary", "classes"])
@pytest.mark.parametrize("ctr", TYPES)
@pytest.mark.parametrize("where", ["simple_ctr", "combinations_ctr"])
def test_types(where: str, ctr: str, kind: str, tmp_path: Path) -> None:
    if kind == "binary" and "TargetBorderCount" in TYPES[ctr]:
        ctr_text = TYPES[ctr].replace("TargetBorderCount=4", "TargetBorderCount=1")
        ctr_text = ctr_text.replace("TargetBorderCount=3", "TargetBorderCount=1").replace("=5", "=1")
    else:
        ctr_text = TYPES[ctr]
    other = {"simple_ctr": "combinations_ctr", "combinations_ctr": "simple_ctr"}[where]
    model = fit(kind, **{where: [ctr_text], other: ["Counter" if ctr != "Counter" else "Borders"]})
    name = ctr_text.partition(":")[0]
    assert any(
        result == name and (n > 1) >= (where != "simple_ctr") for result, n in ctr_types(model, tmp_path)
    )
    assert_values(model, unseen(rows(1)))


@pytest.mark.parametrize("max_ctr_complexity", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", ["regressor", "classes"])
def test_complexity(max_ctr_complexity: int, kind: str) -> None:
    model = fit(kind, max_ctr_complexity=max_ctr_complexity, iterations=60, one_hot_max_size=2)
    adapted = assert_values(model, unseen(rows(1)))
    longest = max(map(len, adapted.shared), default=1)
    assert longest == max_ctr_complexity or (max_ctr_complexity == 4 and longest == 3)


def test_questions_in_combinations() -> None:
    """A CTR may also contain splits on numbers and on single categories."""
    results: list[Combination] = []
    for nan_mode in ("Min", "Max"):
        frame = rows(nan=True)
        model = fit(frame=frame, nan_mode=nan_mode, iterations=60)
        adapted = assert_values(model, unseen(rows(1, nan=True)))
        results += adapted.schema.derived.combinations
    assert {missing for one in results for *_, missing in one.above} == {False, True}
    assert any(one.equal for one in results)


def test_numbers_on_the_borders_of_combinations() -> None:
    model = fit(iterations=60)
    frame = rows(1, 2000)
    borders = [b for one in adapt(model).schema.derived.combinations for c, b, _ in one.above if c == 1]
    assert borders
    near = np.float32(borders)
    near = np.concatenate([near, np.nextafter(near, np.float32(9)), np.nextafter(near, np.float32(-9))])
    frame["x"] = np.random.default_rng(0).choice(near, len(frame)).astype(np.float64)
    assert_margin(model, frame)


def test_one_hot_splits_and_ctrs_of_a_column_are_one_player() -> None:
    model = fit(iterations=60, one_hot_max_size=10, simple_ctr="Borders")
    adapted = assert_values(model, unseen(rows(1)))
    ensemble = adapted.ensemble
    inner = np.flatnonzero(ensemble.left >= 0)
    one_hot = set(ensemble.feature[inner[ensemble.category_set[inner] >= 0]])
    by_ctr = {c for one in adapted.schema.derived.combinations for c in one.categories}
    assert one_hot and by_ctr
    assert {0, 3, 4} & one_hot


@pytest.mark.parametrize("text", [True, False])
def test_many_categories(text: bool) -> None:
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 3000, 4000)
    frame = pd.DataFrame({"user": numbers, "x": rng.normal(size=4000), "item": rng.integers(0, 500, 4000)})
    if text:
        frame["user"] = frame["user"].map("user number {}".format)
        frame["item"] = frame["item"].map("an item whose name has more than 32 bytes, {}".format)
    y = np.sin(numbers) + frame["x"] * (numbers % 2)
    options = OPTIONS | {"iterations": 30}
    model = catboost.CatBoostRegressor(cat_features=["user", "item"], **options).fit(frame, y)
    again = frame.head(500).copy()
    again.loc[::3, "user"] = "nobody" if text else -1
    adapted = adapt(model)
    np.testing.assert_allclose(
        adapted.ensemble.margin(encoded(adapted, again))[:, 0], model.predict(again), rtol=0, atol=1e-12
    )
    own = model.get_feature_importance(catboost.Pool(again, cat_features=["user", "item"]), type="ShapValues")
    np.testing.assert_allclose(explain(model, again, precision="double").values, own[:, :-1], atol=1e-12)


@pytest.mark.parametrize(
    "options",
    [
        {"counter_calc_method": "Full"},
        {"counter_calc_method": "SkipTest"},
        {"ctr_leaf_count_limit": 5},
        {"store_all_simple_ctr": True, "ctr_leaf_count_limit": 5},
        {"has_time": True},
        {"boosting_type": "Plain"},
        {"boosting_type": "Ordered"},
        {"per_feature_ctr": ["0:Buckets:TargetBorderCount=2:Prior=0.5", "4:Counter:Prior=0"]},
        {"ctr_target_border_count": 3},
        {"loss_function": "MAE"},
    ],
    ids=str,
)
def test_settings(options: dict[str, Any]) -> None:
    assert_values(fit(**options), unseen(rows(1)))


@pytest.mark.parametrize("loss", ["MultiRMSE", "MultiLogloss"])
def test_several_targets(loss: str) -> None:
    frame = rows()
    y = np.column_stack([target(frame), -(target(frame) ** 2)])
    if loss == "MultiLogloss":
        model = fit("several", frame=frame, y=(y > [0, -1]).astype(int), loss_function=loss)
    else:
        model = fit(frame=frame, y=y, loss_function=loss)
    assert assert_values(model, unseen(rows(1))).ensemble.n_outputs == 2


def test_uncertainty() -> None:
    """CatBoost returns values of its first output only."""
    model, X = fit(loss_function="RMSEWithUncertainty"), unseen(rows(1))
    adapted = assert_margin(model, X)
    assert adapted.ensemble.n_outputs == 2
    values = explain(model, X, precision="double").values
    np.testing.assert_allclose(values[..., :1], own_values(model, X), rtol=0, atol=1e-11)


def test_one_against_the_rest() -> None:
    assert assert_values(fit("classes", loss_function="MultiClassOneVsAll"), unseen(rows(1)))


def test_sum_of_models() -> None:
    frame = rows()
    models = [fit(), fit(y=np.abs(target(frame)), random_seed=1, max_ctr_complexity=2)]
    assert_values(catboost.sum_models(models, weights=[1.0, -0.5]), unseen(rows(1)))


def test_scale_and_bias() -> None:
    model = fit()
    model.set_scale_and_bias(-2.0, 3.0)
    assert_margin(model, unseen(rows(1)))


def test_loaded_model(tmp_path: Path) -> None:
    for form in ("cbm", "json"):
        fit().save_model(str(tmp_path / form), format=form)
        model = catboost.CatBoostRegressor().load_model(str(tmp_path / form), format=form)
        assert_values(model, unseen(rows(1)))


@pytest.mark.parametrize("grow_policy", ["Depthwise", "Lossguide"])
def test_other_trees(grow_policy: str) -> None:
    """CatBoost's own values of these trees, which have no combinations, do not add up."""
    model = fit(grow_policy=grow_policy, iterations=8)
    adapted = assert_margin(model, unseen(rows(1)))
    assert adapted.ensemble.n_features > adapted.ensemble.n_players
    X = unseen(rows(1)).head(20)
    expected = reference.path_dependent(adapted.ensemble, encoded(adapted, X)).values[:, 0] @ shares(adapted)
    np.testing.assert_allclose(explain(model, X, precision="double").values, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "options",
    [
        {"algorithm": "quadrature"},
        {"algorithm": "fast_v2"},
        {"algorithm": "treeshap"},
        {"algorithm": "fast_v1"},
        {"n_jobs": 2},
        {"memory_limit": "4MB"},
        {"memory_limit": "20MB"},
    ],
    ids=str,
)
def test_options(options: dict[str, Any], on_cpu: None) -> None:
    model, X = fit(), unseen(rows(1, 5000))
    values = TreeExplainer(model, precision="double", **options).shap_values(X)
    np.testing.assert_allclose(values, own_values(model, X), rtol=0, atol=1e-12)


def test_types_that_only_gpus_train(tmp_path: Path) -> None:
    """These types' tables look like other types' tables, so CatBoost predicts from an edited export."""
    for old, new in (("BinarizedTargetMeanValue", "FloatTargetMeanValue"), ("Counter", "FeatureFreq")):
        ctr = f"{old}:Prior=0.5/1"

        def edit(document: dict[str, Any], old: str = old, new: str = new) -> None:
            tables = document["ctr_data"]
            for name in [name for name in tables if f'"{old}"' in name]:
                table = tables[name.replace(old, new)] = tables.pop(name)
                if new == "FloatTargetMeanValue":
                    for i in range(1, len(table["hash_map"]), 3):
                        table["hash_map"][i] = table["hash_map"][i] * -0.37 + 1e-3
            for ctr in document["features_info"]["ctrs"]:
                if ctr["ctr_type"] == old:
                    ctr |= {"ctr_type": new, "identifier": ctr["identifier"].replace(old, new)}
                    ctr |= {"prior_denomerator": 2.5, "shift": 0.125}

        before = fit(simple_ctr=[ctr, "Borders"], combinations_ctr=[ctr])
        model = edited_model(before, tmp_path, edit)
        assert {name for name, _ in ctr_types(model, tmp_path)} == {new, "Borders"}
        assert np.abs(model.predict(rows(1)) - before.predict(rows(1))).max() > 0.1
        assert_values(model, unseen(rows(1)))


@pytest.mark.parametrize(
    "ctrs",
    [
        {"simple_ctr": SEVERAL},
        {"combinations_ctr": SEVERAL},
        {
            "simple_ctr": [ctr.replace("Borders", "Buckets", 1) for ctr in SEVERAL],
            "combinations_ctr": SEVERAL,
        },
        {"simple_ctr": [ctr.replace("Borders", "BinarizedTargetMeanValue", 1) for ctr in SEVERAL]},
    ],
    ids=str,
)
def test_several_binarizations_of_one_type(ctrs: dict[str, list[str]], tmp_path: Path) -> None:
    """CatBoost's export has a single table for both, so CatBoost's own prediction from the export differs."""
    model = fit(**ctrs)
    same = edited_model(model, tmp_path, lambda document: None)
    assert np.abs(same.predict(rows()) - model.predict(rows())).max() > 0.1
    assert_values(model, unseen(rows(1)))


PRECISIONS = [("double", 1e-11), ("single", 2e-6)]


# X


def test_kinds_of_tables() -> None:
    model, X = fit(), unseen(rows(1)).head(60)
    explainer = TreeExplainer(model)
    expected = explainer.shap_values(X)
    tables = [X.to_numpy(object), X.astype({"colour": "category", "letter": "string"})]
    if (polars := sys.modules.get("polars")) is not None:
        tables.append(polars.from_pandas(X))
    for table in tables:
        np.testing.assert_array_equal(explainer.shap_values(table), expected)


def test_sparse_rows_and_whole_numbers() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    rng = np.random.default_rng(0)
    X = rng.integers(0, 9, (400, 3))
    model = catboost.CatBoostRegressor(cat_features=[0, 2], **OPTIONS).fit(
        X, X[:, 0] * (X[:, 2] % 3) + X[:, 1]
    )
    explainer = TreeExplainer(model, precision="double")
    assert adapt(model).schema.derived is not None
    own = model.get_feature_importance(catboost.Pool(X, cat_features=[0, 2]), type="ShapValues")[:, :-1]
    for table in (X, sparse.csr_matrix(X), X.astype(np.int8), np.asfortranarray(X)):
        np.testing.assert_allclose(explainer.shap_values(table), own, rtol=0, atol=1e-12)


def test_refused_category_is_named() -> None:
    X = rows(1).head(5).astype({"number": object})
    X.loc[3, "number"] = 1.5
    with pytest.raises(ValueError, match=r"column 'number'.*holds 1\.5"):
        TreeExplainer(fit()).shap_values(X)


def test_no_rows() -> None:
    assert TreeExplainer(fit()).shap_values(rows(1).head(0)).shape == (0, 6)


def test_rows_on_a_gpu_are_refused(gpu: None) -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match=r"computed from categories on the host.*copy X to the host"):
        TreeExplainer(fit(), device="cuda").shap_values(torch.zeros((2, 6), device="cuda"))


@pytest.mark.usefixtures("gpu")
def test_gpu() -> None:
    X = unseen(rows(1))
    for kind in ("regressor", "classes"):
        model = fit(kind)
        scale = np.abs(own_values(model, X)).max()
        for precision, tolerance in PRECISIONS:
            explainer = TreeExplainer(model, precision=precision, device="cuda")
            values = explainer.shap_values(X)
            np.testing.assert_allclose(values, own_values(model, X), rtol=0, atol=tolerance * scale)
            on_cpu = TreeExplainer(model, precision="double", device="cpu").shap_interaction_values(
                X.head(50)
            )
            values = explainer.shap_interaction_values(X.head(50))
            np.testing.assert_allclose(values, on_cpu, rtol=0, atol=8 * tolerance * scale)


def test_progress_and_chunks_change_no_bit(on_cpu: None) -> None:
    model, X = fit(), unseen(rows(1, 9000))
    expected = TreeExplainer(model).shap_values(X)
    told: list[int] = []
    np.testing.assert_array_equal(
        explain(model, X, progress=lambda done, n: told.append(done)).values, expected
    )
    assert told[-1] == 9000
    parts = [TreeExplainer(model).shap_values(X[i : i + 1234]) for i in range(0, 9000, 1234)]
    np.testing.assert_array_equal(np.concatenate(parts), expected)


# Uses of explainers


def test_pickle_and_file(tmp_path: Path) -> None:
    explainer, X = TreeExplainer(fit()), unseen(rows(1))
    explainer.save(tmp_path / "file")
    for other in (pickle.loads(pickle.dumps(explainer)), TreeExplainer.load(tmp_path / "file")):
        np.testing.assert_array_equal(other.shap_values(X), explainer.shap_values(X))
        np.testing.assert_array_equal(
            other.shap_interaction_values(X.head(9)), explainer.shap_interaction_values(X.head(9))
        )


def test_loading_needs_no_catboost(tmp_path: Path) -> None:
    explainer, X = TreeExplainer(fit("classes"), rows(2).head(9), device="cpu"), unseen(rows(1))
    explainer.save(tmp_path / "file")
    X.to_pickle(tmp_path / "rows")
    np.save(tmp_path / "values.npy", explainer.shap_values(X))
    code = """
import os, sys, numpy, pandas
sys.modules["catboost"] = None
from skshapgpu import TreeExplainer
folder = sys.argv[1]
explainer = TreeExplainer.load(os.path.join(folder, "file"), device="cpu")
values = explainer.shap_values(pandas.read_pickle(os.path.join(folder, "rows")))
assert (values == numpy.load(os.path.join(folder, "values.npy"))).all()
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)


@pytest.mark.skipif(
    not hasattr(catboost.CatBoostRegressor, "__sklearn_tags__"),
    reason="this CatBoost is no estimator of later releases of scikit-learn",
)
def test_scikit_learn() -> None:
    frame = rows()
    y = target(frame)
    model = fit(iterations=5)
    values = ShapTransformer(FrozenEstimator(model)).fit(frame, y).transform(frame)
    np.testing.assert_array_equal(values, explain(model, frame).values)
    model = catboost.CatBoostRegressor(
        **OPTIONS | {"iterations": 5}
    )  # a model with cat_features cannot be cloned
    result = cross_val_explain(model, frame, y, cv=3, params={"cat_features": CATEGORIES})
    assert result["explanation"].values.shape == (N_ROWS, 6)
