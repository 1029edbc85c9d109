"""LightGBM: ``Booster`` and the scikit-learn wrappers, read from the model text.

How LightGBM reads a row, and how the :class:`~skshapgpu.adapters.Ensemble` represents it:

- Values are float64. A numeric node first turns values of magnitude ``ZERO_MAGNITUDE`` or less into 0.0,
  then sends ``x <= threshold`` left. Its missing type decides about missing values: "NaN" sends NaN to the
  node's default side; "Zero" sends zeros and NaN to the default side; "None" reads NaN as 0.0.
- A categorical node sends the codes ``int(x)`` that it lists left. It sends everything else right: NaN,
  negative, infinite and unseen codes, whatever the missing type. -0.5 is code 0.
- With ``boosting="rf"``, ``predict`` averages the trees, but ``raw_score=True`` and ``pred_contrib=True`` add
  them up. The margin of the ensemble is the average.
- The adapter reads the trees that ``predict`` uses: up to ``best_iteration`` if that is set.
- Covers are the numbers of training rows at each node, without sample weights, as in ``pred_contrib``. Sums
  of hessians are an alternative. The text has the sums of inner nodes with six digits only, so these are
  added up from the sums of the leaves, which the text has in full.
- A leaf of a linear tree (``linear_tree=True``) is a linear function of columns of X, in double precision. It
  takes the values themselves, even small ones that a node reads as zero. If any of its features is NaN, the
  leaf has its ordinary value. Infinite values are rejected, as they have no finite contribution.
- The average that boosting starts from is part of the first trees. An ``init_score`` of the training data is
  not in the model: neither ``predict`` nor the margin of the ensemble contains it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np

from .. import _core
from .._common.positions import repeated_names
from ..errors import UnsupportedModelError
from ._known import require_known
from ._numbers import whole_in_string
from ._subclasses import require_own_predictions
from .ensemble import ZERO_MAGNITUDE, Ensemble
from .schema import FEW_ROWS, AdaptedModel, Column, InputSchema

#: Bits of ``decision_type``; the bits above them are the missing type.
_CATEGORICAL, _DEFAULT_LEFT, _MISSING_SHIFT = 1, 2, 2
_MISSING_NONE, _MISSING_ZERO, _MISSING_NAN = 0, 1, 2

#: Links of the objectives, as ``AdaptedModel`` names them. The logistic link applies to each output
#: separately.
_LINKS: dict[str, Literal["logistic", "exp", "softmax"]] = {
    **dict.fromkeys(("binary", "multiclassova", "cross_entropy"), "logistic"),
    **dict.fromkeys(("poisson", "gamma", "tweedie"), "exp"),
    "multiclass": "softmax",
}

#: Objectives and their parameters; all others are rejected. The name of a custom objective is empty.
_OBJECTIVES = frozenset({"", *_LINKS}).union(
    "regression regression_l1 huber fair quantile mape cross_entropy_lambda lambdarank rank_xendcg".split()
)
_OBJECTIVE_PARAMETERS = frozenset({"num_class", "sigmoid", "sqrt"})

#: Objectives whose prediction is the margin, unless they have the parameter "sqrt".
_UNCHANGED = _OBJECTIVES - {*_LINKS, "cross_entropy_lambda"}

#: Fields of the header and of trees that the adapter reads, or that predictions do not depend on; and
#: versions of the format. All others are rejected. The header has the field "tree": it is the first line.
_HEADER_FIELDS = frozenset(
    "average_output feature_infos feature_names label_index max_feature_idx monotone_constraints num_class "
    "num_tree_per_iteration objective tree tree_sizes version".split()
)
_TREE_FIELDS = frozenset(
    "cat_boundaries cat_threshold decision_type internal_count internal_value internal_weight is_linear "
    "leaf_coeff leaf_const leaf_count leaf_features leaf_value leaf_weight left_child num_cat num_features "
    "num_leaves right_child shrinkage split_feature split_gain threshold".split()
)
_VERSIONS = frozenset({"v3", "v4"})

#: Fields without which LightGBM does not read a text.
_REQUIRED_HEADER_FIELDS = tuple(
    "num_class num_tree_per_iteration label_index max_feature_idx feature_names feature_infos".split()
)

#: Limit on num_tree_per_iteration for a model without trees; otherwise the number of trees is the limit.
_MAX_OUTPUTS_WITHOUT_TREES = 2**12

#: Numbers of a tree that only describe training, with their count; 0 stands for the number of inner nodes.
_STATISTICS = {"split_gain": 0, "internal_value": 0, "internal_weight": 0, "shrinkage": 1}

#: LightGBM ends the process at such a number of a linear leaf, also at digits that round to it.
_SMALLEST_NORMAL = np.finfo(np.float64).tiny

_INNER_FIELDS = {
    "split_feature": np.int64,
    "threshold": np.float64,
    "decision_type": np.int64,
    "left_child": np.int64,
    "right_child": np.int64,
    "internal_count": np.int64,
}


def adapt(model: Any) -> AdaptedModel:
    """Read a ``lightgbm.Booster``, ``LGBMClassifier``, ``LGBMRegressor`` or ``LGBMRanker``.

    The model was trained with any objective, including a custom one, and boosting "gbdt", "dart" or "rf". Its
    margin is ``predict(raw_score=True)``, divided by the number of iterations for ``boosting="rf"``. It has
    one output for each tree of an iteration: the classes of a multiclass model, otherwise one.

    Raise ``UnsupportedModelError`` if the model treats zeros of one feature as missing in one node and as
    numbers in another, which can happen if training continued with other parameters; or the model is a
    wrapper with ``pred_early_stop=True``, or its class is a third-party subclass with its own ``predict``.
    Raise ``NotFittedError`` if the model is a wrapper that is not fitted; ``ValueError`` if the model text is
    damaged.
    """
    import lightgbm

    classes: tuple[Any, ...] | None = None
    object_dtype: str | None = "float32"
    if isinstance(model, lightgbm.LGBMModel):
        require_own_predictions(model, "lightgbm", "; to explain its trees all the same, pass its booster_")
        _require_all_trees(model)
        booster, object_dtype = model.booster_, None  # the wrapper converts objects to float64
        if isinstance(model, lightgbm.LGBMClassifier):
            classes = tuple(np.asarray(model.classes_).tolist())
        adapted = read_text(booster.model_to_string(), classes, object_dtype)
        adapted = replace(adapted, predictions=_predictions(model, adapted, booster))
        # Since 4.6, the wrapper lets scikit-learn check the names, but only of X that is no data frame.
        if adapted.schema.feature_names is None or not hasattr(lightgbm.compat, "_LGBMValidateData"):
            return adapted
        schema = replace(adapted.schema, warns_as=type(model).__name__, frames_have_names=True)
        return replace(adapted, schema=schema)
    elif isinstance(model, lightgbm.Booster):
        require_own_predictions(model, "lightgbm")
        booster = model
    else:
        raise UnsupportedModelError(
            f"cannot explain a {type(model).__module__}.{type(model).__qualname__}; "
            "pass a lightgbm.Booster or a fitted LGBMModel"
        )
    adapted = read_text(booster.model_to_string(), classes, object_dtype)
    return replace(adapted, predictions=_predictions(model, adapted, booster))


def _predictions(model: Any, adapted: AdaptedModel, booster: Any) -> dict[str, Callable[[Any], Any]]:
    """Return ``AdaptedModel.predictions`` of a wrapper or a Booster."""
    head = _fields(booster.model_to_string(num_iteration=1).partition("\n\n")[0])
    averages = "average_output" in head
    n_averaged = adapted.ensemble.n_trees // adapted.ensemble.n_outputs if averages else 1
    predictions: dict[str, Callable[[Any], Any]] = {"raw": partial(_raw_scores, model, max(n_averaged, 1))}
    if n_averaged <= 1 and hasattr(model, "decision_function"):  # since LightGBM 4.7
        predictions["raw"] = model.decision_function
    objective, parameters = _objective(head)
    if not hasattr(model, "predict_proba") and objective in _UNCHANGED and "sqrt" not in parameters:
        predictions["raw"] = model.predict
    elif adapted.link == "exp":
        predictions["response"] = model.predict
    elif adapted.link is not None:
        predict = getattr(model, "predict_proba", model.predict)
        predictions["probability"] = partial(_probabilities, predict, adapted.ensemble.n_outputs)
    return {name: FromFrame(predict) for name, predict in predictions.items()}


@dataclass(frozen=True)
class FromFrame:
    """A prediction from tables of Arrow as data frames: LightGBM reads no categories of Arrow."""

    predict: Callable[[Any], Any]

    def __call__(self, X: Any) -> Any:
        return self.predict(X.to_pandas() if type(X).__module__.partition(".")[0] == "pyarrow" else X)


def _raw_scores(model: Any, n_averaged: int, X: Any) -> Any:
    return model.predict(X, raw_score=True) / n_averaged


def _probabilities(predict: Callable[[Any], Any], n_outputs: int, X: Any) -> np.ndarray:
    """Return the probabilities of the classes that are outputs; a binary Booster has only one probability."""
    probabilities: np.ndarray = predict(X)
    return probabilities[:, -n_outputs:] if probabilities.ndim == 2 else probabilities


def _require_all_trees(model: Any) -> None:
    """Reject a wrapper whose ``predict`` stops early, so that it skips trees for some rows."""
    stops = model.get_params().get("pred_early_stop")
    if stops is not None and str(stops).lower() not in ("false", "-"):
        raise UnsupportedModelError(
            f"cannot explain a {type(model).__name__} with pred_early_stop={stops!r}: its predict skips "
            "different trees for each row; use set_params(pred_early_stop=False)"
        )


def read_text(
    text: str, classes: tuple[Any, ...] | None = None, object_dtype: str | None = "float32"
) -> AdaptedModel:
    """Read a model text.

    ``classes`` are the labels of a classifier, ``object_dtype`` is passed to the schema.
    """
    if "\0" in text:
        raise ValueError("the LightGBM model text has a null character, at which LightGBM itself ends it")
    body, end, tail = text.partition("\nend of trees\n")
    if not end:
        raise ValueError("the LightGBM model text is truncated: it has no line 'end of trees'")
    head_text, *tree_texts = body.split("\nTree=")
    head = _fields(head_text)
    for name in _REQUIRED_HEADER_FIELDS:
        if name not in head:
            raise ValueError(f"the LightGBM model text has no {name}")
    _require_known_header(head)
    n_features = whole_in_string(head, "max_feature_idx", low=-1) + 1
    n_outputs = whole_in_string(head, "num_tree_per_iteration")
    # A round has a tree for each output; without trees, a tampered number would request gigabytes.
    if not 1 <= n_outputs <= (len(tree_texts) or _MAX_OUTPUTS_WITHOUT_TREES) or len(tree_texts) % n_outputs:
        raise ValueError(f"the LightGBM model text claims {n_outputs} outputs for {len(tree_texts)} trees")
    whole_in_string(head, "label_index")
    if whole_in_string(head, "num_class") != n_outputs:
        raise ValueError(
            f"the LightGBM model text has {head['num_class']} classes, but {n_outputs} trees in a round"
        )
    names = head["feature_names"].split(" ")
    if len(names) != n_features:
        raise ValueError(f"the LightGBM model text names {len(names)} of {n_features} features")
    if not all(names):
        raise ValueError("the LightGBM model text has a feature without a name")
    if len(head["feature_infos"].split()) != n_features:
        raise ValueError(f"the LightGBM model text has no feature_infos for each of {n_features} features")
    if "objective" in head and not _objective(head)[0]:  # without an objective, the text has no such line
        raise ValueError("the LightGBM model text has an objective without a name")

    trees = [_tree(i, tree) for i, tree in enumerate(tree_texts)]
    # LightGBM looks for each tree where the sizes of the trees before it say. A header may leave them out.
    sizes = " ".join(str(len(f"Tree={tree}\n".encode())) for tree in tree_texts)
    if head.get("tree_sizes", sizes) != sizes:
        raise ValueError(
            "the LightGBM model text has more or fewer trees, or longer or shorter trees, than tree_sizes in "
            "its header says; if you have edited the text, remove that line"
        )
    if "average_output" in head and not trees:
        raise ValueError("the LightGBM model text has no trees, whose average is its prediction")
    ensemble = _ensemble(trees, n_features, n_outputs, average="average_output" in head)
    invented = all(name == f"Column_{i}" for i, name in enumerate(names))
    try:
        lists = json.loads(tail.rpartition("\npandas_categorical:")[2] or "null")
        categories = None if lists is None else tuple(map(tuple, lists))
    except (TypeError, RecursionError) as error:
        raise ValueError(f"the LightGBM model text has no lists as pandas_categorical: {error}") from error
    schema = InputSchema(
        n_features=n_features,
        feature_names=None if invented else tuple(names),
        blank_as_underscore=True,
        adds_repeated_entries=False,
        array_dtype="float32",
        object_dtype=object_dtype,
        frame_encoder=PandasCategories(categories),
        n_categorical=None if categories is None else len(categories),
    )
    objective, parameters = _objective(head)
    is_binary = n_outputs == 1 and (objective == "binary" or (not objective and classes is not None))
    return AdaptedModel(
        ensemble=ensemble,
        schema=schema,
        family="lightgbm",
        output_names=classes if classes is not None and len(classes) == n_outputs > 1 else None,
        binary="margin" if is_binary else None,
        class_names=classes if is_binary and classes is not None and len(classes) == 2 else None,
        link=_LINKS.get(objective),
        link_scale=float(parameters.get("sigmoid", "1")),
        squared_error=objective == "regression" and "sqrt" not in parameters,
        cover_kind="count",
        other_covers={"weight": partial(_hessians, ensemble, trees)} if trees else {},
    )


def _require_known_header(head: dict[str, str]) -> None:
    """Reject a model with unknown fields, or of an unknown version or objective."""
    objective, parameters = _objective(head)
    name = "the LightGBM model text"
    require_known(name, "fields", head, _HEADER_FIELDS)
    require_known(name, "formats", [head.get("version")], _VERSIONS)
    require_known(name, "objectives", [objective], _OBJECTIVES)
    require_known(name, f"parameters of the objective {objective!r}", parameters, _OBJECTIVE_PARAMETERS)
    if objective.startswith("multiclass"):
        n_classes = whole_in_string(parameters, "num_class", low=1)
        if n_classes != whole_in_string(head, "num_class"):
            raise ValueError(f"{name} has {head['num_class']} classes, but its objective {n_classes}")


def _objective(head: dict[str, str]) -> tuple[str, dict[str, str]]:
    """Return the name of the objective, which is empty for a custom objective, and its parameters."""
    objective, *parameters = head.get("objective", "").split(" ")
    return objective, dict(parameter.partition(":")[::2] for parameter in parameters)


def _fields(text: str) -> dict[str, str]:
    """Parse lines ``name=value``. A line without a value is a flag; empty lines are ignored."""
    pairs = [line.partition("=")[::2] for line in text.split("\n") if line]
    if repeated := repeated_names(name for name, _ in pairs):
        raise ValueError(f"the LightGBM model text has the field {repeated[0]:.80} twice")
    return dict(pairs)


@dataclass(frozen=True)
class _Tree:
    """The arrays of one tree as stored in the text; a negative child is the bitwise complement of a leaf."""

    inner: dict[str, np.ndarray]
    leaf_value: np.ndarray
    leaf_count: np.ndarray
    leaf_weight: str  # sums of hessians, not parsed yet
    cat_boundaries: np.ndarray
    cat_words: np.ndarray
    linear: _LinearLeaves | None


@dataclass(frozen=True)
class _LinearLeaves:
    """The functions of the leaves of a linear tree; leaves without terms are constants."""

    constant: np.ndarray
    n_terms: np.ndarray
    feature: np.ndarray
    coefficient: np.ndarray


def _tree(number: int, text: str) -> _Tree:
    def require(is_valid: Any, problem: str) -> None:
        if not is_valid:
            raise ValueError(f"tree {number} of the LightGBM model text {problem}")

    lines = text.rstrip("\n")
    require("\n\n" not in lines and len(lines) < len(text), "does not end at its first empty line")
    fields = _fields(lines.partition("\n")[2])  # the first line is the number of the tree
    require_known("the LightGBM model text", "fields of a tree", fields, _TREE_FIELDS)

    def numbers(name: str, dtype: Any, size: int) -> np.ndarray:
        text = fields.get(name, "")
        # A tampered size must not allocate more than the text can fill.
        array = np.empty(min(size, len(text) // 2 + 1), dtype)
        n_read = _core.parse_numbers(text, array) if size else 0
        if n_read == size and text.count(" ") >= size > 0:  # a word that is no number may follow
            n_read = len(text.split())
        require(n_read == size, f"needs {size} numbers as {name}, not {n_read if n_read <= size else 'more'}")
        return array

    n_leaves = int(numbers("num_leaves", np.int64, 1)[0])
    n_sets = int(numbers("num_cat", np.int64, 1)[0])
    require(n_leaves >= 1 and n_sets >= 0, "has a negative size")
    inner = {name: numbers(name, dtype, n_leaves - 1) for name, dtype in _INNER_FIELDS.items()}
    for name in ("left_child", "right_child"):
        child = inner[name]
        require(((child >= -n_leaves) & (child < n_leaves - 1)).all(), f"has a {name} outside the tree")
    missing = inner["decision_type"] >> _MISSING_SHIFT
    is_known = (missing >= _MISSING_NONE) & (missing <= _MISSING_NAN)
    require(is_known.all(), "has an unknown decision_type")
    boundaries = numbers("cat_boundaries", np.int64, n_sets + 1) if n_sets else np.zeros(1, np.int64)
    rises = boundaries[0] == 0 and (np.diff(boundaries) >= 0).all()
    require(rises, "has cat_boundaries that do not rise")
    sets = inner["threshold"][inner["decision_type"] & _CATEGORICAL > 0]
    is_set = (sets >= 0) & (sets < n_sets) & (sets == np.trunc(sets))
    require(is_set.all(), "has an unknown category set")
    leaf_value, linear = numbers("leaf_value", np.float64, n_leaves), None
    if n_leaves > 1:  # LightGBM checks them, too; no prediction depends on them
        for name, size in (_STATISTICS | {"leaf_weight": n_leaves}).items():
            if name in fields:
                numbers(name, np.float64, size or n_leaves - 1)
    is_linear = fields.get("is_linear", "0")
    require(is_linear in ("0", "1"), f"has is_linear={is_linear:.80}, not 0 or 1")
    if is_linear == "1":
        n_terms = numbers("num_features", np.int64, n_leaves)
        require(((n_terms >= 0) & (n_terms <= len(text))).all(), "has num_features outside the text")
        size = int(n_terms.sum())
        linear = _LinearLeaves(
            numbers("leaf_const", np.float64, n_leaves),
            n_terms,
            numbers("leaf_features", np.int64, size),
            numbers("leaf_coeff", np.float64, size),
        )
        require(
            np.isfinite(linear.constant).all() and np.isfinite(linear.coefficient).all(),
            "has a linear leaf with numbers that are not finite, as those of models that are trained on "
            "infinite values",
        )
        numbers_of_leaves = np.abs(np.concatenate([linear.constant, linear.coefficient]))
        require(
            ((numbers_of_leaves == 0) | (numbers_of_leaves > _SMALLEST_NORMAL)).all(),
            f"has a linear leaf with a number between 0 and {_SMALLEST_NORMAL:.1e}, which LightGBM cannot "
            "read",
        )
        leaf_value = np.where(n_terms > 0, leaf_value, linear.constant)
    words = numbers("cat_threshold", np.int64, int(boundaries[-1]))
    is_word = (words >= 0) & (words < 2**32)
    require(is_word.all(), "has a cat_threshold that is no word of 32 bits")
    return _Tree(
        inner=inner,
        leaf_value=leaf_value,
        # LightGBM 4.0 omits the count of a tree with a single leaf; nothing depends on it.
        leaf_count=numbers("leaf_count", np.int64, n_leaves) if n_leaves > 1 else np.zeros(1),
        leaf_weight=fields.get("leaf_weight", ""),
        cat_boundaries=boundaries,
        cat_words=words,
        linear=linear,
    )


def _ensemble(trees: Sequence[_Tree], n_features: int, n_outputs: int, *, average: bool) -> Ensemble:
    """Concatenate the trees. In each tree, the inner nodes come first, numbered as in the text."""
    n_leaves = np.array([len(t.leaf_value) for t in trees], np.int64)
    n_inner = n_leaves - 1
    offsets = np.concatenate([[0], np.cumsum(n_leaves + n_inner)])
    inner_at = np.arange(n_inner.sum()) + np.repeat(np.cumsum(n_leaves) - n_leaves, n_inner)
    leaf_at = np.ones(offsets[-1], bool)
    leaf_at[inner_at] = False

    def nodes(dtype: Any, inner: Any, leaf: Any) -> np.ndarray:
        array = np.empty(offsets[-1], dtype)
        array[inner_at], array[leaf_at] = inner, leaf
        return array

    def join(arrays: list[np.ndarray], dtype: Any = np.float64) -> np.ndarray:
        return np.concatenate([np.empty(0, dtype), *arrays])

    field = {name: join([t.inner[name] for t in trees], dtype) for name, dtype in _INNER_FIELDS.items()}
    first_leaf = np.repeat(n_inner, n_inner)
    left, right = (
        np.where(child >= 0, child, first_leaf + ~child)
        for child in (field["left_child"], field["right_child"])
    )
    feature = field["split_feature"]
    if ((feature < 0) | (feature >= n_features)).any():
        raise ValueError(f"the LightGBM model text splits on a feature outside 0..{n_features - 1}")
    default_left = field["decision_type"] & _DEFAULT_LEFT > 0
    missing = field["decision_type"] >> _MISSING_SHIFT
    threshold = _round_at_zero(field["threshold"])
    zero_left = np.where(missing == _MISSING_ZERO, default_left, threshold >= 0)
    nan_left = np.where(missing == _MISSING_NAN, default_left, zero_left)
    options: dict[str, Any] = {}
    categorical = field["decision_type"] & _CATEGORICAL > 0
    if categorical.any():
        first_set = np.cumsum([0] + [len(t.cat_boundaries) - 1 for t in trees[:-1]])
        set_number = field["threshold"] + np.repeat(first_set, n_inner)
        set_number = np.where(categorical, set_number, -1).astype(np.int64)
        sets, lists_zero = _category_sets(trees)
        zero_left[categorical] = lists_zero[set_number[categorical]]
        nan_left[categorical] = False
        threshold[categorical] = 0.0
        options = sets | {"category_set": nodes(np.int32, set_number, -1)}
    if (zero_is_missing := (missing == _MISSING_ZERO) & ~categorical).any():
        zero_missing = options["zero_missing"] = np.zeros(n_features, bool)
        zero_missing[feature[zero_is_missing]] = True
        if (mixed := zero_missing[feature] & (zero_left != nan_left)).any():
            raise UnsupportedModelError(
                f"cannot explain this LightGBM model: zeros of feature {feature[np.argmax(mixed)]} are "
                "missing in some nodes and numbers in others"
            )

    n_averaged = len(trees) / n_outputs if average else 1.0
    value = join([t.leaf_value for t in trees]) / n_averaged
    if any(t.linear is not None and t.linear.n_terms.any() for t in trees):
        leaf_functions = [t.linear or _constant_leaves(len(t.leaf_value)) for t in trees]
        n_terms = join([linear.n_terms for linear in leaf_functions], np.int64)
        constants = join([linear.constant for linear in leaf_functions]) / n_averaged
        constant = np.where(n_terms > 0, constants, 0.0)
        term_feature = join([linear.feature for linear in leaf_functions], np.int64)
        if ((term_feature < 0) | (term_feature >= n_features)).any():
            raise ValueError(
                f"the LightGBM model text has leaf_features outside the features 0..{n_features - 1}"
            )
        options |= {
            "linear_offsets": np.concatenate([[0], np.cumsum(nodes(np.int64, 0, n_terms))]),
            "linear_feature": term_feature,
            "linear_coefficient": join([linear.coefficient for linear in leaf_functions]) / n_averaged,
            "linear_intercept": nodes(np.float64, 0.0, constant),
        }
    return Ensemble(
        n_features=n_features,
        tree_offsets=offsets,
        tree_output=np.arange(len(trees)) % n_outputs,
        left=nodes(np.int32, left, -1),
        right=nodes(np.int32, right, -1),
        feature=nodes(np.int32, feature, 0),
        threshold=nodes(np.float64, threshold, 0.0),
        missing_left=nodes(bool, nan_left, False),
        cover=nodes(np.float64, field["internal_count"], join([t.leaf_count for t in trees])),
        value=nodes(np.float64, 0.0, value)[:, np.newaxis],
        intercept=np.zeros(n_outputs),
        x_dtype="float64",
        **options,
    )


def _constant_leaves(n_leaves: int) -> _LinearLeaves:
    """Return the functions of leaves that have no terms."""
    no_terms = np.zeros(n_leaves, np.int64)
    return _LinearLeaves(np.zeros(n_leaves), no_terms, np.empty(0, np.int64), np.empty(0))


def _hessians(ensemble: Ensemble, trees: Sequence[_Tree]) -> np.ndarray:
    """Return the sum of hessians at each node, added up from the leaves."""
    cover, nodes = np.zeros(ensemble.n_nodes), np.flatnonzero(ensemble.left < 0)
    weights = []
    for number, tree in enumerate(trees):
        n_leaves = len(tree.leaf_value)
        # The text may omit the weight of a single leaf; nothing depends on it.
        weight = np.zeros(n_leaves)
        if n_leaves > 1 and _core.parse_numbers(tree.leaf_weight, weight) != n_leaves:
            raise ValueError(f"tree {number} of the LightGBM model text has no leaf_weight for each leaf")
        weights.append(weight)
    cover[nodes] = weight = np.concatenate(weights)
    start = np.repeat(ensemble.tree_offsets[:-1], np.diff(ensemble.tree_offsets))
    inner = np.flatnonzero(ensemble.left >= 0)
    parent = np.full(ensemble.n_nodes, -1)
    for child in (ensemble.left, ensemble.right):
        parent[start[inner] + child[inner]] = inner
    while len(parents := parent[nodes]) and (parents >= 0).any():
        nodes, weight = parents[parents >= 0], weight[parents >= 0]
        np.add.at(cover, nodes, weight)
    return cover


def _round_at_zero(threshold: np.ndarray) -> np.ndarray:
    """Move thresholds so that all x of magnitude ZERO_MAGNITUDE or less go where ``predict`` sends 0.0."""
    threshold = np.where((threshold >= 0) & (threshold <= ZERO_MAGNITUDE), ZERO_MAGNITUDE, threshold)
    return np.where(
        (threshold < 0) & (threshold >= -ZERO_MAGNITUDE), np.nextafter(-ZERO_MAGNITUDE, -np.inf), threshold
    )


def _category_sets(trees: Sequence[_Tree]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the sets of all trees as ``Ensemble`` stores them, and whether each set lists code 0.

    The text has bit sets of 32-bit words: bit b of word w of a set is code 32 w + b.
    """
    words = np.concatenate([t.cat_words for t in trees])
    n_words = np.concatenate([np.diff(t.cat_boundaries) for t in trees])
    bits = np.unpackbits(words.astype("<u4").view(np.uint8), bitorder="little").reshape(-1, 32)
    word, bit = np.nonzero(bits)
    first_word = np.repeat(np.cumsum(n_words) - n_words, n_words)[word]
    set_of_bit = np.repeat(np.arange(len(n_words)), n_words)[word]
    codes = 32 * (word - first_word) + bit
    n_codes = np.bincount(set_of_bit, minlength=len(n_words))
    sets = {
        "category_offsets": np.concatenate([[0], np.cumsum(n_codes)]),
        "category_values": codes,
        "category_listed_left": np.ones(len(n_words), bool),
    }
    return sets, np.bincount(set_of_bit[codes == 0], minlength=len(n_words)) > 0


@dataclass(frozen=True)
class PandasCategories:
    """Encoder of the categorical columns of a data frame; see ``ColumnEncoder``."""

    #: The categories of each categorical column in training, in the order of their codes. None if the model
    #: was trained on an array: LightGBM then takes the codes of X as they are.
    lists: tuple[tuple[Any, ...], ...] | None

    @property
    def takes_codes(self) -> bool:
        """Whether the codes of a frame are used as they are."""
        return self.lists is None

    @cached_property
    def _codes(self) -> tuple[dict[Any, float], ...]:
        """Code of each category, for each column."""
        lists = self.lists or ()
        return tuple({category: float(code) for code, category in enumerate(items)} for items in lists)

    def __getstate__(self) -> dict[str, Any]:
        return {"lists": self.lists}  # without the dicts, so that equal encoders have equal pickles

    def encode(self, column: Column) -> np.ndarray:
        """Return float64 codes, NaN where the value is missing or was not seen in training.

        Raise ``ValueError`` for a column of strings if no category in training was a string, and, if the
        model takes codes, for categories of a library other than pandas.
        """
        assert column.codes is not None  # the column is categorical
        if self.lists is None:
            if column.package != "pandas":
                raise ValueError(
                    f"column {column.name!r} is categorical, but the model was trained on numbers: give it "
                    "as whole numbers, the codes of the training data"
                )
            return np.where(column.codes < 0, np.nan, column.codes)
        categories = self.lists[column.category_number]
        if column.is_text and categories and not any(isinstance(category, str) for category in categories):
            raise ValueError(
                f"column {column.name!r} is text, but its categories in training were numbers such as "
                f"{categories[0]!r}: convert it"
            )
        code_of = self._codes[column.category_number]
        if len(column.codes) <= FEW_ROWS:
            numbers = enumerate(column.codes.tolist())
            return np.array([code_of.get(column.values[i], np.nan) if n >= 0 else np.nan for i, n in numbers])
        _, first, inverse = np.unique(column.codes, return_index=True, return_inverse=True)
        codes = [code_of.get(column.values[i], np.nan) if column.codes[i] >= 0 else np.nan for i in first]
        return np.array(codes, np.float64)[inverse]
