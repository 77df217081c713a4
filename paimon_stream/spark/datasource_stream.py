"""The stream read of `format("paimon_stream")`: the rows of a table, followed by the changes of
each new snapshot. One process on the driver plans each batch, and tasks get splits like those of a
batch read. The rules are those of streaming-reads.md.

Invariant: a batch that is run again reads the same rows. An offset is the last snapshot that was
read, with its nonce. The start of the first batch is a constant, because Spark does not write a
start into the checkpoint. What the first batch reads follows from the mode and from the end offset
of that batch. It may also depend on which snapshots have expired. So from Spark 4.2 on, the end
offset says where the first batch began. Earlier versions of Spark ask for the newest offset without
saying how far they have read. With these versions, the end offset cannot say where the batch began.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypedDict

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import datasource as ds
from pyspark.sql.types import StructType

from paimon_stream import options as opt
from paimon_stream.commit.overwrite import top_level
from paimon_stream.errors import (
    HistoryUnknown,
    InvalidOption,
    NotFound,
    TableRolledBack,
    UnsupportedFeature,
)
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.names import wrong_with
from paimon_stream.format.snapshot_json import CommitKind, Snapshot, SnapshotRef
from paimon_stream.maintenance.needed import ChangelogStore
from paimon_stream.merge.spec import ROW_KIND, ROW_KIND_COLUMN
from paimon_stream.options.option import Option, positive, switch, text
from paimon_stream.read.changes import POINTS, READ_CHANGELOG, files_of_changes
from paimon_stream.read.scan import PointInTime, Scan, plan_scan
from paimon_stream.read.scan_mode import INCREMENTAL, MODE, NEEDED, names_start
from paimon_stream.spark.datasource_read import check_start, reader_of
from paimon_stream.spark.reused_worker import prepare_worker
from paimon_stream.spark.splits import arrow_of, rows_of_split, splits_of
from paimon_stream.table.consumers import consumer_path, next_snapshot, write_consumer
from paimon_stream.table.fate import Fate, fate_of
from paimon_stream.table.option_rules import changelog_outlives
from paimon_stream.table.partition_spec import PartitionFilter, parse_partition
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table

try:
    from pyspark.sql.streaming import datasource as limits

    _Base: Any = limits.SupportsTriggerAvailableNow
except ImportError:  # before Spark 4.2
    limits = None
    _Base = object


class _OffsetWithoutRows(TypedDict):
    snapshot: int
    nonce: str


class Offset(_OffsetWithoutRows, total=False):
    """How far a stream has read, as Spark writes it into its checkpoint.

    Attributes:
        snapshot: the id of the last snapshot that was read.
        nonce: the nonce of this snapshot. It is empty if the table had no snapshot.
        rows: the number of rows of the table in this snapshot.
        first: where the batch began, as the two values of a `_Begin`. Only the end offset of a
            stream's first batch has it.
    """

    rows: int
    first: list[Any]


class _Begin(NamedTuple):
    """Where a batch begins.

    Attributes:
        after: the id above which the changes of snapshots are read.
        all_rows_of: the id of the snapshot of which all rows are read before these changes; None if
            the batch reads only changes.
    """

    after: int
    all_rows_of: int | None


_BEFORE: Final[Offset] = {"snapshot": -1, "nonce": ""}
"""The start of a stream's first batch."""

_CONSUMER: Final = Option(
    "consumer-id",
    text,
    "",
    "Snapshots that the stream with this id has not read yet do not expire.",
)
_OVERWRITES: Final = switch(
    "streaming-read-overwrite", "As in Paimon", aliases=("streaming-read-append-overwrite",)
)
_MOST: Final = Option(
    "read.stream.max-snapshots-per-trigger",
    positive,
    f"{2**31 - 1}",
    "The largest number of snapshots in one batch.",
)
_FOLLOWED: Final = [
    name
    for option in (MODE, _CONSUMER, _OVERWRITES, _MOST, READ_CHANGELOG)
    for name in (option.key, *option.aliases)
]
"""The keys of table options that a stream read follows, and a batch read does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _StreamOptions:
    """What the options say of a stream read.

    Attributes:
        mode: `scan.mode`, which is never `default`.
        start: a snapshot id, or for the mode `from-timestamp` a time in epoch milliseconds. 0 for
            modes that need neither.
        consumer: the name of the consumer; empty if there is none.
        most_snapshots: the most snapshots of one batch.
        producer: what makes the table's changelog; empty for a table without a primary key.
    """

    mode: str
    start: int
    consumer: str
    most_snapshots: int
    producer: str

    @classmethod
    def of(cls, table: Table, at: PointInTime, *, has_keys: bool) -> "_StreamOptions":
        """The options of a stream read of this table. `at` is the point in time that the options of
        the read name, and `has_keys` says whether rows of one key are merged. Raises
        `InvalidOption`, and `UnsupportedFeature` if the files of the table do not show its changes.
        """
        mode = table.options.value(MODE)
        if mode == INCREMENTAL:
            raise InvalidOption(
                "cannot be read as a stream: scan.mode = incremental is for batch reads.",
                option=MODE.key,
            ).of_table(table.location, subject=True)
        consumer = table.options.value(_CONSUMER)
        most_snapshots = table.options.value(_MOST)
        producer = table.options.value(opt.CHANGELOG_PRODUCER) if has_keys else ""
        named = at.said_by
        if mode == "default":
            mode = next((mode for mode, name in NEEDED.items() if name in named), "latest-full")
        allowed = [NEEDED[mode]] if mode in NEEDED else []
        check_start(table.location, mode, allowed, named)
        _check_options(table, consumer)
        _check_changes_can_be_told(table, producer)
        start = 0
        if allowed:
            start = opt.Arguments(table.location).whole(allowed[0], getattr(at, allowed[0]))
        return cls(
            mode=mode,
            start=start,
            consumer=consumer,
            most_snapshots=most_snapshots,
            producer=producer,
        )


def _check_options(table: Table, consumer: str) -> None:
    """Raises `InvalidOption` for options that no stream can have, or that need another version of
    Spark.
    """
    wrong = wrong_with(f"consumer-{consumer}")
    if wrong is not None:
        raise InvalidOption(
            f"cannot be read as a stream: consumer-id = {consumer!r} names no file: {wrong}."
        ).of_table(table.location, subject=True)
    if limits is None and table.options.is_set(_MOST):
        raise InvalidOption(f"cannot be read as a stream: {_MOST.key} needs Spark 4.2.").of_table(
            table.location, subject=True
        )


def _check_changes_can_be_told(table: Table, producer: str) -> None:
    """Raises `UnsupportedFeature` for a table whose changes its files do not show."""
    if producer == "none" or (producer and table.options.value(opt.DATA_EVOLUTION)):
        raise UnsupportedFeature(
            "cannot be read as a stream: it has a primary key and no changelog, so its files do "
            "not show updates and deletes. Set changelog-producer to input, or to lookup or "
            "full-compaction, with which compactions write a changelog."
        ).of_table(table.location, subject=True)
    if table.options.value(opt.DATA_EVOLUTION):
        raise UnsupportedFeature(
            "cannot be read as a stream: its files may lack columns (data-evolution.enabled). "
            "Read it as a batch."
        ).of_table(table.location, subject=True)


def _check_columns(table: Table, names: Sequence[str]) -> None:
    """Raises `InvalidOption` if Spark was told the columns of an older snapshot, because an option
    in the table's schema names that snapshot for batch reads. Spark does not say beforehand that it
    reads a stream. Without this check, the stream would silently lack the later columns.
    """
    keys = [key for key in POINTS if key in opt.lowered(table.schema.options)]
    missing = [field.name for field in table.schema.fields if field.name not in names]
    if keys and missing:
        raise InvalidOption(
            f"cannot be read as a stream without its columns {', '.join(missing)}, which Spark does "
            f"not see because the table's schema has {', '.join(keys)}. Give scan.mode = "
            "latest-full to read all columns, or name the wanted ones in the option 'columns'.",
            option=keys[0],
        ).of_table(table.location, subject=True)


class StreamReader(ds.DataSourceStreamReader, _Base):  # type: ignore[misc]
    """The stream read of one table. It reads exactly the columns of a schema. Making it raises
    `InvalidOption`, `IncompatibleSchema`, and `UnsupportedFeature` if the table's files do not show
    its changes. Reading a batch raises `NotFound`, `TableRolledBack`, and what `read_batches`
    raises.
    """

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        columns = StructType([column for column in schema.fields if column.name != ROW_KIND])
        reader = reader_of(options, columns, filter=pc.scalar(False), of_stream=_FOLLOWED)
        self._options = reader.options
        names = {column.name: column for column in (ROW_KIND_COLUMN, *reader.scan.columns)}
        self._scan = replace(
            reader.scan, where=None, columns=tuple(names[name] for name in schema.names)
        )
        self._table = self._scan.table
        if self._options.columns is None and not names_start(options):
            _check_columns(self._table, schema.names)
        self._store = SnapshotStore(self._table.storage)
        # The types in which Spark expects the rows, including the column of row kinds if it is
        # wanted.
        self._arrow = arrow_of(schema)
        # The newest snapshot that is read, once Spark has asked the stream to end.
        self._newest_allowed = 2**63
        has_keys = self._scan.merge is not None
        self._stream = _StreamOptions.of(self._table, self._options.at, has_keys=has_keys)

    def __getstate__(self) -> dict[str, Any]:
        # Tasks do not need the store of snapshots, and its memory grows.
        return {**self.__dict__, "_store": None}

    def initialOffset(self) -> Offset:
        """The offset before the first batch (streaming-reads.md §1)."""
        return _BEFORE

    def latestOffset(self, start: Offset = _BEFORE, limit: Any = None) -> Offset:
        """The offset of the newest snapshot, or of an earlier one if the limit allows fewer
        snapshots (streaming-reads.md §6). Before version 4.2, Spark passes no limit.
        """
        snapshot = self._store.latest()
        newest_id = 0 if snapshot is None else snapshot.id
        last = min(self._newest_allowed, newest_id)
        begin = self._begin(last, start)
        if begin.after > last or begin.all_rows_of == 0:
            # The snapshot with which the stream starts does not exist yet, or it is gone.
            return _BEFORE
        last = min(last, begin.after + getattr(limit, "max_files", last + 1))
        if snapshot is not None and last != snapshot.id:
            snapshot = self._store.find(last)
        offset: Offset = {"snapshot": last, "nonce": ""}
        if snapshot is not None:
            offset = {
                "snapshot": last,
                "nonce": snapshot.nonce,
                "rows": snapshot.total_record_count,
            }
        if limits is not None and start == _BEFORE:
            # With this entry, a first batch that is run again begins at the same place.
            offset["first"] = list(begin)
            return offset
        is_at_end = start["snapshot"] == last and start["nonce"] == offset["nonce"]
        return start if is_at_end else offset

    def getDefaultReadLimit(self) -> Any:
        """The largest number of snapshots that a batch reads. It is given to Spark as a limit on
        files, because Spark has no limit on snapshots.
        """
        return limits.ReadMaxFiles(self._stream.most_snapshots)

    def prepareForTriggerAvailableNow(self) -> None:
        """Makes the stream end with the present newest snapshot."""
        newest = self._store.latest()
        self._newest_allowed = 0 if newest is None else newest.id

    def partitions(self, start: Offset, end: Offset) -> Sequence[ds.InputPartition]:
        """The splits of the rows after `start`, up to and including `end` (streaming-reads.md §3).
        Raises `TableRolledBack`, `HistoryUnknown`, and `NotFound` if a snapshot has expired unread.
        """
        last = end["snapshot"]
        begin = _Begin(last, None) if start == end else self._begin(last, start)
        if start == _BEFORE and "first" in end:
            begin = _Begin(*end["first"])
        for offset in (start, end):
            if begin.after > last or self._is_lost(offset):
                raise TableRolledBack(
                    f"was rolled back, or dropped and created again: snapshot {offset['snapshot']} "
                    "is not the one that this stream knows. Start with a new checkpoint, and "
                    "choose with scan.mode what it reads.",
                    snapshot=offset["snapshot"],
                ).of_table(self._table.location, subject=True)
        rows: list[bytes] = []
        if begin.all_rows_of is not None:
            rows = splits_of(self._all_rows(begin.all_rows_of), self._options.split_bytes)
        changes = splits_of(self._changes(begin.after, last), self._options.split_bytes)
        splits = [*((split, False) for split in rows), *((split, True) for split in changes)]
        return [ds.InputPartition((CommitMessage.VERSION, *split)) for split in splits]

    def _all_rows(self, snapshot_id: int) -> Scan:
        """A scan of all rows of a snapshot. Files whose changelog is not written yet are left out,
        because a later batch reads their rows as changes.
        """
        table = self._table
        lowest = 0
        if self._stream.producer == "lookup":
            lowest = 1
        elif self._stream.producer == "full-compaction":
            lowest = top_level(table.options)
        planned = plan_scan(
            table,
            at=PointInTime(snapshot_id=snapshot_id),
            partition=self._options.partition,
            hidden=self._stream.producer == "input",
        )
        files = tuple(
            entry for entry in planned.files if entry.bucket >= 0 and entry.file.level >= lowest
        )
        return replace(self._scan, snapshot=planned.snapshot, files=files, vectors=planned.vectors)

    def _changes(self, after: int, last: int) -> Scan:
        """A scan of the changes of the snapshots after `after`, up to and including `last`: the
        files of their changelogs if the table has a changelog producer, and otherwise the files
        that they added.
        """
        table = self._table
        specs = None
        if self._options.partition is not None:
            specs = [
                parse_partition(
                    table.schema.partition_fields,
                    self._options.partition,
                    table.options.value(opt.PARTITION_DEFAULT_NAME),
                    table=table.location,
                )
            ]
        kinds_read = {CommitKind.APPEND}
        if table.options.value(_OVERWRITES):
            kinds_read.add(CommitKind.OVERWRITE)
        # In a table with a changelog producer, every snapshot counts.
        snapshots = [
            snapshot
            for snapshot in self._snapshots(after, last)
            if self._stream.producer or snapshot.commit_kind in kinds_read
        ]
        files = files_of_changes(
            table,
            snapshots,
            PartitionFilter(table.partition_types, specs=specs),
            from_changelog=bool(self._stream.producer),
        )
        return replace(self._scan, files=tuple(files), are_changes=True)

    def read(self, partition: ds.InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a split. Rows that a change removes are left out, unless the reader's columns
        include the kinds of rows.
        """
        prepare_worker()
        version, data, is_change = partition.value
        scan = replace(self._scan, are_changes=is_change)
        yield from rows_of_split(scan, self._arrow, data, version)

    def commit(self, end: Offset) -> None:
        """Moves the consumer of the stream to the next snapshot, once a batch has taken effect
        (streaming-reads.md §5).
        """
        if self._stream.consumer and end != _BEFORE:
            write_consumer(self._table.storage, self._stream.consumer, end["snapshot"] + 1)

    def _is_lost(self, offset: Offset) -> bool:
        """Whether the snapshot of an offset is not part of the table's history (streaming-reads.md
        §5).

        If the snapshot's file is gone, a rollback by this package has left a note of the snapshot.
        A rollback by another engine leaves no note. It is noticed if the next snapshot was built on
        another number of rows. Raises `HistoryUnknown` if records contradict each other.
        """
        if not offset["nonce"]:
            return False
        known = SnapshotRef(id=offset["snapshot"], nonce=offset["nonce"])
        snapshot = self._store.find(known.id)
        if snapshot is not None:
            return bool(snapshot.nonce != known.nonce)
        answer = fate_of(self._store, known, self._store.latest())
        if answer.fate is Fate.UNKNOWN:
            raise HistoryUnknown(
                f"cannot be read further: it is not known whether snapshot {known.id}, the last "
                f"one that this stream has read, has expired or was rolled back: {answer.why}. "
                "Start with a new checkpoint, and choose with scan.mode what it reads.",
                snapshot=known.id,
            ).of_table(self._table.location, subject=True)
        if answer.fate is not Fate.EXPIRED:
            return True
        following = self._store.find(known.id + 1)
        if following is None:
            return False
        rows = following.total_record_count - following.delta_record_count
        return offset.get("rows", rows) != rows

    def _begin(self, newest: int, start: Offset) -> _Begin:
        """The place where the batch after the offset `start` begins (streaming-reads.md §2).
        `newest` is the id of the newest snapshot; 0 if there is none.
        """
        if start != _BEFORE:
            return _Begin(start["snapshot"], None)
        with suppress(NotFound):
            if self._stream.consumer:
                next_id = next_snapshot(self._table.storage, consumer_path(self._stream.consumer))
                return _Begin(next_id - 1, None)
        match self._stream.mode:
            case "from-timestamp":
                return _Begin(self._newest_before(self._stream.start, newest), None)
            case "latest":
                return _Begin(newest, None)
            case "from-snapshot":
                return _Begin(self._stream.start - 1, None)
        first = self._stream.start or newest
        return _Begin(first, first)

    def _newest_before(self, millis: int, newest: int) -> int:
        """The id of the newest snapshot that is older than a time in epoch milliseconds. If all
        older snapshots are gone, the result is the id before the oldest remaining snapshot; 0 if
        the table has no snapshot. Changelogs that outlive their snapshots count as snapshots, as in
        Paimon. Times ascend with the ids.
        """
        stores: dict[int, SnapshotStore | ChangelogStore] = {}
        if changelog_outlives(self._table.options):
            changelogs = ChangelogStore(self._table.storage)
            stores.update(dict.fromkeys(changelogs.ids(), changelogs))
        stores.update(dict.fromkeys(self._store.ids(), self._store))
        ids = sorted(id_ for id_ in stores if id_ <= newest)
        place = bisect_left(ids, millis, key=lambda id_: stores[id_].get(id_).time_millis)
        if place:
            return ids[place - 1]
        return ids[0] - 1 if ids else 0

    def _snapshots(self, after: int, last: int) -> list[Snapshot]:
        """The snapshots after `after`, up to and including `last`, the oldest first. Raises
        `NotFound` if one is missing (streaming-reads.md §5).
        """
        window = self._store.window(after, last)
        first = window.snapshots[0].id if window.snapshots else last + 1
        older = list(map(ChangelogStore(self._table.storage).find, range(after + 1, first)))
        if None in older:
            raise NotFound(
                f"has lost snapshots {after + 1} to {first - 1}, which this stream has not read: "
                f"they have expired. The oldest one is {min(self._store.ids(), default=0)}. Keep "
                "them longer (snapshot.time-retained), or give the stream a consumer-id, which "
                "keeps what it has not read. To go on without them, start with a new checkpoint: "
                "scan.mode = latest-full reads all rows of the table, and from-snapshot later "
                "changes.",
                snapshot=after + 1,
            ).of_table(self._table.location, subject=True)
        return [*filter(None, older), *window.snapshots]
