"""MODEL on the command line, which is a model file, a file of skops or an explainer file."""

from __future__ import annotations

import argparse
import os
import warnings
from typing import Any

from .._common.algorithms import TIME_OUTPUTS
from .._files.locations import RemotePath, head, is_url, locate, shown
from .._files.model_files import adapt_file
from .._files.saving import explainer_file
from ..adapters.spark_ml import folder as spark_folder
from ..batches.batch_arguments import steps_of
from ..explainer import TreeExplainer
from .flags import FLAGS
from .rows import columns_for, csv_options, read_rows, require_file
from .skops_files import is_skops, load_skops

_HOW_TO_SAVE = (
    "if you trust it, load it in Python with what wrote it, and save it for this command: "
    'skshapgpu.TreeExplainer(model).save("explainer.npz"), or for a pipeline '
    'skops.io.dump(model, "model.skops")'
)

#: First bytes of files that are not models, and what these files are.
_NO_MODEL_MAGIC = {
    b"\x80": "a pickle, or a file of joblib, which can execute anything when it is loaded",
    b"\x1f\x8b": "compressed with gzip, as a pickle or a file of joblib may be",
    b"BZh": "compressed with bzip2, as a pickle or a file of joblib may be",
    b"\xfd7zXZ": "compressed with xz, as a pickle or a file of joblib may be",
    b"x\x01": "compressed with zlib, as a file of joblib may be",
    b"x^": "compressed with zlib, as a file of joblib may be",
    b"x\x9c": "compressed with zlib, as a file of joblib may be",
    b"x\xda": "compressed with zlib, as a file of joblib may be",
}

#: First bytes of data files, which belong after MODEL.
_DATA_MAGIC = {b"PAR1": "a Parquet file", b"ARROW1": "an Arrow file", b"\x93NUMPY": "a file of a NumPy array"}

#: Options that affect the values, apart from the background. An explainer file fixes them.
_VALUE_OPTIONS = (
    "feature_perturbation",
    "model_output",
    "times",
    "cover",
    "columns",
    "feature_groups",
    "precision",
    "algorithm",
)


def require_place(path: str) -> None:
    """Raise an error if no file can be written at a path, before any work is done."""
    place = locate(path)
    if isinstance(place, RemotePath):
        if place.is_dir():
            raise ValueError(f"-o: {str(place)!r} is a folder; expected the name of a file")
        return
    path = os.fspath(place) if is_url(path) else path
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise ValueError(f"-o: there is no folder {folder!r}; make it first")
    if os.path.isdir(path):
        raise ValueError(f"-o: {path!r} is a folder; expected the name of a file")
    if not os.access(folder, os.W_OK):
        raise ValueError(f"-o: nothing may be written into the folder {folder!r}")


def is_explainer(path: str) -> bool:
    """Return whether MODEL is, by its content, an explainer file; otherwise it may be a model file.

    Raise ``ValueError`` if the file does not exist, or is certainly not a model; the message says what to do
    instead. Raise ``OSError`` if it cannot be read.
    """
    place = require_file(path, "MODEL")
    if place.is_dir():
        if spark_folder.is_saved(place):
            return False
        raise ValueError(f"MODEL: {shown(path)!r} is a folder; expected a model file or an explainer file")
    if not place.is_file():
        raise ValueError(
            f"MODEL: {shown(path)!r} is not a regular file; expected a model file or an explainer file"
        )
    start = head(place, 8)
    for magic, description in _NO_MODEL_MAGIC.items():
        if start.startswith(magic):
            raise ValueError(f"MODEL: {shown(path)!r} is {description}, and is not opened; {_HOW_TO_SAVE}")
    for magic, description in _DATA_MAGIC.items():
        if start.startswith(magic):
            raise ValueError(f"MODEL: {shown(path)!r} is {description}, not a model: write MODEL before DATA")
    return explainer_file(path) is not None


def open_model(path: str, args: argparse.Namespace) -> Any:
    """Return the path of a model file as it is, or the object that a file of skops holds.

    MODEL must not be an explainer file. Raise ``ValueError`` if types are trusted in a file of another kind.
    """
    place = locate(path)
    if is_skops(place):
        return load_skops(place, args.trust)
    if args.trust:
        raise ValueError(
            f"--trust is about types in a file of skops, which {shown(path)!r} is not: leave it out"
        )
    return path


def open_explainer(path: str, args: argparse.Namespace, **options: Any) -> TreeExplainer:
    """Return the explainer that MODEL and the options of the command line define.

    ``args`` has the options of the background and of the values; options not given are None. ``options`` are
    options that both ``TreeExplainer`` and ``TreeExplainer.load`` have, and whose errors are raised as by
    these. Raise ``ValueError`` also if options do not fit together, or if an explainer file fixes an option
    that is given.
    """
    if is_explainer(path):
        fixed = ("background", "background_rows", "seed", *_VALUE_OPTIONS)
        fixed_flags = [FLAGS[name] for name in fixed if getattr(args, name, None) is not None]
        if fixed_flags:
            raise ValueError(
                f"{shown(path)!r} is an explainer file, which fixes {', '.join(fixed_flags)}: leave it out, "
                "or give the model file"
            )
        if args.trust:
            raise ValueError(
                f"{shown(path)!r} is an explainer file, which has no types to --trust: leave it out"
            )
        return TreeExplainer.load(path, **options)
    if args.background is None:
        for name in ("background_rows", "seed"):
            if getattr(args, name) is not None:
                raise ValueError(f"{FLAGS[name]} is about background rows: give --background, too")
        if args.feature_perturbation == "interventional":
            raise ValueError(
                "--feature-perturbation interventional needs background rows: give --background, too"
            )
        if args.model_output not in (None, "raw"):
            raise ValueError(
                f"--model-output {args.model_output} compares with background rows: give --background, too"
            )
    if (args.model_output in TIME_OUTPUTS) != (args.times is not None):
        raise ValueError(
            "--times belongs to --model-output survival or cumulative_hazard: give both or neither"
        )
    value_options = {name: getattr(args, name, None) for name in _VALUE_OPTIONS}
    options |= {name: value for name, value in value_options.items() if value is not None}
    model = open_model(path, args)
    if args.background is None:
        return TreeExplainer(model, **options)
    steps, bare_model = ([], model) if isinstance(model, str) else steps_of(model)
    adapted = adapt_file(bare_model)
    schema = adapted.schema
    expected: Any = getattr(steps[0], "feature_names_in_", None) if steps else schema.feature_names
    background = read_rows(
        args.background,
        "--background",
        columns_for(
            args, None if expected is None else list(expected), not steps and schema.blank_as_underscore
        ),
        csv=csv_options(args),
        categories=schema.has_encoders,
        steps=steps,
        n_rows=args.background_rows,
        seed=args.seed or 0,
    )
    model_with_steps: Any = model if steps else adapted
    with warnings.catch_warnings():
        if not args.background.endswith(".npy"):  # in other files, columns were selected by name
            warnings.filterwarnings("ignore", "data does not have valid feature names")
        return TreeExplainer(model_with_steps, background, **options)
