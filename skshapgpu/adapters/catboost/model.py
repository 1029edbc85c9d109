"""CatBoost: symmetric, depth-wise and loss-guided trees with numeric, one-hot and CTR splits.

The model is read from CatBoost's own JSON export, by field name. CatBoost reads X as float32. A split is true
when ``x > border``, or when the category equals the category of the split; in the ensemble, true splits lead
to the right child. A symmetric tree has one split per level. The number of a leaf has a bit for the result of
each split, the lowest bit for the split that is listed first. The tree becomes a full binary tree with the
split that is listed last at its root: this is the order in which CatBoost itself takes conditional
expectations.

Categories are compared by a 32-bit hash of their string. Each one-hot value of a column gets a
code, its position in the model's list, so that a split becomes a category set of one code.

CTRs are columns appended to the columns of X; see ``ctr.py``. As in CatBoost's own SHAP values, all CTRs that
look up categories of the same columns form one player, whatever splits they include. If they look up only one
column, this column with its one-hot splits belongs to the same player. The columns of a player share its
value evenly.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import NotFittedError

from ...errors import UnsupportedModelError
from .._known import require_known
from .._numbers import finite_reals, real, whole_number
from .._subclasses import require_own_predictions
from ..ensemble import Ensemble
from ..schema import AdaptedModel, Column, InputSchema
from .cbm import CbmFile
from .ctr import CtrColumns, category_hashes
from .ctr_reader import CtrReader, hash_of
from .trees import Rule, read_trees

NO_LEAF_WEIGHTS = (
    "the CatBoost model has trees that are not symmetric, and no leaf weights, without which CatBoost cannot "
    "export it; train it again with CatBoost 1.2 or later, or load its original .cbm file"
)

#: Losses whose probability of each output is the logistic function of its own margin, and losses whose
#: predicted mean is the exponential of the margin.
_LOGISTIC = frozenset({"MultiClassOneVsAll", "MultiLogloss", "MultiCrossEntropy"})
_LOG = frozenset({"Poisson", "Tweedie"})

#: Known losses. All others are rejected, and so are losses of the user's own.
_LOSSES = (_LOGISTIC | _LOG).union(
    "Logloss CrossEntropy Focal MultiClass Combination Cox SurvivalAft RMSE RMSEWithUncertainty MultiRMSE "
    "MultiRMSEWithMissingValues RMSPE LogCosh Lq MAE MAPE Quantile MultiQuantile GroupQuantile "
    "LogLinQuantile Expectile Huber PairLogit PairLogitPairwise YetiRank YetiRankPairwise QueryRMSE "
    "QuerySoftMax QueryCrossEntropy StochasticFilter LambdaMart StochasticRank PythonUserDefinedPerObject "
    "PythonUserDefinedMultiTarget".split()
)

#: Fields that the adapter reads, or that predictions do not depend on, by the part of the export. All others
#: are rejected, and so are features that are neither numbers nor categories, such as texts.
_FIELDS = {
    "export": frozenset("ctr_data features_info model_info oblivious_trees scale_and_bias trees".split()),
    "features_info": frozenset("categorical_features ctrs float_features".split()),
    "float_features": frozenset(
        "borders feature_id feature_index flat_feature_index has_nans nan_value_treatment".split()
    ),
    "categorical_features": frozenset("feature_id feature_index flat_feature_index values".split()),
    "oblivious_trees": frozenset("leaf_values leaf_weights splits".split()),
    "trees": frozenset("left right split value weight".split()),
}

#: For each treatment of missing values: whether splits are false for them, so that they go left.
_NAN_LEFT = {"AsIs": True, "AsFalse": True, "AsTrue": False}


@dataclass(frozen=True)
class CatBoostCategories:
    """Encoder of one categorical column, a :class:`~skshapgpu.adapters.ColumnEncoder`."""

    #: Code of each category that the one-hot splits of the model test, by the low 32 bits of its hash.
    codes: dict[int, int]

    def encode(self, column: Column) -> np.ndarray:
        """Return float64 codes, -1 where no split tests the category. See also ``category_hashes``."""
        hashes = category_hashes(column)
        if not self.codes:
            return np.full(len(hashes), -1.0)
        tested_hashes = np.array(sorted(self.codes), np.uint32)
        positions = np.searchsorted(tested_hashes[1:], hashes, side="right")
        code_of = np.array([self.codes[category] for category in tested_hashes.tolist()], np.float64)
        return np.where(tested_hashes[positions] == hashes, code_of[positions], -1.0)


#: Limit on the number of columns of X in a model with CTRs, unless the model has more names of columns. With
#: CTRs, each column takes memory, so that a damaged column number would request gigabytes.
_MAX_COLUMNS_WITH_CTRS = 2**16

#: For each numeric feature, by its number: its column of X, and whether splits are false for a missing value.
_NumericFeatures = dict[int, tuple[int, bool]]

#: For each categorical feature, by its number: its column of X, and the codes as in ``CatBoostCategories``.
_CategoricalFeatures = dict[int, tuple[int, dict[int, int]]]


def with_advice(problem: str) -> str:
    """Return CatBoost's message that it cannot write a model as JSON, with advice if the cause is known."""
    if "inf" not in problem:
        return problem
    return f"{problem}; a border between infinite numbers cannot be written: train without infinities in X"


def adapt(model: Any) -> AdaptedModel:
    """Read a fitted ``CatBoost``, ``CatBoostClassifier``, ``CatBoostRegressor`` or ``CatBoostRanker``.

    Raise ``NotFittedError`` if the model is not fitted. Raise ``UnsupportedModelError`` if the model has text
    or embedding features, or has trees that are not symmetric but no leaf weights; or its class is a
    third-party subclass with its own ``predict``. Raise ``ValueError`` if CatBoost cannot export the model,
    or the export contradicts itself.
    """
    import catboost

    if not isinstance(model, catboost.CatBoost):
        raise UnsupportedModelError(f"cannot explain a catboost {type(model).__name__}: it is not a model")
    require_own_predictions(model, "catboost")
    if not model.is_fitted():
        raise NotFittedError(f"this {type(model).__name__} is not fitted yet; call fit first")
    for kind, columns in (
        ("text", model.get_text_feature_indices()),
        ("embedding", model.get_embedding_feature_indices()),
    ):
        if columns:
            raise UnsupportedModelError(
                f"the CatBoost model has {kind} features (columns {list(columns)}), which are neither "
                f"numbers nor categories; train it without {kind}_features"
            )
    # Without weights, get_leaf_weights() and the export of non-symmetric trees read memory out of bounds.
    if not model._object._has_leaf_weights_in_model() and not model._object._is_oblivious():
        raise UnsupportedModelError(NO_LEAF_WEIGHTS)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.json")
        try:
            model.save_model(path, format="json")
        except catboost.CatBoostError as error:
            raise ValueError(f"CatBoost cannot export this model: {with_advice(str(error))}") from error
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        if document.get("ctr_data"):
            path = os.path.join(folder, "model.cbm")
            model.save_model(path, format="cbm")
            with open(path, "rb") as binary:
                restore_tables(document, binary.read())

    names = model.feature_names_
    # n_features_in_ is 0 after load_model, absent after sum_models; drop_unused_features cuts feature_names_.
    n_features = max(len(names), getattr(model, "n_features_in_", None) or 0)
    adapted = _adapted(document, names, n_features, model.classes_.tolist())
    predictions = {"raw": partial(_predict, model, "RawFormulaVal")}
    if adapted.link is not None:
        name, kind = ("response", "Exponent") if adapted.link == "exp" else ("probability", "Probability")
        predictions[name] = partial(_predict, model, kind)
    if adapted.binary is not None:
        predictions["probability"] = partial(_positive_probability, model)
    return replace(adapted, predictions=predictions)


def _predict(model: Any, kind: str, X: Any) -> np.ndarray:
    """Return a prediction; ``kind`` is CatBoost's name for it, such as "RawFormulaVal"."""
    import catboost

    # CatBoost reads memory out of bounds if a polars frame has categories.
    if type(X).__module__.partition(".")[0] == "polars":
        X = X.to_pandas()
    # The predict method of a ranker does not have prediction_type.
    predicted: np.ndarray = catboost.CatBoost.predict(model, X, prediction_type=kind)
    return predicted


def _positive_probability(model: Any, X: Any) -> np.ndarray:
    return _predict(model, "Probability", X)[:, 1]


def adapt_document(document: dict[str, Any]) -> AdaptedModel:
    """Read CatBoost's JSON export without CatBoost; see :func:`read_document` for the errors."""
    features = _features(document)
    listed_names = _names(features)
    # The export may leave out columns that no split uses; then some names are unknown.
    is_full = sorted(listed_names) == list(range(len(features)))
    names = [listed_names[i] or str(i) for i in range(len(features))] if is_full else []
    classes = document.get("model_info", {}).get("class_params", {}).get("class_names") or []
    return _adapted(document, names, len(names), classes)


def _adapted(document: dict[str, Any], names: list[str], n_features: int, classes: list[Any]) -> AdaptedModel:
    ensemble, encoders, derived, shared, has_cover = read_document(document, n_features)
    n_features = ensemble.n_features - (0 if derived is None else derived.n_columns)
    listed_names = {column: name for column, name in _names(_features(document)).items() if name}
    # Without names, CatBoost numbers the columns; a data frame may have the numbers as its names.
    are_numbers = not listed_names and names == [str(i) for i in range(len(names))]
    has_all_names = len(names) == n_features and not are_numbers
    schema = InputSchema(
        n_features,
        tuple(names) if has_all_names else None,
        known_names={} if has_all_names else listed_names,  # drop_unused_features() removes the others
        encoders=encoders,
        derived=derived,
    )
    adapted = AdaptedModel(
        ensemble,
        schema,
        "catboost",
        has_cover=has_cover,
        cover_kind="weight" if has_cover else None,
        shared=shared,
    )
    if ensemble.n_outputs == 1:
        binary = len(classes) == 2
        return replace(
            adapted,
            binary="margin" if binary else None,
            class_names=tuple(classes) if binary else None,
            link="logistic" if binary else "exp" if _loss(document) in _LOG else None,
            squared_error=_loss(document) == "RMSE",
        )
    # A class that was declared but did not occur in training has no output.
    class_params = document.get("model_info", {}).get("class_params", {})
    numbers = class_params.get("class_to_label", range(len(classes)))
    outputs = tuple(classes[int(number)] for number in numbers) if classes else None
    loss = _loss(document) or _loss_of_sum(document)
    return replace(
        adapted,
        output_names=outputs,
        link="logistic" if loss in _LOGISTIC else "softmax" if loss == "MultiClass" else None,
    )


def _names(features: Sequence[dict[str, Any]]) -> dict[int, str | None]:
    """Return the names of the listed columns, by column number."""
    return {_column(f): f.get("feature_id") for f in features}


def _features(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the entries of the columns that the export lists."""
    info = document["features_info"]
    return [f for kind in ("float_features", "categorical_features") for f in info.get(kind) or []]


def restore_tables(document: dict[str, Any], content: bytes) -> None:
    """Separate different CTRs that share a name, and therefore a table, in the JSON export, in place.

    ``content`` is CatBoost's own file (.cbm) of the same model. Raise ``ValueError`` if the file contains
    another model, or is damaged.
    """
    file = CbmFile(content)
    categorical = document["features_info"].get("categorical_features") or []
    # In JSON, CatBoost leaves out one-hot features without a column, and features computed from missing text.
    if file.n_estimated or file.n_one_hot != sum("values" in feature for feature in categorical):
        raise ValueError("CatBoost's two exports of the model have different features")
    if not document.get("ctr_data"):
        return
    ctrs = document["features_info"]["ctrs"]
    if [ctr["ctr_type"] for ctr in ctrs] != [base.kind for base in file.ctrs]:
        raise ValueError("CatBoost's two exports of the model have different CTRs")
    binarizations: dict[str, set[int]] = {}
    for ctr, base in zip(ctrs, file.ctrs, strict=True):
        binarizations.setdefault(ctr["identifier"], set()).add(base.binarization)
    if max(map(len, binarizations.values()), default=1) == 1:
        return
    tables = file.tables()
    for ctr, base in zip(ctrs, file.ctrs, strict=True):
        if len(binarizations[ctr["identifier"]]) > 1:
            ctr["identifier"] += f" {base.binarization}"
            document["ctr_data"][ctr["identifier"]] = tables[base]


def _loss(document: dict[str, Any]) -> str | None:
    """Return the training loss of the model; None if the document lacks it, as for a sum of models."""
    params = document.get("model_info", {}).get("params", {})
    return params.get("loss_function", {}).get("type") if isinstance(params, dict) else None


def _loss_of_sum(document: dict[str, Any]) -> str | None:
    """Return the common loss of the models in a sum; None if the losses differ, or if there is no sum."""
    loss_json = document.get("model_info", {}).get("loss_function")
    return json.loads(loss_json).get("type") if isinstance(loss_json, str) else None


class ModelParts(NamedTuple):
    """The result of :func:`read_document`; the names are those of ``AdaptedModel`` and ``InputSchema``."""

    ensemble: Ensemble
    encoders: dict[int, CatBoostCategories]
    derived: CtrColumns | None
    shared: tuple[tuple[int, ...], ...]
    has_cover: bool


def read_document(document: dict[str, Any], n_features: int) -> ModelParts:
    """Read CatBoost's JSON export.

    X has at least ``n_features`` columns, and more if the export lists a column beyond them. Raise
    ``UnsupportedModelError`` if a split is neither numeric nor one-hot nor tests a CTR, or a part of the
    model is unknown; ``ValueError`` if the document contradicts itself or lacks a field.
    """
    try:
        return _read(document, n_features)
    except (LookupError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(
            f"CatBoost's JSON export of the model is malformed: {type(error).__name__}: {error}"
        ) from error


def _require_known_parts(document: dict[str, Any]) -> None:
    """Reject a model with an unknown loss, or with unknown fields, kinds of features or treatments of NaN."""
    info = document["features_info"]
    parts = [("export", document), ("features_info", {name: part for name, part in info.items() if part})]
    for kind in ("float_features", "categorical_features"):
        parts += [(kind, feature) for feature in info.get(kind) or []]
    for kind in ("oblivious_trees", "trees"):
        parts += [(kind, tree) for tree in document.get(kind) or []]
    if document.get("oblivious_trees") and document.get("trees"):  # CatBoost reads the symmetric trees
        raise ValueError("the CatBoost model has symmetric trees and other trees")
    for part, fields in parts:
        require_known("the CatBoost model", f"fields of its {part}", fields, _FIELDS[part])
    treatments = [feature["nan_value_treatment"] for feature in info.get("float_features") or []]
    require_known("the CatBoost model", "treatments of NaN", treatments, frozenset(_NAN_LEFT))
    loss = _loss(document) or _loss_of_sum(document)
    require_known("the CatBoost model", "losses", [loss] if loss else [], _LOSSES)


def _read(document: dict[str, Any], n_features: int) -> ModelParts:
    _require_known_parts(document)
    info = document["features_info"]
    numeric, categorical = _listed_features(info)
    limit = max(n_features, _MAX_COLUMNS_WITH_CTRS)
    n_features = max([n_features, *(column + 1 for column, _ in [*numeric.values(), *categorical.values()])])
    ctrs = CtrReader(document, numeric, categorical)
    splits = _Splits(numeric, categorical, ctrs, _numbered_splits(info), n_features)
    scale, bias = document["scale_and_bias"]
    scale, bias = real(scale, "the scale"), finite_reals(bias, "the bias").tolist()
    trees = read_trees(document, splits.rule, len(bias))
    has_cover = all(tree.cover is not None for tree in trees)
    rules = np.concatenate([tree.rules for tree in trees])
    options: dict[str, Any] = {}
    derived = ctrs.columns(n_features)
    shared: tuple[tuple[int, ...], ...] = ()
    if derived is not None:
        if n_features > limit:
            raise ValueError(
                f"CatBoost's JSON export of the model has a column number {n_features - 1}; with CTRs there "
                f"may be at most {limit} columns"
            )
        options["player"], shared = _players(n_features, ctrs.categories())
    n_codes = max((len(codes) for _, codes in categorical.values()), default=0)
    if n_codes:
        # Set s contains only the code s, whatever the column.
        options |= {
            "category_set": rules["code"],
            "category_offsets": np.arange(n_codes + 1),
            "category_values": np.arange(n_codes),
            "category_listed_left": np.zeros(n_codes, bool),
        }
    ensemble = Ensemble(
        n_features=n_features + (0 if derived is None else derived.n_columns),
        tree_offsets=np.cumsum([0, *(len(tree.left) for tree in trees)]),
        tree_output=np.full(len(trees), -1 if len(bias) > 1 else 0),
        left=np.concatenate([tree.left for tree in trees]),
        right=np.concatenate([tree.right for tree in trees]),
        feature=rules["column"],
        threshold=rules["threshold"],
        missing_left=rules["missing_left"],
        cover=np.concatenate([tree.cover for tree in trees]) if has_cover else np.zeros(len(rules)),
        value=np.concatenate([tree.value for tree in trees]) * scale,
        intercept=np.array(bias),
        x_dtype="float32",
        **options,
    )
    encoders = {column: CatBoostCategories(codes) for column, codes in categorical.values()}
    return ModelParts(ensemble, encoders, derived, shared, has_cover)


def _listed_features(info: dict[str, Any]) -> tuple[_NumericFeatures, _CategoricalFeatures]:
    """Return the features that features_info lists. No two features have the same column."""
    numeric = {
        whole_number(f["feature_index"], "feature_index"): (_column(f), _NAN_LEFT[f["nan_value_treatment"]])
        for f in info.get("float_features") or []
    }
    categorical = {
        whole_number(f["feature_index"], "feature_index"): (
            _column(f),
            {value: i for i, value in enumerate(map(hash_of, f.get("values") or []))},
        )
        for f in info.get("categorical_features") or []
    }
    columns = [column for column, _ in [*numeric.values(), *categorical.values()]]
    n_listed = len(info.get("float_features") or []) + len(info.get("categorical_features") or [])
    if len(set(columns)) < n_listed or not (_ascends(numeric) and _ascends(categorical)):
        raise ValueError("CatBoost's JSON export of the model numbers its columns wrongly")
    return numeric, categorical


def _column(feature: dict[str, Any]) -> int:
    return whole_number(feature["flat_feature_index"], "flat_feature_index")


def _ascends(features: Mapping[int, tuple[int, Any]]) -> bool:
    """Return whether the numbers of the features and those of their columns ascend together."""
    numbers, columns = list(features), [column for column, _ in features.values()]
    return sorted(numbers) == numbers and sorted(columns) == columns


def _numbered_splits(info: dict[str, Any]) -> list[tuple[str, int, float]]:
    """Return the kind, the feature and the border or value of each split but those of CTRs, by its number."""
    splits: list[tuple[str, int, float]] = []
    for feature in info.get("float_features") or []:
        borders = finite_reals(feature.get("borders") or [], "borders")
        if (np.diff(borders) <= 0).any():
            raise ValueError("a feature of the CatBoost model has borders that do not ascend")
        splits += [("FloatFeature", feature["feature_index"], border) for border in borders.tolist()]
    for feature in info.get("categorical_features") or []:
        values = map(hash_of, feature.get("values") or [])
        splits += [("OneHotFeature", feature["feature_index"], value) for value in values]
    return splits


@dataclass(frozen=True)
class _Splits:
    """Reader of the splits of the trees, in a model with ``n_features`` columns of X."""

    numeric: _NumericFeatures
    categorical: _CategoricalFeatures
    ctrs: CtrReader
    listed: list[tuple[str, int, float]]
    n_features: int

    def rule(self, split: dict[str, Any]) -> Rule:
        """Return what a split tests."""
        kind = split["split_type"]
        if kind == "OnlineCtr":
            column, border = self.ctrs.column(split)
            return Rule(self.n_features + column, border, True, -1)
        number = whole_number(split["split_index"], "split_index")
        if kind == "FloatFeature":
            feature = whole_number(split["float_feature_index"], "float_feature_index")
            border = real(split["border"], "border")
            self._require_listed(number, (kind, feature, border))
            column, missing_left = self.numeric[feature]
            return Rule(column, border, missing_left, -1)
        if kind == "OneHotFeature":
            feature = whole_number(split["cat_feature_index"], "cat_feature_index")
            value = hash_of(split["value"])
            self._require_listed(number, (kind, feature, value))
            column, codes = self.categorical[feature]
            return Rule(column, 0.0, True, codes[value])
        raise UnsupportedModelError(f"the CatBoost model has splits of the unknown type {kind!r:.80}")

    def _require_listed(self, number: int, split: tuple[str, int, float]) -> None:
        """Raise unless a split of a tree is the one that has its number."""
        if number >= len(self.listed) or self.listed[number] != split:
            raise ValueError(f"split {number} of a CatBoost tree is not the split that features_info lists")


def _players(n_features: int, ctrs: list[frozenset[int]]) -> tuple[np.ndarray, tuple[tuple[int, ...], ...]]:
    """Return the player of each column of X and of each CTR, and the columns of the additional players.

    ``ctrs`` contains the categorical columns that each CTR looks up. CTRs that look up the same columns, if
    these are several, form an additional player.
    """
    player_of_columns = {columns: n_features for columns in ctrs if len(columns) > 1}
    for i, columns in enumerate(player_of_columns):
        player_of_columns[columns] += i
    player_of_ctr = [player_of_columns.get(columns, min(columns)) for columns in ctrs]
    player = np.concatenate([np.arange(n_features, dtype=np.int32), np.array(player_of_ctr, np.int32)])
    return player, tuple(tuple(sorted(columns)) for columns in player_of_columns)
