"""Makes incoming Arrow batches fit the table exactly: columns by name, the table's types, NULLs checked.

Spark has already selected and cast the columns. They are verified here once more, because a wrong name or
unit in a data file is later read, without an error, as NULLs or wrong values (format.md §7.1, §7.4).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from paimon_stream.errors import IncompatibleSchema, InvalidData, UnsupportedFeature
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataField, TypeRoot, arrow_type
from paimon_stream.options import MISSING_COLUMNS
from paimon_stream.write.cast_nested import cast_nested
from paimon_stream.write.cast_scalar import Place, cast_scalar, check_nulls
from paimon_stream.write.file_schema import file_schema

_WORDS: Final = {
    **dict.fromkeys(("t", "true", "y", "yes", "1"), True),
    **dict.fromkeys(("f", "false", "n", "no", "0"), False),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnPlan:
    """What every batch for one table has to look like.

    `table` is its location, for messages. `defaults` are the values that replace NULLs, or None for a column
    whose NULLs stay.
    """

    table: str
    fields: tuple[DataField, ...]
    arrow: pa.Schema
    defaults: tuple[pa.Scalar | None, ...]

    @classmethod
    def of(cls, schema: TableSchema, table: str = "") -> "ColumnPlan":
        """The plan for that schema. Raises `UnsupportedFeature` for defaults that `default_of` refuses."""
        return cls(
            table=table,
            fields=schema.fields,
            arrow=file_schema(schema),
            defaults=tuple(default_of(one, table) for one in schema.fields),
        )

    def conform(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with the table's columns, in table order and with exactly the types of `file_schema`.
        Columns that already fit are not copied. If a column has a default, it replaces NULL.

        Other types are converted where no value can change: wider integers and decimals, any time zone
        to UTC, other units that hold the same instant, large and dictionary-encoded strings, integers to
        TIME. Raises `IncompatibleSchema` for missing, unknown and ambiguous columns and for any other type,
        `NumericOverflow`, `ValueTooLong` and `NullInNotNull`, each with table, column and count.
        """
        columns = [
            self._cast(batch.column(position), *parts)
            for position, *parts in zip(
                self._positions(batch.schema.names), self.fields, self.arrow.types, self.defaults, strict=True
            )
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.arrow)

    def _cast(self, column: pa.Array, one: DataField, target: pa.DataType, default: pa.Scalar | None) -> pa.Array:
        place = Place(table=self.table, column=one.name)
        column = cast_nested(column, one.type, target, place)
        if default is not None and column.null_count:
            column = column.fill_null(default)
        check_nulls(column, one.type, place)
        return column

    def _positions(self, names: Sequence[str]) -> Sequence[int]:
        wanted = self.arrow.names
        if names == wanted:
            return range(len(names))
        twice = sorted(name for name, count in Counter(names).items() if count > 1)
        if twice:
            raise self._misfit(f"have {_listed(twice)} more than once. Name every column once", twice[0])
        missing = [name for name in wanted if name not in names]
        if missing:
            cure = f"Select every column of the table, or set {MISSING_COLUMNS.key} = null if they may be NULL"
            raise self._misfit(f"lack {_listed(missing)}. {cure}", missing[0])
        extra = [name for name in names if name not in wanted]
        if extra:
            raise self._misfit(f"have {_listed(extra)}, which the table does not have. Drop it", extra[0])
        return [names.index(name) for name in wanted]

    def _misfit(self, what: str, column: str) -> IncompatibleSchema:
        return IncompatibleSchema(f"The rows for {self.table or 'the table'} {what}.", table=self.table, column=column)


def _listed(names: Sequence[str]) -> str:
    return "column " + ", ".join(repr(name) for name in names)


# -- default values -----------------------------------------------------------------------------------


def default_of(one: DataField, table: str = "") -> pa.Scalar | None:
    """The value that replaces NULLs of the column when they are written; None if there is no default.

    The text is parsed as Java casts a string to the type, without the quotes around it. Raises
    `UnsupportedFeature` for a text that is not a value of the type, and for defaults of nested columns.
    """
    text = one.default_value
    if text is None:
        return None
    if len(text) > 1 and text.startswith("'") and text.endswith("'"):
        text = text[1:-1]
    target = arrow_type(one.type)
    place = Place(table=table, column=one.name)
    try:
        if not one.type.is_nested:
            return cast_scalar(_parsed(text, one.type.root, target), one.type, target, place)[0]
        why = "defaults of nested columns are not supported"
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, KeyError, InvalidData, IncompatibleSchema):
        why = "that is not a value of its type"
    raise UnsupportedFeature(
        f"{place} is {one.type} with the default {one.default_value!r}: {why}. Remove or change the default.",
        table=table,
        column=one.name,
        value=one.default_value,
    )


def _parsed(text: str, root: TypeRoot, target: pa.DataType) -> pa.Array:
    column = pa.array([text])
    match root:
        case TypeRoot.CHAR | TypeRoot.VARCHAR:
            return column
        case TypeRoot.BINARY | TypeRoot.VARBINARY:
            return column.cast(pa.binary())
        case TypeRoot.BOOLEAN:
            return pa.array([_WORDS[text.strip().lower()]])
        case TypeRoot.TIME:
            return pa.array([f"1970-01-01 {text.strip()}"]).cast(pa.timestamp("ms")).cast(target)
        case TypeRoot.TIMESTAMP_LTZ:
            # Java reads such a text in the JVM's time zone; here every zone is UTC.
            return pa.array([text.strip()]).cast(pa.timestamp(target.unit)).cast(target)
    return pa.array([text.strip()]).cast(target)
