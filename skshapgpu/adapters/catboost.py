"""CatBoost: symmetric, depth-wise and loss-guided trees with numeric and one-hot splits.

The model is read from CatBoost's own JSON export, by field name. CatBoost reads X as float32 and
calls a split true, which here is the right child, when ``x > border`` or when the category equals
the split's. A symmetric tree asks one question per level and numbers its leaves by the answers,
the first listed split giving the lowest bit; it becomes a full binary tree whose root asks the
last listed split. That is the order in which CatBoost itself takes conditional expectations.

Categories are compared through a 32-bit hash of their text. Each one-hot value of a column gets
a code, its position in the model's list, so that a split becomes a category set of one code.
"""

from __future__ import annotations

import json
import operator
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import NotFittedError

from ..ensemble import Ensemble, Tree
from ..errors import UnsupportedModelError
from ..schema import AdaptedModel, Column, InputSchema
from ._cityhash import cityhash64

_HASH_MASK = (1 << 32) - 1

_CATEGORY_TYPES = (int, np.integer, np.bool_, str, bytes)

#: Whether a missing value answers "false", that is goes left.
_NAN_LEFT = {"AsIs": True, "AsFalse": True, "AsTrue": False}


@dataclass(frozen=True)
class CategoryEncoder:
    """Codes of one categorical column: a :class:`~skshapgpu.schema.ColumnEncoder`.

    Attributes
    ----------
    codes : dict of int to int
        Code of each category that the model's one-hot splits test, by the low 32 bits of its hash.
    """

    codes: dict[int, int]

    def encode(self, column: Column) -> np.ndarray:
        """Return float64 codes, -1 where no split tests the category.

        Raises
        ------
        ValueError
            A value is neither an integer (or bool) nor a string, or has more than 64 bits.
        """
        values = column.values.tolist()
        # Equality would hide a float behind an equal integer, so types are looked at first.
        refused = {kind for kind in set(map(type, values)) if not issubclass(kind, _CATEGORY_TYPES)}
        if refused:
            bad = next(value for value in values if type(value) in refused)
            raise ValueError(
                f"column {column.name!r} is categorical but holds {bad!r}: CatBoost takes integers "
                "and strings as categories; convert floats and missing values to strings, as for fit"
            )
        code_of = {}
        for value in set(values):
            if isinstance(value, str):
                text = value.encode()
            elif isinstance(value, bytes):
                text = value
            elif -(1 << 63) <= int(value) < 1 << 64:
                text = str(int(value)).encode()
            else:
                raise ValueError(f"column {column.name!r} holds {value}, which has more than 64 bits")
            code_of[value] = self.codes.get(cityhash64(text) & _HASH_MASK, -1)
        return np.array([code_of[value] for value in values], np.float64)


class _Rule(NamedTuple):
    """One split; ``code`` is -1 when it is numeric."""

    column: int
    threshold: float
    missing_left: bool
    code: int


def adapt(model: Any) -> AdaptedModel:
    """Read a fitted ``CatBoost``, ``CatBoostClassifier``, ``CatBoostRegressor`` or ``CatBoostRanker``.

    Raises
    ------
    NotFittedError
        The model is not fitted.
    UnsupportedModelError
        The model splits on CTRs, has text or embedding features, or has no leaf weights.
    ValueError
        CatBoost cannot export the model, or the export contradicts itself.
    """
    import catboost

    if not isinstance(model, catboost.CatBoost):
        raise UnsupportedModelError(f"cannot explain a catboost {type(model).__name__}: it is no model")
    if not model.is_fitted():
        raise NotFittedError(f"this {type(model).__name__} is not fitted yet; call fit first")
    for kind, columns in (
        ("text", model.get_text_feature_indices()),
        ("embedding", model.get_embedding_feature_indices()),
    ):
        if columns:
            raise UnsupportedModelError(
                f"the CatBoost model has {kind} features (columns {list(columns)}): they are no columns "
                f"of numbers or categories; train it without {kind}_features"
            )
    # Without weights get_leaf_weights() and the export of non-symmetric trees read foreign memory.
    if not model._object._has_leaf_weights_in_model():
        raise UnsupportedModelError(
            "the CatBoost model has no leaf weights, the training weight in each leaf that SHAP values "
            "depend on; train it again with CatBoost 1.2 or later, or load its original .cbm file"
        )
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.json")
        try:
            model.save_model(path, format="json")
        except catboost.CatBoostError as error:
            raise ValueError(f"CatBoost cannot export this model: {error}") from error
        with open(path, encoding="utf-8") as file:
            document = json.load(file)

    names = model.feature_names_
    # 0 after load_model, absent after sum_models; feature_names_ shrinks with drop_unused_features.
    n_features = max(len(names), getattr(model, "n_features_in_", None) or 0)
    ensemble, encoders = read_document(document, n_features)
    invented = names == [str(i) for i in range(len(names))]
    named = len(names) == ensemble.n_features and not invented
    schema = InputSchema(ensemble.n_features, tuple(names) if named else None, encoders=encoders)

    classes = model.classes_.tolist()
    if ensemble.n_outputs == 1:
        binary = len(classes) == 2
        return AdaptedModel(
            ensemble,
            schema,
            "catboost",
            binary="margin" if binary else None,
            class_names=tuple(classes) if binary else None,
            link="logistic" if binary else None,
            squared_error=_loss(document) == "RMSE",
        )
    # A class that was declared but never seen in training has no output.
    seen = document.get("model_info", {}).get("class_params", {}).get("class_to_label", range(len(classes)))
    outputs = tuple(classes[int(i)] for i in seen) if classes else None
    return AdaptedModel(ensemble, schema, "catboost", output_names=outputs)


def _loss(document: dict[str, Any]) -> str | None:
    """The loss that the model was trained with; None if the document does not say, as of a sum of models."""
    params = document.get("model_info", {}).get("params", {})
    return params.get("loss_function", {}).get("type") if isinstance(params, dict) else None


def read_document(document: dict[str, Any], n_features: int) -> tuple[Ensemble, dict[int, CategoryEncoder]]:
    """Read CatBoost's JSON export.

    Parameters
    ----------
    document : dict
    n_features : int
        Columns of X; more where the trees use a later one.

    Returns
    -------
    Ensemble
    dict of int to CategoryEncoder
        By column number.

    Raises
    ------
    UnsupportedModelError
        A split is neither numeric nor one-hot.
    ValueError
        The document contradicts itself or lacks a field.
    """
    try:
        return _read(document, n_features)
    except (LookupError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(
            f"CatBoost's JSON export of the model is malformed: {type(error).__name__}: {error}"
        ) from error


def _read(document: dict[str, Any], n_features: int) -> tuple[Ensemble, dict[int, CategoryEncoder]]:
    info = document["features_info"]
    numeric = {
        f["feature_index"]: (operator.index(f["flat_feature_index"]), _NAN_LEFT[f["nan_value_treatment"]])
        for f in info.get("float_features") or []
    }
    categorical = {
        f["feature_index"]: (
            operator.index(f["flat_feature_index"]),
            {h & _HASH_MASK: i for i, h in enumerate(f.get("values") or [])},
        )
        for f in info.get("categorical_features") or []
    }
    columns = [column for column, _ in [*numeric.values(), *categorical.values()]]
    if len(set(columns)) < len(columns) or min(columns, default=0) < 0:
        raise ValueError("CatBoost's JSON export of the model numbers its columns wrongly")

    def rule(split: dict[str, Any]) -> _Rule:
        kind = split["split_type"]
        if kind == "FloatFeature":
            column, missing_left = numeric[split["float_feature_index"]]
            return _Rule(column, float(split["border"]), missing_left, -1)
        if kind == "OneHotFeature":
            column, codes = categorical[split["cat_feature_index"]]
            return _Rule(column, 0.0, True, codes[split["value"] & _HASH_MASK])
        if kind == "OnlineCtr":
            used = {
                categorical[element["cat_feature_index"]][0]
                for ctr in info["ctrs"]
                for element in ctr["elements"]
                if "cat_feature_index" in element
            }
            raise UnsupportedModelError(
                f"the CatBoost model splits on CTRs, target statistics of its categorical columns "
                f"{sorted(used)}; train it with one_hot_max_size at least the number of categories to "
                "avoid CTRs"
            )
        raise UnsupportedModelError(f"the CatBoost model has splits of the unknown type {kind!r}")

    scale, bias = document["scale_and_bias"]
    bias = [float(number) for number in bias]
    symmetric = "oblivious_trees" in document
    read_tree = _symmetric_tree if symmetric else _nested_tree
    parts = [
        read_tree(tree, rule, len(bias))
        for tree in document["oblivious_trees" if symmetric else "trees"] or []
    ]
    trees = []
    for left, right, rules, cover, value in parts:
        value = value * float(scale)
        trees.append(
            Tree(
                left=left,
                right=right,
                feature=rules["column"],
                threshold=rules["threshold"],
                missing_left=rules["missing_left"],
                cover=cover,
                value=value if len(bias) > 1 else value[:, 0],
            )
        )
    options = {}
    n_codes = max((len(codes) for _, codes in categorical.values()), default=0)
    if parts and n_codes:
        # Set s lists code s alone, whatever the column.
        options = {
            "category_set": np.concatenate([rules["code"] for _, _, rules, _, _ in parts]),
            "category_offsets": np.arange(n_codes + 1),
            "category_values": np.arange(n_codes),
            "category_listed_left": np.zeros(n_codes, bool),
        }
    ensemble = Ensemble.from_trees(
        trees,
        n_features=max([n_features, *(c + 1 for c in columns)]),
        intercept=bias,
        x_dtype="float32",
        **options,
    )
    return ensemble, {column: CategoryEncoder(codes) for column, codes in categorical.values()}


_RULE = np.dtype(
    [("column", np.int32), ("threshold", np.float64), ("missing_left", np.bool_), ("code", np.int32)]
)
_NO_RULE = _Rule(0, 0.0, True, -1)
_Parts = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def _symmetric_tree(tree: dict[str, Any], rule: Callable[[dict[str, Any]], _Rule], n_outputs: int) -> _Parts:
    """Expand into the full binary tree, level by level: the children of i are 2i + 1 and 2i + 2."""
    splits = [rule(split) for split in tree["splits"] or []]
    weight = np.asarray(tree["leaf_weights"], np.float64)
    if weight.shape != (1 << len(splits),):
        raise ValueError(f"a CatBoost tree has {len(splits)} splits but {weight.size} leaf weights")
    levels = np.array([*splits[::-1], _NO_RULE], _RULE)
    cover = [weight]
    for _ in splits:
        cover.append(cover[-1].reshape(-1, 2).sum(axis=1))
    node = np.arange(2 * len(weight) - 1, dtype=np.int32)
    inner = node < len(weight) - 1
    value = np.zeros((len(node), n_outputs))
    value[~inner] = np.reshape(tree["leaf_values"], (len(weight), n_outputs))
    return (
        np.where(inner, 2 * node + 1, -1),
        np.where(inner, 2 * node + 2, -1),
        np.repeat(levels, 1 << np.arange(len(levels))),
        np.concatenate(cover[::-1]),
        value,
    )


def _nested_tree(tree: dict[str, Any], rule: Callable[[dict[str, Any]], _Rule], n_outputs: int) -> _Parts:
    """Number the nodes of a nested tree breadth first, so that parents precede their children."""
    nodes = [tree]
    zeros = [0.0] * n_outputs
    left, rules, cover, value = [], [], [], []
    for node in nodes:
        if "split" in node:
            left.append(len(nodes))
            rules.append(rule(node["split"]))
            cover.append(0.0)
            value.append(zeros)
            nodes += [node["left"], node["right"]]
        else:
            left.append(-1)
            rules.append(_NO_RULE)
            cover.append(float(node["weight"]))
            value.append(node["value"] if n_outputs > 1 else [node["value"]])
    for i in reversed(range(len(nodes))):
        if left[i] >= 0:
            cover[i] = cover[left[i]] + cover[left[i] + 1]
    first = np.array(left)
    return (
        first,
        np.where(first < 0, -1, first + 1),
        np.array(rules, _RULE),
        np.array(cover),
        np.array(value, np.float64).reshape(len(nodes), n_outputs),
    )
