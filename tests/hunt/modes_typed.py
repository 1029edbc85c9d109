"""Pipelines whose first step depends on the columns' types, explained from every source in any batches.

A user trains on frames that pandas reads, and predicts for frames that pandas reads. The reference is this
prediction, and the definition with the columns that the first steps make of these frames. The package only
gets the source of the frames.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestClassifier, RandomForestRegressor
from sklearn.pipeline import Pipeline

from skshapgpu import TreeExplainer, explain, explain_batches
from skshapgpu.batches import BatchExplainer

from . import games, modes_mlflow, readers, truth, typed_columns, wrappers
from .draws import Draw
from .margins import margin_of
from .modes_batches import read_sink
from .report import NotDrawnError, Report
from .trees import coalition_values, is_encodable
from .typed_sources import SOURCES, Source
from .typed_steps import STEPS

#: Numbers of training rows, of rows to explain and of background rows; the definition is evaluated for the
#: first rows.
N_TRAIN, N_EXPLAIN, N_BACKGROUND, N_DEFINED = 60, 20, 3, 6


def _xgboost() -> Any:
    import xgboost

    return xgboost.XGBRegressor(n_estimators=5, max_depth=3, n_jobs=1, enable_categorical=True)


def _lightgbm() -> Any:
    import lightgbm

    return lightgbm.LGBMRegressor(n_estimators=5, min_child_samples=2, n_jobs=1, verbose=-1)


def _catboost() -> Any:
    import catboost

    return catboost.CatBoostRegressor(
        iterations=5, depth=3, thread_count=1, verbose=0, allow_writing_files=False
    )


MODELS: dict[str, Any] = {
    "forest": lambda: RandomForestRegressor(5, max_depth=4, random_state=0),
    "histograms": lambda: HistGradientBoostingRegressor(max_iter=5, min_samples_leaf=2, random_state=0),
    "classifier": lambda: RandomForestClassifier(5, max_depth=4, random_state=0),
    "xgboost": _xgboost,
    "lightgbm": _lightgbm,
    "catboost": _catboost,
}


class TypedCase:
    """A fitted pipeline and a source of rows, with columns of the drawn types."""

    def __init__(self, draw: Draw) -> None:
        self.draw, self.asked = draw, draw.asked
        self.rng = np.random.default_rng([draw.seed, 8])
        self.kinds = [self.asked[name] for name in ("first type", "second type")]
        train = typed_columns.frame(self.kinds, N_TRAIN, self.rng)
        y = train["number"].to_numpy() + sum(
            2 * typed_columns.numbers_of(train[name]) for name in train.columns[1:]
        )
        if self.asked["typed model"] == "classifier":
            y = (y > np.median(y)).astype(int)
        X = typed_columns.frame(self.kinds, N_EXPLAIN, self.rng, shuffled=True)
        names = list(train.columns)
        train_rows = self._read(train, "train").whole[names]
        others = [name for name in train.columns if name != "number"]
        try:
            model = MODELS[self.asked["typed model"]]()
            self.pipeline = Pipeline([*STEPS[self.asked["first step"]](others), ("model", model)]).fit(
                train_rows, y
            )
        except Exception as error:
            raise NotDrawnError(f"fit: {type(error).__name__}: {str(error)[:150]}") from error
        source = self._read(X, "rows")
        # The columns of a source may be in any order, but the columns of a frame for predict may not.
        self.as_written = source.whole
        self.source = source._replace(whole=source.whole[names], parts=[part[names] for part in source.parts])
        self.readings = self._readings()

    def _read(self, frame: pd.DataFrame, name: str) -> Source:
        folder = Path(wrappers.FOLDER or ".") / name
        folder.mkdir()
        try:
            return SOURCES[self.asked["source"]](frame, folder)
        except Exception as error:
            raise NotDrawnError(f"source: {type(error).__name__}: {str(error)[:150]}") from error

    def _readings(self) -> dict[str, list[pd.DataFrame]]:
        """Return the ways in which a user may read the source that the pipeline itself accepts."""
        ways = {"as a whole": [self.source.whole], "file by file": self.source.parts}
        size = self.asked["batch size"]
        if isinstance(size, int):  # pandas writes integer categories as 1 or, beside a missing one, as 1.0
            all_rows = self.source.whole
            ways["in slices"] = [
                all_rows.iloc[start : start + size] for start in range(0, len(all_rows), size)
            ]
        if len(self.source.parts) > 1:
            ways["files in a row"] = [pd.concat(self.source.parts, ignore_index=True)]
        if self.asked["typed sink"] == "batch explainer":
            ways["batch by batch"] = [batch.to_pandas() for batch in self.record_batches]
            ways["all batches"] = [self.of_record_batches]
        accepted, why = {}, ""
        for name, frames in ways.items():
            try:
                for frame in frames:
                    self.margin(frame)
                accepted[name] = frames
            except Exception as error:
                why = f"predict: {type(error).__name__}: {str(error)[:150]}"
        if not accepted:
            raise NotDrawnError(why)
        return accepted

    @cached_property
    def record_batches(self) -> list[Any]:
        """Record batches of the rows, as pyarrow makes them."""
        import pyarrow

        size = self.asked["batch size"]
        try:
            table = pyarrow.Table.from_pandas(self.source.whole, preserve_index=False)
            batches = table.to_batches(max_chunksize=size if isinstance(size, int) else None)
            batches[0].to_pandas()
        except Exception as error:
            raise NotDrawnError(f"record batches: {type(error).__name__}: {str(error)[:150]}") from error
        return batches

    @property
    def of_record_batches(self) -> pd.DataFrame:
        """The rows of all record batches, converted by pyarrow at once."""
        import pyarrow

        return pyarrow.Table.from_batches(self.record_batches).to_pandas()

    def transform(self, X: pd.DataFrame) -> Any:
        """Transform rows to those that the model proper sees."""
        return self.pipeline[:-1].transform(X) if len(self.pipeline) > 1 else X

    def margin(self, X: pd.DataFrame) -> np.ndarray:
        """Compute the margin of rows with the pipeline alone."""
        return margin_of(self.pipeline[-1], self.transform(X))

    @cached_property
    def background(self) -> pd.DataFrame:
        """Some of the source's rows, which therefore have the types of the source."""
        return self.source.whole.iloc[[1, 5, 12][:N_BACKGROUND]].reset_index(drop=True)

    @cached_property
    def options(self) -> dict[str, Any]:
        options: dict[str, Any] = {
            name: self.draw.options[name] for name in ("precision", "n_jobs") if name in self.draw.options
        }
        if self.asked["typed perturbation"] != "path-dependent":
            options["data"] = self.background
        if self.asked["typed perturbation"] == "columns of X" and self.asked["first step"] != "none":
            options["feature_groups"] = "input"
        return options


def typed(draw: Draw, report: Report) -> None:
    """Check values of all rows of a source."""
    case = TypedCase(draw)
    try:
        values, base_values = _explained(case, report)
    except (ValueError, TypeError) as error:
        reason = _may_refuse(case, str(error))
        if reason is None:
            raise
        report.refusals.append(reason)
        return
    # Two readings may have the same predictions but different values: one of them has to match.
    trials = []
    for frames in _matching(case, report, values, base_values):
        trial = Report()
        _by_definition(case, trial, values, frames)
        if trial.checks:
            trials.append(trial)
    for trial in sorted(trials, key=lambda trial: len(trial.findings))[:1]:
        report.checks.update(trial.checks)
        report.findings += trial.findings


def _explained(case: TypedCase, report: Report) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of all rows, of shape (n_rows, n_columns, n_outputs), and base values."""
    kind = case.asked["typed sink"]
    k = case.margin(case.background).shape[1]
    if kind == "explain":
        explanation = explain(case.pipeline, case.source.whole, **case.options)
        return _shaped(explanation.values, k), np.reshape(explanation.base_values, (1, -1))
    if kind == "mlflow":
        modes_mlflow.require()
        explainer = TreeExplainer(case.pipeline, **case.options)
        steps = [step for _, step in case.pipeline.steps[:-1]]
        frame = modes_mlflow.predicted(explainer, steps, case.source.whole)
        base, flat = modes_mlflow.apart(frame, k)
        return _shaped(flat, k), base[:1]
    if kind == "batch explainer":
        batch_explainer = BatchExplainer(case.pipeline, **case.options)
        parts = [batch_explainer(batch) for batch in case.record_batches]
        values = np.concatenate(
            [np.column_stack([column.to_numpy() for column in part.columns]) for part in parts]
        )
        return _shaped(values, k), np.reshape(batch_explainer.base_values, (1, -1))
    folder = Path(wrappers.FOLDER or ".")
    size = case.asked["batch size"]
    result = explain_batches(case.pipeline, case.source.rows, folder / kind, batch_size=size, **case.options)
    report.equal("rows written", result.n_rows, len(case.source.whole))
    values, _ = read_sink(folder / kind, [folder / path for path in result.paths], [])
    return _shaped(values, k), np.reshape(result.base_values, (1, -1))


def _shaped(values: Any, n_outputs: int) -> np.ndarray:
    return np.asarray(values, np.float64).reshape(len(values), -1, n_outputs)


def _matching(
    case: TypedCase, report: Report, values: np.ndarray, base: np.ndarray
) -> list[list[pd.DataFrame]]:
    """Check that rows add up to the prediction for one of the user's readings; return all such readings."""
    total = base + values.sum(axis=1)
    check = "additivity of typed rows"
    report.checks[check] += 1
    matching = []
    for name, frames in case.readings.items():
        right = np.concatenate([case.margin(frame) for frame in frames])
        trial = Report()
        trial.close(check, total, right, _allowed(case, right))
        if not trial.findings:
            report.checks[f"read {name}"] += 1
            matching.append(frames)
    if not matching:
        report.findings += trial.findings
    return matching


def _allowed(case: TypedCase, right: np.ndarray) -> np.ndarray:
    """Return the permitted deviation, for single precision and for XGBoost's float32 predictions."""
    return 1e-5 * (np.abs(right).max(axis=0) + np.ptp(right, axis=0)) + 1e-7


def _by_definition(case: TypedCase, report: Report, values: np.ndarray, frames: list[pd.DataFrame]) -> None:
    """Check the values of the first rows of the frames that the pipeline reads."""
    kind = case.asked["typed perturbation"]
    rows = frames[0].iloc[:N_DEFINED]
    transformed = case.transform(frames[0])[:N_DEFINED]
    model, p = case.pipeline[-1], values.shape[1]
    if p > truth.MOST_COLUMNS or (len(frames) > 1 and kind != "path-dependent"):
        return
    if kind == "columns of X":
        pairs = truth.coalition_values_of_pairs(case.margin, rows, case.background, rows.shape[1])
        right = games.values(truth.mean_coalition_values(pairs, None))
        names = explain(case.pipeline, rows, **case.options).feature_names
        right = right[:, [list(rows.columns).index(name) for name in names]]
    elif kind == "interventional":
        background = case.transform(case.background)
        pairs = truth.coalition_values_of_pairs(lambda X: margin_of(model, X), transformed, background, p)
        right = games.values(truth.mean_coalition_values(pairs, None))
    elif readers.readable(model) and is_encodable(transformed) and not _has_categories(transformed):
        trees = readers.trees_of(model)
        coded = readers.rows_of(model, transformed, {})
        right = games.values(coalition_values(trees, coded, values.shape[2]))
    else:
        return
    report.close(
        f"typed rows {kind}", values[:N_DEFINED], right, _allowed(case, case.margin(case.source.whole))
    )


def _has_categories(X: Any) -> bool:
    return isinstance(X, pd.DataFrame) and any(isinstance(dtype, pd.CategoricalDtype) for dtype in X.dtypes)


#: Documented refusals of columns whose type depends on which rows are read together.
UNSETTLED = ("the size of the batch", "give it the same type in all", "which pandas cannot read")


def _may_refuse(case: TypedCase, text: str) -> str | None:
    """Return the kind of a refusal that is documented."""
    if case.asked["typed perturbation"] == "columns of X" and ("single" in text or "not known" in text):
        return "origins of columns are not known"
    if "could not convert string to float" in text:  # scikit-learn reads text of numbers
        return "text of numbers" if "text of numbers" in case.kinds or "mixed objects" in case.kinds else None
    if "computes a row from other rows" in text:
        return "dependent rows" if _has_dependent_rows(case) else None
    if "feature names should match" in text.lower():
        return "columns in another order" if _keeps_order(case) else None
    if "ufunc 'isnan'" in text and case.asked["typed sink"] == "batch explainer":  # of floats and objects
        refused = not all(
            _accepts(case, frame)
            for frame in (case.of_record_batches, *(batch.to_pandas() for batch in case.record_batches))
        )
        return "objects that Arrow holds as numbers" if refused else None
    if "with the same type to all files" in text:
        return "files of different types" if _files_differ(case) else None
    if "the same categories to all files" in text:
        return "categories of files" if _reads_categories(case) else None
    return next((part for part in UNSETTLED if part in text), None)


def _accepts(case: TypedCase, frame: pd.DataFrame) -> bool:
    try:
        case.margin(frame)
    except Exception:
        return False
    return True


def _keeps_order(case: TypedCase) -> bool:
    """Return whether the steps pass the model columns in the order of the file, not of training.

    Most libraries refuse such columns; LightGBM would take them by position.
    """
    written, trained = (case.transform(X) for X in (case.as_written, case.source.whole))
    if not isinstance(written, pd.DataFrame):
        return False
    return list(written.columns) != list(trained.columns) and set(written.columns) == set(trained.columns)


def _numbers(transformed: Any) -> np.ndarray:
    """Return transformed rows as strings, so that missing values are equal, too."""
    return pd.DataFrame(transformed).astype(object).to_numpy().astype(str)


def _has_dependent_rows(case: TypedCase) -> bool:
    """Return whether the steps transform a row differently without the other rows."""
    for frames in case.readings.values():
        for frame in frames:
            together = _numbers(case.transform(frame))
            for some in (slice(1, None, 2), *(slice(i, i + 1) for i in range(len(frame)))):
                if (together[some] != _numbers(case.transform(frame.iloc[some]))).any():
                    return True
    return False


def _files_differ(case: TypedCase) -> bool:
    """Return whether pandas reads a column as numbers from one file, and as strings from another."""
    first, *others = [[pd.api.types.is_numeric_dtype(dtype) for dtype in X.dtypes] for X in case.source.parts]
    return any(other != first for other in others)


def _reads_categories(case: TypedCase) -> bool:
    """Return whether the steps transform files read at once differently from files read one by one."""
    parts = [_numbers(case.transform(part)) for part in case.source.parts]
    return bool((_numbers(case.transform(case.source.whole)) != np.concatenate(parts)).any())


TYPED = {"typed": typed}
