"""The stream read of `format("paimon_stream")`: a table's rows, then what each snapshot changes.
One process on the driver plans each batch, and tasks get splits as those of a batch read. The rules
are those of streaming-reads.md.

Invariant: a batch that is run again reads the same. An offset is the last snapshot that was taken
in, with its nonce. The start of the first batch is a mark, because Spark writes down no start: what
that batch reads follows from the mode and from its end, whenever it is asked. Spark below 4.2 asks
for the newest offset without saying where it is.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

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
from paimon_stream.format.entries import FileKind
from paimon_stream.format.names import wrong_with
from paimon_stream.format.snapshot_json import CommitKind, Snapshot, SnapshotRef
from paimon_stream.maintenance.needed import ChangelogStore
from paimon_stream.merge.spec import KIND, KIND_COLUMN
from paimon_stream.options.option import Option, one_of, positive, switch, text
from paimon_stream.read.scan import plan_scan
from paimon_stream.spark.datasource_read import NOW, ROW_KIND, reader_of
from paimon_stream.spark.splits import arrow_of, rows_of_split, splits_of
from paimon_stream.table.consumers import consumer_path, next_snapshot, write_consumer
from paimon_stream.table.fate import Fate, fate_of
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.partition_spec import PartitionFilter, parse_partition
from paimon_stream.table.snapshots import SnapshotStore

try:
    from pyspark.sql.streaming import datasource as limits

    _Base: Any = limits.SupportsTriggerAvailableNow
except ImportError:  # before Spark 4.2
    limits, _Base = None, object

Offset = dict[str, Any]
_BEFORE: Final = {"snapshot": -1, "nonce": ""}  # the start of a stream's first batch
_NEEDED: Final = {
    "from-snapshot": "snapshot_id",
    "from-snapshot-full": "snapshot_id",
    "from-timestamp": "timestamp",
}
_MODE: Final = Option(
    "scan.mode", one_of("default", "latest-full", "full", "latest", *_NEEDED), "default", "Start."
)
_CONSUMER: Final = Option(
    "consumer-id", text, "", "Keeps from expiring what the stream has not read."
)
_OVERWRITES: Final = switch(
    "streaming-read-overwrite", "As in Paimon", aliases=("streaming-read-append-overwrite",)
)
_MOST: Final = Option(
    "read.stream.max-snapshots-per-trigger", positive, f"{2**31 - 1}", "The most of one batch."
)
_KINDS: Final = pa.array(["+I", "-U", "+U", "-D"])


class StreamReader(ds.DataSourceStreamReader, _Base):  # type: ignore[misc]
    """Reads exactly the columns of a schema. Raises `UnsupportedFeature` for tables whose changes
    cannot be told, `InvalidOption`, `IncompatibleSchema`; for batches `NotFound`,
    `TableRolledBack`, and as `read_batches`.
    """

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        columns = StructType([one for one in schema.fields if one.name != ROW_KIND])
        self._of = reader_of(options, columns, filter=pc.scalar(False), **NOW)
        self._scan, asked, self._upto = replace(self._of.scan, where=None), self._of.asked, 2**63
        self._table, value = self._scan.table, self._scan.table.options.value
        self._store, self._out = SnapshotStore(self._table.storage), arrow_of(schema)
        self._mode, self._consumer, self._most = value(_MODE), value(_CONSUMER), value(_MOST)
        self._producer = value(opt.CHANGELOG_PRODUCER) if self._scan.merge else ""
        given, wrong = (
            [name for name in NOW if name in asked],
            wrong_with(f"consumer-{self._consumer}"),
        )
        wrong = wrong and f"consumer-id = {self._consumer!r} names no file: {wrong}"
        if self._mode == "default":
            self._mode = next(
                (mode for mode, name in _NEEDED.items() if name in given), "latest-full"
            )
        needed = _NEEDED.get(self._mode, "")
        if given != [needed] * bool(needed):
            wrong = f"scan.mode = {self._mode} needs {needed or 'neither snapshot, tag nor time'}; it was given {given}"
        if wrong or (limits is None and self._table.options.is_set(_MOST)):
            wrong = wrong or f"{_MOST.key} needs Spark 4.2"
            raise InvalidOption(f"cannot be read as a stream: {wrong}.").of_table(
                self._table.location, subject=True
            )
        if self._producer == "none" or value(opt.DATA_EVOLUTION):
            why = "its files may lack columns (data-evolution.enabled). Read it as a batch."
            if self._producer:
                why = "it has a primary key and no changelog, so updates and deletes cannot be told. Set changelog-"
                why += "producer to input, or to lookup or full-compaction: then compactions write a changelog."
            raise UnsupportedFeature(f"cannot be read as a stream: {why}").of_table(
                self._table.location, subject=True
            )
        self._from = opt.Arguments(self._table.location).whole(needed, asked.get(needed, 0))

    def __getstate__(self) -> dict[str, Any]:
        return {
            **self.__dict__,
            "_store": None,
        }  # tasks do not need it, and what it remembers grows

    def initialOffset(self) -> Offset:
        """Before the first batch (streaming-reads.md §1)."""
        return _BEFORE

    def latestOffset(self, start: Offset = _BEFORE, limit: Any = None) -> Offset:
        """The newest snapshot, or an earlier one by the limit (streaming-reads.md §6). Spark below
        4.2 has none.
        """
        newest = self._store.latest()
        last = min(self._upto, 0 if newest is None else newest.id)
        after, whole = self._first(last, start)
        if after > last or whole == 0:
            return _BEFORE  # what the stream starts with is not there yet, or, later, not any more
        last = min(last, after + getattr(limit, "max_files", last + 1))
        if newest is not None and last != newest.id:
            newest = self._store.find(last)
        found: Offset = {"snapshot": last, "nonce": ""}
        if newest is not None:
            found |= {"nonce": newest.nonce, "rows": newest.total_record_count}
        if (
            limits is not None and start == _BEFORE
        ):  # so a first batch that is run again begins where it began
            return {**found, "first": [after, whole]}
        return start if (start["snapshot"], start["nonce"]) == (last, found["nonce"]) else found

    def getDefaultReadLimit(self) -> Any:
        """The most snapshots, in the words that Spark has."""
        return limits.ReadMaxFiles(self._most)

    def prepareForTriggerAvailableNow(self) -> None:
        """From now on there is nothing new."""
        newest = self._store.latest()
        self._upto = 0 if newest is None else newest.id

    def partitions(self, start: Offset, end: Offset) -> Sequence[ds.InputPartition]:
        """The splits of what is after one offset, up to another (streaming-reads.md §3)."""
        last, table, splits, partition = (
            end["snapshot"],
            self._table,
            [],
            self._of.asked.get("partition"),
        )
        after, whole = self._first(last, start) if start != end else (last, None)
        after, whole = (start == _BEFORE and end.get("first")) or (after, whole)
        for one in (start, end):
            if after > last or self._lost(one):
                raise TableRolledBack(
                    f"was rolled back or created anew: snapshot {one['snapshot']} is not the one that this stream "
                    "knows. Start with a new checkpoint, and choose by scan.mode what it reads.",
                    snapshot=one["snapshot"],
                ).of_table(table.location, subject=True)
        if whole is not None:
            lowest = {"lookup": 1, "full-compaction": top_level(table.options)}.get(
                self._producer, 0
            )
            full = plan_scan(
                table, snapshot_id=whole, partition=partition, hidden=self._producer == "input"
            )
            files = tuple(one for one in full.files if one.bucket >= 0 and one.file.level >= lowest)
            of_query = replace(
                self._scan, snapshot=full.snapshot, files=files, vectors=full.vectors
            )
            splits += [(one, False) for one in splits_of(of_query, self._of.split_bytes)]
        default, fields = (
            table.options.value(opt.PARTITION_DEFAULT_NAME),
            table.schema.partition_fields,
        )
        specs = (
            None
            if partition is None
            else [parse_partition(fields, partition, default, table=table.location)]
        )
        chosen, manifests = (
            PartitionFilter(table.partition_types, specs=specs),
            ManifestStore(table.storage),
        )
        kinds = [CommitKind.APPEND, *[CommitKind.OVERWRITE] * table.options.value(_OVERWRITES)]
        changes = [
            one
            for one in self._snapshots(after, last)
            if self._producer or one.commit_kind in kinds
        ]
        lists = map(manifests.changelog if self._producer else manifests.delta, changes)
        entries = (one for metas in lists for one in manifests.entries_of(metas, chosen))
        added = replace(self._scan, files=tuple(one for one in entries if one.kind is FileKind.ADD))
        splits += [(one, True) for one in splits_of(added, self._of.split_bytes, changes=True)]
        return [ds.InputPartition((CommitMessage.VERSION, *one)) for one in splits]

    def read(self, partition: ds.InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a split. Rows that a change takes away are left out, unless kinds are
        given.
        """
        version, data, changes = partition.value
        scan, arrow = self._scan, self._of.arrow
        if changes and scan.merge is not None:
            scan = replace(scan, merge=None, columns=(*scan.columns, KIND_COLUMN))
            arrow = arrow.append(pa.field(KIND, pa.int8(), False))
        for rows in rows_of_split(scan, arrow, data, version):
            found = dict(zip(rows.schema.names, rows.columns, strict=True))
            kinds = found.get(KIND, pa.repeat(pa.scalar(0, pa.int8()), rows.num_rows))
            found[ROW_KIND] = _KINDS.take(kinds)
            batch = pa.RecordBatch.from_arrays(
                [found[name] for name in self._out.names], schema=self._out
            )
            yield (
                batch
                if ROW_KIND in self._out.names
                else batch.filter(pc.equal(pc.bit_wise_and(kinds, 1), 0))
            )

    def commit(self, end: Offset) -> None:
        """Moves the consumer on, once a batch has taken effect (streaming-reads.md §5)."""
        if self._consumer and end != _BEFORE:
            write_consumer(self._table.storage, self._consumer, end["snapshot"] + 1)

    def _lost(self, at: Offset) -> bool:
        """Whether the snapshot of an offset is no part of the table (streaming-reads.md §5). If it
        is gone, this package's rollbacks left a note of it, and after others the next snapshot was
        built on other rows. Raises `HistoryUnknown` if records contradict each other.
        """
        if not at["nonce"]:
            return False
        known = SnapshotRef(id=at["snapshot"], nonce=at["nonce"])
        there = self._store.find(known.id)
        if there is not None:
            return bool(there.nonce != known.nonce)
        answer = fate_of(self._store, known, self._store.latest())
        if answer.fate is Fate.UNKNOWN:
            raise HistoryUnknown(
                f"cannot be read further: whether snapshot {known.id}, up to which this stream has read, has expired "
                f"or was rolled back is not known: {answer.why}. Start with a new checkpoint, and choose by "
                "scan.mode what it reads.",
                snapshot=known.id,
            ).of_table(self._table.location, subject=True)
        if answer.fate is not Fate.EXPIRED:
            return True
        following = self._store.find(at["snapshot"] + 1)
        rows = (
            None
            if following is None
            else following.total_record_count - following.delta_record_count
        )
        return at.get("rows", rows) != rows is not None

    def _first(self, newest: int, start: Offset) -> tuple[int, int | None]:
        """After which snapshot a batch begins, and which one it reads whole before
        (streaming-reads.md §2).
        """
        if start != _BEFORE:
            return start["snapshot"], None
        with suppress(NotFound):
            if self._consumer:
                return next_snapshot(self._table.storage, consumer_path(self._consumer)) - 1, None
        if self._mode == "from-timestamp":
            ids = [one for one in self._store.ids() if one <= newest]
            place = bisect_left(ids, self._from, key=lambda one: self._store.get(one).time_millis)
            return ids[place - 1] if place else 0, None
        starts = {"latest": (newest, None), "from-snapshot": (self._from - 1, None)}
        return starts.get(self._mode, (self._from or newest,) * 2)

    def _snapshots(self, after: int, last: int) -> list[Snapshot]:
        """The snapshots after one up to another. Raises `NotFound` if one is missing
        (streaming-reads.md §5).
        """
        window = self._store.window(after, last)
        first = window.snapshots[0].id if window.snapshots else last + 1
        older = list(map(ChangelogStore(self._table.storage).find, range(after + 1, first)))
        if None not in older:
            return [*filter(None, older), *window.snapshots]
        raise NotFound(
            f"has lost snapshots {after + 1} to {first - 1}, which this stream has not read: they have expired. "
            f"The oldest one is {min(self._store.ids(), default=0)}. Keep them longer (snapshot.time-retained), or "
            "give the stream a consumer-id, which keeps what it has not read. To go on without them, start with a "
            "new checkpoint: scan.mode = latest-full reads all rows of the table, and from-snapshot later changes.",
            snapshot=after + 1,
        ).of_table(self._table.location, subject=True)
