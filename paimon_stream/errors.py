"""The errors of this package. Every error that is raised on purpose is a `PaimonStreamError`.

The type answers two questions: *may I retry?* and *may something have been published?* docs/api.md
shows the tree of these types.

Every message says what happened, where (table, snapshot, batch, column, file), and what to do about
it. Programs read `context`, a mapping of those names to values; the texts are not API.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

ROWS: Final = "\ufdd0rows\ufdd1"
"""Stands for a number of rows in `InvalidData.pattern`. U+FDD0 and U+FDD1 are not characters, so
they are in no name.
"""
PLACES: Final = "\ufdd0places\ufdd1"
"""Stands for a number of places in `InvalidData.pattern`."""


Error = TypeVar("Error", bound="PaimonStreamError")


class PaimonStreamError(Exception):
    """The base of all errors of this package. Errors can be pickled, because they travel from
    executors to the driver.

    Attributes:
        message: the complete message for people.
        pattern: the same text as `message`; in `InvalidData`, the text from which the message is
            made.
        context: the facts of the message, for programs (`table`, `batch`, `column`, `count`,
            `path`, `snapshot`, …, as far as they apply).
    """

    def __init__(self, message: str, **context: Any) -> None:
        super().__init__(message)
        self.message = message
        self.pattern = message
        self.context: dict[str, Any] = context

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.pattern, self.context)

    def __str__(self) -> str:
        return self.message

    def at(self: Error, table: str) -> Error:
        """This error if its message names the table; otherwise the result of `of_table`."""
        return self if table in self.message else self.of_table(table)

    def of_table(self: Error, table: str, *, subject: bool = False) -> Error:
        """A copy of the error, with the table's location in its context and before its text. With
        `subject`, the location is the subject of that sentence.
        """
        separator = " " if subject else ": "
        context = {"table": table, **self.context}
        return type(self)(f"{table}{separator}{self.pattern}", **context)


@contextmanager
def naming(table: str) -> Iterator[None]:
    """A context that adds the table's name to errors of this package whose messages lack it."""
    try:
        yield
    except PaimonStreamError as error:
        raise error.at(table) from error.__cause__


def first_few(names: Sequence[str], most: int = 5) -> str:
    """The first `most` of these names as part of a text for people, and how many others there
    are.
    """
    shown = ", ".join(names[:most])
    if len(names) > most:
        return f"{shown} and {len(names) - most:,} more"
    return shown


def _rebuild(
    kind: "type[PaimonStreamError]", message: str, context: dict[str, Any]
) -> "PaimonStreamError":
    return kind(message, **context)


def by_name(name: str) -> "type[PaimonStreamError]":
    """The error class with that name; `PaimonStreamError` if this release has no such class, for
    example because an executor has a newer release.
    """
    kind = globals().get(name)
    if isinstance(kind, type) and issubclass(kind, PaimonStreamError):
        return kind
    return PaimonStreamError


class ConfigError(PaimonStreamError):
    """The configuration is wrong. Raised before anything is written."""


class InvalidOption(ConfigError):
    """An option or argument is unknown or malformed, or contradicts another one."""


class UnsupportedFeature(ConfigError):
    """The table, call, type or option asks for something that this release does not do."""


class UnsupportedTable(ConfigError):
    """On this store, another writing engine may replace this package's snapshots, and
    `paimon-stream.commit.guard` is strict.
    """


class MissingExtra(ConfigError):
    """An optional dependency is not installed. The message says what to install."""


class IdentityUnknown(ConfigError):
    """The streaming query behind a batch is unknown, so there is no commit user to write under."""


class FormatError(PaimonStreamError):
    """Bytes were read that cannot be understood."""


class CorruptMetadata(FormatError):
    """A metadata file is missing, cut off or contradicts itself."""


class UnknownVersion(FormatError):
    """The bytes are of a version that this release does not know."""


class IncompatibleSchema(PaimonStreamError):
    """The rows do not fit the table's schema: columns are missing, unknown, ambiguous or of a type
    that cannot be written without loss.
    """


class InvalidData(PaimonStreamError):
    """A value does not fit its column.

    `context["count"]` is the number of rows with such a value. For values inside nested values, it
    is the number of places. The number grows while more rows of a batch are checked. So `pattern`,
    the text from which the message is made, has `ROWS` or `PLACES` in place of the number.

    >>> error = NullInNotNull(f"Column 'a' of t is NULL in {ROWS}.", column="a", count=1)
    >>> print(error, error.recounted(6))
    Column 'a' of t is NULL in 1 row. Column 'a' of t is NULL in 6 rows.
    """

    def __init__(self, message: str, **context: Any) -> None:
        super().__init__(_with_count(message, context.get("count", 1)), **context)
        self.pattern = message

    def recounted(self, count: int) -> "InvalidData":
        """The same error, for `count` rows or places."""
        return type(self)(self.pattern, **{**self.context, "count": count})


def _with_count(pattern: str, count: int) -> str:
    plural = "" if count == 1 else "s"
    return pattern.replace(ROWS, f"{count:,} row{plural}").replace(
        PLACES, f"{count:,} place{plural}"
    )


class NullInNotNull(InvalidData):
    """NULL in a NOT NULL column, such as a column of the primary key."""


class ValueTooLong(InvalidData):
    """A value is longer than its column allows."""


class NumericOverflow(InvalidData):
    """A value is outside the range of its column's type."""


class BadRowKind(InvalidData):
    """A row kind is not one of +I, -U, +U, -D."""


class BadChangeEvent(InvalidData):
    """A change event of `paimon_stream.cdc` cannot be made a row. The message names its topic,
    partition and offset.
    """


class OutsidePartition(InvalidData):
    """Rows are outside the partition that is overwritten."""


class AmbiguousMerge(InvalidData):
    """Several rows of the source of a merge would change the same row of the table."""


class ReplayError(PaimonStreamError):
    """Exactly-once cannot be proven. Nothing was written; an operator decides."""


class CheckpointReset(ReplayError):
    """This checkpoint is new, but the same stream wrote here before with another checkpoint."""


class CheckpointRewound(ReplayError):
    """The table holds later batches of this checkpoint than the batch that Spark asks for."""


class HistoryUnknown(ReplayError):
    """It is unknown whether the batch was committed: the snapshots that would show it are gone."""


class SharedCheckpoint(ReplayError):
    """Another running query writes under the same identity."""


class IdentityUsed(ReplayError):
    """A batch write with this identity is in the table, and it was given other rows."""


class DuplicateWriter(ReplayError):
    """Two sinks of one run write under the same identity."""


class TableReplaced(ReplayError):
    """The table was dropped and created again since this stream last wrote."""


class TableRolledBack(ReplayError):
    """The last snapshot that this stream wrote or read is no longer part of the table."""


class CommitConflict(PaimonStreamError):
    """The commit does not fit the table's present state. Nothing was published; rerun the batch."""


class DeletedFiles(CommitConflict):
    """A file that the commit builds on is gone, or a file that it adds is already in the table."""


class ChangedMeanwhile(CommitConflict):
    """Others have changed what a deletion, an update or a merge had read, each time anew."""


class KeyRangeOverlap(CommitConflict):
    """Files of a level would have overlapping keys, because two jobs compacted a bucket at once."""


class BucketCountChanged(CommitConflict):
    """The files were written for another number of buckets than the partition has."""


class SchemaChanged(CommitConflict):
    """The prepared files do not fit the table's schema, because it has changed."""


class SequenceConflict(CommitConflict):
    """Another writer used the same sequence numbers in a bucket."""


class IndexConflict(SequenceConflict):
    """Another writer changed the hash index by which keys got their dynamic buckets."""


class StrictModeViolated(CommitConflict):
    """`commit.strict-mode.last-safe-snapshot` forbids a commit after what other users committed."""


class CommitLost(CommitConflict):
    """Another snapshot has the id of a snapshot that this package committed. A non-atomic writer
    replaced that snapshot, or a rollback freed its id.
    """


class CommitContended(PaimonStreamError):
    """Retries or time are exhausted. Nothing was published; it is safe to try again."""


class CommitUnknown(PaimonStreamError):
    """The storage did not say whether the snapshot was published. Or somebody tagged the snapshot
    before another writer replaced it, and then the commit failed. Nothing was deleted.
    """


class CommitVetoed(PaimonStreamError):
    """`before_commit` raised. Nothing was published, and the batch's files were removed."""


class WriteInterrupted(PaimonStreamError):
    """The batch or the compaction was interrupted. Nothing half-written is visible. A restart
    replays the batch.
    """


class StorageError(PaimonStreamError):
    """The storage refused an operation or failed. `context["path"]` is the path of the file."""


class NotFound(StorageError):
    """The file, table, snapshot, tag or branch does not exist."""


class AlreadyExists(StorageError):
    """The file, table, tag or branch already exists."""


class NotAtomic(StorageError):
    """The storage cannot create a file atomically, so commits could overwrite each other."""


class PermissionDenied(StorageError):
    """The storage does not permit the operation."""


class NoSpace(StorageError):
    """The disk or the quota is full."""


class Unavailable(StorageError):
    """The storage failed in any other way. It is unknown whether the operation took effect."""


__all__ = sorted(
    name
    for name, kind in list(globals().items())
    if isinstance(kind, type) and issubclass(kind, PaimonStreamError)
)
"""The classes of errors."""
