"""XGBoost 2.0 to 3.4: native boosters and the scikit-learn wrappers.

A model is read from ``Booster.save_raw("ubj")``, XGBoost's own stable format. How it is read depends on the
fields that are present, not on the version that wrote them.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from sklearn.exceptions import NotFittedError

from .._common.distinct import distinct_numbers
from ..errors import UnsupportedModelError
from . import _ubjson
from . import _xgboost_fields as fields
from . import _xgboost_trees as xgboost_trees
from ._known import require_known
from ._numbers import reals, whole_in_string, whole_numbers
from ._subclasses import require_own_predictions
from .ensemble import Ensemble
from .schema import FEW_ROWS, AdaptedModel, Column, ColumnEncoder, InputSchema
from .survival import by_link, require_times

#: Objectives by the meaning of their base_score: a probability, a mean with a log link, or a margin. The
#: margins of expectiles are computed from all base scores together. All other objectives are rejected.
_LOGIT = frozenset({"binary:logistic", "reg:logistic"})
_LOG = frozenset({"count:poisson", "reg:gamma", "reg:tweedie", "survival:cox", "survival:aft"})
_IDENTITY = frozenset(
    "reg:squarederror reg:linear reg:squaredlogerror reg:pseudohubererror reg:absoluteerror "
    "reg:quantileerror binary:logitraw binary:hinge multi:softmax multi:softprob rank:pairwise rank:ndcg "
    "rank:map".split()
)
_EXPECTILES = "reg:expectileerror"
_SQUARED_ERRORS = frozenset({"reg:squarederror", "reg:linear"})
_OBJECTIVES = _LOGIT | _LOG | _IDENTITY | {_EXPECTILES}

#: Objectives of regressors whose prediction is the margin.
_UNCHANGED = frozenset(
    "reg:squarederror reg:linear reg:squaredlogerror reg:pseudohubererror reg:absoluteerror "
    "reg:quantileerror".split()
)

#: Links of the objectives, as ``AdaptedModel`` names them.
_LINKS: dict[str, Literal["logistic", "exp", "softmax"]] = {
    **dict.fromkeys(_LOGIT, "logistic"),
    **dict.fromkeys(_LOG, "exp"),
    "multi:softprob": "softmax",
    "multi:softmax": "softmax",
}

#: Links from the margin to the survival function, by the distribution of the error of "survival:aft". In
#: XGBoost, "extreme" is the distribution of the smallest value: 1 - exp(-exp(z)).
_AFT_LINKS: dict[str, Literal["logistic", "gumbel", "normal"]] = {
    "normal": "normal",
    "logistic": "logistic",
    "extreme": "gumbel",
}

#: Fields that the adapter reads, or that predictions do not depend on, by the part of the document. All other
#: fields are rejected.
_FIELDS = {
    "learner": frozenset(
        "attributes feature_names feature_types gradient_booster learner_model_param objective".split()
    ),
    "learner_model_param": frozenset(
        "base_score boost_from_average num_class num_feature num_target".split()
    ),
    "gradient_booster": frozenset("gbtree model name weight_drop".split()),
    "model": frozenset("cats gbtree_model_param iteration_indptr tree_info trees weight_drop".split()),
    "tree": frozenset(
        "base_weights categories categories_nodes categories_segments categories_sizes default_left id "
        "leaf_weights left_children loss_changes parents right_children split_conditions split_indices "
        "split_type sum_hessian tree_param".split()
    ),
    "tree_param": frozenset("num_deleted num_feature num_nodes size_leaf_vector".split()),
}

_BOOSTERS = frozenset({"gbtree", "dart"})

#: Types of columns. Predictions only depend on which columns are categorical ("c").
_FEATURE_TYPES = frozenset({"c", "float", "i", "int", "q"})

#: Number that XGBoost adds to each step between expectiles, and the lower limit of a step without it.
_SMALLEST_STEP = np.float32(1e-6)

#: Limit on the number of outputs of a model without trees: its small file would not justify more memory.
_MAX_OUTPUTS_WITHOUT_TREES = 2**12


def adapt(model: Any) -> AdaptedModel:
    """Read a ``Booster``, ``XGBClassifier``, ``XGBRegressor``, ``XGBRanker`` or ``XGBRF...``.

    The adapter reads the boosting rounds that the model's own ``predict`` uses: after early stopping, a
    wrapper uses the rounds up to ``best_iteration``, whereas a ``Booster`` uses all of them. Only a wrapper
    stores which number marks missing values. For a ``Booster``, this number is a setting of the ``DMatrix``,
    so that only NaN is missing here. ``base_margin`` is also a property of the ``DMatrix``, where it replaces
    the intercept row by row; it does not change any SHAP value and is ignored.

    Raise ``UnsupportedModelError`` if the model is linear, has an unknown objective or an unknown part, or
    its class is a third-party subclass with its own ``predict``; ``NotFittedError`` if the model is not
    fitted; ``ValueError`` if the model was modified and is no longer a valid ensemble of trees.
    """
    import xgboost

    if isinstance(model, xgboost.Booster):
        require_own_predictions(model, "xgboost")
        booster, best_iteration = model, None
    elif isinstance(model, xgboost.XGBModel):
        advice = "; to explain its trees all the same, pass its get_booster()"
        require_own_predictions(model, "xgboost", advice)
        booster = model.get_booster()
        best_iteration = getattr(model, "best_iteration", None)
    else:
        raise UnsupportedModelError(
            f"cannot explain a {type(model).__module__}.{type(model).__qualname__}: it is neither a Booster "
            "nor a scikit-learn wrapper of XGBoost; if it has get_booster(), pass that"
        )
    try:
        raw = booster.save_raw("ubj")
    except xgboost.core.XGBoostError as error:
        raise NotFittedError("this Booster holds no model; train or load it first") from error

    classes = tuple(model.classes_.tolist()) if isinstance(model, xgboost.XGBClassifier) else None
    missing = getattr(model, "missing", np.nan)
    custom_objective = callable(getattr(model, "objective", None))
    document = _ubjson.loads(raw)
    adapted = read_document(document, best_iteration, missing, classes, custom_objective)
    predict = partial(_predict, model) if model is booster else model.predict
    predictions: dict[str, Callable[[Any], Any]] = {"raw": partial(predict, output_margin=True)}
    if document["learner"]["objective"]["name"] in _UNCHANGED and classes is None:
        predictions["raw"] = predict
    if adapted.link == "exp":
        predictions["response"] = predict
    elif adapted.link == "logistic" and model is booster:
        predictions["probability"] = predict
    elif adapted.link is not None and classes is not None:
        predictions["probability"] = partial(_probabilities, model, adapted.ensemble.n_outputs)
    return replace(adapted, predictions=predictions)


def _predict(booster: Any, X: Any, output_margin: bool = False) -> Any:
    """Return the prediction of a ``Booster`` for rows that are not in a ``DMatrix``."""
    import xgboost

    # An array has no names, and the names of a data frame have already been compared.
    rows = xgboost.DMatrix(X, enable_categorical=True)
    return booster.predict(rows, output_margin=output_margin, validate_features=False)


def _probabilities(model: Any, n_outputs: int, X: Any) -> np.ndarray:
    """Return the probabilities of the classes, or labels, that are outputs."""
    probabilities: np.ndarray = model.predict_proba(X)
    return probabilities[:, -n_outputs:]


def read_document(
    document: Any,
    best_iteration: int | None = None,
    missing: float = np.nan,
    classes: tuple[Any, ...] | None = None,
    custom_objective: bool = False,
) -> AdaptedModel:
    """Read a model from the document of XGBoost's JSON format, or of its UBJSON format, with typed arrays.

    ``best_iteration`` is the last round that is used; None if all rounds are used. ``missing`` is a number
    that means missing, besides NaN. ``classes`` are class labels, if the model is a classifier. With
    ``custom_objective``, the model was trained with an objective of the user's own. The objective in the
    document is then not the one that training minimized, but predictions still use it.

    Raise ``UnsupportedModelError`` as :func:`adapt` does; ``ValueError`` if the document contradicts itself
    or lacks a field.
    """
    try:
        return _read(document, best_iteration, missing, classes, custom_objective)
    except (LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"the XGBoost model is malformed: {type(error).__name__}: {error}") from error


def _read(
    document: Any,
    best_iteration: int | None,
    missing: float,
    classes: tuple[Any, ...] | None,
    custom_objective: bool,
) -> AdaptedModel:
    learner = document["learner"]
    gradient_booster = learner["gradient_booster"]
    if gradient_booster["name"] == "gblinear":
        raise UnsupportedModelError("a gblinear model has no trees; its coefficients explain it")
    objective = learner["objective"]["name"]
    _require_known_parts(learner, objective)
    params = learner["learner_model_param"]
    n_features = whole_in_string(params, "num_feature")
    n_classes, n_outputs = _numbers_of_outputs(params)
    fields.strings_by_name(learner["attributes"], "attributes")
    fields.require_objective(learner["objective"], n_classes)
    names, types = fields.columns(learner, n_features)
    version = fields.version(document)
    forest, weights = fields.forest(gradient_booster, version)
    trees, weights, tree_output = _used_trees(forest, weights, best_iteration, n_features)
    _require_outputs(n_outputs, trees)
    has_cover = xgboost_trees.have_cover(trees)
    ensemble = Ensemble(
        n_features=n_features,
        intercept=_intercept(params, objective, n_outputs, bool(forest["trees"])),
        x_dtype="float32",
        strict=True,
        **xgboost_trees.attributes_of_trees(trees, weights, tree_output, n_outputs, has_cover),
    )
    # XGBoost rounds X to float32 before it compares.
    missing = float(np.float32(missing))
    schema = InputSchema(
        n_features=n_features,
        feature_names=tuple(names) or None,
        allow_inf=False,
        allow_categories=False,
        missing_value=missing,
        sparse_zero_missing=True,
        adds_repeated_entries=False,
        encoders=_encoders(ensemble, types, fields.category_lists(forest, n_features), version, missing),
    )
    is_binary = n_outputs == 1 and (classes is not None or objective.startswith("binary:"))
    classes = _labels(classes, 2 if is_binary else n_classes)
    is_plain = n_outputs == 1 and not is_binary and not custom_objective
    return AdaptedModel(
        ensemble,
        schema,
        family="xgboost",
        has_cover=has_cover,
        cover_kind="weight" if has_cover else None,
        output_names=classes if n_classes > 1 else None,
        binary="margin" if is_binary else None,
        class_names=classes if is_binary else None,
        link=_LINKS.get(objective),
        squared_error=objective in _SQUARED_ERRORS and is_plain,
        over_time=_over_time(learner["objective"], objective),
    )


def _labels(classes: tuple[Any, ...] | None, n_labels: int) -> tuple[Any, ...]:
    """Return the labels of the classes."""
    # XGBoost itself trains on the labels 0 to n - 1 only, even if some of them do not occur in y.
    return tuple(range(n_labels)) if classes is None or len(classes) != n_labels else classes


def _numbers_of_outputs(params: dict[str, Any]) -> tuple[int, int]:
    """Return the number of classes and of outputs."""
    n_classes, n_targets = whole_in_string(params, "num_class"), whole_in_string(params, "num_target", low=1)
    if n_classes > 1 and n_targets > 1:
        raise ValueError(f"num_class is {n_classes} and num_target is {n_targets}: one of them must be 1")
    return n_classes, max(n_classes, n_targets)


def _require_outputs(n_outputs: int, trees: list[Any]) -> None:
    """Reject a model with more outputs than its trees can have.

    A round has a tree for each output, or its trees have all outputs in each leaf.
    """
    limit = (
        max(len(trees), *map(xgboost_trees.outputs_of_tree, trees)) if trees else _MAX_OUTPUTS_WITHOUT_TREES
    )
    if n_outputs > limit:
        raise ValueError(f"the model claims {n_outputs} outputs, but its trees have at most {limit}")


def _require_known_parts(learner: dict[str, Any], objective: str) -> None:
    """Reject a model with an unknown objective or booster, or with unknown fields or types of columns."""
    booster = learner["gradient_booster"]
    parts = [
        ("learner", learner),
        ("learner_model_param", learner["learner_model_param"]),
        ("gradient_booster", booster),
    ]
    require_known("the XGBoost model", "objectives", [objective], _OBJECTIVES)
    require_known("the XGBoost model", "boosters", [booster["name"]], _BOOSTERS)
    require_known("the XGBoost model", "feature_types", learner["feature_types"], _FEATURE_TYPES)
    if "gbtree" in booster:
        booster = booster["gbtree"]
        require_known("the XGBoost model", "boosters", [booster["name"]], _BOOSTERS)
        parts.append(("gradient_booster", booster))
    parts.append(("model", booster["model"]))
    for tree in booster["model"]["trees"]:
        parts += (("tree", tree), ("tree_param", tree["tree_param"]))
    for part, members in parts:
        require_known("the XGBoost model", f"fields of a {part}", members, _FIELDS[part])


def _over_time(parameters: dict[str, Any], objective: str) -> Callable[..., AdaptedModel] | None:
    """Return ``AdaptedModel.over_time`` for the objectives of survival."""
    if objective == "survival:cox":
        return _no_baseline
    if objective != "survival:aft":
        return None
    aft_parameters = parameters["aft_loss_param"]
    scale = float(np.float32(aft_parameters["aft_loss_distribution_scale"]))  # as XGBoost itself reads it
    if not 0 < scale < np.inf:
        raise ValueError(f"aft_loss_distribution_scale is {scale!r}")
    return partial(_survival_of_aft, str(aft_parameters["aft_loss_distribution"]), scale)


def _no_baseline(adapted: AdaptedModel, model_output: str, times: np.ndarray) -> AdaptedModel:
    raise ValueError(
        f"model_output={model_output!r}: XGBoost estimates no baseline hazard for 'survival:cox', so that "
        "there is no function of time; model_output='response' explains the hazard ratio"
    )


def _survival_of_aft(
    distribution: str, scale: float, adapted: AdaptedModel, model_output: str, times: np.ndarray
) -> AdaptedModel:
    """Return the model of the survival function: log(time) is the margin plus ``scale`` times an error."""
    if model_output != "survival":
        raise ValueError(
            f"model_output={model_output!r} is not available for 'survival:aft': use 'survival', whose "
            "negative logarithm it is, or 'response', the time"
        )
    if distribution not in _AFT_LINKS:
        raise ValueError(f"model_output={model_output!r}: the distribution {distribution!r} is not known")
    require_times(times, np.nextafter(0.0, 1.0), np.inf, "times are positive")
    return by_link(adapted, times, -np.log(times), _AFT_LINKS[distribution], scale=1 / scale)


def _used_trees(
    forest: dict[str, Any], weights: Any, best_iteration: int | None, n_features: int
) -> tuple[list[dict[str, Any]], np.ndarray, np.ndarray]:
    """Return the trees that ``predict`` adds up, and the factor and the output of each."""
    ends = fields.rounds(forest)
    trees = fields.trees(forest, n_features)
    tree_output = whole_numbers(forest["tree_info"], "tree_info", np.int32)
    drop = reals(weights, "weight_drop", np.float32, strict=True)
    if not len(trees) == len(tree_output) == len(drop):
        raise ValueError("tree_info or weight_drop does not fit the number of trees")
    n_rounds = len(ends) - 1
    n_used = n_rounds if best_iteration is None else best_iteration + 1
    if not 0 <= n_used <= n_rounds:
        raise ValueError(f"best_iteration is {best_iteration}, but the model has {n_rounds} rounds")
    used = slice(int(ends[n_used]))
    return trees[used], drop[used].astype(np.float64), tree_output[used]


def _intercept(params: dict[str, Any], objective: str, n_outputs: int, has_trees: bool) -> np.ndarray:
    """Convert ``base_score`` to margins; it is one number or, since 3.1, a list with a number per output."""
    from_average = whole_in_string(params, "boost_from_average")
    base_score = json.loads(params["base_score"])
    score = reals(base_score if isinstance(base_score, list) else [base_score], "base_score", np.float32)
    if score.shape not in ((1,), (n_outputs,)):
        raise ValueError(f"base_score has shape {score.shape}, but the model has {n_outputs} outputs")
    if isinstance(base_score, list) and not has_trees and from_average:
        # The first round would estimate the base score; before it, XGBoost uses the default as a margin.
        return np.broadcast_to(score, n_outputs).astype(np.float64)
    if objective == _EXPECTILES:
        return _margins_of_expectiles(np.broadcast_to(score, n_outputs))
    with np.errstate(divide="ignore", invalid="ignore"):  # Ensemble rejects numbers that are not finite
        if objective in _LOGIT:  # like XGBoost, subtract in float32, although few digits remain near 1
            if isinstance(base_score, list):  # XGBoost writes a list since 3.1
                score = np.clip(score, _SMALLEST_STEP, 1 - _SMALLEST_STEP)
            score = -np.log((1 / score - 1).astype(np.float64))
        elif objective in _LOG:
            score = np.log(score.astype(np.float64))
    if np.isinf(score).any() and objective in _LOGIT | _LOG:
        raise UnsupportedModelError(
            f"the model's base_score is {params['base_score']!s:.40}, whose margin is infinite, as it is "
            "when all labels are of one class, or zero: train it on other labels, too, or set base_score"
        )
    return np.broadcast_to(score, n_outputs).astype(np.float64)


def _margins_of_expectiles(score: np.ndarray) -> np.ndarray:
    """Return the margins of expectiles: the first score, then the inverse softplus of each step."""
    with np.errstate(invalid="ignore", over="ignore"):  # Ensemble rejects numbers that are not finite
        step = np.maximum(np.diff(score) - _SMALLEST_STEP, _SMALLEST_STEP).astype(np.float64)
        return np.concatenate([score[:1], step + np.log(-np.expm1(-step))])


@dataclass(frozen=True)
class XgboostCategories:
    """Encoder of a categorical column.

    For a model trained on a data frame with XGBoost 3.1 or later, ``code_of_category`` maps the categories in
    training to their codes: the categories of a frame are then matched by value. For other models,
    ``code_of_category`` is None, and the codes of a frame are used as they are, whatever the order of its
    categories. A column of numbers always holds codes. ``missing`` is compared with the codes, also
    with the codes of a frame before its categories are matched.

    XGBoost before 3.4 counts the characters of a pandas category where it needs the bytes, so that
    a category that is not ASCII takes letters of the next category: the names are ``garbled``.
    XGBoost before 3.3 mistakes most unknown categories for a known one; here they are always rejected.
    """

    code_of_category: dict[str | int, int] | None
    missing: float
    garbled: bool = False

    @property
    def takes_codes(self) -> bool:
        """Whether the result depends on the codes of a frame, not on its categories alone."""
        return self.code_of_category is None or (self.missing >= 0 and self.missing.is_integer())

    def encode(self, column: Column) -> np.ndarray:
        if column.codes is None:
            return self._from_numbers(column)
        if self.code_of_category is None and column.package == "pyarrow":
            present = column.values[column.codes >= 0]
            if len(present) and not isinstance(present[0], str):  # XGBoost refuses such a column, too
                raise ValueError(
                    f"column {column.name!r} is a dictionary of PyArrow of {type(present[0]).__name__}, but "
                    "the model takes the codes of categories as they are: give it as whole numbers, the codes"
                )
        codes = column.codes.astype(np.float64)
        is_missing = (codes < 0) | (codes == self.missing)
        if self.code_of_category is not None:
            codes = self._from_categories(column, column.codes, self.code_of_category)
        codes[is_missing] = np.nan
        return codes

    def _from_categories(
        self, column: Column, codes: np.ndarray, code_of_category: dict[str | int, int]
    ) -> np.ndarray:
        if self.garbled:
            raise ValueError(
                f"the model does not know the categories of column {column.name!r}: XGBoost "
                "before 3.4 garbles those that are not ASCII; train it with 3.4 or later, or "
                "pass an array of codes"
            )
        distinct, values, inverse = codes, column.values, None
        if len(codes) > FEW_ROWS:
            distinct, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
            values = values[first]
        matched = np.full(len(distinct), np.nan)
        for i, code in enumerate(distinct.tolist()):
            if code < 0:
                continue
            if (value := values[i]) not in code_of_category:
                raise ValueError(
                    f"column {column.name!r} holds the category {value!r}, which was not in the training set"
                )
            matched[i] = code_of_category[value]
        return matched if inverse is None else matched[inverse]

    def _from_numbers(self, column: Column) -> np.ndarray:
        if column.package is not None and self.code_of_category is not None:
            raise ValueError(
                f"column {column.name!r} was categorical in training and must be so here; to "
                "pass codes, pass an array"
            )
        try:
            with np.errstate(over="ignore"):
                codes = np.asarray(column.values, np.float64).astype(np.float32).astype(np.float64)
        except (TypeError, ValueError):
            raise ValueError(
                f"column {column.name!r} is categorical: it must hold codes, or be a "
                "categorical column of a data frame"
            ) from None
        is_missing = codes == self.missing
        codes[codes < 0] = -1.0  # no negative number is a category, but -0.5 would be truncated to code 0
        codes[is_missing] = np.nan
        return codes


def _encoders(
    ensemble: Ensemble,
    feature_types: list[str],
    category_lists: list[dict[str, Any]],
    version: tuple[int, ...],
    missing: float,
) -> dict[int, ColumnEncoder]:
    """Return the encoder of each categorical column."""
    categorical = {column for column, type_name in enumerate(feature_types) if type_name == "c"}
    numeric = ensemble.left >= 0
    if len(ensemble.category_set):
        is_set = ensemble.category_set >= 0
        categorical |= set(distinct_numbers(ensemble.feature[is_set]).tolist())
        numeric &= ~is_set
    if not categorical:
        return {}
    if mixed := categorical & set(distinct_numbers(ensemble.feature[numeric]).tolist()):
        raise UnsupportedModelError(f"feature {min(mixed)} is categorical, but a tree splits it as a number")
    return {
        column: _encoder(category_lists[column] if category_lists else {}, missing, version < (3, 4))
        for column in sorted(categorical)
    }


def _encoder(categories: dict[str, np.ndarray], missing: float, before_3_4: bool) -> XgboostCategories:
    """Return the encoder of a column, given its categories by code: integers, or joined UTF-8 strings."""
    if not categories:
        return XgboostCategories(None, missing)
    values = categories["values"]
    if "offsets" not in categories:
        return XgboostCategories({number: code for code, number in enumerate(values.tolist())}, missing)
    text, offsets = values.astype(np.uint8).tobytes(), categories["offsets"].tolist()
    if offsets != sorted(offsets) or min(offsets, default=0) < 0:
        raise ValueError("the names of categories overlap")
    names = [text[begin:end].decode("utf-8", "replace") for begin, end in itertools.pairwise(offsets)]
    code_of_name: dict[str | int, int] = {name: code for code, name in enumerate(names)}
    return XgboostCategories(code_of_name, missing, garbled=before_3_4 and not text.isascii())
