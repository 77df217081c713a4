"""New schemas of an existing table. They are published atomically, and merged again after a lost race.

A schema is published before the rows that need it. If no rows follow (the batch failed, the process was
killed), it is harmless: it only adds columns, and the next attempt finds nothing left to change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from paimon_stream.errors import CommitContended, Unavailable
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.table import Table, check_table_kind, table_of

__all__ = ["Merge", "evolve"]

Merge = Callable[[TableSchema], TableSchema]
"""Maps the newest schema to the wanted one, which has the next id; returns the same object if nothing is
new."""

_ATTEMPTS: Final = 20


def evolve(table: Table, merge: Merge, overrides: Mapping[str, str] | None = None) -> Table:
    """The table with the schema that `merge` makes from its newest one, published as the next schema file.

    It costs nothing if nothing is new. If another writer publishes a schema first, `merge` runs again on that
    one. `overrides` are the options of this writer, as for `load_table`. Raises what `merge` raises,
    `UnsupportedFeature` if the new columns could not be written (nothing is published then),
    `CommitContended`, `StorageError`.
    """
    schemas = SchemaStore(table.storage)
    for _ in range(_ATTEMPTS):
        merged = merge(table.schema)
        if merged is table.schema:
            return table
        wanted = table_of(table.storage, merged, overrides)
        check_table_kind(wanted)
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
