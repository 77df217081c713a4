"""Converts partitions as people name them, `{"dt": "2024-02-29"}` or the path of a folder, to the
values of a partition row.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

import pyarrow as pa

from paimon_stream.errors import IncompatibleSchema, InvalidData
from paimon_stream.format.binary_columns import value_scalar
from paimon_stream.format.binary_row import deserialize_partition, serialize
from paimon_stream.format.entries import SimpleStats
from paimon_stream.format.names import shown_name
from paimon_stream.format.partition_path import is_blank, unescape
from paimon_stream.format.stats import ColumnStats, may_hold, partition_bounds
from paimon_stream.format.types import DataField, DataType
from paimon_stream.table.partition_value import expected_form, partition_value, value_in_path


class _Anything(Enum):
    """Stands for all values that have the same folder as NULL."""

    IN_DEFAULT_FOLDER = "the folder of NULL"


class PartitionSpec:
    """Values for some of the partition columns, in internal form. A partition row matches the spec
    if it has all of these values.
    """

    __slots__ = ("_default_name", "_names", "_positions", "_types")

    def __init__(
        self, fields: Sequence[DataField], values: Mapping[str, Any], default_name: str
    ) -> None:
        self._default_name = default_name
        self._names = tuple(field.name for field in fields)
        self._types = tuple(field.type for field in fields)
        self._positions = {
            i: values[field.name] for i, field in enumerate(fields) if field.name in values
        }

    @property
    def row(self) -> bytes | None:
        """The serialized partition row if exactly one row matches, else None."""
        values = self._positions.values()
        if len(values) < len(self._types) or _Anything.IN_DEFAULT_FOLDER in values:
            return None
        return serialize(self._types, [self._positions[i] for i in range(len(self._types))])

    @property
    def scalars(self) -> dict[str, pa.Scalar]:
        """The columns with exactly one value, each with its value as an Arrow scalar."""
        return {
            self._names[i]: value_scalar(value, self._types[i])
            for i, value in self._positions.items()
            if value is not _Anything.IN_DEFAULT_FOLDER
        }

    def matches(self, values: Sequence[Any]) -> bool:
        """Whether a partition with these values (in partition key order) matches."""
        return all(self._is_wanted(i, values[i], wanted) for i, wanted in self._positions.items())

    def may_be_within(self, bounds: Sequence[ColumnStats]) -> bool:
        """Whether a matching partition can be among some partitions. `bounds` are the statistics of
        their columns.
        """
        return all(
            wanted is _Anything.IN_DEFAULT_FOLDER or may_hold(self._types[i], bounds[i], wanted)
            for i, wanted in self._positions.items()
        )

    def _is_wanted(self, position: int, value: Any, wanted: Any) -> bool:
        if wanted is _Anything.IN_DEFAULT_FOLDER:
            return value is None or is_blank(value) or value == self._default_name
        types = [self._types[position]]
        return serialize(types, [value]) == serialize(types, [wanted])


def parse_partition(
    fields: Sequence[DataField],
    partition: Mapping[str, Any] | str,
    default_name: str,
    *,
    table: str,
) -> PartitionSpec:
    """The partitions that `{"dt": value, …}` or a path such as `dt=19782/region=x` names.

    A value is a Python object of the column's type, or text: a DATE is `date(2024, 2, 29)` or
    `"2024-02-29"`, in a path also `19782`; a TIME is milliseconds or ISO text; a TIMESTAMP is ISO
    text, which may have a time zone if the type has one (format.md §1.4). None is NULL. In a path,
    `default_name` names the folder that NULL shares with empty and blank strings. As a value,
    `default_name` is NULL, except in string columns, where it is that string.

    Args:
        fields: the partition columns of the table.
        partition: the values by column, or the path. Columns that are left out may have any value.
        default_name: the name of the folder of NULL (`partition.default-name`).
        table: the location of the table, for messages.

    Raises:
        IncompatibleSchema: a name is no partition column, or comes twice.
        InvalidData: a value does not fit its column.
    """
    if isinstance(partition, str):
        texts = _texts_of_path(partition, default_name, table)
        columns = _columns_of(fields, texts, table)
        values = {
            name: _value(columns[name], text, default_name, table, value_in_path)
            for name, text in texts.items()
        }
    elif isinstance(partition, Mapping):
        named = dict(partition)
        columns = _columns_of(fields, named, table)
        values = {
            name: _value(columns[name], value, default_name, table, partition_value)
            for name, value in named.items()
        }
    else:
        raise IncompatibleSchema(
            f"A partition is {partition!r}. Give it as {{'dt': value}}, or as text like "
            "'dt=2024-02-29/region=x'."
        ).of_table(table)
    return PartitionSpec(fields, values, default_name)


def _columns_of(
    fields: Sequence[DataField], names: Iterable[str], table: str
) -> dict[str, DataField]:
    """The partition columns by name. Raises `IncompatibleSchema` if one of the `names` is not a
    partition column.
    """
    columns = {field.name: field for field in fields}
    unknown = [name for name in names if name not in columns]
    if unknown:
        known = ", ".join(columns) or "none: it is not partitioned"
        raise IncompatibleSchema(
            f"{shown_name(unknown[0])} is not a partition column. The partition columns are: {known}.",
            column=unknown[0],
        ).of_table(table)
    return columns


def _texts_of_path(path: str, default_name: str, table: str) -> dict[str, str | _Anything]:
    """The values that a path names, by column. Raises `IncompatibleSchema` if the path does not
    name a partition.
    """
    parts = [part.partition("=") for part in path.strip("/").split("/")]
    if any(not name or not sign for name, sign, _ in parts):
        raise IncompatibleSchema(
            f"{shown_name(path)} does not name a partition. Write it like 'dt=2024-02-29/region=x'."
        ).of_table(table)
    texts: dict[str, str | _Anything] = {}
    for escaped_name, _, escaped_text in parts:
        name = unescape(escaped_name)
        text = unescape(escaped_text)
        if name in texts:
            raise IncompatibleSchema(
                f"{shown_name(path)} names the column {shown_name(name)} twice. Give each column one value.",
                column=name,
            ).of_table(table)
        texts[name] = text
        if text == default_name:
            texts[name] = _Anything.IN_DEFAULT_FOLDER
    return texts


def _value(
    column: DataField,
    value: Any,
    default_name: str,
    table: str,
    parse: Callable[[DataType, Any], Any],
) -> Any:
    """The value of a partition column in internal form; None for NULL. Raises `InvalidData`."""
    if value is None:
        return None
    if isinstance(value, str) and value == default_name and not column.type.is_string:
        return None
    if value is _Anything.IN_DEFAULT_FOLDER:
        return value if column.type.is_string else None
    internal = parse(column.type, value)
    if internal is None:
        raise InvalidData(
            f"partition column {column.name!r} is {column.type}, and {value!r} is not a value of it. "
            f"{expected_form(column.type)}",
            column=column.name,
            value=value,
        ).of_table(table)
    return internal


class PartitionFilter:
    """A choice of partitions: all partitions, those with given rows, or those that match a spec.

    Invariant: `holds` decides. `may_be_in` and `may_be_in_block` can only exclude a manifest or a
    block. In doubt, they return True.
    """

    __slots__ = ("_known", "_rows", "_specs", "_types", "_values")

    def __init__(
        self,
        types: Sequence[DataType],
        *,
        rows: Collection[bytes] | None = None,
        specs: Sequence[PartitionSpec] | None = None,
    ) -> None:
        """Chooses all partitions, unless `rows` or `specs` choose some. A table without partition
        columns has one partition, which is always chosen.

        Args:
            types: the types of the partition columns.
            rows: the serialized rows of the chosen partitions.
            specs: a partition is chosen if it matches one of these.
        """
        self._types = tuple(types)
        spec_rows = [spec.row for spec in specs or ()]
        if rows is None and specs and None not in spec_rows:
            rows = [row for row in spec_rows if row is not None]
            specs = None
        self._rows: frozenset[bytes] | None = None
        self._specs: tuple[PartitionSpec, ...] | None = None
        has_columns = bool(self._types)
        if has_columns and rows is not None:
            self._rows = frozenset(rows)
        if has_columns and specs is not None:
            self._specs = tuple(specs)
        self._values = [deserialize_partition(self._types, row) for row in self._rows or ()]
        self._known: dict[bytes, bool] = {}

    @property
    def is_everything(self) -> bool:
        """Whether all partitions are chosen, including future ones."""
        return self._rows is None and self._specs is None

    def holds(self, partition: bytes) -> bool:
        """Whether this partition is chosen."""
        if self._rows is not None:
            return partition in self._rows
        if self._specs is None:
            return True
        chosen = self._known.get(partition)
        if chosen is None:
            values = deserialize_partition(self._types, partition)
            chosen = any(spec.matches(values) for spec in self._specs)
            self._known[partition] = chosen
        return chosen

    def may_be_in(self, stats: SimpleStats) -> bool:
        """Whether a manifest can have entries of a chosen partition. `stats` are the partition
        statistics of the manifest.
        """
        if self.is_everything:
            return True
        bounds = partition_bounds(self._types, stats)
        if bounds is None:
            # The statistics say nothing, so the answer is False only if no partition is chosen at
            # all.
            return self._rows is None or bool(self._rows)
        if self._specs is not None:
            return any(spec.may_be_within(bounds) for spec in self._specs)
        return any(all(map(may_hold, self._types, bounds, row)) for row in self._values)

    def may_be_in_block(self, plain: bytes) -> bool:
        """Whether a block of uncompressed records can have a record of a chosen partition. The
        records hold partitions as plain rows.
        """
        return self._rows is None or any(row in plain for row in self._rows)
