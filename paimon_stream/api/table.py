"""`PaimonTable`: create a table, look into it, maintain it, and commit to it without Spark."""

import warnings
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from paimon_stream import errors
from paimon_stream.api.table_maintenance import TableMaintenance
from paimon_stream.api.table_reading import TableReading
from paimon_stream.api.table_writing import TableWriting
from paimon_stream.extras import require
from paimon_stream.format.arrow_types import from_arrow
from paimon_stream.format.types import DataField, parse_type
from paimon_stream.options import Arguments
from paimon_stream.spark.active_session import open_beside_spark
from paimon_stream.storage.branch import check_is_main, with_branch
from paimon_stream.stream.writable import check_writable
from paimon_stream.table.table import Table, create_table, load_table

if TYPE_CHECKING:
    from paimon_stream.spark.types import SparkStruct


class PaimonTable(TableReading, TableWriting, TableMaintenance):
    """A Paimon table. `PaimonTable.create` and `PaimonTable.load` make this object.

    Each method that reads or writes rows uses the newest schema. Properties such as `schema` and
    `options` show the schema that was last used; load the table again to see a later one.
    Snapshots, files and tags are read on each call. Before it does anything, each method raises
    `InvalidOption` for an argument of a wrong type; for columns and rows it raises
    `IncompatibleSchema`. A method that reads the newest schema also raises the errors of `load`.

    >>> t = PaimonTable.create(
    ...     "memory://docs/sales.db/orders",
    ...     schema=[("id", "BIGINT NOT NULL"), ("amount", "DECIMAL(10, 2)"), ("dt", "STRING")],
    ...     partition_keys=["dt"],
    ... )
    >>> t
    PaimonTable('memory://docs/sales.db/orders', 3 columns, partitioned by dt)
    >>> [f"{column.name} {column.type}" for column in t.schema.fields]
    ['id BIGINT NOT NULL', 'amount DECIMAL(10, 2)', 'dt STRING']
    >>> t.latest_snapshot() is None, t.files()
    (True, ())
    """

    __slots__ = ()

    def __init__(self, table: Table) -> None:
        """Wraps a loaded table. Users call `create` or `load`."""
        self._table = table

    @classmethod
    def create(
        cls,
        location: str,
        schema: "SparkStruct | pa.Schema | Sequence[tuple[str, str]]",
        *,
        partition_keys: Sequence[str] = (),
        primary_keys: Sequence[str] = (),
        options: Mapping[str, object] | None = None,
        comment: str | None = None,
        if_not_exists: bool = False,
        storage_options: Mapping[str, str] | None = None,
    ) -> "PaimonTable":
        """Creates a table atomically.

        Args:
            location: the table's folder, `<warehouse>/<database>.db/<table>`.
            schema: a Spark `StructType`, a `pyarrow.Schema`, or pairs of name and Paimon type such
                as `("id", "BIGINT NOT NULL")`.
            partition_keys: the names of the partition columns.
            primary_keys: the names of the columns of the primary key.
            options: Paimon's options of the table, such as `{"bucket": "4"}`.
            comment: a text that says what the table is for.
            if_not_exists: return an existing table as it is, even with another schema (format.md
                §2.2).
            storage_options: the options of the store.

        Raises:
            AlreadyExists: if there is a table, unless `if_not_exists` is given.
            IncompatibleSchema: for columns or keys that no table can have.
            UnsupportedFeature: for a type that Paimon does not have.
            InvalidOption: for an option with a wrong value.
            StorageError: if the storage fails.
        """
        storage = open_beside_spark(location, storage_options)
        check_is_main(storage, "a table is created with its branch main. Give the table's folder")
        arguments = Arguments(storage.location)
        arguments.text("comment", comment, may_be_blank=True, optional=True)
        if_not_exists = arguments.flag("if_not_exists", if_not_exists)
        with errors.naming(storage.location):
            created = create_table(
                storage,
                described_columns(schema),
                partition_keys=partition_keys,
                primary_keys=primary_keys,
                options=arguments.mapping("options", options, "{'bucket': '4'}"),
                comment=comment or "",
            )
        if created is not None:
            _warn_if_not_writable(created)
            return cls(created)
        if if_not_exists:
            return cls(load_table(storage))
        raise errors.AlreadyExists(
            f"There is already a table at {storage.location}. "
            "Use it, pass if_not_exists=True (ignore_if_exists=True to a catalog), or create the new one elsewhere.",
            path=storage.location,
            table=storage.location,
        )

    @classmethod
    def load(
        cls,
        location: str,
        *,
        branch: str | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> "PaimonTable":
        """Loads a table, or one of its branches. With `branch="x"` or with a location that ends in
        `$branch_x`, everything is read from and written to that branch.

        Args:
            location: the folder of the table.
            branch: the name of a branch.
            storage_options: the options of the store.

        Raises:
            NotFound: if there is no such table or branch.
            InvalidOption: for an option with a wrong value.
            CorruptMetadata: if the schema is damaged.
            UnknownVersion: if the schema is of a later version.
            StorageError: if the storage fails.
        """
        return cls(load_table(open_beside_spark(with_branch(location, branch), storage_options)))

    def __repr__(self) -> str:
        """The location without credentials, the number of columns, and the keys."""
        parts = [repr(self.location), f"{len(self.schema.fields)} columns"]
        if self.partition_keys:
            parts.append(f"partitioned by {', '.join(self.partition_keys)}")
        if self.primary_keys:
            parts.append(f"primary key {', '.join(self.primary_keys)}")
        return f"PaimonTable({', '.join(parts)})"

    def _repr_html_(self) -> str:
        return f"<p>{escape(repr(self))}</p>{self.schema._repr_html_()}"


def _warn_if_not_writable(table: Table) -> None:
    """Warns the caller of `PaimonTable.create` of a table that this release cannot write. Such a
    table may be made for other engines, or by mistake.
    """
    try:
        check_writable(table, in_stream=True)
    except (errors.ConfigError, errors.StorageError) as error:
        warnings.warn(
            f"The table was created, but this release cannot write it. {error}", stacklevel=3
        )


def described_columns(schema: Any) -> tuple[DataField, ...]:
    """The columns that the user described, with their positions as ids."""
    if isinstance(schema, pa.Schema):
        return tuple(_field_of_arrow(position, column) for position, column in enumerate(schema))
    if type(schema).__module__.partition(".")[0] == "pyspark":
        types = require("paimon_stream.spark.types", "spark", "A schema of Spark")
        fields: tuple[DataField, ...] = types.to_data_fields(schema)
        return fields
    pairs = list(schema) if isinstance(schema, (list, tuple)) else []
    if not pairs or not all(map(_is_pair, pairs)):
        raise errors.IncompatibleSchema(
            f"A schema is a Spark StructType, a pyarrow.Schema, or pairs such as ('id', 'BIGINT'), not {schema!r}."
        )
    return tuple(_field_of(position, *pair) for position, pair in enumerate(pairs))


def _is_pair(item: Any) -> bool:
    """Whether the item is a pair of texts: a name and a type."""
    if not isinstance(item, (list, tuple)) or len(item) != 2:
        return False
    return all(isinstance(part, str) for part in item)


def _field_of_arrow(position: int, column: pa.Field) -> DataField:
    try:
        type_ = from_arrow(column.type, nullable=column.nullable)
    except errors.UnsupportedFeature as error:
        raise errors.UnsupportedFeature(
            f"Column {column.name!r}: {error.message} Cast the column to another type.",
            column=column.name,
            **error.context,
        ) from None
    return DataField(id=position, name=column.name, type=type_)


def _field_of(position: int, name: str, type_text: str) -> DataField:
    try:
        return DataField(id=position, name=name, type=parse_type(type_text))
    except errors.CorruptMetadata as error:
        raise errors.IncompatibleSchema(
            f"Column {name!r}: {error.message} "
            "Types are written as in SQL: BIGINT, STRING NOT NULL, DECIMAL(10, 2), TIMESTAMP(6).",
            column=name,
        ) from None
