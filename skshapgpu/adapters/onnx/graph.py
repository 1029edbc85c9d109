"""The tree ensemble in a graph, and the effect of the operators around it on X and on the scores.

Operators before the trees may rename X, and once change the precision of its numbers. Operators after the
trees may reshape the scores, derive labels from them, or turn them into probabilities or other predictions;
whatever follows predictions is allowed. A model with any other operator is rejected, as its predictions would
not follow from the scores of the trees for X. The message names the operator.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import UnsupportedModelError
from .messages import DOUBLE, FLOAT, INT32, INT64, Graph, Operator, type_name

#: Operators that are tree ensembles. The scores of a classifier are its second output.
_TREE_OPERATORS = ("TreeEnsemble", "TreeEnsembleRegressor", "TreeEnsembleClassifier")
_ML = "ai.onnx.ml"

#: Operators that leave scores unchanged.
_UNCHANGED = frozenset({"Identity", "ZipMap", "Reshape", "Flatten", "Squeeze", "Unsqueeze"})

#: Operators that turn scores into labels or other predictions.
_PREDICTING_OPERATORS = frozenset({"ArgMax", "Sigmoid", "Softmax", "Exp", "Normalizer"})

#: Operators with graphs of their own, which may use any name of the graph around them.
_WITH_GRAPHS = frozenset({"If", "Loop", "Scan", "SequenceMap"})


@dataclass(frozen=True)
class Trees:
    """The tree ensemble of a graph."""

    operator: Operator
    n_features: int  # number of columns of X
    input_type: int  # type of X as the model takes it
    operator_type: int  # type of X as it reaches the trees
    #: Whether the model returns the result of the operator unchanged, and computes only labels from it.
    scores_are_returned: bool


def find(graph: Graph) -> Trees:
    """Find the tree ensemble and check the operators around it.

    Raise ``ValueError`` if the graph is not connected, or contains a cycle. Raise ``UnsupportedModelError``
    if there is no tree ensemble, or several; an operator changes X or the scores; or X is not a table of
    floats, doubles or integers with a known number of columns.
    """
    ensembles = [
        operator
        for operator in graph.operators
        if operator.kind in _TREE_OPERATORS and operator.domain == _ML
    ]
    if len(ensembles) != 1:
        kinds = ", ".join(sorted({operator.kind for operator in graph.operators})[:8])
        raise UnsupportedModelError(
            f"the ONNX model has {len(ensembles)} tree ensembles; exactly one can be explained"
            if ensembles
            else f"the ONNX model has no tree ensemble; its operators are {kinds or 'none'}"
        )
    trees = ensembles[0]
    if not trees.inputs or not trees.outputs:
        raise ValueError("its tree ensemble has no input or no output")
    name, steps = _path_of_x(graph, trees)
    input_ = graph.inputs[name]
    casts = [step for step in steps if step.kind == "Cast"]
    operator_type = input_.element if not casts else casts[0].attributes.get("to")
    if len(casts) > 1 or (casts and operator_type not in (FLOAT, DOUBLE)):
        raise UnsupportedModelError("the ONNX model casts X twice, or to other types than float and double")
    if input_.element not in (FLOAT, DOUBLE, INT32, INT64):
        raise UnsupportedModelError(
            f"the ONNX model takes {type_name(input_.element)} as X: convert it again, with a table of "
            "float, double, int32 or int64 as its input"
        )
    if input_.shape is None or len(input_.shape) != 2 or input_.shape[1] is None:
        raise UnsupportedModelError(
            f"the ONNX model does not say how many columns X has: its input {name!r} needs a shape of two "
            "dimensions, the second with a dim_value"
        )
    _require_one_use_of_x(graph, trees, steps)
    scores = trees.outputs[-1]
    if trees.kind == "TreeEnsembleClassifier":
        scores = (*trees.outputs, "")[1]  # the first output is labels
    is_transformed = trees.attributes.get("post_transform") not in (None, 0, b"NONE")
    return Trees(
        operator=trees,
        n_features=input_.shape[1],
        input_type=input_.element,
        operator_type=int(operator_type or 0),
        scores_are_returned=_scores_are_returned(graph, scores, is_transformed),
    )


def _path_of_x(graph: Graph, trees: Operator) -> tuple[str, list[Operator]]:
    """Return the input that the trees receive, and the operators that it goes through."""
    producers = {name: operator for operator in graph.operators for name in operator.outputs}
    name = trees.inputs[0]
    steps: dict[Operator, None] = {}  # an ordered set
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
    """Raise if operators other than ``steps`` and the trees use the model's inputs."""
    inputs = {*graph.inputs, *(name for step in steps for name in step.outputs)}
    path = {trees, *steps}
    for operator in graph.operators:
        if operator not in path and not inputs.isdisjoint(operator.inputs):
            raise UnsupportedModelError(
                f"the operator {operator.kind} of the ONNX model uses the model's inputs beside the trees"
            )
        if operator.kind in _WITH_GRAPHS:
            raise UnsupportedModelError(
                f"the ONNX model has the operator {operator.kind}, with a graph of its own"
            )
    if not inputs.isdisjoint(trees.inputs[1:]):
        raise ValueError("its tree ensemble takes X in several inputs")


def _scores_are_returned(graph: Graph, scores: str, is_transformed: bool) -> bool:
    """Return whether scores are returned unchanged; raise if something else happens to raw scores."""
    users: dict[str, list[Operator]] = {}
    for operator in graph.operators:
        for name in filter(None, operator.inputs):  # an optional input that is left out has no name
            users.setdefault(name, []).append(operator)
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
            next_users = [next_user for name in user.outputs for next_user in users.get(name, ())]
            is_output = not graph.outputs or not set(graph.outputs).isdisjoint(user.outputs)
            if is_output or not next_users or not all(map(_makes_predictions, next_users)):
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
