"""Merges a source and a target in shares, each in a process of its own. This runs beside executors.

    rows of the source ──► packets ─┐
                                    ├─ by share: those of the source first ──► rows are merged, files written
    rows of the target ──► packets ─┘

A row goes to the share that the hash of its key says, so rows that meet are in one share. There they
are merged by `MergeRows`, as in one process: both give the same rows. A packet has the rows of a
share as a stream of Arrow, so no engine converts them.

Invariants: each row of the source is in one share, and so is each row of the target that may matter. A
row of the target that has no key of the source does not travel, unless a clause is about such rows.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from paimon_stream.change.merge_clauses import MergePlan, When
from paimon_stream.change.merge_hashes import (
    Flags,
    Hashes,
    SourceDigest,
    source_hashes,
    target_hashes,
)
from paimon_stream.change.merge_keys import Ints
from paimon_stream.change.merge_rows import MergeRows, source_rows
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.read.rows import BATCH_ROWS, rows_with_positions
from paimon_stream.read.scan import Scan
from paimon_stream.table.layout import Layout
from paimon_stream.table.message_files import data_files, remove_files
from paimon_stream.write.task import WriteSpec, write_task

OF_SOURCE: Final = 0
OF_TARGET: Final = 1
"""The sides. Packets of the source come first."""

_PACKED_BYTES: Final = 32 * 2**20
"""The rows that wait until they are packed."""
_PIECE_BYTES: Final = 2**20
"""The most bytes of a packet, apart from wide rows. Spark holds several of them at once."""
_FILE: Final = "file"
_POSITION: Final = "position"
_CHANGED: Final = pa.schema([(_FILE, pa.int32()), (_POSITION, pa.int64())])


class Packet(NamedTuple):
    """Rows of one side for one share.

    Attributes:
        share: the number of the share.
        side: `OF_SOURCE` or `OF_TARGET`.
        data: the rows, as a stream of Arrow.
    """

    share: int
    side: int
    data: bytes


class MergedShare(NamedTuple):
    """What was done in one share.

    Attributes:
        messages: the files that were written.
        changed: the rows that are updated or deleted: the number of their file, and their position
            there.
        updated: how many rows were updated.
        deleted: how many rows were deleted.
        inserted: how many rows were inserted.
    """

    messages: tuple[CommitMessage, ...]
    changed: pa.Table
    updated: int
    deleted: int
    inserted: int


def nothing_merged() -> MergedShare:
    """What was done in a share that has failed."""
    return MergedShare((), _CHANGED.empty_table(), 0, 0, 0)


def packed(rows: pa.Table) -> bytes:
    """Rows as a stream of Arrow."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def unpacked(data: bytes) -> pa.Table:
    """The rows of a stream of Arrow."""
    return pa.ipc.open_stream(data).read_all()


def pieces(rows: pa.Table) -> Iterator[pa.Table]:
    """The rows in pieces that are small enough for a packet."""
    count = max(1, -(-rows.nbytes // _PIECE_BYTES))
    size = max(1, -(-rows.num_rows // count))
    for start in range(0, max(1, rows.num_rows), size):
        yield rows.slice(start, size)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeShares:
    """A merge in shares. It can be pickled.

    Attributes:
        spec: how files are written.
        plan: the merge.
        shares: how many shares there are.
        writes: whether files are written; else rows are only counted.
        source: the columns of the source, in the types with which values are computed.
        files: the numbers of the files that are read, by name.
        digest: the keys of the source, if rows of the target with other keys are left out; None if
            all may matter, or if the keys are too many to pass on.
    """

    spec: WriteSpec
    plan: MergePlan
    shares: int
    writes: bool
    source: pa.Schema
    files: Mapping[str, int]
    digest: SourceDigest | None

    @property
    def location(self) -> str:
        """Where the table is."""
        return self.spec.storage.location

    def of_source(self, streams: Iterable[bytes]) -> Iterator[Packet]:
        """Packets of rows of the source. Raises what `source_rows` raises."""
        for rows in gathered(map(unpacked, streams)):
            converted, _ = source_rows(rows, self.plan.schema, self.location)
            hashes, has_key = source_hashes(self.plan, converted, self.location)
            # A row whose key is NULL meets nothing. Any share can insert it.
            hashes = np.where(has_key, hashes, np.arange(len(hashes), dtype=np.uint64))
            yield from self._packets(OF_SOURCE, converted, hashes)

    def of_target(self, scan: Scan) -> Iterator[Packet]:
        """Packets of the rows of some files. Raises the errors of reading."""
        for rows in gathered(self._target_rows(scan)):
            hashes, _ = target_hashes(self.plan, rows.select(self._columns), self.location)
            yield from self._packets(OF_TARGET, rows, hashes)

    @property
    def _columns(self) -> list[int]:
        """The places of the target's columns among those of its packets."""
        return list(range(len(self.plan.target_columns)))

    def _places(self, rows: pa.Table) -> pa.Table:
        """The file and the position of each row of the target's packets."""
        count = len(self.plan.target_columns)
        return rows.select([count, count + 1]).rename_columns(_CHANGED.names)

    def _target_rows(self, scan: Scan) -> Iterator[pa.Table]:
        """The rows that may matter, with the number of the file and the position."""
        rows_of = rows_with_positions(replace(scan, columns=self.plan.target_columns))
        for entry in scan.files:
            number = pa.scalar(self.files[entry.file.file_name], pa.int32())
            for batch, positions in rows_of(entry):
                places = [pa.repeat(number, batch.num_rows), pa.array(positions, pa.int64())]
                rows = pa.Table.from_arrays(
                    [*batch.columns, *places], names=[*batch.schema.names, _FILE, _POSITION]
                )
                yield rows.filter(pa.array(self._matters(pa.Table.from_batches([batch]))))

    def _matters(self, rows: pa.Table) -> Flags:
        """Which rows of the target may matter."""
        if self.plan.of(When.NOT_MATCHED_BY_SOURCE):
            return np.ones(rows.num_rows, np.bool_)
        hashes, has_key = target_hashes(self.plan, rows, self.location)
        return has_key if self.digest is None else has_key & self.digest.has(hashes)

    def _packets(self, side: int, rows: pa.Table, hashes: Hashes) -> Iterator[Packet]:
        """The rows, divided into shares."""
        shares = (hashes % np.uint64(self.shares)).astype(np.int64)
        order = np.argsort(shares, kind="stable")
        numbers, starts = np.unique(shares[order], return_index=True)
        sorted_rows = rows.take(pa.array(order))
        ends = [*starts[1:], len(order)]
        for number, start, end in zip(numbers.tolist(), starts.tolist(), ends, strict=True):
            for piece in pieces(sorted_rows.slice(start, end - start)):
                yield Packet(number, side, packed(piece))

    def merged(self, packets: Iterable[Packet]) -> MergedShare:
        """Merges the rows of a share. Its packets come sorted by side. Before any error is raised,
        its files are removed. Raises the errors of `MergeRows` and of `write_task`.
        """
        source = [self.source.empty_table()]
        incoming = iter(packets)
        following: list[Packet] = []
        for packet in incoming:
            if packet.side == OF_TARGET:
                following.append(packet)
                break
            source.append(unpacked(packet.data))
        rows = MergeRows(self.plan, pa.concat_tables(source), self.location)
        target = gathered(unpacked(packet.data) for packet in chain(following, incoming))
        changed: list[pa.Table] = [_CHANGED.empty_table()]
        messages = self._written(
            self.plan.schema.without_defaults, self._updated(rows, target, changed)
        )
        try:
            inserted = rows.inserted()
            batches = inserted.to_batches(max_chunksize=BATCH_ROWS)
            messages += self._written(self.plan.schema, batches)
        except BaseException:
            layout = Layout.of(self.plan.schema, self.spec.options)
            remove_files(self.spec.storage, data_files(layout, messages))
            raise
        return MergedShare(
            messages, pa.concat_tables(changed), rows.updated, rows.deleted, inserted.num_rows
        )

    def _updated(
        self, merge: MergeRows, target: Iterable[pa.Table], changed: list[pa.Table]
    ) -> Iterator[pa.RecordBatch]:
        """The new values of updated rows. Adds to `changed` which rows are updated or deleted."""
        for rows in target:
            merged = merge.of_target(rows.select(self._columns))
            places = pa.array(np.concatenate([merged.updated_at, merged.deleted_at]))
            changed.append(self._places(rows).take(places))
            yield from merged.updated.to_batches(max_chunksize=BATCH_ROWS)

    def _written(
        self, schema: TableSchema, batches: Iterable[pa.RecordBatch]
    ) -> tuple[CommitMessage, ...]:
        """The messages of the files with these rows; none if rows are only counted."""
        if self.writes:
            return write_task(replace(self.spec, schema=schema), batches).messages
        for _ in batches:
            pass
        return ()


def changed_positions(changed: Iterable[pa.Table]) -> dict[int, Ints]:
    """The positions of the rows that are updated or deleted, ascending, by the number of the file."""
    rows = pa.concat_tables([_CHANGED.empty_table(), *changed])
    files = rows.column(_FILE).to_numpy()
    positions = rows.column(_POSITION).to_numpy()
    order = np.lexsort((positions, files))
    numbers, starts = np.unique(files[order], return_index=True)
    parts = np.split(positions[order], starts[1:])
    return dict(zip(numbers.tolist(), parts, strict=False))


def gathered(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in tables that are worth the work for each of them."""
    waiting: list[pa.Table] = []
    size = 0
    for table in tables:
        if table.num_rows:
            waiting.append(table)
            size += table.nbytes
        if size >= _PACKED_BYTES:
            yield pa.concat_tables(waiting)
            waiting = []
            size = 0
    if waiting:
        yield pa.concat_tables(waiting)
