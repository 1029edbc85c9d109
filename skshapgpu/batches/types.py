"""Common types for a column of several files or items: types that hold all of its values exactly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._rows.arrow import is_text, require_arrow


def wider(one: Any, other: Any) -> Any:
    """Return the type that holds the values of two types; None if they are of different kinds.

    Integers and floats of any width have a common type, and so do texts with and without a dictionary.
    Numbers, booleans, texts, dates and categories of numbers have none with each other.

    Parameters
    ----------
    one, other : pyarrow.DataType
    """
    arrow = require_arrow()
    types = arrow.types
    if one == other or types.is_null(other):
        return one
    if types.is_null(one):
        return other
    if types.is_dictionary(one) and types.is_dictionary(other):
        value = wider(one.value_type, other.value_type)
        return value and arrow.dictionary(arrow.int32(), value, one.ordered and other.ordered)
    one, other = _plain_text(one), _plain_text(other)
    if is_text(one) or is_text(other):
        return arrow.large_string() if is_text(one) and is_text(other) else None
    if is_number(one) and is_number(other) and (types.is_floating(one) or types.is_floating(other)):
        return arrow.float64()  # values are float32 only if all columns were
    schemas = [arrow.schema([("x", kind)]) for kind in (one, other)]
    try:
        return arrow.unify_schemas(schemas, promote_options="permissive").field("x").type
    except (arrow.ArrowInvalid, arrow.ArrowTypeError, arrow.ArrowNotImplementedError):
        return None


def is_number(kind: Any) -> bool:
    """Return whether an Arrow type is an integer or a float."""
    types = require_arrow().types
    return types.is_integer(kind) or types.is_floating(kind)


def _plain_text(kind: Any) -> Any:
    """Replace a dictionary of texts by its value type, as texts are matched by value."""
    dictionary = require_arrow().types.is_dictionary(kind)
    return kind.value_type if dictionary and is_text(kind.value_type) else kind


def fitted(piece: Any, schema: Any, where: str) -> Any:
    """Convert the columns of a table or record batch, in this order, to the types of a schema.

    Raises
    ------
    ValueError
        The type cannot represent a value; the message begins with ``where`` and the column.
    """
    if piece.schema.equals(schema, check_metadata=True):
        return piece
    arrow = require_arrow()
    columns = []
    for field, column in zip(schema, piece.columns, strict=True):
        try:
            columns.append(_cast(column, field.type))
        except (arrow.ArrowInvalid, arrow.ArrowNotImplementedError) as error:
            raise ValueError(
                f"{where}: column {field.name!r} is {column.type}, but must become {field.type} with the "
                f"others: {error}"
            ) from error
    return type(piece).from_arrays(columns, schema=schema)


def wide_codes(schema: Any) -> Any:
    """Return a schema whose dictionaries have codes of at least 32 bits, enough for several files."""
    arrow = require_arrow()
    for place, field in enumerate(schema):
        kind = field.type
        if arrow.types.is_dictionary(kind) and kind.index_type.bit_width < 32:
            wide = arrow.dictionary(arrow.int32(), kind.value_type, kind.ordered)
            schema = schema.set(place, field.with_type(wide))
    return schema


def _cast(column: Any, kind: Any) -> Any:
    arrow = require_arrow()
    if column.type == kind:
        return column
    if arrow.types.is_dictionary(kind):
        if arrow.types.is_null(column.type):
            return column.cast(kind.value_type).dictionary_encode()
        plain = column.cast(column.type.value_type) if arrow.types.is_dictionary(column.type) else column
        return plain.cast(kind.value_type).dictionary_encode()
    return column.cast(kind)


def of_all(schemas: Sequence[Any]) -> Any:
    """Return a schema that holds the values of all schemas, which agree in names and kinds."""
    arrow = require_arrow()
    whole = schemas[0]
    for schema in schemas[1:]:
        fields = []
        for one, other in zip(whole, schema, strict=True):
            field = one.with_type(wider(one.type, other.type))
            fields.append(field.with_metadata(other.metadata) if other.metadata else field)
        whole = arrow.schema(fields)
    return whole
