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
from typing import Any, Literal, NamedTuple

import numpy as np

from ..errors import UnsupportedModelError
from ._known import require_known
from ._lightgbm_trees import ensemble_of_trees, hessians, read_fields, read_tree
from ._numbers import whole_in_string
from ._subclasses import require_own_predictions
from .schema import FEW_ROWS, AdaptedModel, Column, InputSchema

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

#: Fields of the header that the adapter reads, or that predictions do not depend on; and versions of the
#: format. All others are rejected. The header has the field "tree": it is the first line.
_HEADER_FIELDS = frozenset(
    "average_output feature_infos feature_names label_index max_feature_idx monotone_constraints num_class "
    "num_tree_per_iteration objective tree tree_sizes version".split()
)
_VERSIONS = frozenset({"v3", "v4"})

#: Fields without which LightGBM does not read a text.
_REQUIRED_HEADER_FIELDS = tuple(
    "num_class num_tree_per_iteration label_index max_feature_idx feature_names feature_infos".split()
)

#: Limit on num_tree_per_iteration for a model without trees; otherwise the number of trees is the limit.
_MAX_OUTPUTS_WITHOUT_TREES = 2**12


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
    head = read_fields(booster.model_to_string(num_iteration=1).partition("\n\n")[0])
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
    head_text, tree_texts, tail = _parts(text)
    header = _header(head_text, len(tree_texts))
    n_outputs, averages = header.n_outputs, "average_output" in header.fields
    trees = [read_tree(i, tree) for i, tree in enumerate(tree_texts)]
    _require_sizes(header.fields, tree_texts)
    if averages and not trees:
        raise ValueError("the LightGBM model text has no trees, whose average is its prediction")
    ensemble = ensemble_of_trees(trees, len(header.names), n_outputs, average=averages)
    objective, parameters = _objective(header.fields)
    is_binary = n_outputs == 1 and (objective == "binary" or (not objective and classes is not None))
    return AdaptedModel(
        ensemble=ensemble,
        schema=_schema(header.names, _categories(tail), object_dtype),
        family="lightgbm",
        output_names=classes if classes is not None and len(classes) == n_outputs > 1 else None,
        binary="margin" if is_binary else None,
        class_names=classes if is_binary and classes is not None and len(classes) == 2 else None,
        link=_LINKS.get(objective),
        link_scale=float(parameters.get("sigmoid", "1")),
        squared_error=objective == "regression" and "sqrt" not in parameters,
        cover_kind="count",
        other_covers={"weight": partial(hessians, ensemble, trees)} if trees else {},
    )


def _parts(text: str) -> tuple[str, list[str], str]:
    """Return the header, the text of each tree, and what follows the trees."""
    if "\0" in text:
        raise ValueError("the LightGBM model text has a null character, at which LightGBM itself ends it")
    body, end, tail = text.partition("\nend of trees\n")
    if not end:
        raise ValueError("the LightGBM model text is truncated: it has no line 'end of trees'")
    head_text, *tree_texts = body.split("\nTree=")
    return head_text, tree_texts, tail


class _Header(NamedTuple):
    """The fields of the header, and what they say about the columns and the outputs."""

    fields: dict[str, str]
    names: list[str]
    n_outputs: int


def _header(text: str, n_trees: int) -> _Header:
    """Read the header of a text with ``n_trees`` trees, except for their sizes."""
    head = read_fields(text)
    for name in _REQUIRED_HEADER_FIELDS:
        if name not in head:
            raise ValueError(f"the LightGBM model text has no {name}")
    _require_known_header(head)
    n_features = whole_in_string(head, "max_feature_idx", low=-1) + 1
    n_outputs = whole_in_string(head, "num_tree_per_iteration")
    # A round has a tree for each output; without trees, a tampered number would request gigabytes.
    if not 1 <= n_outputs <= (n_trees or _MAX_OUTPUTS_WITHOUT_TREES) or n_trees % n_outputs:
        raise ValueError(f"the LightGBM model text claims {n_outputs} outputs for {n_trees} trees")
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
    return _Header(head, names, n_outputs)


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


def _require_sizes(head: dict[str, str], tree_texts: Sequence[str]) -> None:
    """Reject a text in which a tree is not as long as the header says.

    LightGBM looks for each tree where the sizes of the trees before it say. A header may leave them out.
    """
    sizes = " ".join(str(len(f"Tree={tree}\n".encode())) for tree in tree_texts)
    if head.get("tree_sizes", sizes) != sizes:
        raise ValueError(
            "the LightGBM model text has more or fewer trees, or longer or shorter trees, than tree_sizes in "
            "its header says; if you have edited the text, remove that line"
        )


def _categories(tail: str) -> tuple[tuple[Any, ...], ...] | None:
    """Return the categories of each categorical column of the training frame; None if it was an array."""
    try:
        lists = json.loads(tail.rpartition("\npandas_categorical:")[2] or "null")
        return None if lists is None else tuple(map(tuple, lists))
    except (TypeError, RecursionError) as error:
        raise ValueError(f"the LightGBM model text has no lists as pandas_categorical: {error}") from error


def _schema(
    names: list[str], categories: tuple[tuple[Any, ...], ...] | None, object_dtype: str | None
) -> InputSchema:
    invented = all(name == f"Column_{i}" for i, name in enumerate(names))
    return InputSchema(
        n_features=len(names),
        feature_names=None if invented else tuple(names),
        blank_as_underscore=True,
        adds_repeated_entries=False,
        array_dtype="float32",
        object_dtype=object_dtype,
        frame_encoder=PandasCategories(categories),
        n_categorical=None if categories is None else len(categories),
    )


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
