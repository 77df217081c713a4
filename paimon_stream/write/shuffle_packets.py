"""Shuffle packets move the rows of one task to the tasks that write them, with many rows in one
record.

A packet is a record of five columns. `shuffle_key` decides to which partition Spark moves the
packet. `task` and `number` decide the order of packets. `piece` holds bytes of an Arrow stream. The
pieces of one shuffle key, in this order, contain one stream after the other. `ends` is set on the
last piece of each stream. A piece that is NULL says that a row of the task was too wide
(`RowTooWide`).

Invariant: the rows of a shuffle key arrive ordered by task and, within a task, in the task's own
order, because that order decides which row of a key is the newest.

If the partition or bucket of a row cannot be computed, because a value is wrong, its whole batch
goes unchanged to the first shuffle key. The task that writes it finds the same error and reports
it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_stream.errors import PaimonStreamError
from paimon_stream.format.arrow_types import from_flags, from_numbers, to_flags
from paimon_stream.format.murmur import hash_bytes
from paimon_stream.write.arrow_batches import RowTooWide
from paimon_stream.write.conform import ColumnPlan
from paimon_stream.write.routing import Router
from paimon_stream.write.task import WriteSpec

Places = npt.NDArray[np.int32]

PACKETS: Final = "shuffle_key int, task int, number int, ends boolean, piece binary"
"""The columns of packets, as Spark declares them."""

_TYPES: Final = {"int": pa.int32(), "boolean": pa.bool_(), "binary": pa.binary()}
_SCHEMA: Final = pa.schema(
    [(name, _TYPES[word]) for name, word in map(str.split, PACKETS.split(","))]
)
_INCOMPLETE: Final = (
    "The last rows of a task did not arrive completely. Nothing was published. Restart the query; if it happens "
    "again, report it."
)
_HELD_BYTES: Final = 32 * 2**20
PIECE_BYTES: Final = 4 * 2**10
"""The most bytes of a piece. Spark passes up to 10,000 records at once, which is 40 MB. Spark 3.5
does so whatever their size.
"""


def pack(
    spec: WriteSpec, batches: Iterable[pa.RecordBatch], *, shuffle_keys: Sequence[int], task: int
) -> Iterator[pa.RecordBatch]:
    """The rows of one task as packets. All rows of a (partition, bucket) get the same shuffle key.
    The buckets of a table without partitions are spread evenly. Only one batch and at most tens of
    MB more are in memory.

    Args:
        spec: what the tasks that write the rows need to know.
        batches: the rows.
        shuffle_keys: the shuffle keys that may be used.
        task: the number of this task.

    If `batches` raises `RowTooWide`, the last packet says so instead of the rows that still wait.
    """
    packer = _Packer(spec, shuffle_keys, task)
    try:
        for batch in batches:
            packer.add(batch)
            if packer.bytes >= _HELD_BYTES:
                yield packer.pack_waiting()
    except RowTooWide:
        yield packer.too_wide()
        return
    if packer.bytes:
        yield packer.pack_waiting()


def unpack(packets: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of one shuffle key, in order.

    Args:
        packets: all packets of the shuffle key, in order.

    Raises:
        RowTooWide: a row of a task was too wide.
        PaimonStreamError: a stream is broken or does not end.
    """
    begun: list[pa.Buffer] = []
    for batch in packets:
        pieces = batch.column("piece")
        if pieces.null_count:
            raise RowTooWide
        width = np.int64 if pa.types.is_large_binary(pieces.type) else np.int32
        _, offsets, data = pieces.buffers()
        bounds = np.frombuffer(offsets, width, pieces.offset + len(pieces) + 1)[pieces.offset :]
        start = int(bounds[0])
        for last in np.flatnonzero(to_flags(batch.column("ends"))):
            stop = int(bounds[last + 1])
            begun.append(data.slice(start, stop - start))
            stream = begun[0] if len(begun) == 1 else pa.py_buffer(b"".join(begun))
            begun = []
            start = stop
            try:
                yield from pa.ipc.open_stream(stream)
            except (pa.ArrowException, OSError) as error:
                raise PaimonStreamError(_INCOMPLETE) from error
        if start < bounds[-1]:
            begun.append(data.slice(start, int(bounds[-1]) - start))
    if begun:
        raise PaimonStreamError(_INCOMPLETE)


class _Packer:
    """Rows that wait to be packed. A *place* is a position in the list of shuffle keys.

    Attributes:
        bytes: the size of the waiting rows; at least 1 if any row waits.
    """

    def __init__(self, spec: WriteSpec, shuffle_keys: Sequence[int], task: int) -> None:
        schema = spec.schema
        table = spec.storage.location
        self.bytes = 0
        self._names = list(dict.fromkeys((*schema.partition_keys, *schema.bucket_keys)))
        # The task that writes the rows handles NULL.
        nullable = []
        for name in self._names:
            key = schema.field(name)
            nullable.append(replace(key, type=key.type.with_nullable(True)))
        self._plan = ColumnPlan.of(replace(schema, fields=tuple(nullable)), table)
        # The task that writes the rows may ignore a row. So only that task checks the names of
        # folders.
        self._router = Router(schema, spec.options, table, checks_folder_names=False)
        self._keys = np.array(shuffle_keys, np.int32)
        self._task = task
        self._place_of_group: list[int] = []
        """The place of each group, by group number."""
        self._waiting: list[pa.RecordBatch] = []
        """The rows that wait."""
        self._places: list[Places] = []
        """The place of each waiting row."""
        self._number = 0
        """How many pieces were packed so far, which is the number of the next piece."""

    def add(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            self._waiting.append(batch)
            self._places.append(self._placed(batch))
            self.bytes += max(1, batch.nbytes)

    def _placed(self, batch: pa.RecordBatch) -> Places:
        """For each row, the place of its shuffle key."""
        try:
            numbers = self._router.assign(self._plan.conform(batch.select(self._names)))
        except PaimonStreamError:
            return np.zeros(batch.num_rows, np.int32)
        for group in self._router.groups[len(self._place_of_group) :]:
            # Consecutive buckets get consecutive places. The hash of the partition decides the
            # first place.
            place = (hash_bytes(group.partition) + group.bucket) % len(self._keys)
            self._place_of_group.append(place)
        if isinstance(numbers, int):
            return np.full(batch.num_rows, self._place_of_group[numbers], np.int32)
        return np.array(self._place_of_group, np.int32)[numbers]

    def pack_waiting(self) -> pa.RecordBatch:
        """Returns the waiting rows as packets. Afterwards, no rows wait."""
        rows = pa.Table.from_batches(self._waiting).combine_chunks().to_batches()[0]
        places = np.concatenate(self._places)
        self._waiting = []
        self._places = []
        self.bytes = 0
        counts = np.bincount(places, minlength=len(self._keys))
        if np.count_nonzero(counts) > 1:
            if len(self._keys) <= 2**16:
                places = places.astype(np.uint16)  # integers of 16 bits are sorted in less time
            rows = rows.take(from_numbers(np.argsort(places, kind="stable")))
        stream = pa.BufferOutputStream()
        bounds = [0]
        keys: list[int] = []
        ends: list[bool] = []
        start = 0
        for place in np.flatnonzero(counts).tolist():
            count = int(counts[place])
            with pa.ipc.new_stream(stream, rows.schema) as writer:
                writer.write_batch(rows.slice(start, count))
            start += count
            cuts = [*range(bounds[-1] + PIECE_BYTES, stream.tell(), PIECE_BYTES), stream.tell()]
            bounds += cuts
            keys += [int(self._keys[place])] * len(cuts)
            ends += [False] * (len(cuts) - 1) + [True]
        return self._records(stream.getvalue(), bounds, keys, ends)

    def too_wide(self) -> pa.RecordBatch:
        """The record that says that a row of the task was too wide."""
        values = [int(self._keys[0]), self._task, self._number, False, None]
        return pa.RecordBatch.from_pylist(
            [dict(zip(_SCHEMA.names, values, strict=True))], schema=_SCHEMA
        )

    def _records(
        self, data: pa.Buffer, bounds: list[int], keys: list[int], ends: list[bool]
    ) -> pa.RecordBatch:
        """Makes a record of each piece. The records get the next packet numbers.

        Args:
            data: the bytes of all pieces.
            bounds: where each piece begins in `data`, and where the last piece ends.
            keys: the shuffle key of each piece.
            ends: for each piece, whether it is the last piece of its stream.
        """
        first = self._number
        self._number += len(keys)
        offsets = pa.py_buffer(np.array(bounds, np.int32).tobytes())
        columns = [
            from_numbers(np.array(keys, np.int32)),
            from_numbers(np.full(len(keys), self._task, np.int32)),
            from_numbers(np.arange(first, self._number, dtype=np.int32)),
            from_flags(np.array(ends, np.bool_)),
            pa.Array.from_buffers(pa.binary(), len(keys), [None, offsets, data]),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)
