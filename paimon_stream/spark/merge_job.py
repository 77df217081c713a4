"""The source of a merge that is a DataFrame, and its merge as a Spark job (`change/merge_shares.py`).

    DataFrame ──► packets, kept by Spark ──► few: they come to the driver, which merges them
                                         └─► many: tasks ──► shuffle by key ──► tasks that merge and write

Spark evaluates the DataFrame once. Its rows are kept as packets by `localCheckpoint`, in the memory
and on the disks of executors, and all later steps read those. If an executor dies with packets,
Spark does not evaluate the DataFrame anew, as it would with `persist`: the merge ends with an error,
and publishes nothing. So the rows are the same in all steps, also if the DataFrame would give others
each time.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from paimon_stream.change.merge_clauses import MergePlan
from paimon_stream.change.merge_hashes import PossibleValues, SourceDigest
from paimon_stream.change.merge_rows import contiguous, source_rows
from paimon_stream.change.merge_shares import (
    MergedShare,
    MergeShares,
    Packet,
    gathered,
    nothing_merged,
    packed,
    pieces,
    unpacked,
)
from paimon_stream.errors import InvalidOption, PaimonStreamError, Unavailable, WriteInterrupted
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.read.scan import Scan
from paimon_stream.spark.identity import is_connect
from paimon_stream.spark.map_arrow import arrow_batches_of, map_arrow
from paimon_stream.spark.shuffle import keys_of_tasks
from paimon_stream.spark.splits import arrow_of, scan_of_split, without_files
from paimon_stream.spark.tasks import ANSWER, begin_task, discard
from paimon_stream.spark.to_spark import one_partition_each, splits_for
from paimon_stream.spark.write_job import is_local, task_attempts, written_by
from paimon_stream.spark.write_plan import ArrowBatches
from paimon_stream.write.task import (
    TaskFailure,
    TaskResult,
    decode_result,
    encode_result,
)

_SHARE_BYTES: Final = 64 * 2**20
"""About how many bytes of the source a task holds."""
_AT_ONCE: Final = ArrowBatches(records=32, bytes_limited=False)
"""How many packets Spark passes on at once. A packet has about 1 MiB."""
_STREAMS: Final = "rows long, stream binary"
_PACKETS: Final = "share_key int, side int, packet binary"
_PACKET_TYPES: Final = pa.schema(
    [("share_key", pa.int32()), ("side", pa.int32()), ("packet", pa.binary())]
)
_DIGESTS: Final = "pair int, are_bounds boolean, data binary"
_DIGEST_TYPES: Final = pa.schema(
    [("pair", pa.int32()), ("are_bounds", pa.bool_()), ("data", pa.binary())]
)
_DONE: Final = f"{ANSWER} binary, changed binary, updated long, deleted long, inserted long"
_DONE_TYPES: Final = pa.schema(
    [
        (ANSWER, pa.binary()),
        ("changed", pa.binary()),
        ("updated", pa.int64()),
        ("deleted", pa.int64()),
        ("inserted", pa.int64()),
    ]
)
_FAILED: Final = -1
"""The side of a packet that says why a task failed. It comes before all others."""
_OF_HASHES: Final = -1
_OF_FAILURE: Final = -2


def source_of(frame: DataFrame, location: str) -> "pa.Table | SparkSource":
    """The rows of a DataFrame, kept by Spark. On Spark Connect, they come to this process: there,
    nobody can say where Spark runs. Raises `InvalidOption`.
    """
    if frame.isStreaming:
        raise InvalidOption(
            "the source of a merge is a streaming DataFrame. Give PaimonSink a merge, or give a DataFrame from "
            "spark.read.",
            option="source",
        ).of_table(location)
    if is_connect(frame):
        return rows_by_tasks(frame)
    streams = map_arrow(frame, _as_streams, _STREAMS)
    return SparkSource(streams.localCheckpoint(eager=True), arrow_of(frame.schema))


def rows_by_tasks(frame: DataFrame) -> pa.Table:
    """All rows, which tasks send to this process as bytes. So Spark need not return Arrow."""
    streams = map_arrow(frame, _as_streams, _STREAMS)
    return _together(streams.select("stream").collect(), arrow_of(frame.schema))


def _together(rows: Iterable[Any], schema: pa.Schema) -> pa.Table:
    tables = [unpacked(bytes(row[0])) for row in rows]
    return pa.concat_tables(tables) if tables else schema.empty_table()


def _as_streams(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of a task as streams of Arrow."""
    begin_task()
    for batch in batches:
        for piece in pieces(pa.Table.from_batches([batch])):
            columns = [
                pa.array([piece.num_rows], pa.int64()),
                pa.array([packed(piece)], pa.binary()),
            ]
            yield pa.RecordBatch.from_arrays(columns, names=["rows", "stream"])


class SparkSource:
    """A source whose rows Spark keeps: a `DistantSource`.

    Attributes:
        schema: the columns of the source.
        num_rows: how many rows it has.
        size: their bytes in Arrow.
        has_other_machines: whether tasks run on other machines, too.
    """

    def __init__(self, streams: DataFrame, schema: pa.Schema) -> None:
        """`streams` has the rows, as `_as_streams` makes them."""
        self._streams = streams
        self._session = streams.sparkSession
        rows, size = streams.agg(F.sum("rows"), F.sum(F.length("stream"))).collect()[0]
        self.schema = schema
        self.num_rows = int(rows or 0)
        self.size = int(size or 0)
        self.has_other_machines = not is_local(self._session.sparkContext.master)

    def collected(self) -> pa.Table:
        """All rows, in this process."""
        return _together(self._streams.select("stream").collect(), self.schema)

    def digest(self, plan: MergePlan, location: str) -> SourceDigest:
        """See `DistantSource.digest`."""
        task = _DigestTask(plan=plan, location=location, attempts=task_attempts(self._session))
        frame = map_arrow(self._streams.select("stream"), task, _DIGESTS)
        with arrow_batches_of(_AT_ONCE, frame):
            rows = _collected(frame, location)
        hashes = []
        possible: list[list[PossibleValues | None]] = [[] for _ in plan.keys]
        for pair, are_bounds, data in rows:
            if pair == _OF_FAILURE:
                raise _failure(bytes(data))
            if pair == _OF_HASHES:
                hashes.append(np.frombuffer(bytes(data), np.uint64))
            elif data is None:
                possible[pair].append(None)
            else:
                values = contiguous(unpacked(bytes(data)).column(0))
                possible[pair].append(PossibleValues(values=values, are_bounds=are_bounds))
        return SourceDigest.joined(hashes, possible)

    def shares(self) -> int:
        """See `DistantSource.shares`."""
        cores = int(self._session.sparkContext.defaultParallelism)
        return max(1, cores, -(-self.size // _SHARE_BYTES))

    def merged(self, work: MergeShares, scan: Scan) -> list[MergedShare]:
        """See `DistantSource.merged`."""
        attempts = task_attempts(self._session)
        keys = keys_of_tasks(work.shares)
        of_source = partial(_source_packets, work, keys, attempts)
        of_target = partial(_target_packets, work, without_files(scan), keys, attempts)
        splits = one_partition_each(self._session, splits_for(self._session, scan))
        packets = map_arrow(self._streams.select("stream"), of_source, _PACKETS).unionAll(
            map_arrow(splits, of_target, _PACKETS)
        )
        placed = packets.repartition(work.shares, F.col("share_key")).sortWithinPartitions("side")
        frame = map_arrow(placed, MergeTask(work=work, attempts=attempts), _DONE)
        with arrow_batches_of(_AT_ONCE, frame):
            rows = _collected(frame, work.location)
        table = scan.table
        written = written_by(
            (decode_result(bytes(row[ANSWER])) for row in rows), table, gathered=False
        )
        done = [
            MergedShare((), unpacked(bytes(row.changed)), row.updated, row.deleted, row.inserted)
            for row in rows
        ]
        return [MergedShare(written.messages, *done[0][1:]), *done[1:]]


def _collected(frame: DataFrame, location: str) -> list[Any]:
    """All rows of a small frame. Raises `WriteInterrupted` if Spark gives up a task."""
    try:
        return list(frame.collect())
    except PySparkException as failed:
        raise WriteInterrupted(
            "Spark gave up a task of a merge, and nothing of it was published. Merge again. If an executor ran out of "
            "memory, give it more (spark.executor.memoryOverhead); if one was lost with rows of the source, its rows "
            f"are lost, because a source is read only once. Spark says: {str(failed).strip()[:500]}",
        ).of_table(location) from failed


def _failure(data: bytes) -> PaimonStreamError:
    """The error that a task has sent."""
    failure = decode_result(data)
    assert isinstance(failure, TaskFailure)
    return failure.error


def _sent(error: PaimonStreamError, attempts: int, context: TaskContext) -> bytes:
    """The error as bytes for the driver. Raises it if Spark should try the task again."""
    if isinstance(error, Unavailable) and context.attemptNumber() + 1 < attempts:
        raise error
    return encode_result(TaskFailure(error=error, partition_id=context.partitionId()))


def _values(batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """The values of the only column of some rows."""
    for batch in batches:
        for value in batch.column(0):
            yield value.as_py()


@dataclass(frozen=True, slots=True, kw_only=True)
class _DigestTask:
    """Sends what the driver has to know of the keys of some rows of a source.

    Attributes:
        plan: the merge.
        location: where the table is, for messages.
        attempts: how often Spark tries a task.
    """

    plan: MergePlan
    location: str
    attempts: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Runs the task."""
        context = begin_task()
        incoming = _values(batches)
        try:
            for rows in gathered(map(unpacked, incoming)):
                converted, _ = source_rows(rows, self.plan.schema, self.location)
                yield _digest_rows(SourceDigest.of(self.plan, converted, self.location))
        except PaimonStreamError as error:
            data = _sent(error, self.attempts, context)
            yield _records(_DIGEST_TYPES, [_OF_FAILURE], [False], [data])
        discard(incoming)


def _digest_rows(digest: SourceDigest) -> pa.RecordBatch:
    """A digest as rows of `_DIGESTS`."""
    pairs = [_OF_HASHES]
    flags = [False]
    values: list[bytes | None] = [digest.hashes.tobytes()]
    for pair, possible in enumerate(digest.possible):
        pairs.append(pair)
        flags.append(possible is not None and possible.are_bounds)
        values.append(None if possible is None else packed(pa.table({"values": possible.values})))
    return _records(_DIGEST_TYPES, pairs, flags, values)


def _records(schema: pa.Schema, *columns: list[Any]) -> pa.RecordBatch:
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _source_packets(
    work: MergeShares,
    keys: tuple[int, ...],
    attempts: int,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """The rows of the source of one task as packets. `keys` are the keys of the shuffle by share."""
    incoming = _values(batches)
    yield from _shuffled(work.of_source(incoming), keys, attempts)
    discard(incoming)


def _target_packets(
    work: MergeShares,
    scan: Scan,
    keys: tuple[int, ...],
    attempts: int,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """The rows of the files of one task as packets. `scan` has no files; they come in splits."""
    incoming = _values(batches)
    scans = (scan_of_split(scan, split, CommitMessage.VERSION) for split in incoming)
    yield from _shuffled(chain.from_iterable(map(work.of_target, scans)), keys, attempts)
    discard(incoming)


def _shuffled(
    packets: Iterator[Packet], keys: tuple[int, ...], attempts: int
) -> Iterator[pa.RecordBatch]:
    """Packets as rows of `_PACKETS`. An error becomes a packet."""
    context = begin_task()
    try:
        for share, side, data in packets:
            yield _records(_PACKET_TYPES, [keys[share]], [side], [data])
    except PaimonStreamError as error:
        yield _records(_PACKET_TYPES, [keys[0]], [_FAILED], [_sent(error, attempts, context)])


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeTask:
    """Merges the rows of a share, in Python beside an executor.

    Attributes:
        work: the merge.
        attempts: how often Spark tries a task.
    """

    work: MergeShares
    attempts: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Runs the task."""
        context = begin_task()
        incoming = _packets(batches)
        done = nothing_merged()
        try:
            done = self.work.merged(incoming)
            result = TaskResult(messages=done.messages, partition_id=context.partitionId())
            data = encode_result(result)
        except PaimonStreamError as error:
            data = _sent(error, self.attempts, context)
        discard(incoming)
        changed = packed(done.changed)
        counts = [[done.updated], [done.deleted], [done.inserted]]
        yield _records(_DONE_TYPES, [data], [changed], *counts)


def _packets(batches: Iterable[pa.RecordBatch]) -> Iterator[Packet]:
    """The packets of a share. Raises the error that an earlier task has sent."""
    for batch in batches:
        _, sides, packets = batch.columns
        for side, data in zip(sides.to_pylist(), packets, strict=True):
            if side == _FAILED:
                raise _failure(data.as_py())
            yield Packet(0, side, data.as_py())
