"""Keeps orphan removal away from the files of a batch that `recommit` commits again, where no
journal names them. Such files are old, and nothing refers to them before they are committed.

Each of the two writes a note of its own first, an empty file in `_paimon_stream/` of main, and then
looks for a note of the other. So at least one of the two sees the other's note, gives up, and has
changed nothing. The notes disappear when the work ends.

Invariants, also if a process dies or sleeps:

- An orphan removal deletes nothing once its note is gone, or a day after it began. So an older note
  keeps nobody away, and an operator may delete the note of a removal that was killed.
- A note of `recommit` counts for an hour. A commit publishes nothing that it staged more than half
  an hour ago (`commit/committer.py`). If `recommit` slept nevertheless, it looks for its files once
  more after it has published, and reports those that are gone.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from paimon_stream.errors import CommitContended, NoSpace, StorageError
from paimon_stream.runtime import Runtime
from paimon_stream.storage.base import FileStat, Storage
from paimon_stream.storage.branch import whole_of
from paimon_stream.table.layout import OWN_FOLDER

_LOG = logging.getLogger(__name__)
_RECOMMIT: Final = "recommit."
_REMOVAL: Final = "orphan-removal."
_HOUR_MILLIS: Final = 3_600_000
_LONGEST_SECONDS: Final = 24 * 3600.0
"""How long an orphan removal deletes at most."""
_REMOVAL_MILLIS: Final = 25 * _HOUR_MILLIS
"""How long the note of an orphan removal counts: an hour longer than it deletes."""


@contextmanager
def recommitting(storage: Storage, runtime: Runtime) -> Iterator[None]:
    """A context in which no orphan removal begins. Raises `CommitContended` if one is under way,
    and `StorageError`.
    """
    table = whole_of(storage)
    note = _write(table, _RECOMMIT, runtime)
    try:
        for other in table.list_files(OWN_FOLDER, _REMOVAL):
            if note.modified_millis - other.modified_millis < _REMOVAL_MILLIS:
                raise CommitContended(
                    "a removal of orphans is under way, or was killed within the last 25 hours, and no "
                    "journal names the files of the batch, so it may delete them. Nothing was published. "
                    "When the removal has ended, try again. If it was killed, delete its note first: "
                    f"{other.path}.",
                    path=other.path,
                ).of_table(table.location)
        yield
    finally:
        _remove(table, note.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalNote:
    """The note of an orphan removal.

    Attributes:
        storage: the whole table.
        runtime: the clock.
        path: the file; None if there was no space for it.
        began: when the removal began, by the monotonic clock, in seconds.
    """

    storage: Storage
    runtime: Runtime
    path: str | None
    began: float

    def check(self) -> None:
        """Raises `CommitContended` if nothing more may be deleted, and `StorageError`."""
        if self.path is None:
            _refuse_recommits(self.storage, None)
            return
        is_over = self.runtime.clock.monotonic() - self.began > _LONGEST_SECONDS
        if is_over or not self.storage.exists(self.path):
            raise CommitContended(
                f"the removal of orphans has run for a day, or somebody has deleted its note "
                f"{self.path}, so it stops here. Run it again.",
                path=self.path,
            ).of_table(self.storage.location)


@contextmanager
def removing_orphans(storage: Storage, runtime: Runtime) -> Iterator[RemovalNote]:
    """A context in which no `recommit` begins of a batch that no journal has. Gives the note, which
    is to be checked before files are deleted. Raises `CommitContended` if a `recommit` is under
    way, and `StorageError`. Where there is no space for the note, each check looks for a
    `recommit`, because deleting must work on a full disk.
    """
    began = runtime.clock.monotonic()
    note: FileStat | None = None
    with suppress(NoSpace):
        note = _write(storage, _REMOVAL, runtime)
    try:
        if note is not None:
            _remove_killed_removals(storage, note)
        _refuse_recommits(storage, note)
        path = None if note is None else note.path
        yield RemovalNote(storage=storage, runtime=runtime, path=path, began=began)
    finally:
        if note is not None:
            _remove(storage, note.path)


def _write(storage: Storage, prefix: str, runtime: Runtime) -> FileStat:
    """Writes a note, and returns it as the storage has it. After an error no note is left."""
    path = f"{OWN_FOLDER}/{prefix}{runtime.ids.uuid()}"
    try:
        storage.write(path, b"")
        return storage.stat(path)
    except StorageError:
        _remove(storage, path)  # the write may have taken effect
        raise


def _remove(storage: Storage, path: str) -> None:
    """Removes a note. A failure is logged, because what was done before stands."""
    try:
        storage.delete(path)
    except StorageError as error:
        _LOG.warning(
            "%s: the note %s stays, and has to be deleted: %s", storage.location, path, error
        )


def _remove_killed_removals(storage: Storage, own: FileStat) -> None:
    """Removes the notes of orphan removals that were killed so long ago that they no longer count.
    `own` shows the time by the clock of the storage.
    """
    for note in storage.list_files(OWN_FOLDER, _REMOVAL):
        if own.modified_millis - note.modified_millis >= _REMOVAL_MILLIS:
            _remove(storage, note.path)


def _refuse_recommits(storage: Storage, own: FileStat | None) -> None:
    """Raises `CommitContended` if a `recommit` is under way. `own` shows the time by the clock of
    the storage; if it is None, every note counts. Deletes older notes.
    """
    for note in storage.list_files(OWN_FOLDER, _RECOMMIT):
        if own is not None and own.modified_millis - note.modified_millis > _HOUR_MILLIS:
            _remove(storage, note.path)
            continue
        raise CommitContended(
            "a recommit of a batch that no journal has is under way, or was killed within the last "
            "hour, so no orphan is removed. Try again in an hour, or, if it was killed, delete its "
            f"note first: {note.path}.",
            path=note.path,
        ).of_table(storage.location)
