"""New schemas of a table that exists: published atomically, merged again after a lost race.

A schema is published before the rows that need it. One that no rows follow (the batch failed, the process
was killed) is harmless: it only adds, and who comes next finds nothing left to change.
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
"""From the newest schema to the wanted one, which has the next id; the same object where nothing is new."""

_ATTEMPTS: Final = 20


def evolve(table: Table, merge: Merge, overrides: Mapping[str, str] | None = None) -> Table:
    """The table with the schema that `merge` makes of its newest one, published as the next schema file.

    Costs nothing where nothing is new. Another writer who publishes a schema first is merged upon.
    `overrides` are the options of this writer, as for `load_table`. Raises what `merge` raises,
    `UnsupportedFeature` where the new columns could not be written (nothing is published then),
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
                raise  # it has not happened, and may yet: the next attempt at the batch will see
        table = table_of(table.storage, schemas.latest(), overrides)
    raise CommitContended(
        f"{table.location}: others changed the schema {_ATTEMPTS} times while it was to be merged with the "
        "columns of the rows. Nothing was written. Try again when they are done.",
        table=table.location,
        attempts=_ATTEMPTS,
    )
