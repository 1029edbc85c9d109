"""Times to explain models of every kind: of this checkout, an older one, XGBoost, and the predictions."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from statistics import geometric_mean, median, quantiles
from typing import Any

import models
import peers
import progress_models
import values
from timed_calls import calls_of

ISA = ("baseline", "neon", "avx2", "avx512")

#: Timed calls: "in_call" makes its tables, if any; "before" is a call of an explainer that has been called
#: before and expects many rows.
CASES = ("in_call", "before")

#: Order of the systems in every other round; systems that are compared are next to each other.
ORDER = ("this in_call", "other in_call", "other before", "this before", "predict")

#: Largest error at which a model is still timed, relative to the largest magnitude: our double precision
#: against the definition, our single precision against double, and the sums of the values against the model's
#: margin.
TOLERANCE = values.TOLERANCE

#: Most numbers of a result that are compared.
MAX_CHECKED_NUMBERS = 4_000_000
CHECKED_ROWS = 1000

#: Numbers of rows to use if --rows would take too long, and the rows of the call that estimates how long.
ROWS = (10_000, 5_000, 2_000, 1_000, 500, 200)
TRIED_ROWS = 256

#: Seconds of a call of XGBoost's contributions.
XGBOOST_SECONDS = 0.3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "--other", type=Path, required=True, metavar="DIR", help="checkout with a compiled core"
    )
    parser.add_argument("--rows", type=int, default=10_000, help="rows to explain (10000)")
    parser.add_argument("--starts", type=int, default=3, help="processes of each checkout (3)")
    parser.add_argument("--rounds", type=int, default=9, help="rounds, divided among the processes (9)")
    parser.add_argument(
        "--seconds",
        type=float,
        default=20.0,
        help="for each model, explain at most for about this long, with fewer rows if need be (20)",
    )
    parser.add_argument("--isa", choices=ISA, help="instruction set of both (the best)")


def start_checkouts(arguments: argparse.Namespace) -> peers.Checkouts:
    """Return the processes of both checkouts, which are used for all models."""
    isa = {"SKSHAPGPU_ISA": arguments.isa} if arguments.isa else {}
    return peers.Checkouts("calls", arguments.other, arguments.starts, isa)


def measure(case: models.Case, checkouts: peers.Checkouts, arguments: argparse.Namespace) -> dict[str, Any]:
    """Check the values of both checkouts, then time all systems in turn."""
    ensemble = peers.ensemble_of(case.model)
    result = peers.describe(case, ensemble)
    columns = progress_models.recipes()[case.name].columns
    pairs = checkouts.start({"model": case.model, "family": case.family, "columns": columns}, case.X)
    runners = pairs[0]
    n_rows = result["rows"] = choose_rows(runners, case.X.shape[0], arguments)
    result["instruction_set"] = runners["this"].note
    result["accuracy"] = check(runners, case, ensemble, n_rows)
    result["columns"] = {name: runner.ask("columns") for name, runner in runners.items()}
    result["groups"] = {name: runner.ask("groups", n_rows) for name, runner in runners.items()}
    wrong = [name for name, error in _errors(result["accuracy"]) if not error <= TOLERANCE[name]]
    if wrong:
        return result | {"refused": f"not timed: {', '.join(wrong)} beyond tolerance"}
    way = runners["this"].ask("fastest_prediction", n_rows)
    seconds = time_in_turn(pairs, case, n_rows, way, arguments.rounds)
    return result | {"rounds": arguments.rounds, "prediction": way} | summarize(seconds)


def choose_rows(runners: dict[str, peers.RemoteRunner], available: int, arguments: argparse.Namespace) -> int:
    """Return the number of rows to explain in a call."""
    most, tried = min(arguments.rows, available), min(TRIED_ROWS, available)
    a_row = sum(runner.ask("in_call", tried) for runner in runners.values()) / tried
    most_in_time = arguments.seconds / (len(CASES) * arguments.rounds * a_row)
    return next((n for n in (most, *ROWS) if n <= min(most, most_in_time)), min(most, ROWS[-1]))


def check(
    runners: dict[str, peers.RemoteRunner], case: models.Case, ensemble: Any, n_rows: int
) -> dict[str, Any]:
    """Compute errors of both checkouts, relative to the largest magnitude.

    ``definition`` compares our double precision with Shapley values from their definition, on trees that are
    small enough, or is None. ``this`` and ``other`` compare each checkout's single precision, as timed, with
    its double precision; ``between`` compares the checkouts in single precision. ``additivity`` compares sums
    of values in double precision with the model's own margin.
    """
    numbers = ensemble.n_features * ensemble.n_outputs
    n_kept = max(1, min(n_rows, CHECKED_ROWS, MAX_CHECKED_NUMBERS // numbers))
    results = {name: runner.ask("values", n_rows, n_kept) for name, runner in runners.items()}
    truth = results["this"]["double"]
    single = {
        name: max(peers.relative_error(its[call], truth) for call in CASES) for name, its in results.items()
    }
    few: Any = case.X[:4]
    return {
        "rows": n_kept,
        "definition": values.definition_error(ensemble, few.toarray() if hasattr(few, "toarray") else few),
        **single,
        "between": max(peers.relative_error(results["this"][call], results["other"][call]) for call in CASES),
        "additivity": peers.relative_error(results["this"]["margin"], models.margin(case, case.X[:n_kept])),
    }


def _errors(accuracy: dict[str, Any]) -> Iterable[tuple[str, float]]:
    """Yield the errors that have a tolerance, with its name."""
    tolerances = {"definition": "definition", "additivity": "additivity", "this": "single", "other": "single"}
    for name, tolerance in tolerances.items():
        if accuracy[name] is not None:
            yield tolerance, accuracy[name]


#: A process, and the method and options that time a system in it.
Request = tuple[peers.RemoteRunner, str, tuple[str, ...]]


def time_in_turn(
    pairs: list[peers.Pair], case: models.Case, n_rows: int, way: str, rounds: int
) -> dict[str, list[float]]:
    """Return each system's seconds per row in each round; the order is reversed in every other round.

    Each round takes another pair of processes. Systems are named by checkout and case ("this before"),
    "predict", and "xgboost" if it is XGBoost's model.
    """
    for pair in pairs[1:]:
        for runner in pair.values():
            runner.ask("values", n_rows, 1)  # makes the explainer of later calls; the first pair has one
    systems = [_requests(pair, way) for pair in pairs]
    n_calls = {
        name: calls_of(runner.ask(call, n_rows, 1, *options))
        for name, (runner, call, options) in systems[0].items()
    }
    seconds: dict[str, list[float]] = {name: [] for name in ORDER}
    contributions = XgboostContributions(case, n_rows) if case.family == "xgboost" else None
    if contributions is not None:
        seconds["xgboost"] = []
    for number in range(rounds):
        turn, place = divmod(number, len(systems))
        for name in ORDER[:: -1 if (turn + place) % 2 else 1]:
            runner, call, options = systems[place][name]
            seconds[name].append(runner.ask(call, n_rows, n_calls[name], *options) / n_rows)
        if contributions is not None:
            seconds["xgboost"].append(contributions.seconds())
    return seconds


def _requests(pair: peers.Pair, way: str) -> dict[str, Request]:
    """Return how to time each system."""
    requests: dict[str, Request] = {}
    for name in ORDER:
        checkout, _, call = name.rpartition(" ")
        requests[name] = pair[checkout or "this"], call, (way,) if call == "predict" else ()
    return requests


class XgboostContributions:
    """Calls of XGBoost's own SHAP values for some rows, with the matrix made beforehand."""

    def __init__(self, case: models.Case, n_rows: int) -> None:
        self._n_rows = n_rows
        self._runner = peers.Runner(peers.BUILDERS["xgboost"](case), case.X)
        self._plan = peers.plan_calls(self._runner, n_rows, XGBOOST_SECONDS)

    def seconds(self) -> float:
        """Measure CPU seconds per row of a call with all rows; extrapolate if this would take too long."""
        rows, calls = self._plan["call_rows"], self._plan["calls"]
        seconds = self._runner.time(rows, calls)[1]
        if not self._plan["extrapolated"]:
            return seconds / rows
        fixed = self._runner.time(1)[1]
        return (fixed + max(seconds - fixed, 0.0) / (rows - 1) * (self._n_rows - 1)) / self._n_rows


def summarize(seconds: dict[str, list[float]]) -> dict[str, Any]:
    """Return rates and, from the pairs of each round, ratios."""

    def ratios(name: str, over: str) -> dict[str, float]:
        return spread(a / b for a, b in zip(seconds[name], seconds[over], strict=True))

    summary: dict[str, Any] = {
        "rows_per_second": {name: spread(1 / s for s in times) for name, times in seconds.items()},
        "speed_over_other": {case: ratios(f"other {case}", f"this {case}") for case in CASES},
        "explain_over_predict": {case: ratios(f"this {case}", "predict") for case in CASES},
    }
    if "xgboost" in seconds:
        summary["speed_over_xgboost"] = {case: ratios("xgboost", f"this {case}") for case in CASES}
    return summary


def spread(figures: Iterable[float]) -> dict[str, float]:
    """Return the median and quartiles."""
    listed = list(figures)
    low, _, high = quantiles(listed, method="inclusive") if len(listed) > 1 else listed * 3
    return {"median": median(listed), "lower_quartile": low, "upper_quartile": high}


HEADER = (
    f"{'':30}{'rows':>7}{'rows/s':>11}{'other':>11}{'ratio':>7}{'before':>11}{'other':>11}{'ratio':>7}"
    f"{'/predict':>9}{'before':>7}{'x xgb':>7}{'error':>9}{'other':>9}{'sums':>9}"
)


def print_model(result: dict[str, Any]) -> None:
    """Print a model's rates and ratios."""
    if "refused" in result:
        print(f"{result['name']:30}{result['refused']} {result['accuracy']}", flush=True)
        return
    rates, accuracy = result["rows_per_second"], result["accuracy"]
    line = f"{result['name']:30}{result['rows']:7,}"
    for case in CASES:
        this, other = (rates[f"{name} {case}"]["median"] for name in ("this", "other"))
        line += f"{this:11,.0f}{other:11,.0f}{result['speed_over_other'][case]['median']:7.2f}"
    line += "".join(
        f"{result['explain_over_predict'][case]['median']:{w}.2f}" for case, w in zip(CASES, (9, 7))
    )
    ours = result.get("speed_over_xgboost")
    line += f"{ours['before']['median']:7.0f}" if ours else f"{'':7}"
    print(line + f"{accuracy['this']:9.1e}{accuracy['other']:9.1e}{accuracy['additivity']:9.1e}", flush=True)


def print_means(results: list[dict[str, Any]]) -> None:
    """Print the geometric mean and the smallest of the ratios of all models."""
    timed = [result["speed_over_other"] for result in results if "refused" not in result]
    for case, title in zip(CASES, ("tables, if any, made in the call", "tables made before, for many rows")):
        ratios = [ratio[case]["median"] for ratio in timed]
        if ratios:
            print(
                f"{title}: {len(ratios)} models, geometric mean {geometric_mean(ratios):.2f}, "
                f"least {min(ratios):.2f}"
            )
