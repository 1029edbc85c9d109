"""Explainers as MLflow models give the same values, without a pickle and without the training library."""

# ruff: noqa: E402
from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pd = pytest.importorskip("pandas")
pyarrow = pytest.importorskip("pyarrow")
mlflow = pytest.importorskip("mlflow")
skops = pytest.importorskip("skops.io")

from helpers.mlflow_versions import require_database
from mlflow.exceptions import MlflowException
from mlflow.models import Model, ModelSignature
from mlflow.types import ColSpec, DataType, Schema
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier, RandomForestRegressor
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.utils.fixes import parse_version

from skshapgpu import TreeExplainer
from skshapgpu.mlflow import load_model, log_explainer, save_model

pytestmark = [
    pytest.mark.filterwarnings("ignore:Hint. Inferred schema contains integer:UserWarning"),
    pytest.mark.filterwarnings("ignore:An input example was not provided:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*:FutureWarning"),
]

N = 300


def table() -> Any:
    """Make rows with a blank in a name, whole numbers, categories and missing values."""
    rng = np.random.default_rng(3)
    return pd.DataFrame(
        {
            "body mass": rng.normal(70, 15, N),
            "n_visits": rng.integers(0, 9, N),
            "ward": pd.Categorical(rng.choice(["north", "south", "west"], N)),
            "dose": np.where(rng.random(N) < 0.1, np.nan, rng.exponential(size=N)),
        },
        index=[f"patient {i}" for i in range(N)],
    )


X = table()
Y = 1000 + X["body mass"] * (X["ward"] == "west") + X["n_visits"] * X["dose"].fillna(5)
NUMBERS = X[["body mass", "n_visits", "dose"]].astype(float).fillna(-1)
CLASSES = np.array(["cat", "dog", "emu"])[pd.qcut(Y, 3, labels=False)]


def of_xgboost() -> tuple[Any, Any]:
    xgboost = pytest.importorskip("xgboost")
    # XGBoost keeps the categories of columns since 3.1. Earlier models take codes, and MLflow keeps none.
    rows = X if parse_version(xgboost.__version__) >= parse_version("3.1") else NUMBERS
    return xgboost.XGBRegressor(n_estimators=15, enable_categorical=True).fit(rows, Y), rows


def of_lightgbm() -> tuple[Any, Any]:
    lightgbm = pytest.importorskip("lightgbm")
    return lightgbm.LGBMClassifier(n_estimators=5, verbose=-1).fit(X, CLASSES), X


def of_catboost() -> tuple[Any, Any]:
    catboost = pytest.importorskip("catboost")
    frame = X.astype({"ward": str})
    model = catboost.CatBoostRegressor(
        iterations=15, verbose=0, allow_writing_files=False, one_hot_max_size=9
    )
    return model.fit(frame, Y, cat_features=["ward"]), frame


def of_forest() -> tuple[Any, Any]:
    return RandomForestClassifier(5, max_depth=4, random_state=0).fit(NUMBERS, CLASSES), NUMBERS


def of_boosting() -> tuple[Any, Any]:
    model = HistGradientBoostingClassifier(max_iter=5, categorical_features="from_dtype")
    return model.fit(X, Y > np.median(Y)), X


def pipeline() -> tuple[Any, Any]:
    encoder = make_column_transformer(
        (OneHotEncoder(), ["ward"]), (StandardScaler(), ["n_visits", "body mass"]), ("passthrough", ["dose"])
    )
    return make_pipeline(encoder, RandomForestRegressor(5, random_state=0)).fit(X, Y), X


def pipeline_of_xgboost() -> tuple[Any, Any]:
    xgboost = pytest.importorskip("xgboost")
    return make_pipeline(pipeline()[0][0], xgboost.XGBClassifier(n_estimators=5)).fit(X, Y > np.median(Y)), X


MODELS = [of_xgboost, of_lightgbm, of_catboost, of_forest, of_boosting, pipeline]


@pytest.fixture(autouse=True)
def own_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change to an empty folder, because MLflow writes files to the current one."""
    monkeypatch.chdir(tmp_path_factory.mktemp("mlflow"))


@pytest.fixture
def tracked(tmp_path: Path) -> Iterator[None]:
    require_database()
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'tracking.db'}")
    yield
    mlflow.set_tracking_uri(before)


def without_categories(rows: Any) -> Any:
    """Return rows as MLflow takes them."""
    return rows.astype(
        {name: rows[name].cat.categories.dtype for name in rows if rows[name].dtype == "category"}
    )


def assert_frame(actual: Any, explanation: Any) -> None:
    """Compare a frame of the python_function with an explanation, to the bit."""
    pd.testing.assert_frame_equal(actual, explanation.to_frame(), check_exact=True)
    assert np.ptp(actual.to_numpy(), axis=0).max() > 0


@pytest.mark.parametrize("make", MODELS)
def test_round_trip(make: Any, tmp_path: Path) -> None:
    model, rows = make()
    explainer = TreeExplainer(model)
    expected = explainer.explain(rows)
    save_model(explainer, tmp_path / "model", input_example=rows.head(3))
    loaded = load_model(str(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.explain(rows).values, expected.values)
    assert loaded.explain(rows).feature_names == expected.feature_names
    assert loaded.output_names == explainer.output_names

    called = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    plain = without_categories(rows)
    assert_frame(called.predict(plain), expected)
    assert_frame(called.predict(plain[plain.columns[::-1]].assign(comment="no feature")), expected)
    shuffled = plain.reset_index(drop=True).sample(frac=1, random_state=0)
    predictions = called.predict(shuffled)
    np.testing.assert_array_equal(predictions.index, shuffled.index)
    np.testing.assert_array_equal(predictions.sort_index(), expected.to_frame())
    for name in rows:
        with pytest.raises(MlflowException, match=rf"missing inputs \['{name}'\]"):
            called.predict(plain.drop(columns=name))
    outputs = called.metadata.signature.outputs
    assert outputs.input_names() == list(expected.to_frame())
    assert called.get_raw_model().family == explainer.family


def test_no_file_is_a_pickle(tmp_path: Path) -> None:
    save_model(TreeExplainer(pipeline()[0]), tmp_path / "model")
    files = {
        path.relative_to(tmp_path / "model").as_posix() for path in tmp_path.rglob("*") if path.is_file()
    }
    assert {"MLmodel", "data/explainer/explainer.npz", "data/explainer/steps.skops"} <= files
    for name in files:
        content = (tmp_path / "model" / name).read_bytes()
        assert not content.startswith(b"\x80")  # protocol 2 and later
        if content.startswith(b"PK"):
            with zipfile.ZipFile(tmp_path / "model" / name) as archive:
                assert {member.rpartition(".")[2] for member in archive.namelist()} <= {"npy", "json"}


FRESH = """
import sys
from importlib.abc import MetaPathFinder

blocked = set(sys.argv[1].split())

class Blocked(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in blocked:
            raise ImportError(f"{name} is not installed")

sys.meta_path.insert(0, Blocked())
import mlflow, numpy as np, pandas as pd
from skshapgpu.mlflow import load_model

for name in sys.argv[2:]:
    X, plain = pd.read_parquet(f"{name}.parquet"), pd.read_parquet(f"{name}.plain.parquet")
    np.save(f"{name}.explainer.npy", load_model(name).shap_values(X))
    np.save(f"{name}.pyfunc.npy", mlflow.pyfunc.load_model(name).predict(plain).to_numpy())
assert not blocked & set(sys.modules)
"""

LIBRARIES = "xgboost lightgbm catboost"


# skops imports all estimators of scikit-learn, and so does the encoder of the categories of its boosting.
@pytest.mark.parametrize(
    ("makers", "blocked"),
    [
        ([of_xgboost, of_lightgbm, of_catboost, of_forest], f"{LIBRARIES} sklearn.ensemble"),
        ([of_boosting, pipeline_of_xgboost], LIBRARIES),
    ],
    ids=["models", "pipelines"],
)
def test_fresh_process_without_the_training_library(makers: list[Any], blocked: str, tmp_path: Path) -> None:
    expected = {}
    for make in makers:
        try:
            model, rows = make()
        except pytest.skip.Exception:
            continue
        explainer = TreeExplainer(model)
        expected[make.__name__] = explainer.shap_values(rows)
        save_model(explainer, tmp_path / make.__name__, input_example=rows.head(3))
        rows.to_parquet(tmp_path / f"{make.__name__}.parquet")
        without_categories(rows).to_parquet(tmp_path / f"{make.__name__}.plain.parquet")
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FRESH, blocked, *expected],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert expected
    for name, values in expected.items():
        np.testing.assert_array_equal(np.load(tmp_path / f"{name}.explainer.npy"), values)
        flat = values.reshape(len(values), -1)
        np.testing.assert_array_equal(np.load(tmp_path / f"{name}.pyfunc.npy"), flat)


def test_requirements(tmp_path: Path) -> None:
    model, _ = of_boosting()
    save_model(TreeExplainer(model), tmp_path / "model")
    save_model(TreeExplainer(pipeline()[0]), tmp_path / "pipeline", extra_pip_requirements=["lunch==1"])
    save_model(TreeExplainer(model), tmp_path / "given", pip_requirements=["skshapgpu"])

    def required(name: str) -> set[str]:
        lines = (tmp_path / name / "requirements.txt").read_text().splitlines()
        return {line.partition("==")[0] for line in lines}

    assert required("model") == {"mlflow", "skshapgpu"}
    assert required("pipeline") == {"mlflow", "skshapgpu", "skops", "scikit-learn", "lunch"}
    assert required("given") == {"mlflow", "skshapgpu"}


def of_lightgbm_numbers() -> tuple[Any, Any]:
    lightgbm = pytest.importorskip("lightgbm")
    rows = NUMBERS.rename(columns={"body mass": "body_mass"})
    return lightgbm.LGBMClassifier(n_estimators=5, verbose=-1).fit(rows, CLASSES), rows


@pytest.mark.parametrize("make", [of_forest, of_lightgbm_numbers])
def test_signature_without_an_example(make: Any, tmp_path: Path) -> None:
    model, rows = make()
    explainer = TreeExplainer(model)
    save_model(explainer, tmp_path / "model")
    signature = Model.load(str(tmp_path / "model")).signature
    assert signature.inputs == Schema([ColSpec(DataType.double, name) for name in rows])
    assert signature.outputs.input_names() == [
        f"{name}__{output}" for name in rows for output in model.classes_
    ]
    called = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    single = rows.astype(np.float32)
    assert_frame(called.predict(single), explainer.explain(single.astype(float)))
    assert called.predict(rows.head(0)).shape == (0, 9)


def test_array(tmp_path: Path) -> None:
    array = NUMBERS.to_numpy()
    explainer = TreeExplainer(RandomForestRegressor(5, random_state=0).fit(array, Y))
    save_model(explainer, tmp_path / "model")
    called = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    assert called.metadata.signature.inputs.is_tensor_spec()
    assert_frame(called.predict(array), explainer.explain(array))
    with pytest.raises(MlflowException, match="Shape of input"):
        called.predict(array[:, :2])


def test_texts(tmp_path: Path) -> None:
    notes = pd.DataFrame({"note": np.where(Y > np.median(Y), "very ill", "not ill")})
    model = make_pipeline(CountVectorizer(), RandomForestRegressor(3, random_state=0)).fit(notes["note"], Y)
    explainer = TreeExplainer(model)
    save_model(explainer, tmp_path / "model", input_example=notes.head(2))
    called = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    predictions = called.predict(notes)
    assert list(predictions) == ["ill", "not", "very"]
    np.testing.assert_array_equal(predictions, explainer.shap_values(notes["note"]))


@pytest.mark.parametrize("family", ["xgboost", "lightgbm"])
def test_categories_that_are_numbers(family: str, tmp_path: Path) -> None:
    library = pytest.importorskip(family)
    if family == "xgboost" and library.__version__ < "3.1":
        pytest.skip("models of earlier versions do not know their categories")
    rows = X.assign(ward=pd.Categorical(X["ward"].cat.codes.map({0: 30, 1: 7, 2: 12})))
    options = {"enable_categorical": True} if family == "xgboost" else {"verbose": -1}
    regressor = library.XGBRegressor if family == "xgboost" else library.LGBMRegressor
    explainer = TreeExplainer(regressor(n_estimators=5, **options).fit(rows, Y))
    expected = explainer.explain(rows)
    assert expected[:, "ward"].importance().min() > 1
    save_model(explainer, tmp_path / "model", input_example=rows.head(3))
    called = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    assert called.metadata.signature.inputs.input_dict()["ward"].type == DataType.long
    assert_frame(called.predict(without_categories(rows)), expected)
    with pytest.raises(MlflowException, match="Incompatible input types for column ward"):
        called.predict(rows)


def test_categories_without_an_example(tmp_path: Path) -> None:
    model, rows = of_boosting()
    explainer = TreeExplainer(model)
    save_model(explainer, tmp_path / "model")
    called = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    assert called.metadata.signature.inputs is None
    for container in (rows, without_categories(rows)):
        assert_frame(called.predict(container), explainer.explain(rows))


def test_given_signature_is_completed(tmp_path: Path) -> None:
    model, rows = of_forest()
    inputs = Schema([ColSpec(DataType.float, name) for name in rows])
    save_model(TreeExplainer(model), tmp_path / "model", signature=ModelSignature(inputs))
    signature = Model.load(str(tmp_path / "model")).signature
    assert signature.inputs == inputs
    assert len(signature.outputs) == 3 * rows.shape[1]
    assert [param.name for param in signature.params] == ["reasons", "by_sign", "base_values"]


def test_without_inputs_in_the_signature_names_are_checked(tmp_path: Path) -> None:
    explainer, rows = TreeExplainer(pipeline()[0]), X
    save_model(explainer, tmp_path / "model")
    called = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    assert called.metadata.signature.inputs is None
    assert_frame(called.predict(rows[rows.columns[::-1]]), explainer.explain(rows))
    predictions = called.predict(rows, params={"base_values": True})
    assert set(predictions["base_value"]) == {explainer.expected_value}
    with pytest.raises(ValueError, match="now missing:\n- dose"):
        called.predict(rows.drop(columns="dose"))
    for other in ({"dose": [1.0]}, pyarrow.Table.from_pandas(rows), sparse.csr_array(NUMBERS)):
        with pytest.raises(TypeError, match="must be a data frame of pandas or an array, not a"):
            called.predict(other)


def test_params(tmp_path: Path) -> None:
    model, rows = of_forest()
    explainer = TreeExplainer(model)
    save_model(explainer, tmp_path / "model", input_example=rows.head(3))
    called = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    predictions = called.predict(rows, params={"base_values": True})
    names = [f"base_value__{output}" for output in model.classes_]
    values = explainer.explain(rows).to_frame()
    pd.testing.assert_frame_equal(predictions[list(values)], values, check_exact=True)
    np.testing.assert_array_equal(predictions[names], np.tile(explainer.expected_value, (N, 1)))
    of_class = [name for name in values if name.endswith("__dog")]
    np.testing.assert_allclose(
        predictions[of_class].sum(axis=1) + predictions["base_value__dog"],
        model.predict_proba(rows)[:, 1],
        atol=1e-6,
    )

    strongest = called.predict(rows, params={"reasons": 2})
    names = [
        f"{column}__{output}" for column in ("feature_1", "value_1", "shap_1") for output in model.classes_
    ]
    assert list(strongest)[: len(names)] == names
    assert list(strongest["feature_1__dog"]) == [
        of_class[place].removesuffix("__dog") for place in values[of_class].abs().to_numpy().argmax(axis=1)
    ]
    signs = called.predict(rows, params={"reasons": 1, "by_sign": True})
    assert (signs["for_shap_1__cat"].dropna() > 0).all() and (signs["against_shap_1__cat"].dropna() < 0).all()
    with pytest.raises(ValueError, match="reasons must be at least 1"):
        called.predict(rows, params={"reasons": -1})


def test_options_of_the_python_function(tmp_path: Path) -> None:
    model, _ = of_forest()
    save_model(TreeExplainer(model, device="cpu"), tmp_path / "model")
    config = {"memory_limit": "64MiB", "device": "cpu", "n_jobs": 2}
    called = mlflow.pyfunc.load_model(str(tmp_path / "model"), model_config=config)
    assert called.get_raw_model().memory_limit == 2**26
    assert load_model(str(tmp_path / "model"), memory_limit="32MiB").memory_limit == 2**25


def test_groups_of_a_pipeline(tmp_path: Path) -> None:
    explainer = TreeExplainer(pipeline()[0], feature_groups="input", data=X.head(50))
    save_model(explainer, tmp_path / "model")
    expected, explanation = explainer.explain(X), load_model(str(tmp_path / "model")).explain(X)
    assert explanation.feature_names == expected.feature_names == ("ward", "n_visits", "body mass", "dose")
    np.testing.assert_array_equal(explanation.values, expected.values)
    pd.testing.assert_frame_equal(explanation.data, expected.data)


class Doubled(TransformerMixin, BaseEstimator):
    """Step of a type that skops does not trust by itself."""

    def fit(self, X: Any, y: Any = None) -> Doubled:
        self.fitted_ = True
        return self

    def transform(self, X: Any) -> Any:
        return 2 * X


TRUSTED = [f"{Doubled.__module__}.Doubled"]


@pytest.fixture
def doubled() -> TreeExplainer:
    model = make_pipeline(Doubled(), RandomForestRegressor(5, random_state=0))
    return TreeExplainer(model.fit(NUMBERS, Y))


def test_trusted_types(doubled: TreeExplainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=rf"does not trust: {TRUSTED[0]}.*skops_trusted_types="):
        save_model(doubled, tmp_path / "model")
    assert not (tmp_path / "model").exists()
    save_model(doubled, tmp_path / "model", skops_trusted_types=TRUSTED)
    path, expected = str(tmp_path / "model"), doubled.shap_values(NUMBERS)
    assert Model.load(path).flavors["skshapgpu"]["skops_trusted_types"] == TRUSTED
    np.testing.assert_array_equal(load_model(path).shap_values(NUMBERS), expected)
    np.testing.assert_array_equal(mlflow.pyfunc.load_model(path).predict(NUMBERS), expected)
    with pytest.raises(ValueError, match="does not trust"):
        load_model(path, skops_trusted_types=[])
    with pytest.raises(ValueError, match="does not trust"):
        mlflow.pyfunc.load_model(path, model_config={"skops_trusted_types": []})

    monkeypatch.setenv("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "false")
    for load in (load_model, mlflow.pyfunc.load_model):
        with pytest.raises(ValueError, match=f"the model itself lists are not trusted: {TRUSTED[0]}"):
            load(path)
    values = load_model(path, skops_trusted_types=TRUSTED).shap_values(NUMBERS)
    np.testing.assert_array_equal(values, expected)


def test_steps_that_no_other_process_can_load(tmp_path: Path) -> None:
    for function, message in (
        (lambda X: X + 1, "skops cannot"),
        (at_home, "__main__.at_home, which only this"),
    ):
        model = make_pipeline(FunctionTransformer(function), RandomForestRegressor(3)).fit(NUMBERS, Y)
        with pytest.raises(ValueError, match=message):
            save_model(TreeExplainer(model), tmp_path / "model", skops_trusted_types=["test_mlflow.<lambda>"])


def at_home(X: Any) -> Any:
    return X + 1


at_home.__module__ = "__main__"


@pytest.mark.parametrize("damage", ["pickle", "list", "empty", "other class"])
def test_damaged_steps(damage: str, tmp_path: Path) -> None:
    save_model(TreeExplainer(pipeline()[0]), tmp_path / "model")
    path = tmp_path / "model/data/explainer/steps.skops"
    content = {
        "pickle": b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x0btouch risky\x85R.",
        "list": skops.dumps([1, 2]),
        "empty": b"",
        "other class": skops.dumps({"steps": [1], "grouped_by_input": False}),
    }
    path.write_bytes(content[damage])
    with pytest.raises(ValueError, match=r"skops cannot load|holds no steps|without a method transform"):
        load_model(str(tmp_path / "model"))


def test_refused(tmp_path: Path) -> None:
    model, rows = of_forest()
    with pytest.raises(TypeError, match="explainer must be a TreeExplainer, not a RandomForestClassifier"):
        save_model(model, tmp_path / "model")
    with pytest.raises(TypeError, match="skops_trusted_types must be a list"):
        save_model(TreeExplainer(model), tmp_path / "model", skops_trusted_types="one")
    with pytest.raises(ValueError, match="now missing"):
        save_model(TreeExplainer(model), tmp_path / "model", input_example=rows.drop(columns="dose"))
    binary = HistGradientBoostingClassifier(max_iter=3).fit(NUMBERS, Y > np.median(Y))
    with pytest.raises(ValueError, match="needs labels"):
        save_model(TreeExplainer(binary, NUMBERS, model_output="log_loss"), tmp_path / "model")
    assert not (tmp_path / "model").exists()
    named = RandomForestRegressor(3).fit(NUMBERS.rename(columns={"dose": "base_value"}), Y)
    save_model(TreeExplainer(named), tmp_path / "model")
    called = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    with pytest.raises(ValueError, match="'base_value', which a feature has"):
        called.predict(NUMBERS.rename(columns={"dose": "base_value"}), params={"base_values": True})
    other = tmp_path / "other"
    Model(flavors={"strange": {}}).save(str(other))
    (tmp_path / "folder").mkdir()
    other.rename(tmp_path / "folder/MLmodel")
    with pytest.raises(ValueError, match="has no explainer, but the flavors strange"):
        load_model(str(tmp_path / "folder"))


@pytest.mark.usefixtures("tracked")
def test_logged_and_registered() -> None:
    model, rows = of_forest()
    explainer = TreeExplainer(model)
    expected = explainer.explain(rows)
    with mlflow.start_run() as run:
        info = log_explainer(
            explainer,
            name="explainer",
            registered_model_name="reasons",
            input_example=rows.head(3),
            tags={"team": "blue"},
        )
    assert info.run_id == run.info.run_id
    for uri in (info.model_uri, "models:/reasons/1"):
        np.testing.assert_array_equal(load_model(uri).shap_values(rows), expected.values)
        assert_frame(mlflow.pyfunc.load_model(uri).predict(rows), expected)
    assert mlflow.get_logged_model(info.model_id).tags["team"] == "blue"
    example = mlflow.pyfunc.load_model(info.model_uri).input_example
    np.testing.assert_array_equal(example, rows.head(3))
    assert json.loads(json.dumps(info.signature.to_dict()))["params"] is not None
