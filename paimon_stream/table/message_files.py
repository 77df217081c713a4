"""Computes the paths of the files that commit messages name, and removes such files. Only the owner
of the files removes them (the ownership law).
"""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from paimon_stream.errors import FormatError, PaimonStreamError, UnsupportedFeature
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.entries import DataFileMeta, IndexFileMeta
from paimon_stream.format.names import checked_name, is_bucket
from paimon_stream.storage.base import Storage
from paimon_stream.storage.external import external_path
from paimon_stream.table.layout import Layout
from paimon_stream.table.row_ids import ROW_ID

_LOG = logging.getLogger(__name__)

_MOST_ROWS: Final = 2**47
"""More rows than any file has. A snapshot adds up the rows of its files in 64 bits."""

_MOST_NUMBER: Final = 2**62
"""A larger sequence number leaves too few numbers for the rows that follow."""

_INSIDE: Final[frozenset[str | None]] = frozenset((None,))
"""The external path of a file that lies inside the table: none."""


def check_messages(layout: Layout, messages: Iterable[CommitMessage], location: str) -> None:
    """Checks that the table can have every partition, bucket and file that the messages name. The
    messages may come from another engine or from a file. Each name in them becomes a path, and an
    impossible number would make the table unusable. `location` is the table's location, for the
    error. Raises `FormatError`.
    """
    partitions: set[bytes] = set()
    buckets: set[tuple[int, int | None]] = set()
    for message in messages:
        try:
            if message.partition not in partitions:
                layout.bucket_folder(message.partition, 0)  # raises for a wrong partition
                partitions.add(message.partition)
            bucket = (message.bucket, message.total_buckets)
            if bucket not in buckets:
                if not is_bucket(*bucket):
                    raise FormatError(
                        f"There is no bucket {message.bucket} of {message.total_buckets}."
                    )
                buckets.add(bucket)
            added = message.new_files
            if message.is_more_than_new_files():
                for name in message.file_names():
                    checked_name(name, location, "It")  # raises for a wrong name
                added = (
                    *added,
                    *message.changelog_files,
                    *message.compact_after,
                    *message.compact_changelog_files,
                )
            else:
                for file in added:
                    checked_name(file.file_name, location, "It")
                    for name in file.extra_files:
                        checked_name(name, location, "It")
            # Files inside the table have no external path. For compacted files, the table already
            # has the external path. Most messages compact nothing.
            known_paths = _INSIDE
            if message.compact_before:
                known_paths = _INSIDE.union(file.external_path for file in message.compact_before)
            for file in added:
                _check_file(file)
                if file.external_path not in known_paths:
                    _check_external_path(layout, message, file)
        except FormatError as error:
            raise _misfit(message, error.message, location) from None
        except (TypeError, AttributeError) as error:  # callers may pass values of any type
            raise _misfit(message, f"a field has the wrong type: {error}.", location) from None


def _misfit(message: CommitMessage, problem: str, location: str) -> FormatError:
    """The error for a commit message; `problem` is a sentence."""
    partition = None
    if isinstance(message.partition, bytes):
        partition = message.partition.hex()
    return FormatError(
        f"a commit message does not fit the table, so nothing of it was published or deleted: {problem} Its "
        "writer or the bytes are wrong: write its files again.",
        partition=partition,
        bucket=message.bucket,
    ).of_table(location)


def _check_external_path(layout: Layout, message: CommitMessage, file: DataFileMeta) -> None:
    """Checks that the table's options allow the external path of a file. Raises `FormatError`."""
    path = layout.data_file(message.partition, message.bucket, file.file_name, file.external_path)
    if not layout.holds(path) or external_path(path) != file.external_path:
        raise FormatError(
            f"The options do not name the external path {file.external_path!r} of {file.file_name}."
        )


def _check_file(file: DataFileMeta) -> None:
    """Checks the values of a file on which readers, expiry and later commits rely. Raises
    `FormatError`.
    """
    deletes = file.delete_row_count or 0
    low = file.min_sequence_number
    high = file.max_sequence_number
    if not (0 <= deletes <= file.row_count <= _MOST_ROWS and file.file_size >= 0):
        raise FormatError(
            f"File {file.file_name} has {file.file_size} bytes and {file.row_count} rows, {deletes} of them "
            "deletes, which cannot be."
        )
    if not low <= high <= _MOST_NUMBER:
        raise FormatError(
            f"File {file.file_name} has sequence numbers {low} to {high}, which cannot be."
        )


def check_committable_here(
    messages: Iterable[CommitMessage], location: str, columns: frozenset[str] | None
) -> None:
    """Raises `UnsupportedFeature` for messages of other engines that this package cannot commit
    safely.

    - A message that asks for a check of conflicts since a snapshot. A commit without that check
      could undo the changes of other writers.
    - A message that does more than add whole rows, in a table with data evolution. Such a message
      would have to be compared with the changes of other writers to the same rows.

    Args:
        messages: the messages.
        location: the table's location, for the error.
        columns: the names of all columns in a table with data evolution; None for other tables.
    """
    for message in messages:
        if columns is not None:
            _check_whole_rows(message, location, columns)
        if message.check_from_snapshot is not None:
            raise UnsupportedFeature(
                f"A commit message asks for a check of conflicts since snapshot {message.check_from_snapshot}, which "
                "this release does not support, so nothing was published. Commit it with the engine that wrote it.",
                snapshot_id=message.check_from_snapshot,
            ).of_table(location)


def _check_whole_rows(message: CommitMessage, location: str, columns: frozenset[str]) -> None:
    """Raises `UnsupportedFeature` if the message does more than add files of whole new rows."""
    parts = [
        file.file_name
        for file in message.new_files
        if file.first_row_id is not None or not _has_whole_rows(file, columns)
    ]
    added_only = replace(message, new_files=())
    if parts or any(added_only.file_names()):
        raise UnsupportedFeature(
            "A commit message does more than add whole rows, which is all that this release commits where "
            f"data-evolution.enabled is set: {', '.join(parts) or 'it removes, compacts or indexes files'}. Nothing "
            "was published. Commit it with the engine that wrote it.",
            files=tuple(parts),
        ).of_table(location)


def _has_whole_rows(file: DataFileMeta, columns: frozenset[str]) -> bool:
    """Whether a file has all columns of the table, and no column of row ids. A commit gives no ids
    to rows that bring their own ids. Without a first row id, no engine finds the file's place among
    the other files.
    """
    names = columns if file.write_cols is None else frozenset(file.write_cols)
    return columns <= names and ROW_ID not in names


def data_files(layout: Layout, messages: tuple[CommitMessage, ...]) -> tuple[str, ...]:
    """The paths, relative to the table, of all files that the messages would add: data files with
    the files beside them, changelog files and index files. Index files outside the table are left
    out. Files that a compaction only moves to another level are left out, too, because they are
    part of the table already (semantics.md §2.8).
    """
    moved = {file.file_name for message in messages for file in message.compact_before}
    paths = list(written_files(layout, messages))
    for message in messages:
        rewritten = [file for file in message.compact_after if file.file_name not in moved]
        files = (*rewritten, *message.compact_changelog_files)
        paths.extend(_paths(layout, message, files, message.compact_new_index_files))
    return tuple(paths)


def written_files(layout: Layout, messages: tuple[CommitMessage, ...]) -> tuple[str, ...]:
    """The paths of the files that the messages would add, as `data_files` returns them, but without
    the results of compactions.
    """
    paths: list[str] = []
    for message in messages:
        files = (*message.new_files, *message.changelog_files)
        paths.extend(_paths(layout, message, files, message.new_index_files))
    return tuple(paths)


def _paths(
    layout: Layout,
    message: CommitMessage,
    files: Iterable[DataFileMeta],
    indexes: Iterable[IndexFileMeta],
) -> Iterator[str]:
    for file in files:
        for name in (file.file_name, *file.extra_files):
            yield layout.data_file(message.partition, message.bucket, name, file.external_path)
    for index in indexes:
        if index.external_path is None:
            yield layout.index_file(message.partition, message.bucket, index)


def remove_files(storage: Storage, paths: Iterable[str]) -> int:
    """Deletes the files. After a failure, goes on with the next file. Returns the number of delete
    requests that succeeded.
    """
    removed = 0
    for path in paths:
        try:
            storage.delete(path)
            removed += 1
        except PaimonStreamError as error:
            _LOG.warning(
                "%s: could not remove %s, it stays as an orphan: %s", storage.location, path, error
            )
    return removed
