"""The model files that are changed, by target, and how a changed file is written."""

from __future__ import annotations

import io
import json
import struct
import tarfile
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from helpers import onnx_models, spark_models, ubjson

from skshapgpu.adapters import _treelite_checkpoint, _ubjson

from . import mutations

CORPUS = Path(__file__).parents[1] / "corpus"

Mutant = tuple[bytes, str]


class Target(NamedTuple):
    """A format of files.

    Attributes
    ----------
    module : str
        The package that must be installed.
    ending : str
        End of the files' names; "/" for a folder.
    documents : callable
        Returns the documents of the corpus by name.
    write : callable
        Returns the content of the file for a document; for a folder, a tar archive.
    change : callable
        Changes a document; returns it with a description of the change.
    """

    module: str
    ending: str
    documents: Callable[[], dict[str, Any]]
    write: Callable[[Any], bytes]
    change: Callable[[Any, np.random.Generator], tuple[Any, str]] = mutations.changed


#: Parameters of training. XGBoost checks their ranges; no prediction depends on them.
_OF_TRAINING = ("scale_pos_weight",)


def mutant(target: Target, rng: np.random.Generator) -> Mutant:
    """Return the content of a changed file, and what was changed."""
    documents = target.documents()
    while True:
        name = str(rng.choice(sorted(documents)))
        document, description = target.change(documents[name], rng)
        if any(field in description for field in _OF_TRAINING):
            continue
        try:
            return target.write(document), f"{name}: {description}"
        except (OverflowError, struct.error, LookupError, AttributeError, TypeError, ValueError):
            continue  # the format has no such value


def _files(folder: str, start: str = "") -> dict[str, bytes]:
    paths = sorted((CORPUS / folder).iterdir())
    return {path.name: path.read_bytes() for path in paths if path.name.startswith(start)}


# XGBoost and CatBoost: documents


@cache
def xgboost_documents() -> dict[str, Any]:
    return {name: _ubjson.loads(data) for name, data in _files("xgboost").items()}


@cache
def xgboost_lists() -> dict[str, Any]:
    return {name: listed(document) for name, document in xgboost_documents().items()}


@cache
def catboost_documents() -> dict[str, Any]:
    files = _files("catboost")
    # Our reader needs a .cbm file for CTRs.
    return {name: json.loads(data) for name, data in files.items() if name != "ctrs"}


def listed(part: Any) -> Any:
    """Return a document with lists for arrays."""
    if isinstance(part, dict):
        return {key: listed(value) for key, value in part.items()}
    if isinstance(part, list):
        return [listed(value) for value in part]
    return part.tolist() if isinstance(part, np.ndarray) else part


def write_json(document: Any) -> bytes:
    return json.dumps(document).encode()


# LightGBM: lines of a name and a value, or of several values


@cache
def lightgbm_documents() -> dict[str, Any]:
    return {name: _parts(data.decode()) for name, data in _files("lightgbm").items()}


def _parts(text: str) -> dict[str, Any]:
    """Return the head, the trees and the tail of a text; a line with "=" is a field."""
    body, end, tail = text.partition("\nend of trees\n")
    head, *trees = body.split("\nTree=")
    return {"head": _lines(head), "trees": [_lines(tree) for tree in trees], "tail": end + tail}


def _lines(text: str) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for line in text.split("\n"):
        name, equals, value = line.partition("=")
        fields[name if equals else f"={line}"] = value.split(" ") if equals else line
    return fields


def write_lightgbm(document: Any) -> bytes:
    """Write a text. Sizes of trees that are right are written, unless they were changed."""
    trees = [_text(tree) for tree in document["trees"]]
    head = dict(document["head"].items())
    sizes = head.get("tree_sizes")
    if isinstance(sizes, list) and not document.get("keeps_sizes"):
        head["tree_sizes"] = [str(len(f"Tree={tree}\n")) for tree in trees]
    head_lines = _text(document["head"] if document.get("keeps_sizes") else head)
    return ("\nTree=".join([head_lines, *trees]) + str(document.get("tail", ""))).encode()


def _text(fields: Any) -> str:
    if not isinstance(fields, dict):
        return _value(fields)
    return "\n".join(
        _value(value) if name.startswith("=") else f"{name}={_value(value)}" for name, value in fields.items()
    )


def _value(value: Any) -> str:
    return " ".join(map(_value, value)) if isinstance(value, (list, tuple)) else str(value)


def change_lightgbm(document: Any, rng: np.random.Generator) -> tuple[Any, str]:
    """Change a field; in a few cases, the sizes of the trees remain as they were."""
    twin, description = mutations.changed(document, rng)
    if isinstance(twin, dict) and ("tree_sizes" in description or rng.random() < 0.1):
        twin["keeps_sizes"] = True
        description += "; sizes kept"
    return twin, description


# treelite: fields of fixed dtypes


@cache
def treelite_documents() -> dict[str, Any]:
    documents = {}
    for name, data in _files("model_file", "treelite").items():
        checkpoint = _treelite_checkpoint.loads(data)
        documents[name] = {
            "version": np.frombuffer(data, "<i4", 3),
            "types": np.frombuffer(data, "u1", 2, 12),
            "header": checkpoint.header,
            "trees": checkpoint.trees,
        }
    return documents


def write_treelite(document: Any) -> bytes:
    real = {2: "<f4", 3: "<f8"}.get(int(document["types"][0]), "<f8")
    parts = [np.asarray(document["version"], "<i4"), np.asarray(document["types"], "u1")]
    parts.append(np.array([len(document["trees"])], "<u8"))
    layouts = [(_treelite_checkpoint._HEADER_FIELDS, document["header"])]
    layouts += [(_treelite_checkpoint._TREE, tree) for tree in document["trees"]]
    for layout, fields in layouts:
        for name, dtype in layout:
            value = fields[name.strip("[]")]
            items = np.frombuffer(value.encode(), "S1") if isinstance(value, str) else np.asarray(value)
            with np.errstate(all="ignore"):
                items = items.astype(real if dtype == "real" else dtype)
            if name[0] == "[":
                parts.append(np.array([len(items)], "<u8"))
            parts.append(items)
    return b"".join(part.tobytes() for part in parts)


# CatBoost's own format: numbers of a binary file


@cache
def cbm_documents() -> dict[str, Any]:
    return _files("cbm")


def change_bytes(data: bytes, rng: np.random.Generator) -> tuple[bytes, str]:
    """Truncate a file, or change one or two of its numbers."""
    if rng.random() < 0.05:
        end = int(rng.integers(len(data)))
        return data[:end], f"only {end} bytes"
    twin, changes = bytearray(data), []
    for _ in range(1 + (rng.random() < 0.3)):
        position = int(rng.integers(len(twin) - 8))
        form = str(rng.choice(["<B", "<i", "<f", "<q", "<I"]))
        old = struct.unpack_from(form, twin, position)[0]
        other = mutations.number(old, rng)
        try:
            struct.pack_into(form, twin, position, other)
        except (struct.error, OverflowError, TypeError):
            twin[position] ^= 1 << int(rng.integers(8))
        changes.append(f"byte {position} as {form}: {old!r:.30} -> {other!r:.30}")
    return bytes(twin), "; ".join(changes)


# ONNX: attributes of the operator


@cache
def onnx_documents() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    trees = onnx_models.random_trees(rng, onnx_models.MODES[:-1], n_trees=2, depth=2, n_outputs=2)
    # onnxruntime takes whole numbers as members only.
    single = onnx_models.random_trees(rng, ["LEQ", "MEMBER"], n_trees=2, depth=2, decimals=0)
    class_trees = onnx_models.random_trees(rng, ["LEQ", "LT"], n_trees=2, depth=2, n_outputs=3)
    texts = {"post_transform": "NONE", "base_values": [0.5, -1.0]}
    numbers = {"post_transform": 0, "aggregate_function": 1, "n_targets": 1}
    return {
        "regressor": {
            "kind": "TreeEnsembleRegressor",
            "attributes": onnx_models.listed(trees) | texts | {"n_targets": 2, "aggregate_function": "SUM"},
        },
        "classifier": {
            "kind": "TreeEnsembleClassifier",
            "attributes": onnx_models.listed(class_trees, "class")
            | {"post_transform": "NONE", "classlabels_int64s": [3, 5, 7]},
        },
        "ensemble": {"kind": "TreeEnsemble", "attributes": onnx_models.indexed(single) | numbers},
    }


def write_onnx(document: Any) -> bytes:
    members = document["attributes"].get("membership_values")
    if isinstance(members, np.ndarray) and (members == -(2**31)).any():
        raise ValueError("onnxruntime takes NaN for this member, as it is what it casts NaN to")
    if document["kind"] == "TreeEnsembleClassifier":
        return onnx_models.classifier(document["attributes"])
    return onnx_models.ensemble(document["kind"], document["attributes"])


# Spark: a folder, in a tar archive


@cache
def spark_documents() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    models: list[tuple[str, str, int, dict[str, Any]]] = [
        ("tree", "DecisionTreeRegressionModel", 1, {}),
        ("tree_classes", "DecisionTreeClassificationModel", 1, {"numClasses": 3}),
        ("forest", "RandomForestRegressionModel", 2, {}),
        ("forest_classes", "RandomForestClassificationModel", 2, {"numClasses": 2}),
        ("boosting", "GBTRegressionModel", 2, {"weights": [1.0, 0.1]}),
        ("boosting_classes", "GBTClassificationModel", 2, {"weights": [1.0, -0.5]}),
    ]
    return {
        name: {
            "name": kind,
            "trees": [
                spark_models.random_tree(rng, options.get("numClasses", 0), depth=2) for _ in range(n_trees)
            ],
            "options": {"n_features": len(spark_models.N_CATEGORIES), **options},
        }
        for name, kind, n_trees, options in models
    }


def write_spark(document: Any) -> bytes:
    def without_time(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.mtime = 0
        return member

    archive = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=archive, mode="w") as file:
        spark_models.write(Path(folder), document["name"], document["trees"], **document["options"])
        file.add(folder, ".", filter=without_time)
    return archive.getvalue()


#: Targets by name; ``workers.LIBRARIES`` has the library's loader of each.
TARGETS = {
    "xgboost_json": Target("xgboost", ".json", xgboost_lists, write_json),
    "xgboost_ubjson": Target("xgboost", ".ubj", xgboost_documents, ubjson.dumps),
    "lightgbm": Target("lightgbm", ".txt", lightgbm_documents, write_lightgbm, change_lightgbm),
    "catboost_json": Target("catboost", ".json", catboost_documents, write_json),
    "catboost_cbm": Target("catboost", ".cbm", cbm_documents, bytes, change_bytes),
    "treelite": Target("treelite", ".tl", treelite_documents, write_treelite),
    "onnx": Target("onnxruntime", ".onnx", onnx_documents, write_onnx),
    "spark": Target("pyspark", "/", spark_documents, write_spark),
}
