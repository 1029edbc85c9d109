"""columns="used": only used columns have values, in every form of X, result and explainer."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import catboost_ctrs
from helpers.families import FAMILIES, forest, library, regressor
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from skshapgpu import (
    Explanation,
    ShapBeeswarmDisplay,
    ShapDependenceDisplay,
    TreeExplainer,
    cross_val_explain,
    explain,
    explain_interactions,
    reference,
    shap_importance,
)
from skshapgpu._engine.features import features_of
from skshapgpu.adapters import adapt
from skshapgpu.batches.fingerprint import fingerprint

N_COLUMNS, MADE_OF = 120, [3, 40, 41, 77, 119]


def data(n_rows: int = 300) -> tuple[Any, np.ndarray]:
    """Draw sparse rows; five columns are informative and have most entries."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, N_COLUMNS)).round(2) * (rng.random((n_rows, N_COLUMNS)) < 0.03)
    X[:, MADE_OF] = rng.normal(size=(n_rows, 5)).round(2) * (rng.random((n_rows, 5)) < 0.7)
    return sp.csr_matrix(X), X[:, 3] + 6 * (X[:, 40] > 0.2) * X[:, 41] + 2 * (X[:, 77] > 0.3) + 3 * X[:, 119]


X, Y = data()


def model_of(family: str) -> Any:
    return (forest(5, 3) if family == "sklearn" else regressor(family)).fit(X, Y)


def used_by(model: Any) -> np.ndarray:
    ensemble = adapt(model).ensemble
    return np.unique(ensemble.feature[ensemble.left >= 0])


def as_numbers(data: Any) -> np.ndarray:
    return data.toarray() if sp.issparse(data) else np.asarray(data)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("family", FAMILIES)
def test_values_are_those_of_all_columns(family: str, dtype: str) -> None:
    model = model_of(family)
    used, rows = used_by(model), X.astype(dtype)
    assert 4 <= len(used) < 60
    every, some = TreeExplainer(model), TreeExplainer(model, columns="used")
    assert every.feature_indices is None and some.n_features == N_COLUMNS
    np.testing.assert_array_equal(some.feature_indices, used)
    for container in (rows, rows.toarray(), sp.csc_matrix(rows), np.asfortranarray(rows.toarray())):
        if family == "xgboost" and not sp.issparse(container):  # absent entries are missing, zeros are not
            container = np.where(container == 0, np.nan, container)
        full_explanation, part = every.explain(container), some.explain(container)
        assert part.values.dtype == full_explanation.values.dtype == dtype and part.shape == (300, len(used))
        np.testing.assert_array_equal(part.values, full_explanation.values[:, used])
        assert (np.delete(full_explanation.values, used, axis=1) == 0).all() and np.abs(
            part.values
        ).max() > 0.1
        np.testing.assert_array_equal(some.shap_values(container), part.values)
        assert part.base_values == full_explanation.base_values and part.additivity_error is not None
        assert part.feature_names == tuple(f"x{i}" for i in used) or family != "sklearn"
        assert part.feature_names == tuple(full_explanation.feature_names[i] for i in used)
        np.testing.assert_array_equal(as_numbers(part.data), as_numbers(container)[:, used])
        assert sp.issparse(part.data) == sp.issparse(container)
        np.testing.assert_array_equal(part.feature_indices, used)
        assert full_explanation.feature_indices is None


@pytest.mark.parametrize("precision", ["single", "double"])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_values_are_those_of_the_definition(precision: str, n_threads: int) -> None:
    rows, y = data(500)
    rows = sp.csr_matrix(rows.toarray() * np.isin(np.arange(N_COLUMNS), MADE_OF))
    model = forest(5, 4).fit(rows, y)
    used = used_by(model)
    assert set(used) <= set(MADE_OF) and len(used) >= 4
    adapted = adapt(model)
    expected, base, _ = reference.path_dependent(adapted.ensemble, rows.toarray())
    explainer = TreeExplainer(model, columns="used", precision=precision, n_jobs=n_threads)
    scale = np.abs(adapted.ensemble.value).max() * 5
    tolerance = scale * (1e-10 if precision == "double" else 2e-6)  # as in test_values.py
    np.testing.assert_allclose(explainer.shap_values(rows), expected[:, 0, used], rtol=0, atol=tolerance)
    matrices = reference.path_dependent(adapted.ensemble, rows.toarray(), index="SII").values[:, 0]
    pairs = matrices[:, used][:, :, used]
    result = explainer.shap_interaction_values(rows)
    assert result.shape == (500, len(used), len(used)) and np.abs(pairs).max() > 100 * tolerance
    np.testing.assert_allclose(result, pairs, rtol=0, atol=len(used) * tolerance)  # value minus pairs
    assert explainer.expected_value == pytest.approx(base[0])


@pytest.mark.parametrize("outputs", ["auto", "all"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_several_outputs(outputs: str, n_classes: int) -> None:
    y = np.digitize(Y, [0.5] if n_classes == 2 else [0.0, 2.0])
    model = RandomForestClassifier(5, max_depth=4, random_state=0).fit(X, y)
    used = used_by(model)
    full_explanation = explain(model, X, outputs=outputs)
    part = explain(model, X, outputs=outputs, columns="used")
    np.testing.assert_array_equal(part.values, full_explanation.values[:, used])
    assert part.output_names == full_explanation.output_names
    assert part.to_frame().shape == (300, part.values[0].size)


@pytest.mark.parametrize("options", [{}, {"model_output": "probability"}])
def test_background_data(options: dict[str, str]) -> None:
    library("lightgbm")
    from lightgbm import LGBMClassifier

    model = LGBMClassifier(n_estimators=5, num_leaves=6, verbose=-1).fit(X, Y > 0.5)
    used = used_by(model)
    options |= {"data": X[:50]}
    every, some = TreeExplainer(model, **options), TreeExplainer(model, **options, columns="used")
    np.testing.assert_array_equal(some.shap_values(X), every.shap_values(X)[:, used])
    if "model_output" not in options:
        banzhaf = some.explain(X, index="BV").values
        np.testing.assert_array_equal(banzhaf, every.explain(X, index="BV").values[:, used])
        pairs = every.shap_interaction_values(X)[:, used][:, :, used]
        np.testing.assert_array_equal(some.shap_interaction_values(X), pairs)
        assert np.abs(pairs).max() > 0.01


@pytest.mark.parametrize("algorithm", ["quadrature", "fast_v2", "treeshap", "fast_v1"])
def test_algorithms(algorithm: str, request: pytest.FixtureRequest) -> None:
    if algorithm in ("treeshap", "fast_v1"):
        request.getfixturevalue("on_cpu")
    model = forest(5, 3).fit(X, Y)
    all_values = TreeExplainer(model, algorithm=algorithm).shap_values(X)
    part = TreeExplainer(model, algorithm=algorithm, columns="used").shap_values(X)
    np.testing.assert_array_equal(part, all_values[:, used_by(model)])


def test_plans_count_the_values_of_used_columns() -> None:
    model = forest(5, 3).fit(X, Y)
    every, some = TreeExplainer(model).plan(1000), TreeExplainer(model, columns="used").plan(1000)
    assert every.result_bytes == 1000 * N_COLUMNS * 8
    assert some.result_bytes == 1000 * len(used_by(model)) * 8


def test_interactions_are_about_the_used_columns() -> None:
    model = forest(5, 3).fit(X, Y)
    used = used_by(model)
    every, some = TreeExplainer(model), TreeExplainer(model, columns="used")
    np.testing.assert_array_equal(used[some.occurring_interactions()], every.occurring_interactions())
    listed = [(f"x{used[0]}", f"x{used[2]}"), (f"x{used[3]}", f"x{used[1]}")]
    for asked in ("occurring", 4, listed):
        full_explanation = every.explain_interactions(X, interactions=asked)
        part = some.explain_interactions(X, interactions=asked)
        np.testing.assert_array_equal(part.values, full_explanation.values)
        assert (
            part.interaction_names == full_explanation.interaction_names and len(part.interaction_names) > 1
        )
        np.testing.assert_array_equal(used[part.interactions], full_explanation.interactions)
        np.testing.assert_array_equal(part.feature_indices, used)
        if asked == "occurring":
            np.testing.assert_array_equal(part.single_values, full_explanation.single_values[:, used])
    pairs = explain_interactions(model, X, columns="used")
    np.testing.assert_array_equal(
        pairs.matrices(), every.explain_interactions(X).matrices()[:, used][:, :, used]
    )
    np.testing.assert_array_equal(
        some.shap_interaction_values(X), every.shap_interaction_values(X)[:, used][:, :, used]
    )
    with pytest.raises(ValueError, match="interactions: there is no feature"):
        unused = np.setdiff1d(np.arange(N_COLUMNS), used)[0]
        some.explain_interactions(X, interactions=[(f"x{unused}", f"x{used[0]}")])


@pytest.mark.parametrize("package", ["pandas", "polars", "pyarrow"])
def test_data_frames(package: str) -> None:
    module = pytest.importorskip(package)
    names = [f"column {i}" for i in range(N_COLUMNS)]
    columns = dict(zip(names, X.toarray().T))
    frame = module.table(columns) if package == "pyarrow" else module.DataFrame(columns)
    trained = pytest.importorskip("pandas").DataFrame(columns)
    model = forest(5, 3).fit(trained, Y)
    used = used_by(model)
    part = explain(model, frame, columns="used")
    assert part.feature_names == tuple(names[i] for i in used)
    np.testing.assert_array_equal(part.values, explain(model, frame).values[:, used])
    assert part.data.shape == (300, len(used)) and type(part.data) is type(frame)
    with pytest.raises(ValueError, match="same order"):
        explain(model, trained[names[::-1]], columns="used")
    np.testing.assert_array_equal(part[:, names[used[1]]].values[:, 0], part.values[:, 1])


def test_selections_know_their_columns() -> None:
    model = forest(5, 3).fit(X, Y)
    used = used_by(model)
    part = explain(model, X, columns="used")
    assert len(used) > 4
    np.testing.assert_array_equal(part[:9, 2:4].feature_indices, used[2:4])
    np.testing.assert_array_equal(part[:, [3, 0]][:, 1].feature_indices, used[:1])
    np.testing.assert_array_equal(explain(model, X)[:, [7, 5]].feature_indices, [7, 5])
    assert part[:9].feature_indices is not None and explain(model, X)[:9].feature_indices is None
    grouped = part.sum_by({"both": part.feature_names[:2]})
    assert grouped.feature_indices is None and len(grouped.feature_names) == len(used) - 1


def test_pipelines_sum_to_the_columns_of_X() -> None:
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"city": rng.choice(list("abcdefghij"), 300), "size": rng.choice([1, 2, 3], 300)})
    y = (frame["city"] == "b") * 2.0 + (frame["city"] == "h") * frame["size"]
    encode = make_column_transformer((OneHotEncoder(), ["city", "size"]))
    model = make_pipeline(encode, forest(5, 2)).fit(frame, y)
    full_explanation, part = explain(model, frame), explain(model, frame, columns="used")
    assert 2 < len(part.feature_names) < len(full_explanation.feature_names)
    np.testing.assert_array_equal(part.values, full_explanation.values[:, part.feature_indices])
    assert part.feature_names == tuple(full_explanation.feature_names[i] for i in part.feature_indices)
    one, other = part.sum_by("input"), full_explanation.sum_by("input")
    assert one.feature_names == other.feature_names == ("city", "size")
    np.testing.assert_allclose(one.values, other.values, atol=1e-12)
    pd.testing.assert_frame_equal(one.data, frame)


def test_columns_that_share_the_values_of_players() -> None:
    pytest.importorskip("catboost")
    frame = catboost_ctrs.rows()
    frame = frame.assign(unused=np.arange(len(frame)) * 0.0)[["unused", *frame.columns]]
    model = catboost_ctrs.fit(frame=frame, iterations=10)
    adapted = adapt(model)
    assert adapted.shared
    every, some = TreeExplainer(model), TreeExplainer(model, columns="used")
    used = some.feature_indices
    assert used is not None and 0 not in used and len(used) < len(frame.columns)
    full_explanation, part = every.explain(frame), some.explain(frame)
    np.testing.assert_array_equal(part.values, full_explanation.values[:, used])
    assert (np.delete(full_explanation.values, used, axis=1) == 0).all()
    pairs = every.shap_interaction_values(frame[:20])[:, used][:, :, used]
    np.testing.assert_allclose(some.shap_interaction_values(frame[:20]), pairs, atol=1e-12)


def test_copies_and_files_keep_the_option(tmp_path: Path) -> None:
    model = forest(5, 3).fit(X, Y)
    some = TreeExplainer(model, columns="used", algorithm="fast_v2")
    expected = some.shap_values(X)
    some.save(tmp_path / "explainer")
    for copy in (pickle.loads(pickle.dumps(some)), TreeExplainer.load(tmp_path / "explainer")):
        np.testing.assert_array_equal(copy.shap_values(X), expected)
        np.testing.assert_array_equal(copy.feature_indices, some.feature_indices)
        assert fingerprint(copy) == fingerprint(some)
    every = TreeExplainer(model, algorithm="fast_v2")
    assert fingerprint(every) != fingerprint(some)
    every.save(tmp_path / "every")
    assert TreeExplainer.load(tmp_path / "every").feature_indices is None


def test_displays() -> None:
    pytest.importorskip("matplotlib")
    model = forest(5, 3).fit(X, Y)
    part = explain(model, X, columns="used")
    strongest = part.strongest(1)[0][0]
    assert strongest == explain(model, X).strongest(1)[0][0] == "x119"
    shown = ShapBeeswarmDisplay.from_estimator(model, X, columns="used")
    assert "x119" in [text.get_text() for text in shown.ax_.get_yticklabels()]
    display = ShapDependenceDisplay.from_estimator(model, X, "x119", columns="used")
    np.testing.assert_array_equal(np.sort(display.feature_values), np.sort(X[:, [119]].toarray().ravel()))


@pytest.mark.parametrize("columns", ["all", "used"])
def test_progress_and_memory_limits_split_the_rows(columns: str) -> None:
    model = forest(5, 3).fit(X, Y)
    expected = explain(model, X, columns=columns).values
    n_failed, done = 0, list[int]()
    for limit in range(50_000, 5_000_000, 20_000):  # the smallest leaves room for few rows at a time
        try:
            explanation = TreeExplainer(model, memory_limit=limit, columns=columns).explain(
                X, progress=lambda n, total: done.append(n)
            )
        except MemoryError:
            n_failed += 1
            continue
        break
    assert n_failed > 0 and done[-1] == 300
    np.testing.assert_array_equal(explanation.values, expected)


def test_no_rows() -> None:
    model = forest(5, 3).fit(X, Y)
    part = explain(model, X[:0], columns="used")
    assert isinstance(part, Explanation) and part.shape == (0, len(used_by(model)))


def test_used_players_are_renumbered() -> None:
    adapted = adapt(forest(5, 3).fit(X, Y))
    game, features = features_of(adapted, None, "used")
    assert features.columns is not None
    assert game.ensemble.n_players == len(features.columns) < adapted.ensemble.n_players == N_COLUMNS
    assert game.ensemble.n_features == N_COLUMNS and game.shared == ()


# Refusals


def test_unknown_value() -> None:
    with pytest.raises(ValueError, match="columns must be"):
        TreeExplainer(forest(5, 3).fit(X, Y), columns="some")


def test_a_constant_model_uses_no_column() -> None:
    constant = forest(5, 3).fit(X, np.ones(300))
    assert (explain(constant, X).values == 0).all()
    with pytest.raises(ValueError, match="uses no column"):
        explain(constant, X, columns="used")


def test_cross_validation_and_importances_have_all_columns() -> None:
    with pytest.raises(ValueError, match="leave the option out"):
        cross_val_explain(forest(5, 3), X, Y, cv=2, explain_params={"columns": "used"})
    with pytest.raises(ValueError, match="columns='used'"):
        shap_importance(forest(5, 3).fit(X, Y), X, explain_params={"columns": "used"})
