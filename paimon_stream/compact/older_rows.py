"""What compactions of a table do with the rows that a key has had: look them up, write a changelog
(compaction.md §6-§8), and drop what is older than `record-level.expire-time` (§10).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream import options as opt
from paimon_stream.errors import FormatError
from paimon_stream.format.arrow_types import PER_SECOND
from paimon_stream.format.entries import ManifestEntry
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.stats import decode_stats
from paimon_stream.format.types import DataField
from paimon_stream.merge.rows import Comparison
from paimon_stream.merge.spec import FIRST_ROW, MergeSpec, looks_up
from paimon_stream.table.schema import SchemaStore

_LEAST_MILLIS: Final = 10**12
"""A BIGINT from here on is in milliseconds, a smaller one in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OlderRows:
    """The rules of one table. `looks_up`: a row takes in what higher levels have of its key, as
    soon as it leaves level
    0. With `marks`, that is marked as deleted there. `full`: what reaches the highest level, `top`,
       is compared with
    what was there, for the changelog. `logs`: what leaves level 0 is, instead.
    """

    spec: MergeSpec
    top: int
    looks_up: bool
    marks: bool
    full: bool
    logs: bool
    compared: tuple[str, ...] | None
    formats: Mapping[int, str]
    format: str

    @classmethod
    def of(
        cls, spec: MergeSpec, options: opt.Options, columns: Iterable[str], top: int
    ) -> "OlderRows":
        """The rules of a table with these columns and the highest level `top`. Raises
        `InvalidOption`.
        """
        producer, ignored = (
            options.value(opt.CHANGELOG_PRODUCER),
            options.value(opt.CHANGELOG_IGNORED_COLUMNS),
        )
        return cls(
            spec=spec,
            top=top,
            looks_up=spec.engine == FIRST_ROW or looks_up(options),
            marks=options.value(opt.DELETION_VECTORS)
            and spec.engine != FIRST_ROW,  # its older row is the one that stays
            full=producer == "full-compaction",
            logs=producer == "lookup",
            compared=tuple(set(columns) - ignored)
            if options.value(opt.CHANGELOG_ROW_DEDUPLICATE)
            else None,
            formats=options.value(opt.FILE_FORMAT_PER_LEVEL),
            format=options.value(opt.FILE_FORMAT),
        )

    def merging(self, level: int, files: Iterable[ManifestEntry]) -> Comparison | None:
        """How these files are merged onto the level, if that takes more than merging."""
        looks_up = self.looks_up and any(one.file.level == 0 for one in files)
        logs = (self.full and level == self.top) or (self.logs and looks_up)
        if not logs and not looks_up:
            return None
        known = self.top if self.full else 1
        how = {"looks_up": looks_up, "logs": logs, "marks": self.marks and looks_up}
        return Comparison(spec=self.spec, level=level, known=known, compared=self.compared, **how)

    def upgrading(self, level: int, entry: ManifestEntry) -> tuple[Comparison | None, bool]:
        """The same for a file that needs no merging, and whether it is rewritten instead of
        upgraded: if rows of higher levels may change its rows, or if its format is not that of the
        level (§7.3). With deletion vectors, also if it has deletes, which no level but 0 has then.
        """
        comparison = self.merging(level, [entry])
        if comparison is None or not comparison.looks_up:
            return comparison, False
        own = self.formats.get(0, self.format) != self.formats.get(level, self.format)
        own = own or (self.marks and entry.file.delete_row_count != 0)
        whole = self.spec.engine == "deduplicate" and not self.spec.sequence_fields
        rewrites = own or (level < self.top and not whole)
        reads = rewrites or comparison.logs or (self.marks and level < self.top)
        return comparison if reads else None, rewrites


@dataclass(frozen=True, slots=True)
class RecordExpiry:
    """Rows whose `field` is before `since`, in epoch seconds, are dropped. NULL stays. `schema`
    gives that of an id.
    """

    field: DataField
    since: int
    schema: Callable[[int], TableSchema]

    @classmethod
    def of(
        cls, schema: TableSchema, options: opt.Options, schemas: SchemaStore, millis: int
    ) -> "RecordExpiry | None":
        """What the options ask for at this time in milliseconds; None if rows do not expire. Raises
        `InvalidOption`.
        """
        if not options.is_set(opt.RECORD_EXPIRE_TIME):
            return None
        since = millis // 1000 - options.value(opt.RECORD_EXPIRE_TIME) // 1000
        field = schema.field(options.value(opt.RECORD_TIME_FIELD))
        return cls(field, since, lambda id_: schema if id_ == schema.id else schemas.get(id_))

    def fresh(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that stay. This comes before merging, as in Java, so an older version that is
        fresh counts if the newest one is too old (RC10.1).
        """
        column = batch.column(self.field.name)
        if pa.types.is_timestamp(column.type):
            old = pc.less(column.view(pa.int64()), self.since * PER_SECOND[column.type.unit])
        else:
            millis = pc.greater_equal(column, pa.scalar(_LEAST_MILLIS, pa.int64()))
            old = pc.less(column, pc.if_else(millis, self.since * 1000, self.since))
        return batch.filter(pc.invert(pc.fill_null(old, False)))

    def is_due(self, entry: ManifestEntry) -> bool:
        """Whether the file has rows that are dropped, according to its statistics. Without
        statistics, it counts as having none, as in Java. Raises `CorruptMetadata`, `StorageError`.
        """
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
