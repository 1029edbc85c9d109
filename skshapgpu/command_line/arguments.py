"""Arguments of the command line, and their help texts."""

from __future__ import annotations

import argparse
import csv
import re
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, NoReturn

from .._common.algorithms import ALGORITHMS, SCORE_OUTPUTS, TIME_OUTPUTS
from .._versions import __version__
from .answers import Answer

_EXAMPLES = """\
examples:
  skshapgpu info model.ubj
  skshapgpu explain model.ubj data.parquet -o values.parquet
  skshapgpu save model.ubj -o explainer.npz
  skshapgpu compare reference.parquet current.parquet --fail-below 0.9
  skshapgpu doctor

MODEL is a model file of XGBoost (.json, .ubj), LightGBM (.txt), CatBoost (.cbm, .json), treelite or ONNX, a
folder in which Spark ML saved a tree model, a pipeline or model that skops saved (.skops), or an explainer
file of TreeExplainer.save. Pickles and files of joblib are not opened, because they can execute anything.

All files and folders may be URLs, such as s3://bucket/data.parquet, of a kind that pyarrow or fsspec opens.

exit codes: 0 success, 1 an error, 2 a wrong command line, 3 a comparison that fails, 130 interrupted
"""

_INFO_EXAMPLES = """\
examples:
  skshapgpu info model.json
  skshapgpu info explainer.npz --json
"""

_EXPLAIN_EXAMPLES = """\
examples:
  skshapgpu explain model.ubj data.parquet -o values.parquet
  skshapgpu explain model.txt data.csv -o values/ --keep id,date
  skshapgpu explain model.txt data.csv -o values/ --delimiter ";" --decimal ,
  skshapgpu explain s3://bucket/model.ubj s3://bucket/data/ -o s3://bucket/values/
  skshapgpu explain model.cbm data.parquet -o strongest.parquet --reasons 5
  skshapgpu explain model.ubj data.parquet -o values.parquet --background train.parquet --background-rows 1000
  skshapgpu explain model.ubj data.parquet -o values.parquet --feature-group place=latitude,longitude
  skshapgpu explain aft.ubj rows.parquet -o values/ --background b.npy --model-output survival --times 30,90
  skshapgpu explain pipeline.skops data.csv -o reasons.parquet --reasons 3 --sum-by input
  skshapgpu explain model.ubj data.parquet -o pairs.parquet --interactions 50
  skshapgpu explain model.ubj data.parquet -o pairs.parquet --interactions age:income,age:city
"""

_SAVE_EXAMPLES = """\
examples:
  skshapgpu save model.ubj -o explainer.npz
  skshapgpu save model.ubj -o explainer.npz --background train.parquet
  skshapgpu explain explainer.npz data.parquet -o values.parquet
"""

_COMPARE_EXAMPLES = """\
examples:
  skshapgpu compare reference.parquet current.parquet
  skshapgpu compare reference/ current/ --fail-psi-above 0.25 --fail-distance-above 0.2
  skshapgpu compare reference.parquet current.parquet --fail-below 0.9 --json > drift.json

exit codes: 3 if a limit that is given is exceeded, 0 if not, 1 an error, 2 a wrong command line
"""

_DOCTOR_EXAMPLES = """\
examples:
  skshapgpu doctor
  skshapgpu doctor --json > report.json
"""

_MODEL_HELP = "model file, file of skops, or explainer file (of 'skshapgpu save' or TreeExplainer.save)"


class UsageError(Exception):
    """The command line is wrong; ``usage`` is the correct form."""

    def __init__(self, message: str, usage: str) -> None:
        super().__init__(message)
        self.usage = usage


class _Parser(argparse.ArgumentParser):
    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help", self.format_usage())


class _AddGroup(argparse.Action):
    """Action that adds the group NAME=COLS to a dict of groups, or sets the value "input"."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        earlier = getattr(namespace, self.dest)
        if "input" in (values, earlier):
            if earlier not in (None, values):
                raise argparse.ArgumentError(self, "input stands for all groups: leave out the other groups")
            setattr(namespace, self.dest, values)
            return
        name, equals, columns = values.partition("=")
        groups = dict(earlier or {})
        if not name or not equals:
            raise argparse.ArgumentError(self, f"{values!r} is neither input nor of the form NAME=COLS")
        if name in groups:
            raise argparse.ArgumentError(self, f"group {name!r} is given twice")
        try:
            groups[name] = _names(columns)
        except argparse.ArgumentTypeError as error:
            raise argparse.ArgumentError(self, str(error)) from None
        setattr(namespace, self.dest, groups)


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands.

    Each command sets ``run``, a function of the parsed arguments that returns an :class:`Answer`.
    """
    main_parser = _Parser(
        prog="skshapgpu",
        description="Compute exact SHAP values of tree models for rows in files.",
        epilog=_EXAMPLES,
    )
    main_parser.add_argument("--version", action="version", version=f"skshapgpu {__version__}")
    common_options = argparse.ArgumentParser(add_help=False)
    common_options.add_argument(
        "--json", action="store_true", help="print one JSON object, also for an error"
    )
    common_options.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands: Any = main_parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def command(name: str, description: str, epilog: str, module: str) -> argparse.ArgumentParser:
        subparser = commands.add_parser(
            name, help=description, description=f"{description}.", epilog=epilog, parents=[common_options]
        )
        subparser.set_defaults(run=_run(module))
        return subparser

    _add_explain(command("explain", "Explain each row of a file", _EXPLAIN_EXAMPLES, "explaining"))
    info = command("info", "Describe a model file", _INFO_EXAMPLES, "info")
    _add_model(info)
    description = "Compile a model and save it, with its tables if it has any"
    _add_save(command("save", description, _SAVE_EXAMPLES, "saving"))
    description = "Compare two files of SHAP values, to detect drift"
    _add_compare(command("compare", description, _COMPARE_EXAMPLES, "comparing"))
    command("doctor", "Show what is installed, and whether it works", _DOCTOR_EXAMPLES, "doctor")
    return main_parser


def _run(module: str) -> Callable[[argparse.Namespace], Answer]:
    """Return a function that imports the module of a command and runs it.

    The module is imported only when the command runs, so that --help is fast.
    """

    def run(args: argparse.Namespace) -> Answer:
        return import_module(f".{module}", __package__).run(args)

    return run


def _add_explain(command: argparse.ArgumentParser) -> None:
    _add_model(command)
    command.add_argument(
        "data",
        metavar="DATA",
        help="rows to explain: a Parquet, Arrow, CSV or NumPy file, or a folder of files",
    )
    command.add_argument(
        "-o",
        "--output",
        type=_output,
        metavar="OUT",
        required=True,
        help="a .parquet, .arrow, .csv or .npy file; without an extension, a folder of .parquet files",
    )
    values_group = command.add_argument_group("what to explain")
    values_group.add_argument(
        "--interactions",
        type=_interactions,
        metavar="WHICH",
        help="interactions instead of values: occurring (all pairs that occur in the model), a number N (the "
        "N strongest pairs in 10,000 rows of DATA), or a list such as age:income,age:city",
    )
    values_group.add_argument(
        "--reasons",
        type=_positive,
        metavar="K",
        help="write only the K strongest features of each row, with their values",
    )
    values_group.add_argument(
        "--by-sign",
        action="store_true",
        help="with --reasons, write K features that raise the output and K features that lower it",
    )
    values_group.add_argument(
        "--sum-by",
        choices=("input",),
        help="input: add up the values of all columns that a pipeline makes from the same column of DATA",
    )
    _add_model_options(values_group)
    _add_column_options(command)
    _add_csv_options(command)
    _add_execution_options(command)


def _add_column_options(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("columns", "COLS is a comma-separated list, quoted as in CSV")
    group.add_argument(
        "--features",
        type=_names,
        metavar="COLS",
        help="columns to pass to the model (default: the columns that the model names)",
    )
    group.add_argument(
        "--keep", type=_names, default=[], metavar="COLS", help="columns to copy to OUT, such as an id"
    )
    group.add_argument("--prefix", default="", metavar="TEXT", help="prefix of the names of value columns")


def _add_execution_options(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("execution")
    group.add_argument(
        "--device",
        type=_device,
        default="auto",
        help="auto (the default), cpu, cuda, cuda:1, or several: cuda:0,cuda:1",
    )
    group.add_argument(
        "--n-jobs", type=_jobs, default=-1, metavar="N", help="threads (default: -1, all processors)"
    )
    group.add_argument(
        "--memory-limit", metavar="BYTES", help="memory limit of each call, such as 500MB or 2GiB"
    )
    group.add_argument(
        "--batch-size",
        type=_batch_size,
        default="auto",
        metavar="ROWS",
        help="rows in each batch (default: auto)",
    )
    group.add_argument(
        "--if-exists",
        choices=("resume", "overwrite", "error"),
        default="resume",
        help="what to do if this command wrote to OUT before: resume (the default) continues the same call, "
        "overwrite starts anew, error fails",
    )
    verbosity = group.add_mutually_exclusive_group()
    verbosity.add_argument(
        "--progress", action="store_true", help="show a progress bar (default: on a terminal)"
    )
    verbosity.add_argument("--quiet", action="store_true", help="print only errors")


def _add_save(command: argparse.ArgumentParser) -> None:
    _add_model(command)
    command.add_argument(
        "-o",
        "--output",
        type=_output,
        metavar="FILE",
        required=True,
        help="file to write; an existing explainer file is replaced",
    )
    command.add_argument(
        "--algorithm",
        choices=[algorithm.name for algorithm in ALGORITHMS if algorithm.tables != "none"],
        help="auto (the default; tables that every call uses), or fast_v2 (tables of all trees)",
    )
    _add_model_options(command)
    _add_csv_options(command)
    command.add_argument(
        "--n-jobs", type=_jobs, default=-1, metavar="N", help="threads (default: -1, all processors)"
    )
    command.add_argument(
        "--memory-limit", metavar="BYTES", help="memory limit such as 2GiB; tables may take half of it"
    )


def _add_compare(command: argparse.ArgumentParser) -> None:
    files = "Parquet or Arrow file, or folder, written by 'skshapgpu explain' or explain_batches"
    command.add_argument("reference", metavar="REFERENCE", help=f"values to compare with: a {files}")
    command.add_argument("current", metavar="CURRENT", help="values that may have changed")
    command.add_argument(
        "--fail-below",
        type=_fraction,
        metavar="NDCG",
        help="exit with code 3 if the nDCG of the rankings is below this number, such as 0.9",
    )
    command.add_argument(
        "--fail-psi-above",
        type=_limit,
        metavar="PSI",
        help="exit with code 3 if the population stability index of a feature is above this number, such as "
        "0.25",
    )
    command.add_argument(
        "--fail-distance-above",
        type=_limit,
        metavar="SHARE",
        help="exit with code 3 if the Wasserstein distance of a feature, divided by the largest mean "
        "|value|, is above this number, such as 0.2",
    )
    command.add_argument(
        "--bins", type=_bins, default=10, metavar="N", help="bins of the population stability index (10)"
    )
    for sample in ("reference", "current"):
        command.add_argument(
            f"--{sample}-weight",
            metavar="COL",
            help=f"column of {sample.upper()} with the weight of each row (default: all are equal)",
        )


def _add_model(command: argparse.ArgumentParser) -> None:
    """Add MODEL, and the option of files of skops."""
    command.add_argument("model", metavar="MODEL", help=_MODEL_HELP)
    command.add_argument(
        "--trust",
        action="append",
        default=[],
        metavar="TYPE",
        help="type that may be loaded from a file of skops, such as sklearn.tree._tree.Tree; can be repeated",
    )


def _add_model_options(group: Any) -> None:
    """Add the options that an explainer file fixes. The value of an option that is not given is None."""
    group.add_argument(
        "--background", metavar="FILE", help="background data, for interventional values or for covers"
    )
    group.add_argument(
        "--background-rows", type=_positive, metavar="N", help="sample N background rows (default: all)"
    )
    group.add_argument(
        "--seed", type=_seed, metavar="N", help="seed for sampling background rows (default: 0)"
    )
    group.add_argument(
        "--feature-perturbation",
        choices=("tree_path_dependent", "interventional"),
        help="interventional (the default with --background), or tree_path_dependent, for which covers are "
        "counted from --background",
    )
    group.add_argument(
        "--model-output",
        choices=("raw", "probability", "response", *TIME_OUTPUTS, *SCORE_OUTPUTS),
        help="raw (the default): the margin. The others need --background: probability, of a classifier; "
        "response, such as a time; survival or cumulative_hazard, at --times; score_samples or "
        "decision_function, of an isolation forest",
    )
    group.add_argument(
        "--times",
        type=_times,
        metavar="T1,T2,...",
        help="times of the survival or cumulative hazard function",
    )
    group.add_argument(
        "--cover",
        choices=("count", "weight"),
        help="weight branches by counts of training rows or by weights of training rows (hessians in XGBoost "
        "and LightGBM), for a model that has both (default: as its library does)",
    )
    group.add_argument(
        "--columns",
        choices=("all", "used"),
        help="all (the default), or used: leave out columns that no tree uses, whose values are zero",
    )
    group.add_argument(
        "--feature-group",
        dest="feature_groups",
        action=_AddGroup,
        metavar="NAME=COLS",
        help="columns that form one feature, as in place=latitude,longitude; can be repeated. input: each "
        "column of DATA is one feature, with all columns that a pipeline makes from it",
    )
    group.add_argument(
        "--precision", choices=("single", "double"), help="floating-point precision (default: single)"
    )


def _add_csv_options(command: argparse.ArgumentParser) -> None:
    """Add the options of ``CsvFormat``."""
    group = command.add_argument_group("CSV files", "read like pandas.read_csv, except for these options")
    group.add_argument(
        "--delimiter", metavar="CHAR", help="separator between values (default: a comma; a tab in .tsv files)"
    )
    group.add_argument(
        "--quote-char", default='"', metavar="CHAR", help="quote character (default: \"; '' for none)"
    )
    group.add_argument(
        "--null-value",
        dest="null_values",
        action="append",
        default=[],
        metavar="TEXT",
        help="additional string that means missing; can be repeated",
    )
    group.add_argument("--decimal", choices=(".", ","), default=".", help="decimal point (default: .)")


def _positive(text: str, at_least: int = 1) -> int:
    if not text.isdecimal() or int(text) < at_least:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {at_least}")
    return int(text)


_bins = partial(_positive, at_least=2)
_seed = partial(_positive, at_least=0)


def _limit(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 0")
    return value


def _fraction(text: str) -> float:
    value = _limit(text)
    if value > 1:
        raise argparse.ArgumentTypeError(f"{text!r} is above 1, the largest nDCG")
    return value


def _jobs(text: str) -> int:
    if not text.removeprefix("-").isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of threads: give -1 for all processors")
    return int(text)


def _batch_size(text: str) -> int | str:
    return text if text == "auto" else _positive(text)


def _times(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers separated by commas") from None


def _output(text: str) -> str:
    if text == "-":
        raise argparse.ArgumentTypeError(
            "values are not written to the standard output: name a file; './-' is a file named '-'"
        )
    return text


def _device(text: str) -> str | list[str]:
    return text.split(",") if "," in text else text


def _names(text: str) -> list[str]:
    names = next(csv.reader([text], skipinitialspace=True), [])
    if not names or "" in names:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of names separated by commas")
    return names


def _interactions(text: str) -> str | int | list[str]:
    """Return the argument ``interactions`` of the library, but with pairs such as "age:income" as strings.

    They are split later, because the names of the features, which may contain colons, are not known yet.
    """
    if text == "occurring":
        return text
    if re.fullmatch(r"[+-]?[0-9]+", text):
        return _positive(text)
    pairs = _names(text)
    if not all(":" in pair for pair in pairs):
        raise argparse.ArgumentTypeError(
            f"{text!r} is none of: occurring, a number, pairs such as age:income,age:city"
        )
    return pairs
