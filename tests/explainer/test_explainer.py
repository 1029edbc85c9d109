"""TreeExplainer and explain: shapes, options, memory, threads, additivity."""

from __future__ import annotations

import copy
import pickle
import time
import timeit
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
from helpers.checks import peak_of
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from skshapgpu import (
    TreeExplainer,
    explain,
    explain_interactions,
    reference,
)
from skshapgpu._common.algorithms import SHAP_VALUES, Kind
from skshapgpu._common.memory import parse_bytes
from skshapgpu._engine import execution
from skshapgpu._engine.kind_plans import NO_INTERVALS
from skshapgpu.adapters import adapt

IRIS, SPECIES = load_iris(return_X_y=True)
DIABETES, PROGRESSION = load_diabetes(return_X_y=True)
CANCER, BENIGN = load_breast_cancer(return_X_y=True)


@pytest.fixture(scope="module")
def regressor() -> RandomForestRegressor:
    return RandomForestRegressor(8, max_depth=6, random_state=0).fit(DIABETES, PROGRESSION)


@pytest.fixture(scope="module")
def binary() -> GradientBoostingClassifier:
    return GradientBoostingClassifier(n_estimators=8, random_state=0).fit(CANCER, BENIGN)


@pytest.fixture(scope="module")
def multiclass() -> RandomForestClassifier:
    return RandomForestClassifier(8, max_depth=5, random_state=0).fit(IRIS, SPECIES)


# Values, shapes and dtypes


@pytest.mark.parametrize("precision", ["single", "double"])
def test_values_are_those_of_the_definition(multiclass: Any, precision: str) -> None:
    expected, base_value, _ = reference.path_dependent(adapt(multiclass).ensemble, IRIS)
    explainer = TreeExplainer(multiclass, precision=precision)
    tolerance = 1e-6 if precision == "single" else 1e-14
    np.testing.assert_allclose(explainer.shap_values(IRIS), expected.transpose(0, 2, 1), atol=tolerance)
    np.testing.assert_allclose(explainer.expected_value, base_value, atol=1e-14)


def test_one_output(regressor: Any) -> None:
    explainer = TreeExplainer(regressor)
    values = explainer.shap_values(DIABETES)
    assert values.shape == DIABETES.shape
    assert values.flags.c_contiguous
    assert isinstance(explainer.expected_value, float)
    assert explainer.output_names is None
    np.testing.assert_allclose(
        explainer.expected_value + values.sum(axis=1), regressor.predict(DIABETES), rtol=1e-6
    )


def test_several_outputs(multiclass: Any) -> None:
    explainer = TreeExplainer(multiclass)
    values = explainer.shap_values(IRIS)
    assert values.shape == (150, 4, 3)
    assert explainer.expected_value.shape == (3,)
    assert explainer.output_names == (0, 1, 2)
    np.testing.assert_allclose(
        explainer.expected_value + values.sum(axis=1), multiclass.predict_proba(IRIS), atol=1e-6
    )


def test_several_targets() -> None:
    Y = np.column_stack([PROGRESSION, -2 * PROGRESSION])
    model = DecisionTreeRegressor(max_depth=4).fit(DIABETES, Y)
    explanation = explain(model, DIABETES)
    assert explanation.shape == (*DIABETES.shape, 2)
    assert explanation.output_names == (0, 1)
    np.testing.assert_allclose(explanation.values[..., 1], -2 * explanation.values[..., 0], atol=1e-3)


def test_binary_classifier_is_its_positive_class(binary: Any) -> None:
    explainer = TreeExplainer(binary)
    values = explainer.shap_values(CANCER)
    assert values.shape == CANCER.shape
    np.testing.assert_allclose(
        explainer.expected_value + values.sum(axis=1), binary.decision_function(CANCER), atol=1e-5
    )


@pytest.mark.parametrize(
    ("model", "total"),
    [(DecisionTreeClassifier(max_depth=4), 1.0), (GradientBoostingClassifier(n_estimators=5), 0.0)],
)
def test_outputs_all_widens_a_binary_classifier(model: Any, total: float) -> None:
    labels = np.array(["malignant", "benign"])[BENIGN]
    model.fit(CANCER, labels)
    one, both = TreeExplainer(model), TreeExplainer(model, outputs="all")
    assert both.output_names == ("benign", "malignant")
    values = both.shap_values(CANCER)
    assert values.shape == (*CANCER.shape, 2)
    np.testing.assert_array_equal(values[..., 1], one.shap_values(CANCER))
    np.testing.assert_array_equal(values[..., 0], -values[..., 1])
    np.testing.assert_allclose(both.expected_value, [total - one.expected_value, one.expected_value])
    if total:
        np.testing.assert_allclose(
            both.expected_value + values.sum(axis=1), model.predict_proba(CANCER), atol=1e-6
        )


def test_outputs_all_leaves_other_models_alone(regressor: Any, multiclass: Any) -> None:
    assert TreeExplainer(regressor, outputs="all").shap_values(DIABETES).ndim == 2
    assert TreeExplainer(multiclass, outputs="all").shap_values(IRIS).shape == (150, 4, 3)


def test_float32_in_float32_out(regressor: Any) -> None:
    explainer = TreeExplainer(regressor)
    assert explainer.shap_values(DIABETES.astype(np.float32)).dtype == np.float32
    assert explainer.shap_values(DIABETES).dtype == np.float64
    assert explainer.shap_values(DIABETES.astype(int)).dtype == np.float64


def test_no_rows(regressor: Any, multiclass: Any) -> None:
    assert TreeExplainer(regressor).shap_values(np.empty((0, 10))).shape == (0, 10)
    assert TreeExplainer(multiclass).explain(np.empty((0, 4))).values.shape == (0, 4, 3)


def test_call_is_explain(regressor: Any) -> None:
    explainer = TreeExplainer(regressor)
    np.testing.assert_array_equal(explainer(DIABETES).values, explainer.explain(DIABETES).values)


def test_explain_passes_options_on(binary: Any) -> None:
    explanation = explain(binary, CANCER, outputs="all", precision="double")
    assert explanation.shape[2] == 2
    assert explanation.precision == "double"
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'unknown'$"):
        explain(binary, CANCER, unknown=1)
    with pytest.raises(TypeError, match=r"'presicion'\. Did you mean 'precision'\?"):
        explain(binary, CANCER, presicion="double")
    with pytest.raises(TypeError, match=r"'background'\. Did you mean 'data'\?"):
        explain(binary, CANCER, background=CANCER)
    with pytest.raises(TypeError, match=r"'interactions'\. explain_interactions computes interactions"):
        explain(binary, CANCER, interactions=5)


def test_explain_takes_an_explainer(binary: Any) -> None:
    explainer = TreeExplainer(binary, precision="double", outputs="all")
    explanation = explain(explainer, CANCER)
    np.testing.assert_array_equal(explanation.values, explainer.shap_values(CANCER))
    pairs = explain_interactions(explainer, CANCER[:20])
    np.testing.assert_array_equal(pairs.values, explainer.explain_interactions(CANCER[:20]).values)
    assert pairs.precision == "double" and pairs.output_names == explainer.output_names
    with pytest.raises(TypeError, match="its own options: pass precision when you create it"):
        explain(explainer, CANCER, precision="single")


# The explanation


def test_explanation_of_a_frame(regressor: Any) -> None:
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(DIABETES, columns=[f"f{i}" for i in range(10)], index=[f"row {i}" for i in range(442)])
    model = RandomForestRegressor(3, random_state=0).fit(X, PROGRESSION)
    explanation = explain(model, X)
    assert explanation.feature_names == tuple(X.columns)
    assert explanation.row_labels is X.index
    assert explanation.data is X
    assert explanation.seconds > 0
    assert 0 < explanation.additivity_error < 1e-3
    assert explain(model, DIABETES).feature_names == tuple(X.columns)
    with pytest.raises(ValueError, match="same order"):
        explain(model, X[X.columns[::-1]])


def test_names_without_a_frame(regressor: Any) -> None:
    assert explain(regressor, DIABETES).feature_names == tuple(f"x{i}" for i in range(10))


def test_data_is_x_itself(regressor: Any) -> None:
    assert explain(regressor, DIABETES).data is DIABETES


# Options


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"algorithm": "fast"},
            ValueError,
            "algorithm must be one of 'auto', 'quadrature', 'fast_v2', 'gputreeshap', 'treeshap', 'fast_v1', "
            "not 'fast'",
        ),
        ({"precision": "half"}, ValueError, "precision must be one of"),
        ({"outputs": ["all"]}, ValueError, "outputs must be one of"),
        ({"n_jobs": 0}, ValueError, "n_jobs"),
        ({"memory_limit": "much"}, ValueError, "memory_limit must be bytes or a string such as"),
        ({"memory_limit": 0}, ValueError, "memory_limit must be positive"),
        ({"memory_limit": -5}, ValueError, "memory_limit must be positive"),
        ({"memory_limit": 1.5}, TypeError, "memory_limit must be an int, a str or None"),
        ({"memory_limit": True}, TypeError, "memory_limit must be an int"),
    ],
)
def test_options_are_checked(
    regressor: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        TreeExplainer(regressor, **options)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("500MB", 500_000_000),
        ("2GiB", 2**31),
        ("1.5 kb", 1500),
        ("7", 7),
        (" 3 B ", 3),
        ("1T", 10**12),
        (12, 12),
        (np.int64(5), 5),
        (None, None),
    ],
)
def test_memory_limit_is_read(text: Any, expected: int | None) -> None:
    assert parse_bytes(text) == expected


def test_both_algorithms_are_the_same_today(regressor: Any) -> None:
    np.testing.assert_array_equal(
        TreeExplainer(regressor, algorithm="quadrature").shap_values(DIABETES),
        TreeExplainer(regressor).shap_values(DIABETES),
    )


def test_public_attributes_are_read_only(multiclass: Any) -> None:
    explainer = TreeExplainer(multiclass)
    for name in ("expected_value", "output_names", "n_features", "family", "feature_names"):
        with pytest.raises(AttributeError):
            setattr(explainer, name, None)
    explainer.expected_value[:] = 7
    assert explainer.expected_value.max() < 1
    assert explainer.family == "sklearn"
    assert explainer.n_features == 4
    assert "8 trees" in repr(explainer) and "3 outputs" in repr(explainer)
    assert explainer.model_info()["n_trees"] == 8


def test_expected_value_does_not_change_with_use(multiclass: Any) -> None:
    explainer = TreeExplainer(multiclass)
    before = explainer.expected_value
    explainer.shap_values(IRIS[:1])
    np.testing.assert_array_equal(explainer.expected_value, before)


# Memory


@pytest.mark.parametrize("kind", ["array", "ints", "sparse", "pandas", "objects"])
def test_memory_limit_bounds_everything_that_is_allocated(kind: str) -> None:
    n_rows, n_features = 20_000, 50
    dense = np.random.default_rng(0).integers(0, 5, (n_rows, n_features))
    X: Any = {"array": dense.astype(np.float64), "ints": dense, "objects": dense[:4000].astype(object)}.get(
        kind
    )
    if kind == "sparse":
        X = sp.csr_array(dense * (dense > 3))
    if kind == "pandas":
        pd = pytest.importorskip("pandas")
        X = pd.DataFrame(dense).astype({i: np.float32 for i in range(0, n_features, 2)})
        X.columns = [f"f{i}" for i in range(n_features)]
    model: Any = HistGradientBoostingRegressor(max_iter=3)
    if kind == "sparse":  # which histograms do not take
        model = RandomForestRegressor(3, max_depth=5, random_state=0)
    model.fit(dense[:500].astype(float), dense[:500].sum(axis=1))
    free = TreeExplainer(model, device="cpu", algorithm="quadrature")
    result = free.shap_values(X)
    limit = result.nbytes + free.model_info()["scratch_bytes_per_thread"] + 600_000
    # The limit may leave no room for the tables of "auto", which change the last digits.
    tight = TreeExplainer(model, device="cpu", memory_limit=limit)
    assert peak_of(lambda: tight.shap_values(X)) < limit
    walking = TreeExplainer(model, device="cpu", memory_limit=limit, algorithm="quadrature")
    assert peak_of(lambda: walking.shap_values(X)) < limit
    np.testing.assert_array_equal(walking.shap_values(X), result)


def test_chunks_of_a_widened_classifier_and_of_single_rows(binary: Any) -> None:
    free = TreeExplainer(binary, device="cpu", outputs="all")
    expected = free.shap_values(CANCER)
    scratch = free.model_info()["scratch_bytes_per_thread"]
    row = 30 * 8 + 80
    for rows in (1, 7, 569):
        tight = TreeExplainer(
            binary, device="cpu", outputs="all", memory_limit=expected.nbytes + scratch + rows * row
        )
        np.testing.assert_array_equal(tight.shap_values(CANCER), expected)


def test_memory_limit_below_the_result(regressor: Any) -> None:
    with pytest.raises(
        MemoryError, match=r"memory_limit is 1,000 bytes, but 442 rows need 35,360 for their SHAP values"
    ):
        TreeExplainer(regressor, memory_limit=1000).shap_values(DIABETES)
    assert TreeExplainer(regressor, memory_limit=1000).shap_values(DIABETES[:0]).shape == (0, 10)


def test_an_error_in_a_late_chunk_names_the_row(regressor: Any) -> None:
    X = np.tile(DIABETES, (3, 1)).astype(object)
    X[1300, 4] = "text"
    scratch = TreeExplainer(regressor).model_info()["scratch_bytes_per_thread"]
    with pytest.raises(ValueError, match="row 1300 of column 4 is 'text'"):
        TreeExplainer(regressor, memory_limit=len(X) * 80 + scratch + 20_000).shap_values(X)


@pytest.mark.parametrize("n_features", [17, 20])
def test_limit_of_an_algorithm_names_the_alternative(n_features: int) -> None:
    X = np.tri(n_features + 1, n_features, -1)  # each split isolates the last of the rows that are left
    model = DecisionTreeRegressor().fit(X, 4.0 ** np.arange(n_features + 1))
    assert model.get_depth() == n_features
    with pytest.raises(ValueError, match=f"a path has {n_features} different features") as error:
        TreeExplainer(model, algorithm="fast_v2", device="cpu")
    assert error.value.__notes__ == ["algorithm='auto' has wider limits than algorithm='fast_v2'"]
    assert TreeExplainer(model, device="cpu").explain(X).additivity_error is not None


# Additivity


class Skewed:
    """Plan with wrong margins: one row of the last output is off by ``offset``."""

    def __init__(self, plan: Any, row: int, offset: float) -> None:
        self._plan, self._row, self._offset = plan, row, offset

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plan, name)

    def explain(
        self, X: np.ndarray, values: np.ndarray, margin: np.ndarray | None, n_threads: int, **options: Any
    ) -> np.ndarray | None:
        gaps = self._plan.explain(X, values, margin, n_threads, **options)
        if margin is not None:
            margin[self._row, -1] += self._offset
        if gaps is not None:
            gaps[-1] = np.maximum(gaps[-1], np.abs(self._offset))
        return gaps


def skew(explainer: TreeExplainer, row: int, offset: float) -> TreeExplainer:
    plans = explainer._compiled.of(SHAP_VALUES)._plans
    plans[NO_INTERVALS] = Skewed(plans[NO_INTERVALS], row, offset)
    return explainer


def test_additivity_check_names_row_output_and_numbers(multiclass: Any) -> None:
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(IRIS, index=[f"flower {i}" for i in range(150)])
    explainer = skew(TreeExplainer(multiclass, device="cpu"), 7, 0.01)
    margin = multiclass.predict_proba(IRIS)[7, 2]
    with pytest.raises(
        RuntimeError, match=r"at row 7 \(index 'flower 7'\), output 2: base value plus SHAP"
    ) as error:
        explainer.explain(X)
    message = str(error.value)
    assert f"the margin is {margin + 0.01:.6g}"[:22] in message
    assert "single precision" in message and "float64" in message and "precision='double'" in message
    assert (
        skew(TreeExplainer(multiclass, device="cpu", check_additivity=False), 7, 0.01)
        .explain(X)
        .additivity_error
        is None
    )


@pytest.mark.parametrize("offset", [np.nan, np.inf, -1.0])
def test_additivity_check_of_one_output(regressor: Any, offset: float) -> None:
    with pytest.raises(RuntimeError, match="at row 3: base value"):
        skew(TreeExplainer(regressor, device="cpu"), 3, offset).shap_values(DIABETES)


def test_additivity_check_of_one_call(regressor: Any) -> None:
    explainer = skew(TreeExplainer(regressor, device="cpu"), 3, 1.0)
    values = explainer.shap_values(DIABETES, check_additivity=False)
    for check in (None, True):
        with pytest.raises(RuntimeError, match="at row 3: base value"):
            explainer.shap_values(DIABETES, check_additivity=check)
    unchecked = skew(TreeExplainer(regressor, device="cpu", check_additivity=False), 3, 1.0)
    with pytest.raises(RuntimeError, match="at row 3: base value"):
        unchecked.shap_values(DIABETES, check_additivity=True)
    for check in (None, False):
        np.testing.assert_array_equal(unchecked.shap_values(DIABETES, check_additivity=check), values)


@pytest.mark.parametrize("data", [None, DIABETES[:20]], ids=["covers", "background"])
@pytest.mark.parametrize("interactions", ["occurring", 3])
def test_additivity_check_of_interactions(regressor: Any, data: Any, interactions: Any) -> None:
    explainer, kind = TreeExplainer(regressor, data, device="cpu"), Kind(2, "SII")
    clean = explainer.explain_interactions(DIABETES, interactions=interactions)
    explainer.shap_interaction_values(DIABETES)
    assert clean.additivity_error is not None and clean.additivity_error < 1e-3
    plans = explainer._compiled.of(kind)._plans
    plans[NO_INTERVALS] = Skewed(plans[NO_INTERVALS], 3, 1.0)
    with pytest.raises(RuntimeError, match="at row 3: base value"):
        explainer.explain_interactions(DIABETES, interactions=interactions)
    with pytest.raises(RuntimeError, match="at row 3: base value"):
        explainer.shap_interaction_values(DIABETES)


@pytest.mark.parametrize(
    ("precision", "dtype", "unit"),
    [("single", "f8", 2.0**-18), ("double", "f8", 2.0**-40), ("double", "f4", 2.0**-18)],
)
def test_additivity_tolerance_is_relative_to_the_leaves(precision: str, dtype: str, unit: float) -> None:
    model = DecisionTreeRegressor(max_depth=3).fit(DIABETES, PROGRESSION)
    mean = model.tree_.value[0]
    allowed = unit * np.abs(model.tree_.value[model.tree_.children_left < 0] - mean).max()
    X = DIABETES.astype(dtype)
    clean = explain(model, X, precision=precision).additivity_error
    assert clean < allowed / 8
    skew(TreeExplainer(model, device="cpu", precision=precision), 0, 0.8 * allowed).shap_values(X)
    with pytest.raises(RuntimeError, match="additivity"):
        skew(TreeExplainer(model, device="cpu", precision=precision), 0, 1.2 * allowed).shap_values(X)


def test_additivity_error_is_the_largest_gap(regressor: Any) -> None:
    explanation = explain(regressor, DIABETES)
    gap = np.abs(
        explanation.values.sum(axis=1)
        + explanation.base_values
        - adapt(regressor).ensemble.margin(DIABETES)[:, 0]
    )
    np.testing.assert_allclose(explanation.additivity_error, gap.max(), atol=1e-12)


# Copies, processes and threads


@pytest.mark.parametrize("how", ["pickle", "copy", "deepcopy", "joblib"])
def test_copies(multiclass: Any, how: str, tmp_path: Any) -> None:
    explainer = TreeExplainer(
        make_pipeline(StandardScaler(), multiclass).fit(IRIS, SPECIES), outputs="all", n_jobs=2
    )
    if how == "joblib":
        joblib.dump(explainer, tmp_path / "explainer")
        other = joblib.load(tmp_path / "explainer", mmap_mode="r")
    else:
        other = {
            "pickle": lambda e: pickle.loads(pickle.dumps(e)),
            "copy": copy.copy,
            "deepcopy": copy.deepcopy,
        }[how](explainer)
    np.testing.assert_array_equal(other.shap_values(IRIS), explainer.shap_values(IRIS))
    np.testing.assert_array_equal(other.expected_value, explainer.expected_value)
    assert repr(other) == repr(explainer)


def test_pickle_does_not_hold_the_model(regressor: Any) -> None:
    assert b"sklearn.ensemble" not in pickle.dumps(TreeExplainer(regressor))


def test_many_threads_at_once(multiclass: Any) -> None:
    explainer = TreeExplainer(multiclass)
    expected = explainer.shap_values(IRIS)
    with ThreadPoolExecutor(8) as pool:
        for values in pool.map(lambda i: explainer.shap_values(IRIS[i % 20 :]), range(64)):
            np.testing.assert_array_equal(values, expected[len(expected) - len(values) :])


@pytest.mark.parametrize("n_jobs", [None, 1, 2, 5, -1])
def test_result_does_not_depend_on_threads(regressor: Any, n_jobs: int | None) -> None:
    np.testing.assert_array_equal(
        TreeExplainer(regressor, n_jobs=n_jobs).shap_values(DIABETES),
        TreeExplainer(regressor).shap_values(DIABETES),
    )


def threads_asked_for(explainer: TreeExplainer) -> int:
    asked = []

    class Watched(Skewed):
        def explain(
            self, X: np.ndarray, values: np.ndarray, margin: np.ndarray | None, n_threads: int, **options: Any
        ) -> np.ndarray | None:
            asked.append(n_threads)
            return super().explain(X, values, margin, n_threads, **options)

    watched = copy.copy(explainer)
    plans = watched._compiled.of(SHAP_VALUES)._plans
    plan = plans[NO_INTERVALS]
    try:
        plans[NO_INTERVALS] = Watched(plan, 0, 0.0)
        watched.shap_values(np.tile(DIABETES, (3, 1)))  # enough work for several threads
    finally:
        plans[NO_INTERVALS] = plan
    return asked[0]


def test_n_jobs_is_that_of_joblib(regressor: Any) -> None:
    assert threads_asked_for(TreeExplainer(regressor, device="cpu")) == 1
    assert threads_asked_for(TreeExplainer(regressor, device="cpu", n_jobs=3)) == 3
    assert threads_asked_for(TreeExplainer(regressor, device="cpu", n_jobs=-1)) == joblib.cpu_count()
    # joblib 1.2 has only the older of these names.
    with getattr(joblib, "parallel_config", joblib.parallel_backend)("threading", n_jobs=2):
        assert threads_asked_for(TreeExplainer(regressor, device="cpu")) == 2
        assert threads_asked_for(TreeExplainer(regressor, device="cpu", n_jobs=1)) == 1


@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_inside_joblib(regressor: Any, backend: str) -> None:
    explainer = TreeExplainer(regressor, n_jobs=-1)
    parts = np.array_split(DIABETES, 3)
    result = joblib.Parallel(2, backend=backend)(
        joblib.delayed(explainer.shap_values)(part) for part in parts
    )
    np.testing.assert_array_equal(np.concatenate(result), explainer.shap_values(DIABETES))


def test_processors_are_counted_for_enough_work_only(regressor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    large = RandomForestRegressor(100, n_jobs=1, random_state=0).fit(DIABETES, DIABETES[:, 0])
    counted: list[int] = []
    monkeypatch.setattr(execution, "effective_n_jobs", lambda n_jobs: counted.append(n_jobs) or 2)
    # Without tables, bits do not depend on the number of rows; the use of tables depends on the instruction
    # set.
    options: dict[str, Any] = {"device": "cpu", "n_jobs": -1, "algorithm": "quadrature"}
    explainers = [TreeExplainer(model, **options) for model in (regressor, large)]
    counted.clear()
    many = np.tile(DIABETES, (3, 1))
    for explainer, few, n_counted in zip(explainers, (64, 40), (0, 1)):
        expected = explainer.shap_values(many)
        assert counted == [-1]
        np.testing.assert_array_equal(explainer.shap_values(DIABETES[:few]), expected[:few])
        assert counted[1:] == n_counted * [-1]
        counted.clear()


def test_call_of_one_row_is_quick(regressor: Any) -> None:
    explainer = TreeExplainer(regressor, device="cpu")
    for dtype in (np.float32, np.float64):
        x = np.ascontiguousarray(DIABETES[:1], dtype)
        values, margin = np.empty((1, 1, 10), dtype), np.empty((1, 1))

        def kernel() -> None:
            explainer._compiled.of(SHAP_VALUES).plan().explain(x, values, margin, 1)  # noqa: B023

        def whole() -> None:
            explainer.shap_values(x)  # noqa: B023

        def unit() -> None:  # 1.6 us; the whole call takes 44 us more than the kernel
            np.abs(x).max()  # noqa: B023

        # Measure processor time in these units, so that a busy machine does not matter.
        rounds = [
            [timeit.timeit(call, timer=time.process_time, number=200) for call in (whole, kernel, unit)]
            for _ in range(9)
        ]
        seconds = np.min(rounds, axis=0)
        assert seconds[0] - seconds[1] < 62 * seconds[2]
