"""The flavor ``python_function``: how ``predict`` reads the rows that MLflow passes, and what it returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .._explanations.values import column_names
from ..batches import BatchExplainer
from ..batches.frame_rows import frame_schema
from ..batches.schema_explainer import SchemaExplainer
from ..explainer import TreeExplainer


class Scorer:
    """Explainer with the interface that MLflow expects of a model.

    ``categorical`` has the columns that become categories of pandas, which MLflow does not pass, as
    :func:`without_categories` returns them. ``ImportError`` is raised if pyarrow is not installed,
    ``ValueError`` if the explainer needs labels.
    """

    def __init__(self, explainer: TreeExplainer, categorical: Mapping[str, Any] | None = None) -> None:
        BatchExplainer(explainer)  # rejects explainers that need labels
        self._explainer, self._categorical = explainer, categorical or {}

    def get_raw_model(self) -> TreeExplainer:
        """Return the explainer; ``PyFuncModel.get_raw_model`` calls this method."""
        return self._explainer

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> Any:
        """Explain rows.

        Parameters
        ----------
        model_input : data frame, array or nested list of shape (n_rows, n_features)
            Rows to explain.
        params : dict, default=None
            See :func:`.save_model`.

        Returns
        -------
        pandas.DataFrame
            Values, with the row labels of the input.

        Raises
        ------
        TypeError, ValueError
            The input has a type, shape or value that the explainer does not accept, or ``reasons`` is
            negative.
        """
        params = params or {}
        reasons, base_values = params.get("reasons", 0), bool(params.get("base_values", False))
        arguments = BatchExplainer(
            self._explainer, reasons=reasons or None, by_sign=bool(params.get("by_sign", False))
        )._arguments
        frame = self.frame(model_input)
        schema = frame_schema(frame)
        arguments.warn_of_names(schema)
        explainer = SchemaExplainer(arguments, schema)
        values = explainer.explain_frame(frame, isinstance(model_input, np.ndarray | list)).to_pandas()
        values.index = frame.index
        if base_values:
            self._add_base_values(values)
        return values

    def frame(self, model_input: Any) -> Any:
        """Return rows as a pandas frame. Columns of an array get the names of the columns of X, if known."""
        import pandas as pd

        if isinstance(model_input, pd.DataFrame):
            categorical_columns = [name for name in self._categorical if name in model_input]
            return model_input.astype(
                {
                    name: _category_dtype(model_input[name], **self._categorical[name])
                    for name in categorical_columns
                }
            )
        if not isinstance(model_input, np.ndarray | list):
            kind = type(model_input).__qualname__
            raise TypeError(f"the rows to explain must be a data frame of pandas or an array, not a {kind}")
        array = np.asarray(model_input)
        if array.ndim != 2:
            raise ValueError(f"the rows to explain must have 2 dimensions, not {array.ndim}")
        names, _, _ = self._explainer._reader.expected_columns
        if names is None or len(names) != array.shape[1]:
            names = [f"x{i}" for i in range(array.shape[1])]
        return pd.DataFrame(array, columns=list(names))

    def input_columns(self, frame: Any) -> list[str]:
        """Return the names of the columns that the explainer takes of a frame, in the explainer's order."""
        return list(BatchExplainer(self._explainer).input_names(frame_schema(frame)))

    def _add_base_values(self, frame: Any) -> None:
        names = column_names(["base_value"], self._explainer.output_names)
        for name, value in zip(names, np.atleast_1d(self._explainer.expected_value), strict=True):
            if name in frame:
                raise ValueError(f"base_values would add a column {name!r}, which a feature has already")
            frame[name] = value


def _category_dtype(series: Any, categories: list[Any] | None, ordered: bool) -> Any:
    """Return the dtype of the categories of an example, followed by the values that only ``series`` has."""
    import pandas as pd

    if categories is None:
        return "category"
    other_values = series[series.notna() & ~series.isin(categories)].unique()
    return pd.CategoricalDtype([*categories, *other_values], ordered)


def without_categories(example: Any) -> tuple[Any, dict[str, dict[str, Any]]]:
    """Return an input example with plain values instead of categories, and the categories of its columns.

    MLflow has no type for categories, and rejects a categorical column where the signature says string. The
    order of the categories is returned because a step may have been fitted to their codes. The categories are
    None if some are not strings, numbers or booleans.
    """
    import pandas as pd

    if isinstance(example, tuple):  # rows and params
        rows, categorical = without_categories(example[0])
        return (rows, *example[1:]), categorical
    if not isinstance(example, pd.DataFrame):
        return example, {}
    kinds = {name: kind for name, kind in example.dtypes.items() if kind == "category"}
    example, categorical = example.copy(), {}
    for name, kind in kinds.items():
        example[name] = example[name].astype(object).infer_objects()
        categories = kind.categories.tolist()
        plain = all(isinstance(category, (str, int, float, bool)) for category in categories)
        categorical[str(name)] = {"categories": categories if plain else None, "ordered": bool(kind.ordered)}
    return example, categorical


def signature_of(
    explainer: TreeExplainer, signature: Any, example: Any, categorical: Mapping[str, Any]
) -> Any:
    """Return the signature of an MLflow model: ``signature`` completed, or else inferred from an example.

    It has no inputs if the types of the columns are not known. ``categorical`` is that of :class:`Scorer`.
    """
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema

    scorer = Scorer(explainer, categorical)
    inputs = None if signature is None else signature.inputs
    names = column_names(explainer._names_explained(), explainer.output_names)
    outputs = Schema([ColSpec(DataType.double, name) for name in names])
    if example is not None:
        inferred, outputs = _schemas_of(scorer, example)
        inputs = inputs or inferred
    elif inputs is None:
        inputs = _input_schema(explainer)
    params = ParamSchema(
        [
            ParamSpec("reasons", DataType.long, 0),
            ParamSpec("by_sign", DataType.boolean, False),
            ParamSpec("base_values", DataType.boolean, False),
        ]
    )
    if signature is not None:
        outputs, params = signature.outputs or outputs, signature.params or params
    return ModelSignature(inputs, outputs, params)


def _schemas_of(scorer: Scorer, example: Any) -> tuple[Any, Any]:
    """Return the schemas of an example and of its SHAP values."""
    import pandas as pd
    from mlflow.models import infer_signature
    from mlflow.types import ColSpec, Schema

    rows = example[0] if isinstance(example, tuple) else example  # the other item is params
    values = scorer.predict(rows)
    if isinstance(rows, pd.DataFrame):
        rows = rows[scorer.input_columns(rows)]
    inferred = infer_signature(rows, values)
    inputs = inferred.inputs
    if not inputs.is_tensor_spec():  # MLflow makes a column optional if a value is missing
        inputs = Schema([ColSpec(column.type, column.name) for column in inputs])
    return inputs, inferred.outputs


def _input_schema(explainer: TreeExplainer) -> Any:
    """Return the schema of X when there is no example; None if columns may hold other things than numbers."""
    from mlflow.types import ColSpec, DataType, Schema, TensorSpec

    names, schema = explainer.feature_names, explainer._reader.schema
    if explainer._reader.steps or schema.encoders:
        return None
    if names is None:
        return Schema([TensorSpec(np.dtype(np.float64), (-1, schema.n_features))])
    if schema.frame_encoder is not None and schema.n_categorical != 0:
        return None
    return Schema([ColSpec(DataType.double, name) for name in names])
