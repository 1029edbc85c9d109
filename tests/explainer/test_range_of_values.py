"""Values that float32 cannot hold: the leaves of a model are in float64, but X and the values in float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.tree import DecisionTreeRegressor

from skshapgpu import TreeExplainer, explain_batches

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 4))
Y = X @ [2.0, -1.0, 0.5, 0.0] + X[:, 0] * X[:, 1]


def scaled_tree(exponent: int) -> DecisionTreeRegressor:
    """Return a tree whose leaves are multiplied by a power of two."""
    tree = DecisionTreeRegressor(max_depth=4, random_state=0).fit(X, Y)
    tree.tree_.value[...] = np.ldexp(tree.tree_.value, exponent)
    return tree


@pytest.mark.parametrize("exponent", [-1000, -160, -130, 130, 400])
@pytest.mark.parametrize("background", [False, True])
def test_values_beyond_float32_are_refused(exponent: int, background: bool, tmp_path: Path) -> None:
    """Without an error, small values would be 0, and would add up as far as float32 can tell."""
    tree, data = scaled_tree(exponent), X[:20] if background else None
    explainer = TreeExplainer(tree, data=data, precision="double", check_additivity=False)
    right = TreeExplainer(scaled_tree(0), data=data, precision="double").shap_values(X)
    np.testing.assert_allclose(explainer.shap_values(X), np.ldexp(right, exponent), rtol=1e-12)
    extreme = "too small" if exponent < 0 else "too large"
    for call in (explainer.shap_values, explainer.shap_interaction_values, explainer.explain):
        with pytest.raises(ValueError, match=f"{extreme} for values in float32: give X in float64"):
            call(X.astype(np.float32))
    if background:
        return
    pytest.importorskip("pyarrow")
    with pytest.raises(ValueError, match=f"{extreme} for values in float32: use dtype='float64'"):
        explain_batches(explainer, X, tmp_path / "out.parquet", dtype="float32")
    assert not list(tmp_path.iterdir())


def test_values_may_be_larger_than_leaves() -> None:
    """The value of a triple is a mean of differences of eight margins, here mostly of rare rows."""
    rows = np.array(np.meshgrid([0.0, 1.0], [0.0, 1.0], [0.0, 1.0])).reshape(3, -1).T
    n_ones = rows.sum(axis=1).astype(int)
    tree = DecisionTreeRegressor(random_state=0)
    tree.fit(rows, np.arange(8.0), sample_weight=np.array([1e6, 1e3, 1.0, 1.0])[n_ones])
    tree.tree_.value[tree.apply(rows), 0, 0] = np.array([0.0, 1e38, -1e38, 1e38])[n_ones]
    triples = TreeExplainer(tree).explain_interactions(rows, order=3)
    assert np.abs(triples.values).max() > np.finfo(np.float32).max
    with pytest.raises(ValueError, match="too large for values in float32"):
        TreeExplainer(tree).explain_interactions(rows.astype(np.float32), order=3)


def test_one_of_several_outputs_is_beyond_float32() -> None:
    tree = DecisionTreeRegressor(max_depth=4, random_state=0).fit(X, np.column_stack([Y, Y]))
    tree.tree_.value[:, 0] = np.ldexp(tree.tree_.value[:, 0], -60)
    tree.tree_.value[:, 1] = np.ldexp(tree.tree_.value[:, 1], -150)
    explainer = TreeExplainer(tree, precision="double")
    values = explainer.shap_values(X)
    np.testing.assert_array_equal(values[..., 1], np.ldexp(values[..., 0], -90))
    with pytest.raises(ValueError, match="too small for values in float32"):
        explainer.shap_values(X.astype(np.float32))


@pytest.mark.parametrize("exponent", [-120, 120])
def test_values_within_float32_are_not_refused(exponent: int) -> None:
    values = TreeExplainer(scaled_tree(exponent)).shap_values(X.astype(np.float32))
    right = np.ldexp(TreeExplainer(scaled_tree(0), precision="double").shap_values(X), exponent)
    assert values.dtype == np.float32
    np.testing.assert_allclose(values, right, atol=1e-6 * np.abs(right).max())
