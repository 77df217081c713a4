"""What the writers of all formats share. They create, finish and give up files in the storage. The
first rows of a file show which columns need a dictionary. Dictionaries for all columns would make
files larger and writing slower.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, ClassVar, Final, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from paimon_stream.errors import InvalidOption
from paimon_stream.format.file_format import FileFormat
from paimon_stream.format.stats import ColumnStats
from paimon_stream.options import FILE_SUFFIX_COMPRESSION, Options
from paimon_stream.storage.base import Storage
from paimon_stream.write.file_stats import leaf_columns

_T = TypeVar("_T")

_LEAST_SAMPLE_ROWS: Final = 256
_MOST_SAMPLE_ROWS: Final = 4096
_DISTINCT_SHARE: Final = 0.4

_WHOLE_DISTINCT_SHARE: Final = 0.8
"""The share for a file whose rows are all in the sample."""

_GLANCE_ROWS: Final = 512
"""This number of rows is enough to decide for most columns, because the values of keys and measures
hardly repeat, and codes have few values.
"""

_TELLING_ROWS: Final = 1024
"""The fewest rows of a file whose choice is also used for the next file."""

_FILES_ALIKE: Final = 15
"""The choice for a sampled file also holds for this many files after it, because the buckets of one
batch hold similar rows.
"""

_FEW_SHARE: Final = 0.1
_NEARLY_ALL_SHARE: Final = 0.96
"""If the share of different values is not between these two, `_GLANCE_ROWS` are enough to decide.
"""


class CountingStream:
    """Passes bytes on to a storage's stream and counts them. The storage closes that stream. After
    an error of the storage, no more bytes are passed on, because an error in Arrow's ORC writer
    would end the process.

    Attributes:
        inner: the storage's stream; None if no more bytes are passed on.
        size: the number of bytes.
        failure: the error of the storage, if there was one.
    """

    closed = False

    def __init__(self, inner: BinaryIO) -> None:
        self.inner: BinaryIO | None = inner
        self.size = 0
        self.failure: BaseException | None = None
        self._held: bytearray | None = None

    @contextmanager
    def held(self) -> Iterator[bytearray]:
        """A context in which written bytes are kept. They are neither passed on nor counted."""
        held = bytearray()
        self._held = held
        try:
            yield held
        finally:
            self._held = None

    def write(self, data: Any) -> int:
        """Passes the bytes on. Returns the number of bytes."""
        if self._held is not None:
            self._held += data
            return len(data)
        if self.inner is not None:
            try:
                self.inner.write(data)
            except BaseException as error:  # noqa: BLE001 – raised in `checked`
                self.inner = None
                self.failure = error
        self.size += len(data)
        return len(data)

    def tell(self) -> int:
        """The number of bytes written so far."""
        return self.size + len(self._held or b"")

    def flush(self) -> None:
        """Does nothing, because all bytes become durable at the end of the storage's context."""

    def close(self) -> None:
        """Does nothing, because the storage closes its stream."""


class StatsCollector(Protocol):
    """Collects the statistics of a file's rows."""

    def add(self, rows: pa.Table) -> None:
        """Adds the rows to the statistics."""

    def columns(self) -> Sequence[ColumnStats]:
        """The statistics of all rows."""


class FileWriter(ABC):
    """A data file that is open for writing. The last call is `close` or `abort`. Errors come from
    the storage. The class of each format sets up the statistics and the writer.

    Attributes:
        path: where the file is.
        rows: the number of rows.
        stream: the stream that the writer of the format writes to.
    """

    stats: StatsCollector
    """What collects the statistics of the rows, such as `RowStats`."""

    writer: Any = None
    """Arrow's writer, in the formats that have one."""

    def __init__(self, storage: Storage, path: str) -> None:
        """Creates the file. Raises the storage's errors, including `AlreadyExists`."""
        self.path = path
        self.rows = 0
        self._context = ExitStack()
        self.stream = CountingStream(self._context.enter_context(storage.open_output(path)))

    @property
    def size(self) -> int:
        """The number of bytes written so far. It is an estimate if the format keeps rows in memory.
        After `close`, it is exact.
        """
        return self.stream.size

    def write(self, rows: pa.Table) -> None:
        """Adds rows."""
        with self.checked():
            self.put(rows)
        self.stats.add(rows)
        self.rows += rows.num_rows

    def close(self) -> Sequence[ColumnStats]:
        """Ends the file. The file is then durable. Returns the exact statistics of the file. If the
        end fails, the file is removed.
        """
        try:
            with self._context, self.checked():
                self.end()
        except BaseException:
            self._drop()
            raise
        return self.stats.columns()

    def abort(self, error: BaseException) -> None:
        """Gives the file up, so that the storage removes it (best effort). Never raises `error`
        itself.
        """
        self._drop()
        try:
            self._context.__exit__(type(error), error, error.__traceback__)
        except BaseException as raised:
            if raised is not error:
                raise

    # -- for the classes of the formats -----------------------------------------------------------
    @abstractmethod
    def put(self, rows: pa.Table) -> None:
        """Writes rows into the stream."""

    def started_by(self, start: Callable[[CountingStream], _T]) -> _T:
        """Returns the writer that `start` makes for the stream. If that fails, the file is
        removed.
        """
        with ExitStack() as opened:
            opened.push(self._context.__exit__)
            with self.checked():
                writer = start(self.stream)
            opened.pop_all()
        return writer

    @contextmanager
    def checked(self) -> Iterator[None]:
        """A context for writing. If the stream has noted an error of the storage, the context
        raises this error at its end.
        """
        try:
            yield
        finally:
            if self.stream.failure is not None:
                raise self.stream.failure from None

    def end(self) -> None:
        """Writes the end of the file."""
        if self.writer is not None:
            self.writer.close()

    def _drop(self) -> None:
        """Prevents that Arrow ends the file itself when the writer is garbage collected."""
        self.stream.inner = None
        if self.writer is not None:
            self.writer.is_open = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSettings(ABC):
    """How the data files of a table are written.

    Attributes:
        codec: the compression of the files.
        suffix: the end of file names, after a dot.
    """

    most_open: ClassVar[int]
    """How many files a task keeps open at most, because of the memory that they hold."""

    codec: str
    suffix: str

    @abstractmethod
    def open(
        self, storage: Storage, path: str, first: pa.Table, row_bytes: float | None
    ) -> FileWriter:
        """Opens a new file. From then on, the file exists under its name.

        Args:
            storage: where the file is written.
            path: the path of the file.
            first: rows that show which encodings are best. They are not written.
            row_bytes: the mean size of a row in an earlier file; None if there was no such file.
        """


def file_suffix(options: Options, format_: FileFormat, codec: str) -> str:
    """The end of file names. It is the name of the format. If the options ask for it, the name of
    the compression stands before the format.
    """
    if options.value(FILE_SUFFIX_COMPRESSION):
        return f"{codec}.{format_.value}"
    return format_.value


def format_option(
    options: Options, key: str, parse: Callable[[str], _T], author: str, default: _T | None = None
) -> _T | None:
    """The value of a file format's option.

    Args:
        options: the options of the table.
        key: the option, such as `parquet.page.size`.
        parse: a function that parses the option's value. It raises `ValueError` or `KeyError` for a
            wrong value.
        author: the project that documents the option, for messages.
        default: the value if the option is not set.

    Raises:
        InvalidOption: for a wrong value.
    """
    raw = options.get(key)
    if raw is None:
        return default
    try:
        return parse(raw)
    except (ValueError, KeyError):
        raise InvalidOption(
            f"Option {key!r} is {raw!r}, which is not a valid value. Set it as {author} documents it.",
            option=key,
            value=raw,
        ) from None


class Dictionaries:
    """The choices of dictionaries for the files of one task. A choice that is based on the rows of
    one file is also used for the next few files.
    """

    def __init__(self) -> None:
        self._columns: list[str] = []
        self._files_left = 0

    def choose(self, rows: pa.Table) -> list[str]:
        """The result of `worth_a_dictionary` for a file that begins with these rows."""
        if self._files_left:
            self._files_left -= 1
            return self._columns
        columns = worth_a_dictionary(rows)
        if rows.num_rows >= _TELLING_ROWS:
            self._columns = columns
            self._files_left = _FILES_ALIKE
        return columns


def worth_a_dictionary(rows: pa.Table) -> list[str]:
    """The columns that become smaller with a dictionary, because a sample from both ends of the
    rows has few different values. If there are only a few rows, all of them are the sample. A
    column inside a nested column has its path in Parquet files as its name.
    """
    size = min(_MOST_SAMPLE_ROWS, max(_LEAST_SAMPLE_ROWS, rows.num_rows // 16))
    sample = rows
    few_share = _WHOLE_DISTINCT_SHARE
    if rows.num_rows > size:
        both_ends = [rows.slice(0, size), rows.slice(max(size, rows.num_rows - size))]
        sample = pa.concat_tables(both_ends)
        few_share = _DISTINCT_SHARE
    paths = []
    for name, column in zip(rows.column_names, sample.columns, strict=True):
        chunk = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        for path, leaf in leaf_columns(name, chunk):
            if not pa.types.is_boolean(leaf.type) and _repeats(leaf, few_share):
                paths.append(path)
    return paths


def _repeats(leaf: pa.Array, few_share: float) -> bool:
    """Whether the share of different values is at most `few_share`. If a part of the values already
    shows a clear result, the others are not examined.
    """
    values = leaf.slice(0, 2 * _MOST_SAMPLE_ROWS)
    if len(values) >= 2 * _GLANCE_ROWS:
        middle = (len(values) - _GLANCE_ROWS) // 2
        share = _distinct_share(values.slice(middle, _GLANCE_ROWS))
        if not _FEW_SHARE < share < _NEARLY_ALL_SHARE:
            return share <= _FEW_SHARE
    return _distinct_share(values) <= few_share


def _distinct_share(values: pa.Array) -> float:
    """The share of different values, from 0 to 1."""
    return int(pc.count_distinct(values, mode="all").as_py()) / max(1, len(values))
