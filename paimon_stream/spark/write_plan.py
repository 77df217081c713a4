"""Chooses how the next batch of a run is written, by what was learned from earlier batches.

The driver writes batches of few rows (small_batch.py). Tasks write all other batches in one of
three ways (`Way`):

- Each task writes the rows that it has. This is the usual way for append tables. Rows with a
  primary key stay in their tasks, too, if at most four tasks have them and their files have a
  megabyte or more, in a stream that does not compact.
- Each task writes the rows of its (partition, bucket), which come as shuffle packets (shuffle.py).
  This is the usual way for streams into tables with a primary key, and for append tables after a
  batch that left many small files for each partition and bucket. Packets take a third to a half
  more CPU, but readers have to open each file (docs/performance.md).
- Each task writes the rows of its buckets, which Spark moves and sorts. This is for batch writes
  into tables with a primary key, and for streams whose rows do not fit into the memory of tasks.
  With packets, the memory would still be limited, but a bucket would get several files. In this
  way, Spark spills to disk instead.

The plan also knows how wide the rows are, which decides how many may be in one Arrow batch
(spark.md §4). Spark allocates such a batch in the JVM's memory outside the heap. There are three
kinds of rows:

- Rows of fixed width. Their number in an Arrow batch follows from the limit of bytes.
- Rows of variable width, if the widest row of the last batches is known. Their number in an Arrow
  batch follows from that width, and each row is guarded. If a row is too wide, the batch is written
  again in the safe way, and so are the next batches.
- Other rows go in the safe way: few rows in an Arrow batch, or Spark's own limit of bytes.
"""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.options import SHUFFLE
from paimon_stream.stream.compacting import compacts
from paimon_stream.table.table import Table
from paimon_stream.write.arrow_batches import JOINED_BYTES, JOINED_ROWS
from paimon_stream.write.shuffle_packets import PIECE_BYTES

_MOST_ROWS: Final = 2**16
_MOST_GROUPED_ROWS: Final = 2**18
"""The most rows that the driver writes into a table with partitions, buckets or a primary key. It
writes the fewest files, in about the time that tasks need, which write more files or gather rows
first (docs/performance.md).
"""

_MOST_BYTES: Final = 16 * 2**20
"""The most bytes in the files of a batch that the driver writes."""

_MOST_COLLECTED: Final = 128 * 2**20
"""The most bytes of Arrow rows that may come to the driver, whatever the size of the batch is."""

_LEAST_ROWS: Final = 1_000  # rounded up to a power of two, like every limit on rows
_GROWTH: Final = 4
_REMEMBERED: Final = 8
_USUAL_SHARE: Final = 0.75
"""The part of the driver's bytes that is for as many rows as earlier batches had. The rest is for
further rows.
"""

_MANY_FILES: Final = 4
"""A batch has many files if the mean number of files for each (partition, bucket) is at least this.
"""

_SMALL_FILE: Final = 4 * 2**20
_LARGEST_FILE: Final = 64 * 2**20
"""The most compressed bytes that the task of one (partition, bucket) should write, because the
other tasks would wait for it.
"""

_FEW_TASKS: Final = 4
_LEAST_SPREAD: Final = 2**20
"""The fewest bytes of a file with which rows with a primary key stay in the few tasks that have
them.
"""

_RETURN_SHARE: Final = 0.5
_RECORDS: Final = 128
"""The rows of an Arrow batch in the safe way, if Spark does not limit its bytes. 128 rows of 1 MB
still fit into a JVM of 1 GB with two tasks.
"""

_JVM_BYTES: Final = 2**30
"""The memory outside the heap of the smallest JVM for which rows of any width are promised to fit.
It is as large as the heap.
"""

_JVM_TASKS: Final = 2
_JVM_COPIES: Final = 8
"""The most bytes that the JVM allocates for each byte of an Arrow batch. A buffer has up to twice
the bytes that are in it, and, while it grows, also its previous half. The batch is in two buffers
at once, Arrow's and the one to Python's socket, and a quarter is for other things.
"""

_ARROW_BYTES: Final = _JVM_BYTES // _JVM_TASKS // _JVM_COPIES
"""The most bytes of any Arrow batch."""

_WIDER: Final = 4
"""A row may be this many times as wide as the widest row of the last batches. Widths with a
log-normal distribution exceed that in less than one of a hundred batches.
"""

_SAFE_BATCHES: Final = 64
"""How many batches go in the safe way after a batch that had to be written twice. So writing twice
costs at most a 64th.
"""


class Way(Enum):
    """Who writes a batch, the driver or tasks, and how its rows get to the tasks."""

    DRIVER = "driver"
    TASKS = "tasks"
    PACKETS = "shuffle packets"
    SPARK_SORT = "sorted by Spark"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What was written for one batch. `row_bytes` is the largest mean size of a row in an Arrow
    batch, and `widest_row` the size of the widest row; None if that is not known.
    """

    messages: tuple[CommitMessage, ...]
    row_bytes: int | None = None
    widest_row: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrowBatches:
    """The size of the Arrow batches that Spark passes to Python: at most `records` rows. With
    `bytes_limited`, Spark's own limit of bytes applies instead in the versions that have one (4.0
    and later). If rows are guarded, `most_row_bytes` is the largest number of bytes that a row may
    have; otherwise it is None.
    """

    records: int
    bytes_limited: bool
    most_row_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The rows that each partition of a batch may pass to the driver: `rows` rows and one more.
    Each of the first `usual` rows may have `usual_bytes` bytes, and each further row `other_bytes`.
    """

    rows: int
    usual: int
    usual_bytes: int
    other_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Learned:
    """What a plan knows of earlier batches.

    Attributes:
        rows: the number of rows of each of the newest batches; None for a batch that was not small.
        row_bytes: the largest mean size of a row of the last batch, in bytes; None if it is not
            known.
        widest_rows: the size of the widest row of each of the newest batches, in bytes; None for a
            batch where it is not known.
        safe_batches: how many of the next batches go in the safe way because a row was too wide.
        bytes: the bytes of all files of the last batch.
        bytes_of_group: the mean bytes of all files of a (partition, bucket).
        files_of_group: the mean number of files of each (partition, bucket) in the last batch that
            was written by `Way.TASKS`.
        gathers: whether the next batch is gathered, because the last one left many small files.
        too_large: the bytes of the smallest batch that left several files in a bucket; None if
            there was no such batch.
    """

    rows: tuple[int | None, ...] = ()
    row_bytes: int | None = None
    widest_rows: tuple[int | None, ...] = ()
    safe_batches: int = 0
    bytes: int = 0
    bytes_of_group: float = 0.0
    files_of_group: float = 0.0
    gathers: bool = False
    too_large: int | None = None

    @property
    def largest(self) -> int | None:
        """The number of rows of the largest of the newest batches. None if one of them was not
        small, or if there was no batch yet.
        """
        small = [rows for rows in self.rows if rows is not None]
        return max(small) if small and len(small) == len(self.rows) else None

    @property
    def guarded_rows(self) -> int:
        """The number of rows that an Arrow batch may have, if the next batch is like the last ones
        and no row is much wider; 0 if too little is known of the last batches.
        """
        widest_rows = [size for size in self.widest_rows if size]
        if self.row_bytes is None or not widest_rows:
            return 0
        if len(widest_rows) < len(self.widest_rows):
            return 0
        of_usual = JOINED_BYTES // max(1, self.row_bytes)
        return _power_of_two_within(min(of_usual, _ARROW_BYTES // (max(widest_rows) * _WIDER)))

    def after_refusal(self) -> "_Learned":
        """The knowledge after a batch that was too large or too wide for the driver."""
        rows = _newest((*self.rows, None))
        return replace(self, rows=rows, row_bytes=None, widest_rows=())

    def after_wide_row(self) -> "_Learned":
        """The knowledge after a guarded row that was too wide. The batch of the row is written
        again. It is the first of the batches that are written in the safe way.
        """
        return replace(self, safe_batches=1 + _SAFE_BATCHES)

    def after(self, way: Way, written: Written, table: Table) -> "_Learned":
        """The knowledge after a batch that was written in the way `way`."""
        messages = [message for message in written.messages if message.new_files]
        rows = sum(map(_rows_of, messages))
        files = sum(len(message.new_files) for message in messages)
        size = sum(file.file_size for message in messages for file in message.new_files)
        groups = len({(message.partition, message.bucket) for message in messages})
        is_small = rows <= _row_limit(table) and size <= _MOST_BYTES
        too_large = self.too_large
        if files > len(messages) and (too_large is None or size < too_large):
            # A bucket with several files is a sign that its rows did not fit into memory, or that
            # it was large in any case.
            too_large = size
        row_bytes = self.row_bytes
        widest_rows = self.widest_rows
        if written.messages:
            row_bytes = written.row_bytes
            widest_rows = _newest((*widest_rows, written.widest_row))
        small_rows = rows if is_small else None
        learned = replace(
            self,
            rows=_newest((*self.rows, small_rows)),
            row_bytes=row_bytes,
            widest_rows=widest_rows,
            safe_batches=max(0, self.safe_batches - 1),
            bytes=size,
            bytes_of_group=size / max(1, groups),
            too_large=too_large,
        )
        if way is Way.DRIVER or not groups:
            return learned
        # After a gathered batch, the next one is assumed to have as many tasks as the last batch
        # that was not gathered.
        files_of_group = files / groups if way is Way.TASKS else self.files_of_group
        return replace(
            learned,
            files_of_group=files_of_group,
            gathers=_is_gathered(files_of_group, learned.bytes_of_group),
        )


def _newest(sizes: tuple[int | None, ...]) -> tuple[int | None, ...]:
    """The newest of the sizes: those of as many batches as the plan remembers."""
    return sizes[-_REMEMBERED:]


def _is_gathered(files_of_group: float, bytes_of_group: float) -> bool:
    """Whether the rows of each (partition, bucket) go to one task. The arguments are the mean
    number of files that tasks would write for each (partition, bucket), and the mean sum of their
    bytes.
    """
    return (
        files_of_group >= _MANY_FILES
        and bytes_of_group <= _LARGEST_FILE
        and bytes_of_group < _SMALL_FILE * files_of_group
    )


@dataclass(slots=True, kw_only=True)
class WritePlan:
    """The plan of one run of a stream, or of one batch write. When a run fails, its plan is lost,
    so a restart begins with an empty plan. The first batch of a stream is assumed to fit into
    memory. A batch write may have any size, so Spark sorts its rows for a table with a primary key.

    Attributes:
        streaming: False for a batch write.
    """

    streaming: bool = True
    _learned: _Learned = _Learned()

    def most_rows(self, table: Table) -> int | None:
        """The largest number of rows with which the driver writes the next batch. None if tasks
        must write the batch: it is the first one, or one of the newest batches was not small.
        """
        largest = self._learned.largest
        if largest is None:
            return None
        return min(_power_of_two(max(largest * _GROWTH - 1, _LEAST_ROWS)), _row_limit(table))

    def share(self, table: Table, partitions: int) -> Share | None:
        """The rows that each partition of the next batch may pass to the driver, which must be able
        to hold all of these shares. None if a share would have fewer rows than one of the newest
        batches had.
        """
        largest = self._learned.largest
        most = self.most_rows(table)
        if largest is None or most is None:
            return None
        budget = _MOST_COLLECTED // max(1, partitions)
        affordable = budget // max(1, self._learned.row_bytes or 1)
        if affordable < most:
            most = _power_of_two(affordable + 1) >> 1
        if most < max(1, largest):
            return None
        usual = min(_power_of_two(max(0, largest - 1)), most)
        usual_bytes = int(budget * _USUAL_SHARE / usual)
        other_bytes = int(budget * (1 - _USUAL_SHARE) / (most + 1 - usual))
        return Share(rows=most, usual=usual, usual_bytes=usual_bytes, other_bytes=other_bytes)

    def way_of_tasks(self, table: Table, tasks: int | None = None) -> Way:
        """How tasks write the next batch. `tasks` is the number of tasks that have the rows of the
        batch; None if that is not known.
        """
        choice = table.options.value(SHUFFLE)
        if choice == "auto" and table.schema.primary_keys and self._stay(table, tasks):
            return Way.TASKS
        if table.schema.primary_keys and not table.is_postponed and choice != "none":
            if table.has_dynamic_buckets:
                return Way.PACKETS  # Spark cannot sort by buckets that it does not know
            too_large = self._learned.too_large
            fits = too_large is None or self._learned.bytes < too_large * _RETURN_SHARE
            return Way.PACKETS if self.streaming and fits else Way.SPARK_SORT
        if choice == "bucket" or (choice == "auto" and self._learned.gathers and is_grouped(table)):
            return Way.PACKETS
        return Way.TASKS

    def _stay(self, table: Table, tasks: int | None) -> bool:
        """Whether rows with keys stay in their tasks, because the tasks are few and their files are
        not small. If the stream compacts, its compactions of more files would cost as much as a
        shuffle (docs/tuning.md, "Parallelism").
        """
        few = (
            tasks is not None
            and tasks <= _FEW_TASKS
            and self._learned.bytes_of_group >= tasks * _LEAST_SPREAD
        )
        return few and self.streaming and not table.has_dynamic_buckets and not compacts(table)

    def arrow_batches(
        self, way: Way, fixed_row_bytes: int | None = None, *, guardable: bool = False
    ) -> ArrowBatches:
        """The size of the next batch's Arrow batches. Spark's limit of bytes is switched off only
        for rows of a fixed width and for rows that are guarded: both come in larger batches then.
        Other rows keep the limit, which costs less than batches of `_RECORDS` rows do.

        Args:
            way: how the batch is written.
            fixed_row_bytes: the size of a row if all columns have a fixed size; otherwise None.
            guardable: whether rows may be guarded, so that the batch may be written twice.
        """
        most = JOINED_BYTES // PIECE_BYTES if way is Way.PACKETS else JOINED_ROWS
        if fixed_row_bytes is not None:
            records = _power_of_two_within(min(most, JOINED_BYTES // max(1, fixed_row_bytes)))
            return ArrowBatches(records=records, bytes_limited=False)
        if guardable and way is not Way.SPARK_SORT and not self._learned.safe_batches:
            records = min(most, self._learned.guarded_rows)
            if records > _RECORDS:
                return ArrowBatches(
                    records=records, bytes_limited=False, most_row_bytes=_ARROW_BYTES // records
                )
        row_bytes = self._learned.row_bytes or 1
        records = max(1, min(_RECORDS, _ARROW_BYTES // row_bytes))
        return ArrowBatches(records=records, bytes_limited=True)

    def row_was_too_wide(self) -> None:
        """Learns that a guarded row was too wide. The batch is to be written again."""
        self._learned = self._learned.after_wide_row()

    def refused(self) -> None:
        """Learns that a batch is too large or too wide for the driver. After such a batch, rows are
        no longer known to be narrow.
        """
        self._learned = self._learned.after_refusal()

    def learn(self, way: Way, written: Written, table: Table) -> None:
        """Learns from a batch that was written in the way `way`."""
        self._learned = self._learned.after(way, written, table)


def _rows_of(message: CommitMessage) -> int:
    """The number of rows that were written to the files of a message. Rows that were merged away
    count, because the sequence numbers show them.
    """
    first = min(file.min_sequence_number for file in message.new_files)
    last = max(file.max_sequence_number for file in message.new_files)
    return max(sum(file.row_count for file in message.new_files), last - first + 1)


def _row_limit(table: Table) -> int:
    """The largest number of rows with which the driver writes a batch of the table."""
    return _MOST_GROUPED_ROWS if is_grouped(table) else _MOST_ROWS


def is_grouped(table: Table) -> bool:
    """Whether every way of writing makes several files from a batch, because the table has
    partitions, buckets or a primary key.
    """
    return bool(table.schema.partition_keys) or not table.is_bucket_unaware


def _power_of_two(above: int) -> int:
    """The smallest power of two that is larger than `above`. With powers of two, few different
    limits occur. So Spark compiles few of them.
    """
    return 1 << above.bit_length()


def _power_of_two_within(most: int) -> int:
    """The largest power of two that is not above `most`, at least 1. With powers of two, few
    different numbers occur. So Spark builds and compiles few expressions of guarded rows.
    """
    return 1 << max(0, most.bit_length() - 1)
