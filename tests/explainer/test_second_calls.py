"""Calls keep plans, names and categories for the next calls, and see each change of X in between."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from helpers.families import with_categories
from sklearn.ensemble import RandomForestRegressor

from skshapgpu import Explanation, TreeExplainer
from skshapgpu._engine import additivity, agreement, execution
from skshapgpu._rows import column_rules

pd = pytest.importorskip("pandas")

_random = np.random.default_rng(5)
N = 60
NAMES = ["size", "weight", "height"]
ARRAY = _random.normal(size=(N, 3))
FRAME = pd.DataFrame(ARRAY, columns=NAMES)
COLORS = ["blue", "red", "green", "amber"]
CATEGORIES = FRAME.assign(color=pd.Categorical.from_codes(_random.integers(0, 4, N), COLORS))
TARGET = ARRAY[:, 0] * ARRAY[:, 1] + 2 * CATEGORIES["color"].isin(["red", "green"]).to_numpy()


def forest(X: Any) -> TreeExplainer:
    return TreeExplainer(RandomForestRegressor(5, random_state=0).fit(X, TARGET), device="cpu", n_jobs=1)


def explainer_with_categories(family: str) -> TreeExplainer:
    return TreeExplainer(with_categories(family, CATEGORIES, TARGET), device="cpu", n_jobs=1)


@pytest.mark.parametrize("X", [ARRAY, FRAME, CATEGORIES], ids=["array", "frame", "categories"])
def test_the_second_call_decides_nothing_again(X: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    explainer = explainer_with_categories("lightgbm") if X is CATEGORIES else forest(X)
    rows = [X[i : i + 1] if X is ARRAY else X.iloc[[i]] for i in range(3)]
    explainer.explain(rows[0])
    calls: list[str] = []

    def count(owner: Any, name: str) -> None:
        function = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *a, **k: (calls.append(name), function(*a, **k))[1])

    count(execution, "_decide")
    count(additivity, "allowed_gap")
    count(agreement, "compare")
    count(column_rules.NameRules, "_check")
    count(pd.DataFrame, "items")
    values = [explainer.explain(rows[1]).values, explainer.shap_values(rows[2])]
    explainer.shap_values(rows[1], out=values[0])
    assert not calls
    explainer.shap_values(X[:2] if X is ARRAY else X.iloc[:2])  # another number of rows has another plan
    assert calls == ["_decide"]


@pytest.mark.skipif(not hasattr(pd.Index(NAMES).array, "_pa_array"), reason="names are not strings of Arrow")
def test_names_of_the_same_index_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    explainer = forest(FRAME)
    names = explainer.explain(FRAME.iloc[:1]).feature_names
    monkeypatch.setattr(pd.Index, "tolist", lambda self: pytest.fail("the names are read again"))
    assert explainer.explain(FRAME.iloc[[7]]).feature_names is names


def test_columns_that_changed_between_calls_are_found() -> None:
    explainer = forest(FRAME)
    row = FRAME.iloc[:1].copy()
    values = explainer.shap_values(row)
    for changed in (row.rename(columns={"size": "other"}), row[["weight", "size", "height"]]):
        with pytest.raises(ValueError, match="feature names should match"):
            explainer.shap_values(changed)
    for changed in (row.drop(columns="size"), row.assign(other=1.0)):
        with pytest.raises(ValueError, match="feature names should match"):
            explainer.shap_values(changed)
    with pytest.raises(ValueError, match="several columns of the same name"):
        explainer.shap_values(row.set_axis(["size", "size", "height"], axis=1))
    np.testing.assert_array_equal(explainer.shap_values(row.copy()), values)


def test_a_frame_that_changed_in_place_is_read_anew() -> None:
    explainer = forest(FRAME)
    row = FRAME.iloc[:1].copy()
    before = explainer.shap_values(row)
    row.loc[0, "size"] = 5.0
    after = explainer.shap_values(row)
    assert (before != after).any()
    np.testing.assert_array_equal(after, forest(FRAME).shap_values(row))
    row.loc[0, "weight"] = np.inf
    with pytest.raises(ValueError, match="infinity or a value too large for float32"):
        explainer.shap_values(row)
    row["weight"] = "heavy"
    with pytest.raises(ValueError, match="could not convert string to float"):
        explainer.shap_values(row)
    row["weight"] = pd.Timestamp("2020-01-01")
    with pytest.raises(TypeError, match="column weight holds dates"):
        explainer.shap_values(row)
    row["weight"] = np.float32(0.5)
    assert explainer.shap_values(row).dtype == np.float64
    assert explainer.shap_values(row.astype(np.float32)).dtype == np.float32
    row.columns = ["size", "weight", "other"]
    with pytest.raises(ValueError, match="feature names should match"):
        explainer.shap_values(row)


@pytest.mark.parametrize(
    "X", [FRAME, CATEGORIES, FRAME.astype("Float64")], ids=["floats", "categories", "nullable"]
)
def test_frames_of_a_pandas_without_arrays_of_columns(X: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    explainer = explainer_with_categories("lightgbm") if X is CATEGORIES else forest(FRAME)
    expected = explainer.shap_values(X)
    monkeypatch.delattr(pd.DataFrame, "_iter_column_arrays")
    np.testing.assert_array_equal(explainer.shap_values(X), expected)


def test_names_of_objects_that_changed_in_their_index_are_found() -> None:
    explainer = forest(FRAME)
    labels = np.array(NAMES, object)
    row = FRAME.iloc[:1].set_axis(pd.Index(labels, dtype=object, copy=False), axis=1)
    explainer.shap_values(row)
    labels[0] = "other"
    assert row.columns.tolist()[0] == "other"
    with pytest.raises(ValueError, match="feature names should match"):
        explainer.shap_values(row)


def test_numbers_that_changed_in_an_array_are_found() -> None:
    explainer, row = forest(ARRAY), ARRAY[:1].copy()
    explainer.shap_values(row)
    row[0, 1] = np.inf
    with pytest.raises(ValueError, match="row 0, column 1"):
        explainer.shap_values(row)
    with pytest.raises(ValueError, match="X has 2 features"):
        explainer.shap_values(row[:, :2])


@pytest.mark.parametrize("family", ["sklearn", "lightgbm", "xgboost"])
def test_categories_that_changed_between_calls_are_found(family: str) -> None:
    explainer = explainer_with_categories(family)
    values = explainer.shap_values(CATEGORIES)
    row = CATEGORIES.iloc[:1].copy()
    for _ in range(2):
        np.testing.assert_array_equal(explainer.shap_values(row), values[:1])
    # The codes stay the same, and stand for other categories.
    swapped = {"blue": "red", "red": "blue", "green": "amber", "amber": "green"}
    row["color"] = row["color"].cat.rename_categories(swapped)
    color = CATEGORIES["color"].cat.rename_categories(swapped)
    expected = explainer.shap_values(CATEGORIES.assign(color=color))
    if not explainer._reader.schema.takes_codes:
        assert (expected != values).any()
    for _ in range(2):
        np.testing.assert_array_equal(explainer.shap_values(row), expected[:1])


def test_calls_with_a_memory_limit_keep_no_plan() -> None:
    model = RandomForestRegressor(5, random_state=0).fit(ARRAY, TARGET)
    explainer = TreeExplainer(model, device="cpu", memory_limit="1MB")
    explainer.explain(ARRAY[:1])
    assert not explainer._compiled.small_calls
    wide = np.repeat(ARRAY, 2000, axis=0)
    for _ in range(2):
        with pytest.raises(MemoryError, match="memory_limit"):
            explainer.shap_values(wide)


def test_calls_of_another_size_choose_their_tables_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model = RandomForestRegressor(30, random_state=0).fit(ARRAY, TARGET)
    explainer = TreeExplainer(model, device="cpu", n_jobs=1)
    sizes = 3_000, 400_000, 3_000, 3_000, 100
    alone = {n: TreeExplainer(model, device="cpu", n_jobs=1).plan(n) for n in sizes}
    assert len({plan.tree_groups for plan in alone.values()}) > 1
    asked = []
    choose = execution._worthwhile_tables
    monkeypatch.setattr(
        execution, "_worthwhile_tables", lambda plan, n: (asked.append(n), choose(plan, n))[1]
    )
    for n in sizes:
        assert explainer.plan(n) == alone[n]
    assert asked == [3_000, 400_000, 3_000, 100]


def test_what_calls_keep_is_neither_pickled_nor_shared_with_other_devices() -> None:
    explainer = forest(FRAME)
    explainer.explain(FRAME.iloc[:1])
    content = pickle.dumps(explainer)
    explainer.explain(FRAME.iloc[1:3].astype(np.float32))
    explainer.explain(FRAME.iloc[:1].set_axis(FRAME.columns.astype(object), axis=1))
    assert pickle.dumps(explainer) == content
    assert explainer._compiled.small_calls and not explainer._compiled.on_gpu(0).small_calls
    values = pickle.loads(content).shap_values(FRAME.iloc[:2])
    np.testing.assert_array_equal(values, explainer.shap_values(FRAME.iloc[:2]))


def test_an_explanation_has_all_fields() -> None:
    explanation = forest(FRAME).explain(FRAME)
    assert vars(explanation).keys() == {field.name for field in fields(Explanation)}


def test_threads_share_what_calls_keep() -> None:
    explainer = explainer_with_categories("lightgbm")
    values = explainer.shap_values(CATEGORIES)
    right, types = [CATEGORIES.iloc[[i]] for i in range(N)], CATEGORIES.dtypes.to_dict()
    fresh = [pd.DataFrame(row.to_dict("records")).astype(types) for row in right]
    wrong = [row.rename(columns={"size": "other"}) for row in right]

    def explain(row: Any) -> Any:
        try:
            return explainer.shap_values(row)
        except ValueError as error:
            return str(error)

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(explain, [row for rows in zip(right, wrong, fresh) for row in rows] * 5))
    for i in range(N):
        np.testing.assert_array_equal(results[3 * i], values[[i]])
        assert "other" in results[3 * i + 1]
        np.testing.assert_array_equal(results[3 * i + 2], values[[i]])
    assert len(results) == 15 * N
