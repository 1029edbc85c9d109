"""Explainer files: the adapted model, the options that affect its values, the background data, and the
content of the compiled plan's tables.

Python objects (names, labels, categories) are written as JSON with their types, arrays as arrays; only
instances of the classes listed here are created on loading. See ``storage.py`` for the file itself.
"""

from __future__ import annotations

import hashlib
import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from .._rows.background import Background
from .._versions import __version__
from ..adapters.ensemble import LINEAR_FIELDS, Ensemble
from ..adapters.schema import AdaptedModel, InputSchema
from . import storage
from .locations import Content, Place, RemotePath, head, is_path, locate, quoted

#: Version 2 is for models with linear leaves. Readers of version 1 reject such files, instead of ignoring the
#: leaves.
_FORMAT, _VERSION, _LINEAR_VERSION = "skshapgpu explainer", 1, 2

#: Prefix, in files, of the names of the arrays in ``_core.Plan.contents``.
_TABLES = "tables_"

#: Arrays that may be large, and from which a call reads only parts.
_LARGE = [f"{_TABLES}floats", f"{_TABLES}doubles"]

#: Kinds of the dtypes of scalars and arrays that can be saved: booleans, numbers and strings.
_SCALARS = "biufU"

#: Module and class of the encoders, derived columns and sums of functions that can be saved, by their names
#: in files.
_ENCODERS = {
    "sklearn categories": ("skshapgpu.adapters.sklearn_categories", "OrdinalCategories"),
    "xgboost categories": ("skshapgpu.adapters.xgboost", "XgboostCategories"),
    "lightgbm categories": ("skshapgpu.adapters.lightgbm", "PandasCategories"),
    "catboost categories": ("skshapgpu.adapters.catboost.model", "CatBoostCategories"),
    "catboost combination": ("skshapgpu.adapters.catboost.ctr", "Combination"),
    "catboost ctrs": ("skshapgpu.adapters.catboost.ctr", "CtrColumns"),
    "treelite codes": ("skshapgpu.adapters.treelite", "Codes"),
    "onnx ranks": ("skshapgpu.adapters.onnx.splits", "Ranks"),
    "spark categories": ("skshapgpu.adapters.spark_ml.nodes", "Categories"),
    **{name: ("skshapgpu.adapters.link_sums", name) for name in ("Sigmoid", "Isotonic", "Term", "LinkSum")},
}


#: Types of the fields of ``AdaptedModel`` and ``InputSchema`` that are plain values, by their annotations.
_PLAIN_TYPES: Mapping[Any, tuple[type, ...]] = {
    "bool": (bool,),
    "float": (float,),
    "str": (str,),
    "str | None": (str, type(None)),
    "int | None": (int, type(None)),
}


@dataclass(frozen=True)
class Saved:
    """The content of a file."""

    adapted: AdaptedModel
    options: dict[str, Any]  # values of the saved options of ``TreeExplainer``, by name
    background: Background | None
    #: The result of ``_core.Plan.contents``, memory-mapped if it is from a local file. It is empty if there
    #: are no tables.
    tables: dict[str, np.ndarray]


def save(path: Place, saved: Saved) -> None:
    """Write a file, completely or not at all.

    Raises
    ------
    ValueError
        The model holds labels or categories of a type that a file cannot keep.
    FileExistsError
        The path is a file that something else wrote.
    OSError
        The file cannot be written.
    """
    packer = _Packer()
    adapted, background = saved.adapted, saved.background
    ensemble = {name: getattr(adapted.ensemble, name) for name in _fields_of(adapted.ensemble)}
    model = {f.name: getattr(adapted, f.name) for f in fields(AdaptedModel)}
    model["schema"] = {f.name: getattr(adapted.schema, f.name) for f in fields(InputSchema)}
    for name in ("ensemble", "other_covers", "over_time", "constant_magnitude", "predictions"):
        del model[name]
    content = {
        "ensemble": packer.pack(ensemble),
        "model": packer.pack(model),
        "options": packer.pack(saved.options),
        "background": packer.pack(background and [background.rows, background.weights]),
    }
    about = {
        "format": _FORMAT,
        "version": _LINEAR_VERSION if adapted.ensemble.has_linear_leaves else _VERSION,
        "library": __version__,
        "digest": _digest(ensemble),
    }
    tables = {f"{_TABLES}{name}": array for name, array in saved.tables.items()}
    storage.write(path, about | content, packer.arrays | tables)


def digest(ensemble: Ensemble) -> str:
    """Return the SHA-256 of a model's trees in hexadecimal digits."""
    return _digest({name: getattr(ensemble, name) for name in _fields_of(ensemble)})


def _digest(ensemble_fields: Mapping[str, Any]) -> str:
    hasher = hashlib.sha256()
    for name, value in ensemble_fields.items():
        is_array = isinstance(value, np.ndarray)
        hasher.update(f"{name} {value.shape if is_array else value} ".encode())
        if is_array:
            hasher.update(np.ascontiguousarray(value).data)
    return hasher.hexdigest()


def _fields_of(ensemble: Ensemble) -> list[str]:
    """Return the names of the fields of an ensemble. Fields of linear leaves are left out if it has none."""
    return [f.name for f in fields(Ensemble) if ensemble.has_linear_leaves or f.name not in LINEAR_FIELDS]


def load(path: Place | Content, verify: bool = False) -> Saved:
    """Read a file.

    Parameters
    ----------
    path : Path, RemotePath or Content
    verify : bool
        Whether to compare large tables with their checksums, too.

    Raises
    ------
    OSError
        The file cannot be read.
    ValueError
        The file holds no explainer, is damaged, or was written by another version of this package.
    """
    header, arrays = storage.read(path, _LARGE, verify)
    if header.get("format") != _FORMAT:
        raise ValueError(f"{quoted(path)} holds no explainer")
    if header.get("version") not in (_VERSION, _LINEAR_VERSION):
        raise ValueError(
            f"{quoted(path)} has version {header.get('version')!r} of the format, written by skshapgpu "
            f"{header.get('library')}; this one reads versions {_VERSION} and {_LINEAR_VERSION}"
        )
    try:
        unpack = _Unpacker(arrays).unpack
        ensemble_fields = unpack(header["ensemble"])
        ensemble = Ensemble(**ensemble_fields)
        if _digest(ensemble_fields) != header["digest"]:  # of the fields that the file has
            raise ValueError("its trees do not match the digest in its header")
        model = unpack(header["model"])
        schema = InputSchema(**model.pop("schema"))
        adapted = AdaptedModel(ensemble=ensemble, schema=schema, **model)
        _check(adapted)
        background = _background(unpack(header["background"]), ensemble)
        tables = {name.removeprefix(_TABLES): arrays[name] for name in arrays if name.startswith(_TABLES)}
        options = unpack(header["options"])
        if not isinstance(options, dict):
            raise ValueError(f"its options are {options!r:.80}")
        return Saved(adapted, options, background, tables)
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"{quoted(path)} is damaged: {error}") from error


def explainer_file(model: Any) -> Place | Content | None:
    """Return the explainer file of which ``model`` is the path or the content; None if there is none."""
    if isinstance(model, bytes):
        return Content(model) if storage.begins_like_ours(model[: storage.N_FIRST_BYTES]) else None
    if not is_path(model):
        return None
    place = locate(model)
    is_file = place.is_file() if isinstance(place, RemotePath) else os.path.isfile(place)
    is_ours = is_file and storage.begins_like_ours(head(place, storage.N_FIRST_BYTES))
    return place if is_ours else None


def library_version(path: Place) -> str:
    """Return the version of this package that wrote a file. Errors are raised as by :func:`load`."""
    return str(storage.read(path, _LARGE)[0].get("library"))


def _check(adapted: AdaptedModel) -> None:
    """Raise ``ValueError`` unless all fields are valid. The code that uses them does not check them again."""
    schema, n_features = adapted.schema, adapted.schema.n_features
    for part in (adapted, schema):
        for f in fields(part):
            value = getattr(part, f.name)
            if f.type in _PLAIN_TYPES and type(value) not in _PLAIN_TYPES[f.type]:
                raise ValueError(f"its {f.name} is {value!r:.80}")
    names, encoder = schema.feature_names, schema.frame_encoder
    for name, is_valid in {
        "cover_kind": adapted.cover_kind in (None, "count", "weight", "data"),
        "link_scale": 0 < adapted.link_scale < float("inf"),
        "array_dtype": schema.array_dtype in (None, "float32"),
        "object_dtype": schema.object_dtype in (None, "float32"),
        "feature_names": names is None
        or (isinstance(names, tuple) and len(names) == n_features and all(type(n) is str for n in names)),
        "known_names": isinstance(schema.known_names, dict)
        and all(type(name) is str for name in schema.known_names.values()),
        "encoders": isinstance(schema.encoders, dict)
        and all(hasattr(encoder, "encode") for encoder in schema.encoders.values()),
        "frame_encoder": encoder is None or hasattr(encoder, "encode"),
    }.items():
        if not is_valid:
            raise ValueError(f"its {name} is not valid")
    for feature in (*schema.known_names, *schema.encoders):
        if type(feature) is not int or not 0 <= feature < n_features:
            raise ValueError(f"it has names or encoders of column {feature!r:.80}, which does not exist")


def _background(arrays: Any, ensemble: Ensemble) -> Background | None:
    if arrays is None:
        return None
    rows, weights = (np.array(array, order="C") for array in arrays)  # copies, because the file may change
    if rows.ndim != 2 or rows.shape[1] != ensemble.n_features or rows.dtype != ensemble.x_dtype:
        raise ValueError("its background does not fit the model")
    if weights.shape != rows.shape[:1] or weights.dtype != np.float64 or not len(rows):
        raise ValueError("its background has weights that do not fit its rows")
    if not (np.isfinite(weights) & (weights >= 0)).all() or abs(weights.sum() - 1) > 1e-6:
        raise ValueError("its background has weights that do not add up to 1")
    return Background(rows, weights)


class _Packer:
    """Converter of values to JSON. It gives arrays names, and collects them in ``arrays``."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}

    def pack(self, value: Any) -> Any:
        if value is None or type(value) in (bool, int, float, str):
            return value
        if isinstance(value, np.ndarray) and value.dtype.kind in _SCALARS:
            name = f"a{len(self.arrays)}"
            # The byte order of an array may be the order of its library or machine; files are little-endian.
            self.arrays[name] = np.ascontiguousarray(value, value.dtype.newbyteorder("<"))
            return {"array": name}
        if isinstance(value, np.ndarray) and value.dtype.hasobject:
            return {"objects": [self.pack(item) for item in value.tolist()]}
        if isinstance(value, np.generic) and value.dtype.kind in _SCALARS:
            return {"scalar": value.dtype.str, "value": value.item()}
        if type(value) in (tuple, list):
            return {type(value).__name__: [self.pack(item) for item in value]}
        if isinstance(value, Mapping):
            return {"mapping": [[self.pack(key), self.pack(item)] for key, item in value.items()]}
        for name, (module, kind) in _ENCODERS.items():
            if (type(value).__module__, type(value).__qualname__) == (module, kind):
                state = {f.name: self.pack(getattr(value, f.name)) for f in fields(value)}
                return {"encoder": name, "fields": state}
        raise ValueError(
            f"cannot save the model: it holds {value!r:.80}, a {type(value).__qualname__}; files can "
            "hold only numbers, strings and arrays of them"
        )


class _Unpacker:
    """Converter of JSON and named arrays back to values."""

    def __init__(self, arrays: dict[str, np.ndarray]) -> None:
        self._arrays = arrays

    def unpack(self, value: Any) -> Any:
        if not isinstance(value, dict):
            if isinstance(value, list):
                raise ValueError("a list stands where a value should")
            return value
        match value:
            case {"array": name}:
                return self._arrays[name]
            case {"objects": items}:
                out = np.empty(len(items), object)
                out[:] = [self.unpack(item) for item in items]
                return out
            case {"scalar": dtype, "value": item}:
                scalar_dtype = np.dtype(dtype)
                if scalar_dtype.kind not in _SCALARS:
                    raise ValueError(f"it holds a scalar of the dtype {dtype!r:.80}")
                return scalar_dtype.type(item)
            case {"tuple": items}:
                return tuple(self.unpack(item) for item in items)
            case {"list": items}:
                return [self.unpack(item) for item in items]
            case {"mapping": items}:
                return {self.unpack(key): self.unpack(item) for key, item in items}
            case {"encoder": name, "fields": state}:
                module, kind = _ENCODERS[name]
                encoder_class = getattr(importlib.import_module(module), kind)
                return encoder_class(**{key: self.unpack(item) for key, item in state.items()})
        raise ValueError(f"it holds a value of an unknown kind: {list(value)!r:.80}")
