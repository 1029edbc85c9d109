"""Adapter for model files of XGBoost, LightGBM, CatBoost, treelite, ONNX and Spark.

A file is given by its path or by its content, a folder by its path. The content of a file, not its name,
decides how the file is read:

==================================  =====================================================
content                             read by
==================================  =====================================================
XGBoost's JSON or UBJSON            our own readers; XGBoost need not be installed
LightGBM's model text               our own reader; LightGBM need not be installed
CatBoost's JSON without CTRs        our own reader; CatBoost need not be installed
CatBoost's binary format (.cbm)     CatBoost in a separate process, and our own reader
a checkpoint of treelite 4          our own reader; treelite need not be installed
a protobuf message of ONNX          our own reader; ONNX need not be installed
a folder that Spark ML wrote        PyArrow and our own reader; Spark need not be installed
==================================  =====================================================
"""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .._common.positions import repeated_names
from .._common.regular_files import read_regular
from ..errors import UnsupportedModelError
from ._numbers import whole_in_string
from .schema import AdaptedModel
from .spark_ml import folder as spark_folder

#: First bytes of files that are not model files, and advice on what to pass instead.
_NO_MODELS = {
    b"PK\x03\x04": "is a ZIP archive, but not an explainer file; if skops wrote it, load the model with "
    "skops, and pass the model",
    b"\x80": "is a pickle, which can execute anything when it is loaded; if you trust it, load it yourself, "
    "and pass the model",
}

#: Files that a user may pass. Other modules read explainer files.
EXPECTED = "a model file or an explainer file"

#: Exit status of the script below if a model cannot be explained, by the reason.
_NO_WEIGHTS, _TEXT_FEATURES = 3, 4

#: Limits on the bytes of CatBoost's JSON, and of its memory: for each byte of a file, and in addition. The
#: JSON of a model has at most about 12 times the size of its file.
_EXPORT_GROWTH, _EXPORT_BYTES = 24, 2**20
_CATBOOST_GROWTH, _CATBOOST_BYTES = 200, 2**28

#: Script that writes a CatBoost model as JSON. Its arguments are both paths, and limits on the bytes that
#: CatBoost may write and allocate. The system enforces the limits on Linux only.
_EXPORT_CATBOOST = f"""
import sys
import catboost
try:
    import resource
    with open("/proc/self/statm") as file:
        in_use = int(file.read().split()[5]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]),) * 2)
    resource.setrlimit(resource.RLIMIT_DATA, (in_use + int(sys.argv[4]),) * 2)
except (ImportError, OSError, ValueError):
    pass
model = catboost.CatBoost()
try:
    model.load_model(sys.argv[1])
    if model.get_text_feature_indices() or model.get_embedding_feature_indices():
        sys.exit({_TEXT_FEATURES})
    if not model._object._has_leaf_weights_in_model() and not model._object._is_oblivious():
        sys.exit({_NO_WEIGHTS})
    model.save_model(sys.argv[2], format="json")
except catboost.CatBoostError as error:
    sys.exit(str(error))
except MemoryError:
    sys.exit("it takes too much memory for its size")
"""

#: Seconds allowed to start Python and import CatBoost on a busy machine; one second per megabyte is added.
_CATBOOST_SECONDS = 60

#: Markers of the lengths that UBJSON writes before names. In JSON, no opening brace is followed by a marker.
_UBJSON_LENGTHS = (b"i", b"U", b"I", b"l", b"L")

#: Numbers of the errors for names that are too long, or have a file where a folder should be, and for links
#: that go round in a circle.
_NO_PATH = (errno.ENAMETOOLONG, errno.ENOTDIR, errno.EINVAL, errno.ELOOP)

#: First byte of an ONNX file: the tag of the field with the version of the format.
_ONNX_START = b"\x08"

#: Major versions of treelite that a checkpoint can begin with.
_TREELITE_MAJORS = (3, 4, 5)


def adapt(model: str | os.PathLike[str] | bytes) -> AdaptedModel:
    """Read a model: a file, given by its path or its content, or a folder, given by its path.

    Raise ``ValueError`` if the file does not exist, holds no model of a known format, or is damaged;
    ``UnsupportedModelError`` if the model cannot be explained exactly; ``ImportError`` if reading the file
    needs a library that is not installed; ``OSError`` if the file cannot be read.
    """
    if isinstance(model, bytes):
        name, content = "the content", model
        if not content:
            raise ValueError(f"the content is empty; expected the content of {EXPECTED}")
    else:
        path = os.fsdecode(model)
        name = f"{path!r}"
        if spark_folder.is_saved(Path(path)):
            return _read(name, "Spark ML", lambda: _read_spark(path))
        content = content_of(path)
    for start, advice in _NO_MODELS.items():
        if content.startswith(start):
            raise ValueError(f"{name} {advice}")
    return _read(name, *_kind(name, content))


def _read(name: str, family: str, read: Callable[[], AdaptedModel]) -> AdaptedModel:
    """Call a reader, and turn the errors of a damaged file into ``ValueError``."""
    try:
        return read()
    except (ImportError, UnsupportedModelError):
        raise
    except KeyError as error:
        raise _damaged(name, family, f"it has no {error}") from error
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise _damaged(name, family, error) from error


def _damaged(name: str, family: str, why: object) -> ValueError:
    return ValueError(f"{name} cannot be read as a model of {family}: {why}")


def content_of(name: str) -> bytes:
    """Return the content of a regular file that is not empty."""
    try:
        content = read_regular(name)
    except FileNotFoundError as error:
        raise ValueError(
            f"there is no file {name!r:.200}; a string is treated as the path of {EXPECTED}"
        ) from error
    except OSError as error:
        if error.errno not in _NO_PATH:
            raise
        raise ValueError(f"{name!r:.200} is not the path of {EXPECTED}: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{error}; expected {EXPECTED}") from error
    if not content:
        raise ValueError(f"{name!r} is empty; expected {EXPECTED}")
    return content


def _kind(name: str, content: bytes) -> tuple[str, Callable[[], AdaptedModel]]:
    """Return the name of the library that wrote a file, and a function that reads the file."""
    if content[:1] == b"{" and content[1:2] in _UBJSON_LENGTHS:
        return "XGBoost", lambda: _read_ubjson(content)
    if content[:64].lstrip()[:1] in (b"{", b"["):
        return _json_kind(name, content)
    if content.startswith(b"tree\n"):
        return "LightGBM", lambda: _read_lightgbm(content)
    if content.startswith(b"CBM1"):
        return "CatBoost", lambda: _read_cbm(name, content)
    if content.startswith(_ONNX_START):
        return "ONNX", lambda: _read_onnx(content)
    if len(content) >= 12 and struct.unpack_from("<i", content)[0] in _TREELITE_MAJORS:
        return "treelite", lambda: _read_treelite(content)
    raise ValueError(
        f"{name} holds no model of a known kind: expected JSON or UBJSON of XGBoost, the model text of "
        "LightGBM, .cbm or JSON of CatBoost, a checkpoint of treelite, ONNX, or an explainer file"
    )


def _json_kind(name: str, content: bytes) -> tuple[str, Callable[[], AdaptedModel]]:
    constants: list[str] = []  # NaN, Infinity and -Infinity

    def constant(text: str) -> float:
        constants.append(text)
        return float(text)

    try:
        document = json.loads(content, parse_constant=constant, object_pairs_hook=_members)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name} begins like JSON, but is not valid: {error}") from error
    keys = document.keys() if isinstance(document, dict) else ()
    if "learner" in keys:
        return "XGBoost", lambda: _read_xgboost(document)
    if "features_info" in keys:
        if constants:
            raise ValueError(f"{name} holds {constants[0]}, which CatBoost does not read in JSON")
        return "CatBoost", lambda: _read_catboost_json(document)
    if "tree_info" in keys:
        raise ValueError(f"{name} is a dump of LightGBM, not a model file: use Booster.save_model")
    if isinstance(document, list):
        raise ValueError(f"{name} is a list, like a dump of XGBoost, not a model file: use save_model")
    raise ValueError(f"{name} is JSON, but neither a model of XGBoost nor one of CatBoost")


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object, or raise ``ValueError`` if two values have the same name."""
    members = dict(pairs)
    if len(members) < len(pairs):
        repeated = repeated_names(name for name, _ in pairs)
        raise ValueError(f"an object has the name {repeated[0]!r:.80} twice")
    return members


def _read_ubjson(content: bytes) -> AdaptedModel:
    from . import _ubjson

    return _read_xgboost(_ubjson.loads(content))


def _read_xgboost(document: dict[str, Any]) -> AdaptedModel:
    """Read a model that predicts like the object that was saved: a ``Booster`` or a scikit-learn wrapper.

    A wrapper adds the attribute "scikit_learn" to the file. The file contains neither the labels of a
    classifier, which become 0 to n - 1, nor the number that means missing.
    """
    from . import xgboost

    attributes = document["learner"].get("attributes", {})
    best_iteration: int | None = None
    classes: tuple[Any, ...] | None = None
    if "scikit_learn" in attributes:
        if "best_iteration" in attributes:
            best_iteration = whole_in_string(attributes, "best_iteration")
        if json.loads(attributes["scikit_learn"]).get("_estimator_type") == "classifier":
            classes = ()  # it is a classifier; the reader numbers its classes
    return xgboost.read_document(document, best_iteration=best_iteration, classes=classes)


def _read_lightgbm(content: bytes) -> AdaptedModel:
    from . import lightgbm

    return lightgbm.read_text(content.decode())


def _read_catboost_json(document: dict[str, Any]) -> AdaptedModel:
    from .catboost import model as catboost

    if document.get("ctr_data"):
        raise UnsupportedModelError(
            "the CatBoost model has CTRs (target statistics of categorical columns), and in JSON different "
            "CTRs can have the same name: save it as .cbm"
        )
    return catboost.adapt_document(document)


def _read_cbm(name: str, content: bytes) -> AdaptedModel:
    """Convert a file to CatBoost's JSON in a separate process, as a damaged file can crash CatBoost."""
    from .catboost import model as catboost

    if importlib.util.find_spec("catboost") is None:
        raise ImportError(
            f"{name} is in CatBoost's binary format, which needs the package catboost: install it, or save "
            "the model with format='json'"
        )
    with tempfile.TemporaryDirectory() as folder:
        export = os.path.join(folder, "model.json")
        model = os.path.join(folder, "model.cbm")
        with open(model, "wb") as file:
            file.write(content)
        most_bytes = _EXPORT_BYTES + _EXPORT_GROWTH * len(content)
        most_memory = _CATBOOST_BYTES + _CATBOOST_GROWTH * len(content)
        command = [sys.executable, "-P", "-c", _EXPORT_CATBOOST, model, export]
        command += [str(most_bytes), str(most_memory)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        try:
            run = subprocess.run(
                command,
                env=environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_CATBOOST_SECONDS + len(content) / 1e6,
            )
        except subprocess.TimeoutExpired as error:
            raise ValueError("CatBoost takes too long to read it") from error
        if run.returncode == _NO_WEIGHTS:
            raise UnsupportedModelError(catboost.NO_LEAF_WEIGHTS)
        if run.returncode == _TEXT_FEATURES:
            raise UnsupportedModelError(
                "the CatBoost model has text or embedding features, which are neither numbers nor categories"
            )
        if run.returncode < 0:
            raise ValueError("CatBoost crashes while reading it")
        if run.returncode:
            raise ValueError(catboost.with_advice(run.stderr.decode(errors="replace").strip()[-500:]))
        if os.path.getsize(export) > most_bytes:
            raise ValueError("CatBoost's JSON of it is too large for its size")
        with open(export, "rb") as file:
            document = json.loads(file.read())
        catboost.restore_tables(document, content)
        return catboost.adapt_document(document)


def _read_treelite(content: bytes) -> AdaptedModel:
    from . import treelite

    return treelite.adapt_checkpoint(content)


def _read_onnx(content: bytes) -> AdaptedModel:
    from .onnx import model

    return model.adapt_content(content)


def _read_spark(path: str) -> AdaptedModel:
    from .spark_ml import model

    return model.adapt_folder(path)
