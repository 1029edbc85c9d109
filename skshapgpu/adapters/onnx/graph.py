"""The tree ensemble in a graph, and what the operators around it do to X and to the scores.

Operators before the trees may rename X or change the precision of its numbers, once. Those behind the trees
may reshape the scores, derive labels from them, or turn them into probabilities or other predictions, from
which everything is allowed. All others are rejected by name, as the scores of the trees would then not be
what the model predicts from X.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import UnsupportedModelError
from .messages import DOUBLE, FLOAT, INT32, INT64, Graph, Operator, type_name

#: Kinds of tree ensembles; the second output of a classifier are the scores.
_TREE_OPERATORS = ("TreeEnsemble", "TreeEnsembleRegressor", "TreeEnsembleClassifier")
_ML = "ai.onnx.ml"

#: Operators that leave scores unchanged.
_UNCHANGED = frozenset({"Identity", "ZipMap", "Reshape", "Flatten", "Squeeze", "Unsqueeze"})

#: Operators that make labels, or something else than scores, from scores.
_PREDICTING_OPERATORS = frozenset({"ArgMax", "Sigmoid", "Softmax", "Exp", "Normalizer"})

#: Operators with graphs of their own, which may use any name of the graph around them.
_WITH_GRAPHS = frozenset({"If", "Loop", "Scan", "SequenceMap"})


@dataclass(frozen=True)
class Trees:
    """The tree ensemble of a graph.

    Attributes
    ----------
    operator : Operator
    n_features : int
        Number of columns of X.
    given, received : int
        Types of X, as the model takes it and as the trees receive it.
    scores_are_returned : bool
        Whether the model returns the result of the operator unchanged, and computes nothing else from it
        than labels.
    """

    operator: Operator
    n_features: int
    given: int
    received: int
    scores_are_returned: bool


def find(graph: Graph) -> Trees:
    """Find the tree ensemble and check the operators around it.

    Raises
    ------
    ValueError
        The graph is not connected, or contains a cycle.
    UnsupportedModelError
        There is no tree ensemble, or several; an operator changes X or the scores; X is no table of float,
        double or integers, or of unknown width.
    """
    found = [each for each in graph.operators if each.kind in _TREE_OPERATORS and each.domain == _ML]
    if len(found) != 1:
        others = ", ".join(sorted({each.kind for each in graph.operators})[:8])
        raise UnsupportedModelError(
            f"the ONNX model has {len(found)} tree ensembles; exactly one can be explained"
            if found
            else f"the ONNX model has no tree ensemble; its operators are {others or 'none'}"
        )
    trees = found[0]
    if not trees.inputs or not trees.outputs:
        raise ValueError("its tree ensemble has no input or no output")
    name, steps = _path_of_x(graph, trees)
    given = graph.inputs[name]
    casts = [step for step in steps if step.kind == "Cast"]
    received = given.element if not casts else casts[0].attributes.get("to")
    if len(casts) > 1 or (casts and received not in (FLOAT, DOUBLE)):
        raise UnsupportedModelError("the ONNX model casts X twice, or to other types than float and double")
    if given.element not in (FLOAT, DOUBLE, INT32, INT64):
        raise UnsupportedModelError(
            f"the ONNX model takes {type_name(given.element)} as X; trees are explained on a table of float, "
            "double, int32 or int64"
        )
    if given.shape is None or len(given.shape) != 2 or given.shape[1] is None:
        raise UnsupportedModelError(
            f"the ONNX model does not say how many columns X has: its input {name!r} needs a shape of two "
            "dimensions, the second with a dim_value"
        )
    _require_one_use_of_x(graph, trees, steps)
    scores = trees.outputs[-1]
    if trees.kind == "TreeEnsembleClassifier":
        scores = (*trees.outputs, "")[1]  # the first output are labels
    is_transformed = trees.attributes.get("post_transform") not in (None, 0, b"NONE")
    return Trees(
        operator=trees,
        n_features=given.shape[1],
        given=given.element,
        received=int(received or 0),
        scores_are_returned=_scores_are_returned(graph, scores, is_transformed),
    )


def _path_of_x(graph: Graph, trees: Operator) -> tuple[str, list[Operator]]:
    """Return the input that the trees receive, and the operators that it goes through."""
    producers = {name: each for each in graph.operators for name in each.outputs}
    name = trees.inputs[0]
    steps: dict[Operator, None] = {}  # in their order
    while name not in graph.inputs:
        step = producers.get(name)
        if step is None or step in steps or len(step.inputs) < 1:
            raise ValueError(f"nothing computes {name!r}, which its tree ensemble takes")
        if step.kind not in ("Identity", "Cast") or step.domain:
            raise UnsupportedModelError(
                f"the operator {step.kind} of the ONNX model changes X before the trees: convert the tree "
                "model alone, and pass X as transformed by the steps before it"
            )
        steps[step] = None
        name = step.inputs[0]
    return name, list(steps)


def _require_one_use_of_x(graph: Graph, trees: Operator, steps: list[Operator]) -> None:
    """Raise unless all other operators depend on inputs only by way of the trees."""
    inputs = {*graph.inputs, *(name for step in steps for name in step.outputs)}
    own = {trees, *steps}
    for each in graph.operators:
        if each not in own and not inputs.isdisjoint(each.inputs):
            raise UnsupportedModelError(
                f"the operator {each.kind} of the ONNX model uses its inputs beside the trees"
            )
        if each.kind in _WITH_GRAPHS:
            raise UnsupportedModelError(
                f"the ONNX model has the operator {each.kind}, with a graph of its own"
            )
    if not inputs.isdisjoint(trees.inputs[1:]):
        raise ValueError("its tree ensemble has several inputs")


def _scores_are_returned(graph: Graph, scores: str, is_transformed: bool) -> bool:
    """Return whether scores are returned unchanged; raise if something else happens to raw scores."""
    users: dict[str, list[Operator]] = {}
    for each in graph.operators:
        for name in filter(None, each.inputs):  # an optional input that is left out has no name
            users.setdefault(name, []).append(each)
    names, unchanged, waiting = {scores}, True, [scores]
    while waiting:
        for user in users.get(waiting.pop(), ()):
            if _leaves_unchanged(user):
                new = [name for name in user.outputs if name not in names]
                names.update(new)
                waiting += new
                continue
            unchanged &= user.kind == "ArgMax"
            if _makes_predictions(user) or is_transformed:
                continue
            behind = [each for name in user.outputs for each in users.get(name, ())]
            ends = not graph.outputs or not set(graph.outputs).isdisjoint(user.outputs)
            if ends or not behind or not all(map(_makes_predictions, behind)):
                raise UnsupportedModelError(
                    f"the operator {user.kind} of the ONNX model changes the scores of the trees"
                )
    return unchanged


def _leaves_unchanged(operator: Operator) -> bool:
    if operator.kind == "Cast":
        return operator.attributes.get("to") in (FLOAT, DOUBLE)
    return operator.kind in _UNCHANGED and operator.domain in ("", _ML)


def _makes_predictions(operator: Operator) -> bool:
    return operator.kind in _PREDICTING_OPERATORS and operator.domain in ("", _ML)
