"""New schemas of an existing table. They are published atomically, and merged again after a lost race.

A schema is published before the rows that need it. If no rows follow (the batch failed, the process was
killed), it is harmless: it only adds columns, and the next attempt finds nothing left to change.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from paimon_stream.errors import CommitContended, ConfigError, TableReplaced, Unavailable
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.table import Table, check_table_kind, table_of

Merge = Callable[[TableSchema], TableSchema]
"""Maps the newest schema to the wanted one, which has the next id; returns the same object if nothing is new."""

_ATTEMPTS: Final = 20


def evolve(table: Table, merge: Merge, overrides: Mapping[str, str] | None = None, digest: str | None = None) -> Table:
    """The table with the schema that `merge` makes from its newest one, published as the next schema file.

    It costs nothing if nothing is new. If another writer publishes a schema first, `merge` runs again on that
    one. `overrides` are the options of this writer, as for `load_table`. `digest` is that of the first schema
    of the table that is meant. Raises what `merge` raises, the errors of `check_grown` and `TableReplaced`
    (nothing is published then), `CommitContended`, `StorageError`.
    """
    schemas = SchemaStore(table.storage)
    for _ in range(_ATTEMPTS):
        merged = merge(table.schema)
        if merged is table.schema:
            return table
        check_grown(table, merged)
        if digest is not None and schemas.first_digest() != digest:
            raise TableReplaced(
                f"{table.location}: the table was dropped and created again while columns of the rows were being "
                "merged into its schema. Nothing was published. Start the query again: it judges the new table.",
                table=table.location,
            )
        wanted = table_of(table.storage, merged, overrides)
        try:
            if schemas.create(merged):
                return wanted
        except Unavailable:
            if schemas.latest_id() == table.schema.id:
                raise  # the schema was not created, but still may be: the next attempt at the batch will see
        table = table_of(table.storage, schemas.latest(), overrides)
    raise CommitContended(
        f"{table.location}: others changed the schema {_ATTEMPTS} times while the columns of the rows were "
        "being merged into it. Nothing was written. Try again when they are done.",
        table=table.location,
        attempts=_ATTEMPTS,
    )


def check_grown(table: Table, merged: TableSchema) -> None:
    """Raises `UnsupportedFeature`, `InvalidOption` or `IncompatibleSchema` if a table with the merged schema
    could not be written as its definition requires.

    Both definitions are checked: the one of this writer, and the one that all others find, without this
    writer's options. The latter matters only if others can write the table as it is.
    """
    check_table_kind(replace(table, schema=merged))
    stored = table_of(table.storage, table.schema)
    try:
        check_table_kind(stored)
    except ConfigError:
        return
    check_table_kind(replace(stored, schema=merged))
