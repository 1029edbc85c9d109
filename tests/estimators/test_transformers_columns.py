"""ShapTransformer with columns="used": names, folds, importances, other libraries' selectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.families import forest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.feature_selection import SelectFromModel
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from skshapgpu import ShapSelector, ShapTransformer, TreeExplainer, cross_val_explain

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 40)) * (RNG.random((200, 40)) < 0.5)
Y = X[:, 4] * 3 + X[:, 17] * X[:, 30] + (X[:, 31] > 0)


def used_by(model: Any) -> np.ndarray:
    used = TreeExplainer(model, columns="used").feature_indices
    assert used is not None and 3 < len(used) < 25
    return used


@pytest.mark.parametrize("as_sparse", [False, True])
def test_columns_and_their_names(as_sparse: bool) -> None:
    rows = sp.csr_array(X) if as_sparse else X
    transformer = ShapTransformer(forest(), columns="used").fit(rows, Y)
    every = ShapTransformer(forest()).fit(rows, Y)
    used = used_by(transformer.estimator_)
    np.testing.assert_array_equal(transformer.transform(rows), every.transform(rows)[:, used])
    assert transformer.get_feature_names_out().tolist() == [f"x{i}" for i in used]
    np.testing.assert_array_equal(transformer.fit_transform(rows, Y), every.transform(rows)[:, used])
    explanation = transformer.explain(rows)
    np.testing.assert_array_equal(explanation.feature_indices, used)
    assert clone(transformer).columns == "used" and "columns='used'" in repr(transformer)


def test_frames_and_several_outputs() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=[f"c{i}" for i in range(40)])
    targets = np.column_stack([Y, -Y * X[:, 5]])
    transformer = ShapTransformer(forest(), columns="used").set_output(transform="pandas")
    values = transformer.fit_transform(frame, targets)
    used = used_by(transformer.estimator_)
    assert list(values.columns) == [f"c{i}__{output}" for i in used for output in (0, 1)]
    expected = TreeExplainer(transformer.estimator_).shap_values(frame)[:, used]
    np.testing.assert_array_equal(values.to_numpy(), expected.reshape(200, -1))
    with pytest.raises(ValueError, match="same order"):
        transformer.transform(frame[frame.columns[::-1]])


def test_importances_and_selectors_are_of_all_columns() -> None:
    some, every = (ShapTransformer(forest(), columns=columns).fit(X, Y) for columns in ("used", "all"))
    np.testing.assert_array_equal(some.feature_importances_, every.feature_importances_)
    assert some.feature_importances_.shape == (40,) and np.argmax(some.feature_importances_) == 4
    chosen = SelectFromModel(ShapTransformer(forest(), columns="used"), max_features=2).fit(X, Y)
    assert chosen.get_support()[4] and chosen.get_support().shape == (40,)
    selector = ShapSelector(ShapTransformer(forest(), columns="used"), cv=3, max_features=2).fit(X, Y)
    assert selector.get_support()[4] and selector.get_support().shape == (40,)
    results = cross_val_explain(ShapTransformer(forest(), columns="used"), X, Y, cv=3)
    assert results["explanation"].shape == (200, 40)


def test_importances_behind_an_encoder(rng: np.random.Generator) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"letter": rng.choice(list("abcdefgh"), 200), "number": rng.choice([1, 2, 3], 200)})
    y = (frame["letter"] == "b") * frame["number"]
    encode = make_column_transformer((OneHotEncoder(), ["letter", "number"]))
    pipeline = make_pipeline(encode, forest(3, 2))
    some, every = (ShapTransformer(pipeline, columns=columns).fit(frame, y) for columns in ("used", "all"))
    assert some.transform(frame).shape[1] < every.transform(frame).shape[1]
    assert some.transform(frame).shape[1] == len(some.get_feature_names_out())
    np.testing.assert_allclose(some.feature_importances_, every.feature_importances_, atol=1e-12)


def test_folds_have_the_columns_of_the_model_of_all_rows() -> None:
    folds = KFold(3)
    transformer = ShapTransformer(forest(), columns="used", cv=folds)
    values = transformer.fit_transform(X, Y)
    used = used_by(transformer.estimator_)
    others = set()
    for train, test in folds.split(X):
        explainer = TreeExplainer(forest().fit(X[train], Y[train]))
        np.testing.assert_array_equal(values[test], explainer.shap_values(X[test])[:, used])
        others |= set(used_by(forest().fit(X[train], Y[train]))) ^ set(used)
    assert others  # the models use different columns
    make_pipeline(ShapTransformer(forest(), columns="used", cv=3), Ridge()).fit(X, Y).predict(X)


def test_folds_whose_steps_make_other_columns() -> None:
    letters = np.concatenate([np.repeat(list("abcdefgh"), 20), np.repeat(list("cd"), 20)])[:, np.newaxis]
    y = (letters[:, 0] == "b") * 1.0 + (letters[:, 0] == "d") * 2 + np.arange(200) * 1e-6
    pipeline = make_pipeline(OneHotEncoder(handle_unknown="ignore"), forest(2, 3))
    folds = [(np.r_[0:60, 80:200], np.r_[60:80]), (np.r_[:60, 60:80], np.r_[0:60, 80:200])]
    transformer = ShapTransformer(pipeline, columns="used", cv=folds)
    every = ShapTransformer(pipeline, cv=folds)
    values, expected = transformer.fit_transform(letters, y), every.fit_transform(letters, y)
    used = transformer.explainer_.feature_indices
    assert 1 < len(used) < expected.shape[1]
    np.testing.assert_array_equal(values, expected[:, used])
    assert np.abs(values).max() > 0


def test_fitted_models() -> None:
    model = forest().fit(X, Y)
    for transformer in (
        ShapTransformer.from_fitted(model, columns="used"),
        ShapTransformer(FrozenEstimator(model), columns="used").fit(X),
    ):
        np.testing.assert_array_equal(
            transformer.transform(X), TreeExplainer(model, columns="used").shap_values(X)
        )
        assert len(transformer.get_feature_names_out()) == len(used_by(model))


def test_invalid_value_is_rejected_before_the_fit() -> None:
    with pytest.raises(ValueError, match="columns must be"):
        ShapTransformer(forest(), columns="some").fit(X, Y)
