"""The flavor: what MLflow saves for an explainer, and how that is loaded again."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Collection, Sequence
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any

from .._files import steps as steps_file
from .._files.locations import read_file
from .._versions import __version__
from ..explainer import TreeExplainer
from ._scoring import Scorer, signature_of, without_categories

#: Name of the flavor in a file MLmodel.
FLAVOR_NAME = "skshapgpu"

#: Folder of the flavor in ``data`` of a model, and the files in it.
_FOLDER, _EXPLAINER, _STEPS = "explainer", "explainer.npz", "steps.skops"

#: Options of :meth:`.TreeExplainer.load` that a file MLmodel holds; ``model_config`` can replace them.
_LOAD_OPTIONS = {"device": "auto", "n_jobs": None, "memory_limit": None}

_TRUSTED, _CATEGORICAL = "skops_trusted_types", "categorical"


def save_model(
    explainer: TreeExplainer,
    path: str | os.PathLike[str],
    *,
    signature: Any = None,
    input_example: Any = None,
    skops_trusted_types: Sequence[str] = (),
    tables: bool = True,
    pip_requirements: Any = None,
    extra_pip_requirements: Any = None,
    conda_env: Any = None,
    code_paths: list[str] | None = None,
    metadata: dict[str, Any] | None = None,
    mlflow_model: Any = None,
) -> None:
    """Save an explainer as an MLflow model, in a folder of the local file system.

    The model has the flavors ``skshapgpu`` and ``python_function``. It holds the file of
    :meth:`.TreeExplainer.save` and, if the explainer is one of a ``Pipeline``, the leading steps as a file
    of skops. Nothing is pickled, and neither flavor needs the library that trained the model.

    The ``predict`` of the ``python_function`` returns a data frame of SHAP values with the row labels of its
    input and a column for each feature or, with several outputs, for each feature and output:
    "feature__output". It finds the columns that the explainer takes by their names, in any order. Other
    columns are ignored; a missing column is an error. Its ``params`` are ``reasons`` and ``by_sign``, as for
    :class:`.BatchExplainer`, and ``base_values``, which adds the columns "base_value" or
    "base_value__output".

    Parameters
    ----------
    explainer : TreeExplainer
        Explainer to save.
    path : path-like
        Folder to write; it must not exist, or be empty.
    signature : mlflow.models.ModelSignature, default=None
        Columns of the input and output. None infers them from ``input_example``. Without an example, columns
        of numbers are of type double, and the signature of a model with categories or leading steps has no
        inputs. MLflow rejects input of types that are not in the signature: a column of type long, for
        instance, must not have missing values. If a signature has no outputs or params, they are added.
    input_example : data frame or array of shape (n_rows, n_features), default=None
        Some rows of X, which are saved with the model. MLflow has no type for categories of pandas. A column
        that is categorical here must hold values, such as strings, in the input of ``predict``. There it gets
        the categories of the example, in their order, followed by other values that the input has.
    skops_trusted_types : sequence of str, default=()
        Types of the leading steps that skops does not trust itself, such as
        "category_encoders.target_encoder.TargetEncoder". They are listed in the file MLmodel, and created
        when the model is loaded.
    tables : bool, default=True
        As for :meth:`.TreeExplainer.save`. Without tables, later releases of this package can load the model.
    pip_requirements, extra_pip_requirements : list of str or str, default=None
        As in all flavors. By default, the requirements are MLflow, this package and, if there are leading
        steps, skops and the packages that define the steps.
    conda_env, code_paths, metadata, mlflow_model
        As in all flavors.

    Raises
    ------
    ImportError
        MLflow or pyarrow or, if there are leading steps, skops is not installed.
    TypeError, ValueError
        ``explainer`` is not an explainer or needs labels, it does not accept the type, shape or a value of
        ``input_example``, or its leading steps, labels or categories cannot be saved.
    mlflow.exceptions.MlflowException
        The folder is not empty, or the example does not match the signature.

    See Also
    --------
    log_explainer : Save an explainer in a run.
    load_model : Load an explainer from an MLflow model.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> from skshapgpu import TreeExplainer
    >>> from skshapgpu.mlflow import load_model, save_model
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> explainer = TreeExplainer(RandomForestRegressor(10, random_state=0).fit(X, y))
    >>> save_model(explainer, "explainer", input_example=X.head(3))  # doctest: +SKIP
    >>> load_model("explainer").shap_values(X).shape  # doctest: +SKIP
    (442, 10)
    """
    mlflow = _require_mlflow()
    if not isinstance(explainer, TreeExplainer):
        raise TypeError(f"explainer must be a TreeExplainer, not a {type(explainer).__qualname__}")
    trusted = _types("skops_trusted_types", skops_trusted_types)
    input_example, categorical = without_categories(input_example)
    signature = signature_of(explainer, signature, input_example, categorical)
    steps = None
    if explainer._reader.steps:
        steps = steps_file.dump(explainer._reader.steps, explainer._features.by_input, trusted)
    if conda_env is None and pip_requirements is None:
        pip_requirements = [*_requirements(steps), *_listed(extra_pip_requirements)]
        extra_pip_requirements = None
    model = mlflow.models.Model() if mlflow_model is None else mlflow_model
    model.add_flavor(
        FLAVOR_NAME,
        skshapgpu_version=__version__,
        data=f"data/{_FOLDER}",
        **{_TRUSTED: trusted},
    )
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, _FOLDER)
        folder.mkdir()
        explainer._without_steps().save(folder / _EXPLAINER, tables=tables)
        if steps is not None:
            (folder / _STEPS).write_bytes(steps)
        mlflow.pyfunc.save_model(
            path=os.fspath(path),
            loader_module=__package__,
            data_path=os.fspath(folder),
            mlflow_model=model,
            model_config={**_LOAD_OPTIONS, _TRUSTED: list(trusted), _CATEGORICAL: categorical},
            signature=signature,
            input_example=input_example,
            pip_requirements=pip_requirements,
            extra_pip_requirements=extra_pip_requirements,
            conda_env=conda_env,
            code_paths=code_paths,
            metadata=metadata,
        )


def log_explainer(
    explainer: TreeExplainer,
    name: str | None = None,
    *,
    registered_model_name: str | None = None,
    signature: Any = None,
    input_example: Any = None,
    skops_trusted_types: Sequence[str] = (),
    **options: Any,
) -> Any:
    """Log an explainer as an MLflow model, in the active run or without a run.

    Parameters
    ----------
    explainer : TreeExplainer
        Explainer to log.
    name : str, default=None
        Name of the model; MLflow chooses one by default.
    registered_model_name : str, default=None
        Model of the registry of which this becomes a version.
    signature, input_example, skops_trusted_types
        As for :func:`save_model`.
    **options
        Other arguments of :func:`save_model` and of ``mlflow.models.Model.log``, such as
        ``pip_requirements``, ``tags`` and ``params``.

    Returns
    -------
    mlflow.models.model.ModelInfo
        Description of the model; :func:`load_model` and ``mlflow.pyfunc.load_model`` take its ``model_uri``.

    Raises
    ------
    ImportError, TypeError, ValueError
        As for :func:`save_model`.

    See Also
    --------
    save_model : Save an explainer in a folder.
    """
    return _require_mlflow().models.Model.log(
        artifact_path=None,
        flavor=sys.modules[__package__],
        name=name,
        registered_model_name=registered_model_name,
        explainer=explainer,
        signature=signature,
        input_example=input_example,
        skops_trusted_types=skops_trusted_types,
        **options,
    )


def load_model(
    model_uri: str,
    dst_path: str | None = None,
    *,
    skops_trusted_types: Sequence[str] | None = None,
    **options: Any,
) -> TreeExplainer:
    """Load an explainer from an MLflow model.

    Parameters
    ----------
    model_uri : str
        A local path, or a URI of MLflow such as "models:/name/1" or "runs:/id/name".
    dst_path : str, default=None
        Existing local folder to download the model to; a temporary one by default.
    skops_trusted_types : sequence of str, default=None
        Types of the leading steps of a pipeline that may be created, besides the types that skops trusts
        itself. None trusts the types that the file MLmodel lists, so that whoever can write the model decides
        what is imported and run; with the environment variable
        ``MLFLOW_ALLOW_PICKLE_DESERIALIZATION=false``, the listed types are rejected. An empty list trusts no
        other types.
    **options
        Options of :meth:`.TreeExplainer.load`, such as ``device`` and ``n_jobs``.

    Returns
    -------
    TreeExplainer
        Explainer whose values are bit-identical to the values of the explainer that was saved.

    Raises
    ------
    ImportError
        MLflow is not installed; or there are leading steps, and skops or a package that defines a step is
        not installed.
    ValueError, TypeError
        The model has no explainer, its file is damaged or holds types that are not trusted, or an option has
        an invalid value.
    mlflow.exceptions.MlflowException
        The model is not found.

    See Also
    --------
    save_model : Save an explainer in a folder.
    log_explainer : Save an explainer in a run.
    """
    mlflow = _require_mlflow()
    root = mlflow.artifacts.download_artifacts(artifact_uri=os.fspath(model_uri), dst_path=dst_path)
    flavors = mlflow.models.Model.load(root).flavors
    if FLAVOR_NAME not in flavors:
        raise ValueError(f"the model {model_uri!r} has no explainer, but the flavors {', '.join(flavors)}")
    flavor = flavors[FLAVOR_NAME]
    if skops_trusted_types is None:
        trusted = _listed_types(flavor.get(_TRUSTED))
    else:
        trusted = _types("skops_trusted_types", skops_trusted_types)
    return _load_folder(Path(root, flavor["data"]), trusted, options)


def _load_pyfunc(path: str, model_config: dict[str, Any] | None = None) -> Scorer:
    """Return the object whose ``predict`` MLflow calls; MLflow calls this function by its name."""
    config = model_config or {}
    options = {name: config.get(name, default) for name, default in _LOAD_OPTIONS.items()}
    explainer = _load_folder(Path(path), _listed_types(config.get(_TRUSTED)), options)
    return Scorer(explainer, config.get(_CATEGORICAL))


def _load_folder(folder: Path, trusted: Collection[str], options: dict[str, Any]) -> TreeExplainer:
    """Load an explainer, and the leading steps if there are any, from the folder of the flavor."""
    explainer = TreeExplainer.load(folder / _EXPLAINER, **options)
    if not os.path.lexists(folder / _STEPS):
        return explainer
    return explainer._behind(*steps_file.load(read_file(folder / _STEPS), trusted))


def _listed_types(listed: Any) -> list[str]:
    """Return the trusted types that a file MLmodel lists.

    Raise ``ValueError`` if it lists types although the environment forbids it.
    """
    trusted = _types("skops_trusted_types of the file MLmodel", listed or ())
    if trusted and os.environ.get("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "true").lower() in ("false", "0"):
        raise ValueError(
            "MLFLOW_ALLOW_PICKLE_DESERIALIZATION=false, so the types that the model itself lists are not "
            f"trusted: {', '.join(trusted)}. If you trust them, pass them as skops_trusted_types= to "
            "skshapgpu.mlflow.load_model"
        )
    return trusted


def _require_mlflow() -> Any:
    """Return the module mlflow, or raise ``ImportError`` with advice on how to install it."""
    try:
        import mlflow
        import mlflow.artifacts
        import mlflow.models
        import mlflow.pyfunc
    except ImportError as error:
        raise ImportError("skshapgpu.mlflow needs MLflow: pip install mlflow skops pyarrow") from error
    return mlflow


def _requirements(steps: bytes | None) -> list[str]:
    """Return the requirements for loading an explainer, without MLflow, which requires pandas and pyarrow."""
    requirements = [f"skshapgpu=={__version__}"]
    if steps is not None:
        distributions = packages_distributions()
        required_names = {
            name for package in steps_file.packages(steps) for name in distributions.get(package, ())
        }
        requirements += [f"{name}=={version(name)}" for name in sorted({*required_names, "skops"})]
    return requirements


def _listed(requirements: Any) -> list[str]:
    """Return requirements as a list; they may be the path of a file of requirements."""
    if requirements is None:
        return []
    return [f"-r {os.path.abspath(requirements)}"] if isinstance(requirements, str) else list(requirements)


def _types(name: str, value: Any) -> list[str]:
    if isinstance(value, str) or not all(isinstance(item, str) for item in value):
        raise TypeError(f"{name} must be a list of strings, not {value!r:.80}")
    return list(value)
