"""Rows that a compaction drops because they are older than `record-level.expire-time` (compaction.md §10)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.errors import FormatError
from paimon_stream.format.entries import ManifestEntry
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.stats import decode_stats
from paimon_stream.format.types import DataField
from paimon_stream.options import RECORD_EXPIRE_TIME, RECORD_TIME_FIELD, Options
from paimon_stream.table.schema import SchemaStore

_LEAST_MILLIS: Final = 10**12
"""A BIGINT from here on is in milliseconds, a smaller one in seconds."""
_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@dataclass(frozen=True, slots=True)
class RecordExpiry:
    """Rows whose `field` is before `since`, in seconds since 1970, are dropped. NULL stays. `schema` gives
    the schema of an id."""

    field: DataField
    since: int
    schema: Callable[[int], TableSchema]

    @classmethod
    def of(cls, schema: TableSchema, options: Options, schemas: SchemaStore, millis: int) -> "RecordExpiry | None":
        """What the table's options ask for at this time, in milliseconds; None if its rows do not expire.
        Raises `InvalidOption`."""
        if not options.is_set(RECORD_EXPIRE_TIME):
            return None
        since = millis // 1000 - options.value(RECORD_EXPIRE_TIME) // 1000
        field = schema.field(options.value(RECORD_TIME_FIELD))
        return cls(field, since, lambda id_: schema if id_ == schema.id else schemas.get(id_))

    def fresh(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that stay. This comes before merging, as in Java, so an older version that is fresh counts
        if the newest one is too old (RC10.1)."""
        column = batch.column(self.field.name)
        if pa.types.is_timestamp(column.type):
            old = pc.less(column.view(pa.int64()), self.since * _PER_SECOND[column.type.unit])
        else:
            millis = pc.greater_equal(column, pa.scalar(_LEAST_MILLIS, pa.int64()))
            old = pc.less(column, pc.if_else(millis, self.since * 1000, self.since))
        return batch.filter(pc.invert(pc.fill_null(old, False)))

    def is_due(self, entry: ManifestEntry) -> bool:
        """Whether the file has rows that are dropped, according to its statistics. Without statistics, it
        counts as having none, as in Java. Raises `CorruptMetadata`, `StorageError`."""
        file = entry.file
        written = self.schema(file.schema_id)
        name = next((one.name for one in written.fields if one.id == self.field.id), None)
        try:
            known = decode_stats(written.fields, file.value_stats, file.value_stats_cols)
        except FormatError:
            return False  # verify reports them
        least = known[name].min if name in known else None
        if name is None or least is None:
            return False
        if written.field(name).type.is_timestamp:
            return bool(least < self.since * 10**9)
        return bool(least < (self.since if least < _LEAST_MILLIS else self.since * 1000))
