"""Common types for the columns of several files or items: types that hold all values exactly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._rows.arrow import is_text, require_arrow


def wider(first: Any, second: Any) -> Any:
    """Return the type that holds the values of two types; None if the types are of different kinds.

    Integers and floats of any width have a common type, and so do strings with and without a dictionary.
    There is no common type between any two of: numbers, booleans, strings, dates, numeric categories.
    """
    arrow = require_arrow()
    types = arrow.types
    if first == second or types.is_null(second):
        return first
    if types.is_null(first):
        return second
    if types.is_dictionary(first) and types.is_dictionary(second):
        value = wider(first.value_type, second.value_type)
        return value and arrow.dictionary(arrow.int32(), value, first.ordered and second.ordered)
    first, second = _plain_text(first), _plain_text(second)
    if is_text(first) or is_text(second):
        return arrow.large_string() if is_text(first) and is_text(second) else None
    if is_number(first) and is_number(second) and (types.is_floating(first) or types.is_floating(second)):
        return arrow.float64()  # the result is float32 only if both types were
    schemas = [arrow.schema([("x", kind)]) for kind in (first, second)]
    try:
        return arrow.unify_schemas(schemas, promote_options="permissive").field("x").type
    except (arrow.ArrowInvalid, arrow.ArrowTypeError, arrow.ArrowNotImplementedError):
        return None


def is_number(kind: Any) -> bool:
    """Return whether an Arrow type is an integer or a float."""
    types = require_arrow().types
    return types.is_integer(kind) or types.is_floating(kind)


def _plain_text(kind: Any) -> Any:
    """Return the type of the strings of a dictionary of strings, and any other type as it is.

    Strings are matched by value, so it does not matter whether they are in a dictionary.
    """
    dictionary = require_arrow().types.is_dictionary(kind)
    return kind.value_type if dictionary and is_text(kind.value_type) else kind


def cast_to_schema(piece: Any, schema: Any, where: str) -> Any:
    """Convert the columns of a table or record batch to the types of the fields of a schema, in order.

    Raise ``ValueError`` if a type cannot represent a value; the message begins with ``where``.
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
                f"{where}: column {field.name!r} is {column.type}, but must become {field.type}, the type "
                f"for all of the source: {error}"
            ) from error
    return type(piece).from_arrays(columns, schema=schema)


def wide_codes(schema: Any) -> Any:
    """Return a schema whose dictionaries have codes of at least 32 bits.

    Such codes suffice for the categories of several files together.
    """
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


def common_schema(schemas: Sequence[Any]) -> Any:
    """Return a schema that holds the values of all schemas, which have the same names and kinds of types."""
    arrow = require_arrow()
    common = schemas[0]
    for schema in schemas[1:]:
        fields = []
        for first_field, second_field in zip(common, schema, strict=True):
            field = first_field.with_type(wider(first_field.type, second_field.type))
            fields.append(field.with_metadata(second_field.metadata) if second_field.metadata else field)
        common = arrow.schema(fields)
    return common
