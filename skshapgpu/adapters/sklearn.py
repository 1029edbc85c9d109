"""scikit-learn: single trees, forests, bagging, both kinds of gradient boosting, IsolationForest.

=========================================  ====================================================
model                                      margin
=========================================  ====================================================
decision trees, forests, bagging of trees  ``predict``, or ``predict_proba``
``GradientBoosting*``                      ``decision_function``, or ``predict``
``HistGradientBoosting*``                  ``decision_function``, or ``predict`` before its
                                           inverse link (log link: poisson and gamma loss)
``IsolationForest``                        average path length E, as shap explains it, which is
                                           larger for normal rows; ``score_samples``,
                                           ``-2 ** (-E / c)``, and ``decision_function`` are
                                           functions of E
``tree_`` of a tree, without estimator     ``Tree.predict``: see ``sklearn_raw_tree.py``
=========================================  ====================================================

A binary classifier has one output, its positive class ``classes_[1]``; a classifier of three or
more classes has one output for each class. A classifier that saw a single class in training has one
constant output: the probability, 1, or the ``decision_function`` of HistGradientBoosting. A classifier of
several targets has an output for each class of each target, the columns of ``np.hstack(predict_proba(X))``.

Trees compare X rounded to float32 with a float64 threshold, HistGradientBoosting compares
float64 with float64; both go left at ``<=``, and NaN goes where the node says. A model that
refuses infinities also refuses numbers that are infinite once rounded to float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
from sklearn.base import is_classifier, is_regressor
from sklearn.ensemble._iforest import _average_path_length
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.tree._tree import Tree as SklearnTree
from sklearn.utils.validation import check_is_fitted

from ..errors import UnsupportedModelError
from . import sklearn_ensembles, sklearn_raw_tree
from ._known import require_known
from ._subclasses import require_own_predictions
from .ensemble import Ensemble, Tree
from .link_sums import LinkSum, Term
from .schema import (
    AdaptedModel,
    ColumnEncoder,
    counts_of,
    pair_names,
    predictions_of_mean,
)
from .sklearn_categories import (
    NativeCategories,
    OrdinalCategories,
    bits_of,
    native_categories,
    refuse_categories,
)
from .sklearn_trees import accepts_nan, input_schema, read_tree, require_all_members, require_trees

#: Criteria of trees that are squared errors.
_SQUARED_ERRORS = ("squared_error", "friedman_mse")

#: Losses of boosting, by the name of their class: the link, as ``AdaptedModel`` names it, and the factor of
#: the margin in it. All other losses of scikit-learn are rejected.
_LOSSES: dict[str, tuple[Literal["logistic", "exp"] | None, float]] = {
    **dict.fromkeys(("HalfSquaredError", "AbsoluteError", "PinballLoss", "HuberLoss"), (None, 1.0)),
    "HalfTweedieLossIdentity": (None, 1.0),
    **dict.fromkeys(("HalfPoissonLoss", "HalfGammaLoss", "HalfTweedieLoss"), ("exp", 1.0)),
    **dict.fromkeys(("HalfBinomialLoss", "HalfMultinomialLoss"), ("logistic", 1.0)),
    "ExponentialLoss": ("logistic", 2.0),  # its margin is half of the log-odds
}

#: Fields of the nodes of HistGradientBoosting; all others are rejected.
_PREDICTOR_FIELDS = frozenset(
    "value count feature_idx num_threshold missing_go_to_left left right gain depth is_leaf bin_threshold "
    "is_categorical bitset_idx".split()
)

_CHAIN = (
    "explain each of its estimators_ on the columns that it takes, which are X and the predictions of the "
    "estimators_ before it; estimators_[i] predicts target order_[i]"
)

#: Models made of trees that are rejected, like their subclasses: the reason, by the name of the class.
_REFUSED: dict[str, str] = {
    "AdaBoostRegressor": "it predicts a weighted median of its trees, which is not a sum over them",
    "TransformedTargetRegressor": "it transforms back what its trees add up to: explain its regressor_, "
    "which predicts the transformed target",
    "ClassifierChain": _CHAIN,
    "RegressorChain": _CHAIN,
    "OneVsOneClassifier": "explain each of its estimators_",
    "OutputCodeClassifier": "explain each of its estimators_",
}


def adapt(model: Any, package: str = "sklearn") -> AdaptedModel:
    """Read a fitted model of scikit-learn, or of a subclass that predicts in the same way.

    It is the final model itself: pipelines, searches and ``FrozenEstimator`` have been unwrapped before. Its
    margin depends on the class of the model: see the table at the top of this module. Classes of ``package``
    may define methods that predict, if the results are the same. Raise ``UnsupportedModelError`` if the
    model, or one of its options, cannot be explained exactly;
    ``NotFittedError`` if the model is not fitted; ``ValueError`` if the model was modified and is no longer a
    valid ensemble of trees.
    """
    if isinstance(model, SklearnTree):
        return sklearn_raw_tree.adapt(model)
    name = type(model).__name__
    bases = [base.__name__ for base in type(model).__mro__ if base.__module__.partition(".")[0] == "sklearn"]
    for base in bases:
        if base in _REFUSED:
            raise UnsupportedModelError(f"cannot explain a {name}: {_REFUSED[base]}")
    known_readers = _READERS | sklearn_ensembles.READERS
    readers = [known_readers[base] for base in bases if base in known_readers]
    if not readers and type(model).__module__.partition(".")[0] == "sklearnex":
        raise UnsupportedModelError(
            f"cannot explain a {name} of scikit-learn-intelex: its predict differs from that of its trees; "
            "fit scikit-learn's own class, after sklearnex.unpatch_sklearn()"
        )
    if not readers:
        linear = "it is linear, and its SHAP values are coef_ * (X - X.mean(axis=0))"
        reason = linear if hasattr(model, "coef_") else "it does not predict a sum of trees"
        raise UnsupportedModelError(f"cannot explain a {name}: {reason}")
    fitted, read = readers[0]
    check_is_fitted(model, fitted)
    require_own_predictions(model, package)
    try:
        return read(model)
    except (LookupError, OverflowError) as error:
        raise ValueError(f"the {name} contradicts itself: {type(error).__name__}: {error}") from error


def _node_values(estimator: Any, n_classes: int) -> np.ndarray:
    """Return the prediction of each node of a tree: (n_nodes,), or (n_nodes, n_outputs) for several outputs.

    ``n_classes`` is the number of classes of the whole model, 0 for a regressor.
    """
    value = estimator.tree_.value  # (n_nodes, n_outputs, max_n_classes); proportions of the classes
    if not n_classes:
        return value[:, 0, 0] if value.shape[1] == 1 else value[:, :, 0]
    proba = value[:, 0, :]
    if len(estimator.classes_) != n_classes:
        # A tree of a bagging model may have seen only some classes; its classes_ are the class numbers.
        proba = np.zeros((len(value), n_classes))
        proba[:, estimator.classes_.astype(np.intp)] = value[:, 0, :]
    return proba if n_classes > 2 else proba[:, -1]


def _has_several_targets(classifier: Any) -> bool:
    return getattr(classifier, "n_outputs_", 1) > 1


def _values_of_targets(estimator: Any, classes: Sequence[np.ndarray]) -> np.ndarray:
    """Return the probability of each class of each target at each node of a tree: (n_nodes, n_outputs)."""
    value = estimator.tree_.value  # (n_nodes, n_targets, max_n_classes), with zeros for missing classes
    n_classes = [len(labels) for labels in classes]
    if value.shape[1:] != (len(n_classes), max(n_classes)):
        raise ValueError(
            f"the model has {n_classes} classes of its targets, but a tree has {value.shape[1:]}"
        )
    return np.hstack([value[:, target, :n] for target, n in enumerate(n_classes)])


def _mean_of_trees(
    model: Any, estimators: Iterable[Any], columns: Sequence[np.ndarray] | None = None
) -> AdaptedModel:
    """Return the model whose margin is the mean of the predictions, or class probabilities, of trees."""
    n_classes, estimators = 0, list(estimators)
    categories = None if columns else native_categories(model, estimators)
    has_categories = categories is not None
    if is_classifier(model):
        kind, method = DecisionTreeClassifier, "predict_proba"
        n_classes = len(model.classes_)
    else:
        kind, method = DecisionTreeRegressor, "predict"
    estimators = require_trees(model, estimators, kind, method, has_categories=has_categories)
    if n_classes and _has_several_targets(model):
        node_values = [_values_of_targets(estimator, model.classes_) for estimator in estimators]
    else:
        node_values = [_node_values(estimator, n_classes) for estimator in estimators]
    values = [value / len(estimators) for value in node_values]
    columns_of_trees: list[np.ndarray | None] = list(columns) if columns else [None] * len(estimators)
    trees = [
        read_tree(estimator, value, columns=tree_columns, categories=categories)
        for estimator, value, tree_columns in zip(estimators, values, columns_of_trees, strict=True)
    ]
    n_outputs = values[0].shape[1] if values[0].ndim == 2 else 1
    ensemble = Ensemble.from_trees(trees, n_features=model.n_features_in_, intercept=np.zeros(n_outputs))
    link: Literal["identity"] | None = "identity" if n_classes else None
    allow_nan = accepts_nan(estimators[0])
    adapted = _adapted(model, ensemble, trees, binary="probability", link=link, allow_nan=allow_nan)
    return _encoding(model, adapted, categories)


def _encoding(model: Any, adapted: AdaptedModel, categories: NativeCategories | None) -> AdaptedModel:
    """Return the model that encodes its native categories; its own predict takes no sparse X."""
    if categories is None:
        return adapted
    if not adapted.schema.allow_nan:
        name = f"a {type(model).__name__}"
        raise refuse_categories(name, "but it refuses missing values, and categories that it has not seen")
    schema = replace(adapted.schema, encoders=categories.encoders, allow_sparse=False)
    return replace(adapted, schema=schema)


def _single_tree(model: Any) -> AdaptedModel:
    return _mean_of_trees(model, [model])


def _forest(model: Any) -> AdaptedModel:
    return _mean_of_trees(model, model.estimators_)


def _bagging(model: Any) -> AdaptedModel:
    require_all_members(model)
    if not all(isinstance(e, (DecisionTreeClassifier, DecisionTreeRegressor)) for e in model.estimators_):
        return sklearn_ensembles.bagging(model)
    return _mean_of_trees(model, model.estimators_, model.estimators_features_)


def _isolation_forest(model: Any) -> AdaptedModel:
    categories = native_categories(model, model.estimators_)
    estimators = require_trees(
        model, model.estimators_, DecisionTreeRegressor, "apply", has_categories=categories is not None
    )
    # A leaf with n rows stands for a subtree that was not grown, whose mean depth for n rows is added.
    # scikit-learn counts the root as depth 1.
    depths = zip(model._decision_path_lengths, model._average_path_length_per_tree, strict=True)
    trees = [
        read_tree(
            estimator,
            (depth + subtree_depth - 1.0) / len(estimators),
            columns=columns,
            categories=categories,
        )
        for estimator, columns, (depth, subtree_depth) in zip(
            estimators, model.estimators_features_, depths, strict=True
        )
    ]
    ensemble = Ensemble.from_trees(trees, n_features=model.n_features_in_, intercept=0.0)
    adapted = _adapted(model, ensemble, trees, allow_nan=True, allow_inf=True)
    adapted = _encoding(model, adapted, categories)
    predictions: dict[str, Callable[[Any], Any]] = {"raw": partial(_mean_path_lengths, model)}
    typical_length = float(_average_path_length([model._max_samples])[0])
    if typical_length == 0:  # trees of one row, whose score is constant
        return replace(adapted, predictions=predictions)
    score = (Term("exp", -np.log(2) / typical_length, np.full((1, 1), -1.0)),)
    functions = {
        "score_samples": LinkSum(score, np.zeros(1)),
        "decision_function": LinkSum(score, np.full(1, -float(model.offset_))),
    }
    predictions |= {name: getattr(model, name) for name in functions}
    return replace(adapted, functions=functions, predictions=predictions)


def _gradient_boosting(model: Any) -> AdaptedModel:
    name, init = type(model).__name__, model.init_
    if not isinstance(init, str) and not _is_dummy(init):
        raise UnsupportedModelError(
            f"cannot explain a {name} with init={type(init).__name__}: only a constant start, "
            "init=None, 'zero' or a Dummy estimator, can be explained from its trees"
        )
    if getattr(init, "strategy", None) == "stratified":
        raise UnsupportedModelError(
            f"cannot explain a {name} whose init, strategy='stratified', predicts at random"
        )
    estimators = require_trees(model, model.estimators_.ravel(), DecisionTreeRegressor, "predict")
    n_outputs = model.estimators_.shape[1]
    link, scale = _link(model)
    trees = [
        read_tree(e, model.learning_rate * e.tree_.value[:, 0, 0], output=i % n_outputs)
        for i, e in enumerate(estimators)
    ]
    # The loss turns the prior into the initial margin: the exponential loss takes half of the log-odds.
    start = model._raw_predict_init(np.zeros((1, model.n_features_in_), np.float32))
    ensemble = Ensemble.from_trees(trees, n_features=model.n_features_in_, intercept=start[0])
    return _adapted(model, ensemble, trees, binary="margin", link=link, link_scale=scale)


def _is_dummy(init: Any) -> bool:
    package = type(init).__module__.partition(".")[0]
    return type(init).__name__ in ("DummyClassifier", "DummyRegressor") and package in (
        "sklearn",
        "sklearnex",
    )


def _link(model: Any) -> tuple[Literal["logistic", "exp"] | None, float]:
    """Return the link of a boosting model and the factor of the margin in it.

    The loss is the one that ``fit`` used, as ``model.loss`` may have been changed since. If scikit-learn has
    no such loss, the link is unknown: None.
    """
    loss = type(model._loss)
    if loss.__module__.partition(".")[0] != "sklearn":
        return None, 1.0
    require_known(f"the {type(model).__name__}", "losses", [loss.__name__], frozenset(_LOSSES))
    return _LOSSES[loss.__name__]


def _hist_gradient_boosting(model: Any) -> AdaptedModel:
    # Trees number the columns as the model's own preprocessor orders them: categorical ones first.
    columns = np.arange(model.n_features_in_)
    encoders = {}
    if model._preprocessor is not None:
        categorical = np.flatnonzero(model.is_categorical_)
        columns = np.concatenate([categorical, np.flatnonzero(~model.is_categorical_)])
        categories = model._preprocessor.named_transformers_["encoder"].categories_
        encoders = {
            int(column): OrdinalCategories(np.array(values))
            for column, values in zip(categorical, categories, strict=True)
        }
    trees = [
        _read_predictor(predictor, columns, output)
        for iteration in model._predictors
        for output, predictor in enumerate(iteration)
    ]
    ensemble = Ensemble.from_trees(
        trees,
        n_features=model.n_features_in_,
        x_dtype="float64",
        intercept=np.ravel(model._baseline_prediction),
    )
    link, scale = _link(model)
    adapted = _adapted(
        model,
        ensemble,
        trees,
        cover_kind="count",
        binary="margin",
        link=link,
        link_scale=scale,
        allow_nan=True,
        allow_inf=True,
        encoders=encoders,
    )
    return replace(adapted, schema=replace(adapted.schema, allow_sparse=False))


def _read_predictor(predictor: Any, columns: np.ndarray, output: int) -> Tree:
    nodes = predictor.nodes
    require_known(
        "the HistGradientBoosting model", "fields of its nodes", nodes.dtype.names, _PREDICTOR_FIELDS
    )
    leaf = nodes["is_leaf"].astype(bool)
    categorical = nodes["is_categorical"].astype(bool) & ~leaf
    # One row of 8 words for each categorical split: bit i is set when category i goes left.
    bits = bits_of(predictor.raw_left_cat_bitsets)
    return Tree(
        left=np.where(leaf, -1, nodes["left"].astype(np.int32)),
        right=np.where(leaf, -1, nodes["right"].astype(np.int32)),
        feature=columns[np.where(leaf, 0, nodes["feature_idx"])],
        threshold=np.where(leaf | categorical, 0.0, nodes["num_threshold"]),
        missing_left=nodes["missing_go_to_left"],
        cover=nodes["count"],
        value=np.where(leaf, nodes["value"], 0.0),
        output=output,
        categories={
            int(node): np.flatnonzero(bits[nodes["bitset_idx"][node]]) for node in np.flatnonzero(categorical)
        },
    )


def _adapted(
    model: Any,
    ensemble: Ensemble,
    trees: Sequence[Tree],
    *,
    cover_kind: Literal["count", "weight"] = "weight",
    binary: Literal["margin", "probability"] | None = None,
    link: Literal["identity", "logistic", "softmax", "exp"] | None = None,
    link_scale: float = 1.0,
    allow_nan: bool = False,
    allow_inf: bool = False,
    encoders: Mapping[int, ColumnEncoder] | None = None,
) -> AdaptedModel:
    """Add the schema and names; ``binary`` and a logistic link apply to binary classifiers only."""
    classes: tuple[Any, ...] = ()
    output_names = None
    if is_classifier(model) and _has_several_targets(model):
        output_names = pair_names(
            (target, label) for target, labels in enumerate(model.classes_) for label in labels.tolist()
        )
    elif is_classifier(model):
        classes = tuple(model.classes_.tolist())
        output_names = classes if len(classes) > 2 else None
    return AdaptedModel(
        ensemble=ensemble,
        schema=input_schema(model, allow_nan, allow_inf, encoders),
        family="sklearn",
        output_names=output_names,
        binary=binary if len(classes) == 2 else None,
        class_names=classes if len(classes) == 2 else None,
        link=link if len(classes) == 2 or link != "logistic" else "softmax" if len(classes) > 2 else None,
        link_scale=link_scale,
        squared_error=is_regressor(model) and ensemble.n_outputs == 1 and _minimizes_squared_error(model),
        cover_kind=cover_kind,
        other_covers=counts_of(trees),
        predictions=_predictions(model, link),
    )


def _predictions(model: Any, link: str | None) -> dict[str, Callable[[Any], Any]]:
    """Return ``AdaptedModel.predictions``."""
    if not is_classifier(model):
        return predictions_of_mean(model.predict) if link == "exp" else {"raw": model.predict}
    probabilities = partial(_probabilities, model)
    if hasattr(model, "decision_function"):
        return {"raw": model.decision_function, "probability": probabilities}
    return {"raw": probabilities, "probability": probabilities}


def _probabilities(model: Any, X: Any) -> np.ndarray:
    """Return the probabilities of the classes that are outputs."""
    probabilities = model.predict_proba(X)
    if isinstance(probabilities, list):  # there are several targets
        return np.hstack(probabilities)
    return probabilities[:, 1] if probabilities.shape[1] == 2 else probabilities


def _mean_path_lengths(model: Any, X: Any) -> np.ndarray:
    """Return the average path length, which is computed from the score of an isolation forest."""
    with np.errstate(divide="ignore"):
        return -_average_path_length([model._max_samples])[0] * np.log2(-model.score_samples(X))


def _minimizes_squared_error(model: Any) -> bool:
    if hasattr(model, "_loss"):
        return type(model._loss).__name__ == "HalfSquaredError"
    return getattr(model, "criterion", None) in _SQUARED_ERRORS


#: For each class, by name: an attribute that only a fitted model has, and the reader. Names are compared, not
#: classes, as scikit-learn-intelex replaces the classes in ``sklearn.ensemble`` with its own.
_READERS: dict[str, tuple[str, Callable[[Any], AdaptedModel]]] = {
    "DecisionTreeClassifier": ("tree_", _single_tree),
    "DecisionTreeRegressor": ("tree_", _single_tree),
    "RandomForestClassifier": ("estimators_", _forest),
    "RandomForestRegressor": ("estimators_", _forest),
    "ExtraTreesClassifier": ("estimators_", _forest),
    "ExtraTreesRegressor": ("estimators_", _forest),
    "BaggingClassifier": ("estimators_", _bagging),
    "BaggingRegressor": ("estimators_", _bagging),
    "IsolationForest": ("estimators_", _isolation_forest),
    "GradientBoostingClassifier": ("estimators_", _gradient_boosting),
    "GradientBoostingRegressor": ("estimators_", _gradient_boosting),
    "HistGradientBoostingClassifier": ("_predictors", _hist_gradient_boosting),
    "HistGradientBoostingRegressor": ("_predictors", _hist_gradient_boosting),
}
