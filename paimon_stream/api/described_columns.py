"""The columns of a new table, as users describe them: by Spark, by Arrow, or in pairs of name and type."""

from typing import Any

import pyarrow as pa

from paimon_stream.errors import CorruptMetadata, IncompatibleSchema, UnsupportedFeature
from paimon_stream.extras import require
from paimon_stream.format.arrow_types import from_arrow
from paimon_stream.format.types import DataField, parse_type


def described_columns(schema: Any) -> tuple[DataField, ...]:
    """The columns that the user described, with their positions as ids."""
    if isinstance(schema, pa.Schema):
        return tuple(_field_of_arrow(position, column) for position, column in enumerate(schema))
    if type(schema).__module__.partition(".")[0] == "pyspark":
        types = require("paimon_stream.spark.types", "spark", "A schema of Spark")
        fields: tuple[DataField, ...] = types.to_data_fields(schema)
        return fields
    pairs = list(schema) if isinstance(schema, (list, tuple)) else []
    if not pairs or not all(_is_pair(one) for one in pairs):
        raise IncompatibleSchema(
            f"A schema is a Spark StructType, a pyarrow.Schema, or pairs such as ('id', 'BIGINT'), not {schema!r}."
        )
    return tuple(_field_of(position, *pair) for position, pair in enumerate(pairs))


def _is_pair(one: Any) -> bool:
    return isinstance(one, (list, tuple)) and len(one) == 2 and all(isinstance(part, str) for part in one)


def _field_of_arrow(position: int, column: pa.Field) -> DataField:
    try:
        type_ = from_arrow(column.type, column.nullable)
    except UnsupportedFeature as wrong:
        raise UnsupportedFeature(
            f"Column {column.name!r}: {wrong.message} Cast the column to another type.",
            column=column.name,
            **wrong.context,
        ) from None
    return DataField(id=position, name=column.name, type=type_)


def _field_of(position: int, name: str, text: str) -> DataField:
    try:
        return DataField(id=position, name=name, type=parse_type(text))
    except CorruptMetadata as wrong:
        raise IncompatibleSchema(
            f"Column {name!r}: {wrong.message} Types are written as in SQL: BIGINT, STRING NOT NULL, "
            "DECIMAL(10, 2), TIMESTAMP(6).",
            column=name,
        ) from None
