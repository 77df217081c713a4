"""What compactions of a table do with the older rows of a key. They look them up, write a changelog
(compaction.md §6-§8), and drop rows that are older than `record-level.expire-time` (§10).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

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
from paimon_stream.merge.spec import FIRST_ROW, MergeSpec, needs_lookup
from paimon_stream.table.schema import SchemaStore

_LEAST_MILLIS: Final = 10**12
"""A BIGINT of this size or more is in milliseconds, a smaller one in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OlderRows:
    """The rules of one table.

    Attributes:
        spec: how rows of one key are merged.
        top: the highest level.
        looks_up: whether a row that leaves level 0 is merged with the rows of its key on higher
            levels.
        deletes_older: whether deletion vectors mark the older rows that were looked up as deleted.
        full: whether the changelog comes from comparing rows that reach the highest level with the
            rows that are already there.
        logs: whether the changelog comes from comparing rows that leave level 0 with older rows.
        compared: the columns whose changes are in the changelog. None if every change is in the
            changelog.
        formats: the file formats of those levels that have their own format.
        format: the file format of the other levels.
    """

    spec: MergeSpec
    top: int
    looks_up: bool
    deletes_older: bool
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
        producer = options.value(opt.CHANGELOG_PRODUCER)
        ignored = options.value(opt.CHANGELOG_IGNORED_COLUMNS)
        compared = None
        if options.value(opt.CHANGELOG_ROW_DEDUPLICATE):
            compared = tuple(set(columns) - ignored)
        return cls(
            spec=spec,
            top=top,
            looks_up=spec.engine == FIRST_ROW or needs_lookup(options),
            # With first-row, the older row of a key is the one that stays.
            deletes_older=options.value(opt.DELETION_VECTORS) and spec.engine != FIRST_ROW,
            full=producer == "full-compaction",
            logs=producer == "lookup",
            compared=compared,
            formats=options.value(opt.FILE_FORMAT_PER_LEVEL),
            format=options.value(opt.FILE_FORMAT),
        )

    def merging(self, level: int, files: Iterable[ManifestEntry]) -> Comparison | None:
        """How older rows are looked up, and a changelog is written, when these files are merged
        onto the level. None if neither of the two is done.
        """
        looks_up = self.looks_up and any(entry.file.level == 0 for entry in files)
        logs = (self.full and level == self.top) or (self.logs and looks_up)
        if not logs and not looks_up:
            return None
        return Comparison(
            spec=self.spec,
            level=level,
            old_from_level=self.top if self.full else 1,
            compared=self.compared,
            looks_up=looks_up,
            logs=logs,
            deletes_older=self.deletes_older and looks_up,
        )

    def upgrading(self, level: int, entry: ManifestEntry) -> "Upgrade":
        """How a file is placed on the level if it does not have to be merged.

        The file is rewritten if rows of higher levels may change its rows, or if its format is not
        the format of the level (§7.3). With deletion vectors, only level 0 may have deletes. So in
        that case, a file that has deletes is also rewritten.
        """
        comparison = self.merging(level, [entry])
        if comparison is None or not comparison.looks_up:
            return Upgrade(comparison, rewrites=False)
        # Rows are looked up only for files of level 0.
        other_format = self.formats.get(0, self.format) != self.formats.get(level, self.format)
        drops_deletes = self.deletes_older and entry.file.delete_row_count != 0
        newest_row_stays = self.spec.engine == "deduplicate" and not self.spec.sequence_fields
        older_rows_change_it = level < self.top and not newest_row_stays
        rewrites = other_format or drops_deletes or older_rows_change_it
        deletes_older_rows = self.deletes_older and level < self.top
        # If none of these rules needs the older rows, the rows are not looked up.
        if rewrites or comparison.logs or deletes_older_rows:
            return Upgrade(comparison, rewrites)
        return Upgrade(None, rewrites)


class Upgrade(NamedTuple):
    """How a file is placed on a higher level.

    Attributes:
        comparison: the comparison, as `OlderRows.merging` returns it.
        rewrites: whether the file is rewritten. If not, it only changes its level.
    """

    comparison: Comparison | None
    rewrites: bool


@dataclass(frozen=True, slots=True)
class RecordExpiry:
    """Drops rows that are too old.

    Attributes:
        field: the column with the time of a row. A row with NULL stays.
        since: rows with a time before this one are dropped, in seconds since 1970.
        schema: a function that returns the schema with an id.
    """

    field: DataField
    since: int
    schema: Callable[[int], TableSchema]

    @classmethod
    def of(
        cls, schema: TableSchema, options: opt.Options, schemas: SchemaStore, millis: int
    ) -> "RecordExpiry | None":
        """The expiry that the options ask for; None if rows do not expire. `millis` is the present
        time (epoch milliseconds). Raises `InvalidOption`.
        """
        if not options.is_set(opt.RECORD_EXPIRE_TIME):
            return None
        since = millis // 1000 - options.value(opt.RECORD_EXPIRE_TIME) // 1000
        field = schema.field(options.value(opt.RECORD_TIME_FIELD))

        def schema_of(schema_id: int) -> TableSchema:
            return schema if schema_id == schema.id else schemas.get(schema_id)

        return cls(field, since, schema_of)

    def fresh(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that stay. As in Java, rows are dropped before rows are merged. So if the newest
        version of a row is too old, an older version that is still fresh is used (RC10.1).
        """
        column = batch.column(self.field.name)
        if pa.types.is_timestamp(column.type):
            is_old = pc.less(column.view(pa.int64()), self.since * PER_SECOND[column.type.unit])
        else:
            is_millis = pc.greater_equal(column, pa.scalar(_LEAST_MILLIS, pa.int64()))
            is_old = pc.less(column, pc.if_else(is_millis, self.since * 1000, self.since))
        return batch.filter(pc.invert(pc.fill_null(is_old, False)))

    def is_due(self, entry: ManifestEntry) -> bool:
        """Whether the statistics of the file say that it has rows to drop. As in Java, a file
        without statistics is treated as a file without such rows. Raises `CorruptMetadata`,
        `StorageError`.
        """
        file = entry.file
        written = self.schema(file.schema_id)
        name = next((field.name for field in written.fields if field.id == self.field.id), None)
        try:
            stats = decode_stats(written.fields, file.value_stats, file.value_stats_cols)
        except FormatError:
            return False  # verify reports them
        least = stats[name].min if name in stats else None
        if name is None or least is None:
            return False
        if written.field(name).type.is_timestamp:
            since = self.since * 10**9
        elif least < _LEAST_MILLIS:
            since = self.since
        else:
            since = self.since * 1000
        return bool(least < since)
