"""Native categories of scikit-learn 1.10, by stand-ins: trees that split by bitsets and by hashes.

A stand-in sends values left or right one by one, as scikit-learn publishes it, and its estimator encodes X.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.families import values_by_definition
from helpers.sklearn_nodes import nodes_of_later_release
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import (
    BaggingRegressor,
    ExtraTreesRegressor,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
    VotingRegressor,
)
from sklearn.ensemble._forest import BaseForest
from sklearn.ensemble._iforest import _average_path_length
from sklearn.frozen import FrozenEstimator
from sklearn.preprocessing import FunctionTransformer, OrdinalEncoder
from sklearn.tree import BaseDecisionTree, DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.tree._tree import NODE_DTYPE, Tree

from skshapgpu import ShapTransformer, TreeExplainer, UnsupportedModelError, explain, reference
from skshapgpu.adapters import adapt, sklearn_categories, sklearn_trees

RNG = np.random.default_rng(1)
N_ROWS = 300
#: Categories between numbers, so that an encoder that reorders columns shows. The second has more categories
#: than a bitset holds.
X = pd.DataFrame(
    {
        "size": RNG.normal(50, 9, N_ROWS),
        "color": RNG.choice(["amber", "blue", "coral", "denim", "ebony", "fern", "gold"], N_ROWS),
        "weight": RNG.normal(size=N_ROWS),
        "city": RNG.permutation(np.arange(1000, 1000 + N_ROWS)),
    }
)
X.loc[RNG.random(N_ROWS) < 0.1, "color"] = np.nan
X.loc[RNG.random(N_ROWS) < 0.1, "weight"] = np.nan
IS_CATEGORICAL = np.array([False, True, False, True])
Y = 1000 + X["size"] + 20 * X["color"].isin(["amber", "coral", "fern"]) + 7 * (X["city"] % 3 == 0)
CLASSES = np.array(["c", "a", "b"])[np.digitize(Y, [1050, 1068])]

#: Rows with unknown categories.
ROWS = X.iloc[:12].assign(color=["violet", *X["color"][1:12]], city=[*X["city"][:11], 5])
BACKGROUND = X.iloc[20:31]


def mixed(number: int) -> int:
    """Mix 32 bits with Python's integers."""
    number ^= number >> 16
    number = number * 0x7FEB352D % 2**32
    number ^= number >> 15
    number = number * 0x846CA68B % 2**32
    return number ^ number >> 16


def goes_left(node: np.void, value: np.float32) -> bool:
    if np.isnan(value):
        return bool(node["missing_go_to_left"])
    if node["split_kind"] == 0:
        return bool(value <= node["threshold"])
    category, words = int(value), node["left_cat_bitset"]
    if node["split_kind"] == 1:
        return bool(int(words[category // 32]) >> category % 32 & 1)
    return bool(mixed(int(words[0]) ^ category) & 1)


class NativeTree(Tree):
    """Tree with the nodes of scikit-learn 1.10."""

    nodes: np.ndarray

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"nodes": self.nodes}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.nodes = state["nodes"]
        present = np.zeros(len(self.nodes), NODE_DTYPE)
        for name in NODE_DTYPE.names:
            present[name] = self.nodes[name]
        super().__setstate__(state | {"nodes": present})

    def __reduce__(self) -> Any:
        return NativeTree, (self.n_features, self.n_classes, self.n_outputs), self.__getstate__()

    def apply(self, X: Any) -> np.ndarray:
        if X.dtype != np.float32:
            raise ValueError("X.dtype should be np.float32")
        leaves = np.zeros(len(X), np.intp)
        for row, values in enumerate(X):
            while (node := self.nodes[leaves[row]])["left_child"] >= 0:
                left = goes_left(node, values[node["feature"]])
                leaves[row] = node["left_child" if left else "right_child"]
        return leaves

    def predict(self, X: Any) -> np.ndarray:
        values = self.value[self.apply(X)]
        return values[:, 0] if self.n_outputs == 1 else values


def encoded(model: Any, X: pd.DataFrame) -> pd.DataFrame:
    """Return X with codes in place of categories."""
    columns = X.columns[IS_CATEGORICAL]
    encoder = getattr(model, "encoder_", None) or model.columns_.named_transformers_["categorical"]
    codes = encoder.transform(X[columns])
    return X.assign(**{name: codes[:, i] for i, name in enumerate(columns)}).astype(np.float32)


@pytest.fixture(autouse=True)
def later_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let estimators encode X before they check it."""
    check_tree_input, check_input = BaseDecisionTree._validate_X_predict, BaseForest._validate_X_predict
    score = IsolationForest.score_samples

    def encode(model: Any, X: Any) -> Any:
        has_encoder = hasattr(model, "encoder_") or hasattr(model, "columns_")
        return encoded(model, X) if has_encoder and isinstance(X, pd.DataFrame) else X

    monkeypatch.setattr(
        BaseDecisionTree,
        "_validate_X_predict",
        lambda self, X, check: check_tree_input(self, encode(self, X), check),
    )
    monkeypatch.setattr(BaseForest, "_validate_X_predict", lambda self, X: check_input(self, encode(self, X)))
    monkeypatch.setattr(IsolationForest, "score_samples", lambda self, X: score(self, encode(self, X)))
    monkeypatch.setattr(sklearn_trees, "SklearnTree", NativeTree)
    monkeypatch.setattr(sklearn_trees.nodes_of, "__defaults__", (NativeTree,))


def fitted(model: Any, y: Any, seed: int = 0) -> Any:
    """Fit a model to codes, and let its trees split by sets of categories."""
    rng = np.random.default_rng(seed)
    model.encoder_ = OrdinalEncoder(
        handle_unknown="use_encoded_value",
        unknown_value=np.nan,
        encoded_missing_value=np.nan,
        dtype=np.float32,
    ).fit(X[X.columns[IS_CATEGORICAL]])
    model.fit(encoded(model, X), y)
    model.is_categorical_ = IS_CATEGORICAL
    members = getattr(model, "estimators_", [model])
    columns = getattr(model, "estimators_features_", [np.arange(4)] * len(members))
    for member, features in zip(members, columns, strict=True):
        member.is_categorical_ = IS_CATEGORICAL[features]
        member.tree_ = native(member.tree_, features, rng)
    return model


def native(tree: Tree, columns: np.ndarray, rng: np.random.Generator) -> NativeTree:
    result = NativeTree(tree.n_features, tree.n_classes, tree.n_outputs)
    state = tree.__getstate__()
    result.__setstate__(state | {"nodes": nodes_of_later_release(state["nodes"])})
    for node in np.flatnonzero(result.nodes["left_child"] >= 0):
        column = X.columns[columns[result.nodes["feature"][node]]]
        if column == "color":
            result.nodes["split_kind"][node] = rng.choice([1, 2])
        elif column == "city":
            result.nodes["split_kind"][node] = 2
        else:
            continue
        result.nodes["left_cat_bitset"][node] = rng.integers(0, 2**32, 8)
        result.nodes["threshold"][node] = np.nan
    return result


def mean_path_length(model: Any, X: pd.DataFrame) -> np.ndarray:
    return -np.log2(-model.score_samples(X)) * _average_path_length([model._max_samples])[0]


def models() -> list[tuple[str, Any, Any, Any]]:
    return [
        ("tree", DecisionTreeRegressor(max_depth=5), Y, lambda m: m.predict),
        ("classes", DecisionTreeClassifier(max_depth=5), CLASSES, lambda m: m.predict_proba),
        ("forest", RandomForestRegressor(4, max_depth=5, random_state=0), Y, lambda m: m.predict),
        ("forest of classes", RandomForestClassifier(4, random_state=0), CLASSES, lambda m: m.predict_proba),
        ("extra", ExtraTreesRegressor(4, max_depth=6, random_state=0), Y, lambda m: m.predict),
        (
            "isolation",
            IsolationForest(n_estimators=6, max_features=3, random_state=0),
            None,
            lambda m: lambda X: mean_path_length(m, X),
        ),
    ]


@pytest.mark.parametrize("name", [name for name, *_ in models()])
def test_values_are_those_of_the_definition(name: str) -> None:
    _, model, y, function = next(case for case in models() if case[0] == name)
    model = fitted(model, y)
    predict = function(model)
    own = np.asarray(predict(ROWS), np.float64)
    expected = values_by_definition(predict, ROWS, BACKGROUND)
    tolerance = 1e-10 * max(1.0, np.abs(own).max())
    for column in np.flatnonzero(IS_CATEGORICAL):
        assert np.abs(expected[:, column]).max() > 1e-3
    explanation = TreeExplainer(model, BACKGROUND, precision="double").explain(ROWS)
    assert explanation.checked_against == "model", explanation.check_note
    np.testing.assert_allclose(explanation.values.reshape(expected.shape), expected, rtol=0, atol=tolerance)

    path_dependent = TreeExplainer(model, precision="double").explain(ROWS)
    assert path_dependent.checked_against == "model", path_dependent.check_note
    total = path_dependent.values.sum(axis=1) + path_dependent.base_values
    np.testing.assert_allclose(total.reshape(len(own), -1), own.reshape(len(own), -1), rtol=0, atol=tolerance)
    codes = encoded(model, ROWS).to_numpy(np.float64)
    by_covers, _, _ = reference.path_dependent(adapt(model).ensemble, codes)
    np.testing.assert_allclose(
        path_dependent.values.reshape(len(ROWS), 4, -1), np.moveaxis(by_covers, 1, 2), rtol=0, atol=tolerance
    )


def test_encoders_of_column_transformers_are_read() -> None:
    """scikit-learn#34833 moves the encoder into a column transformer, and puts the columns back."""
    model = fitted(RandomForestRegressor(3, max_depth=5, random_state=0), Y)
    expected = explain(model, ROWS, precision="double")
    numbers = FunctionTransformer(lambda X: X.astype(np.float32))
    others = ColumnTransformer(
        [("categorical", clone(model.encoder_), IS_CATEGORICAL), ("numerical", numbers, ~IS_CATEGORICAL)]
    )
    model.columns_ = others.fit(X)
    del model.encoder_
    np.testing.assert_array_equal(explain(model, ROWS, precision="double").values, expected.values)
    model.is_categorical_ = IS_CATEGORICAL[::-1]
    with pytest.raises(ValueError, match="its encoder takes other columns than is_categorical_"):
        TreeExplainer(model)


def test_files_transformers_and_sums(tmp_path: Any) -> None:
    model = fitted(RandomForestRegressor(4, max_depth=5, random_state=0), Y)
    explainer = TreeExplainer(model, precision="double")
    values = explainer.shap_values(ROWS)
    explainer.save(tmp_path / "forest.skshap")
    np.testing.assert_array_equal(TreeExplainer.load(tmp_path / "forest.skshap").shap_values(ROWS), values)
    transformer = ShapTransformer(FrozenEstimator(model), precision="double").fit(X, Y)
    np.testing.assert_array_equal(transformer.transform(ROWS), values)
    other = fitted(ExtraTreesRegressor(3, max_depth=4, random_state=0), Y, seed=3)
    vote = VotingRegressor([("a", model), ("b", other)])
    vote.estimators_, vote.feature_names_in_ = [model, other], X.columns.to_numpy()
    half = (values + TreeExplainer(other, precision="double").shap_values(ROWS)) / 2
    np.testing.assert_allclose(explain(vote, ROWS, precision="double").values, half, rtol=0, atol=1e-9)


def test_infinities_and_sparse_matrices_are_refused() -> None:
    from scipy.sparse import csr_matrix

    model = fitted(RandomForestRegressor(2, max_depth=3, random_state=0), Y)
    with pytest.raises(ValueError, match="infinity, which is no category"):
        explain(model, ROWS.assign(city=np.inf))
    with pytest.raises((TypeError, ValueError), match="sparse"):
        explain(model, csr_matrix(np.ones((2, 4))))


def test_other_encoders_are_refused() -> None:
    def forest() -> Any:
        return fitted(RandomForestRegressor(2, max_depth=3, random_state=0), Y)

    model = forest()
    model.second_ = OrdinalEncoder()
    with pytest.raises(UnsupportedModelError, match="not one encoder of its 2 categorical columns"):
        TreeExplainer(model)
    model = forest()
    model.estimators_[1].encoder_ = model.encoder_
    with pytest.raises(UnsupportedModelError, match="which its members encode again"):
        TreeExplainer(model)
    for name, value in {
        "encoded_missing_value": -1,
        "unknown_value": 300,
        "handle_unknown": "error",
        "max_categories": 5,
        "categories": [["a"], [1]],
        "_infrequent_enabled": True,
        "dtype": np.float16,
    }.items():
        model = forest()
        setattr(model.encoder_, name, value)
        with pytest.raises(UnsupportedModelError, match=f"encoded in an unknown way, with {name}="):
            TreeExplainer(model)
    model = forest()
    model.encoder_.__class__ = type("Reversed", (OrdinalEncoder,), {})
    with pytest.raises(UnsupportedModelError, match="encoded in an unknown way, with Reversed"):
        TreeExplainer(model)
    bag = BaggingRegressor(fitted(DecisionTreeRegressor(max_depth=2), Y), n_estimators=2, random_state=0)
    bag.fit(encoded(forest(), X), Y)
    for member in bag.estimators_:
        fitted(member, Y)
    with pytest.raises(UnsupportedModelError, match=r"not read from this kind of model.*OrdinalEncoder in a"):
        TreeExplainer(bag)
    with pytest.raises(UnsupportedModelError, match="the Tree: it has native categories, but not their enc"):
        TreeExplainer(model.estimators_[0].tree_)


def test_contradictions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def tree() -> Any:
        return fitted(DecisionTreeRegressor(max_depth=6), Y)

    model = tree()
    model.is_categorical_ = np.array([False, True, False, False])
    with pytest.raises(UnsupportedModelError, match="not one encoder of its 1 categorical columns"):
        TreeExplainer(model)
    model.is_categorical_ = np.array([True, True, False, False])
    with pytest.raises(ValueError, match="its splits by categories are not those of its columns"):
        TreeExplainer(model)
    for mask in ([1, 3], [[False, True, False, True]], [False, True, False, True, False]):
        model.is_categorical_ = np.array(mask)
        with pytest.raises(ValueError, match="must hold a boolean for each of its columns"):
            TreeExplainer(model)
    model = tree()
    for values in (X["city"].sort_values().to_numpy()[::-1], np.array([np.nan, 1.0, 2.0])):
        model.encoder_.categories_[1] = values
        with pytest.raises(ValueError, match="the categories of column 3 are not sorted"):
            TreeExplainer(model)
    model = tree()
    model.tree_.nodes["split_kind"][model.tree_.nodes["split_kind"] == 2] = 1
    with pytest.raises(ValueError, match="300 categories have a bitset"):
        TreeExplainer(model)
    monkeypatch.setattr(sklearn_categories, "_MOST_LISTED", 200)
    with pytest.raises(UnsupportedModelError, match="its splits list more than 200 of them"):
        TreeExplainer(tree())
