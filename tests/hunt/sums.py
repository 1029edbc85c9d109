"""Ensembles of scikit-learn that are sums of other models: random members, weights, columns and steps."""

from __future__ import annotations

from collections.abc import Callable
from importlib import util
from typing import Any

Choose = Callable[..., Any]

#: Members that regress, and members that add up probabilities; all of them predict in float64.
REGRESSORS = ("forest", "tree", "histograms", "scaled forest", "binned tree", "bag of histograms")
CLASSIFIERS = ("forest", "tree", "extra trees", "scaled forest")

WEIGHTS = (1.0, 2.0, 0.5, 0.0, -0.25)


def options(choose: Choose, task: str, is_classes: bool) -> dict[str, Any]:
    """Draw the parameters of :func:`build`."""
    if task == "outputs":
        kinds = ["targets"]
    else:
        kinds = ["voting", "voting", "bag"] if is_classes else ["voting", "voting", "stack", "bag"]
    names = CLASSIFIERS if is_classes else REGRESSORS
    if not is_classes and util.find_spec("lightgbm") is not None:
        names = (*names, "lightgbm")
    n_members = choose("members", [1, 2, 3])
    return {
        "kind": choose("kind of sum", kinds),
        "members": [choose(f"member {i}", names) for i in range(n_members)],
        "weights": [1.5, *(choose(f"weight {i}", WEIGHTS) for i in range(1, n_members))],
        "depth": choose("depth", [1, 2, 4]),
    }


def build(params: dict[str, Any], is_classes: bool) -> Any:
    """Build the unfitted ensemble."""
    from sklearn import ensemble, multioutput

    kind, depth = params["kind"], params["depth"]
    members = [(f"m{i}", _member(name, is_classes, depth)) for i, name in enumerate(params["members"])]
    if kind == "targets":
        return multioutput.MultiOutputRegressor(members[0][1])
    if kind == "stack":
        return ensemble.StackingRegressor(members, cv=2)
    if kind == "bag":
        # A bag takes no members with steps.
        own = ensemble.RandomForestClassifier if is_classes else ensemble.RandomForestRegressor
        bag = ensemble.BaggingClassifier if is_classes else ensemble.BaggingRegressor
        return bag(own(2, max_depth=depth, random_state=0), 3, max_features=0.7, random_state=0)
    if is_classes:
        return ensemble.VotingClassifier(members, voting="soft", weights=params["weights"])
    return ensemble.VotingRegressor(members, weights=params["weights"])


def _member(name: str, is_classes: bool, depth: int) -> Any:
    from sklearn import ensemble, pipeline, preprocessing, tree

    if name == "lightgbm":
        import lightgbm

        return lightgbm.LGBMRegressor(n_estimators=3, max_depth=depth, verbose=-1, n_jobs=1)
    if name in ("histograms", "bag of histograms"):
        model = ensemble.HistGradientBoostingRegressor(max_iter=3, max_depth=depth, min_samples_leaf=3)
        return model if name == "histograms" else ensemble.BaggingRegressor(model, 2, random_state=0)
    forest = ensemble.RandomForestClassifier if is_classes else ensemble.RandomForestRegressor
    one = tree.DecisionTreeClassifier if is_classes else tree.DecisionTreeRegressor
    if name == "scaled forest":
        return pipeline.make_pipeline(
            preprocessing.StandardScaler(), forest(3, max_depth=depth, random_state=0)
        )
    if name == "binned tree":
        return pipeline.make_pipeline(preprocessing.MaxAbsScaler(), one(max_depth=depth, random_state=0))
    if name == "extra trees":
        return ensemble.ExtraTreesClassifier(3, max_depth=depth, random_state=0)
    return (forest(3) if name == "forest" else one()).set_params(max_depth=depth, random_state=0)


def is_sum(model: Any) -> bool:
    """Return whether a fitted model combines models that are no trees."""
    name = type(model).__name__
    if name.startswith(("Voting", "Stacking", "MultiOutput")):
        return True
    return name.startswith("Bagging") and not hasattr(model.estimators_[0], "tree_")


def members_of(model: Any) -> list[Any]:
    """Return the fitted members of a sum, without their steps."""
    return [member[-1] if hasattr(member, "steps") else member for member in model.estimators_]


def magnification(model: Any) -> float:
    """Return a bound on how much larger the members' predictions are, weighted, than those of a vote."""
    weights = getattr(model, "weights", None)
    return 1.0 if weights is None else float(sum(map(abs, weights)) / abs(sum(weights)))


def largest_terms(model: Any, X: Any) -> float:
    """Return a bound on the sum of the terms that a stack adds up for rows of X; 0 for other sums.

    A stack of members that predict alike may have large coefficients of both signs.
    """
    coefficients = getattr(getattr(model, "final_estimator_", None), "coef_", None)
    return 0.0 if coefficients is None else float(abs(coefficients) @ abs(model.transform(X)).max(axis=0))
