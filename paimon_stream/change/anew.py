"""Carries out a change of rows: computes it, publishes it, and computes it anew after a conflict.

    compute on the newest snapshot ──► publish, if the premises hold ──► published
          ▲                                      │
          └──────────── a conflict ◀─────────────┘

Invariants: a change is published as one snapshot, or nothing of it is. If nothing was published,
the files that were written for it are removed. They stay only after a `CommitUnknown`, and if the
process is interrupted while it publishes.

Why a long change ends beside busy writers: what others do to other rows is no conflict
(`commit/premises.py`), and what an earlier computation has read or written is used again where the
files are still the same. So the second computation only does what is new.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import count
from typing import Final, TypeVar

from paimon_stream._version import __version__
from paimon_stream.commit.committer import Committer
from paimon_stream.commit.guard import guard_commit
from paimon_stream.commit.premises import Premises
from paimon_stream.commit.request import ChangeSource, CommitRequest, Nothing, Published
from paimon_stream.commit.sequence import Numbering
from paimon_stream.commit.table_commit import AfterPublishing, batch_user
from paimon_stream.errors import (
    ChangedMeanwhile,
    CommitUnknown,
    DeletedFiles,
    NotFound,
    PaimonStreamError,
    SequenceConflict,
)
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, CommitKind
from paimon_stream.format.snapshot_marks import VERSION_MARK
from paimon_stream.runtime import Runtime
from paimon_stream.table.table import Table

_LOG = logging.getLogger(__name__)

_T = TypeVar("_T")

MOST_CONFLICTS: Final = 50
"""After so many conflicts in a row, the last one is raised. Others then change the same rows all the
time.
"""

ANEW: Final = (ChangedMeanwhile, DeletedFiles, SequenceConflict)
"""The conflicts after which a change is computed anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCounts:
    """How many rows a change of rows updates, deletes and inserts.

    Attributes:
        updated: the rows that get other values.
        deleted: the rows that go.
        inserted: the rows that come.
    """

    updated: int = 0
    deleted: int = 0
    inserted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputedChange:
    """A change of rows that was computed on one snapshot, and can be published.

    Attributes:
        table: the table at the time of the computation.
        premises: what it was computed from.
        uuid: is part of the names of the metadata and index files that are written for it.
        messages: the files that were written. In a table with a primary key: the rows that delete
            and replace others, with their changelog. With a `source`, only who has to know all
            files of the change uses them: the journal of a stream.
        source: returns the changes of files on each base; None if the messages are the changes.
        kind: what the commit does: APPEND if it only adds rows, else OVERWRITE.
        numbering: how the rows of a table with a primary key got their numbers.
        counts: how many rows it changes.
        owned: a context in which the change is published. It removes index files that the source
            has written if nothing is published.
    """

    table: Table
    premises: Premises
    uuid: str
    messages: tuple[CommitMessage, ...] = ()
    source: ChangeSource | None = None
    kind: CommitKind = CommitKind.OVERWRITE
    numbering: Numbering | None = None
    counts: RowCounts = RowCounts()
    owned: Callable[[], AbstractContextManager[None]] = field(default=nullcontext)


class RowChange(ABC):
    """A deletion, an update or a merge. One object serves one call of a user, and `carry_out` calls
    its methods. It may remember from one computation to the next what it has read and written: data
    files never change.

    - In an append table, `compute` returns a `source` that removes, replaces and marks files on each
      base (`change/files.py` has one), and premises with the files that were read and changed.
    - In a table with a primary key, it returns `messages` of files that `write_keyed_task` has
      written, of kind APPEND, with the `numbering` of their rows. The premises have the files that
      were read, and no changed files.
    """

    @abstractmethod
    def compute(self) -> ComputedChange | None:
        """Computes the change on the newest snapshot of the table as it is now; None if there is
        nothing to change. It is called again after a conflict. The method then removes the files
        of the earlier computation that it does not use again.
        """

    @abstractmethod
    def abandon(self) -> None:
        """Removes all files that were written, because they will not be published. It must not
        raise. `compute` may be called again.
        """


def carry_out(
    change: RowChange, runtime: Runtime, after_commit: AfterPublishing | None = None
) -> Published | None:
    """Computes a change and publishes it in one snapshot. Returns None if there is nothing to
    change. A dry run calls `RowChange.compute` and `RowChange.abandon` itself.

    Args:
        change: the change.
        runtime: the clock and the ids.
        after_commit: is called after publishing.

    Raises:
        ChangedMeanwhile, DeletedFiles, SequenceConflict: others changed the same rows each time.
        NotFound: a file of the table is missing, also when everything is computed anew.
        CommitUnknown: the change may be published. After all other errors, nothing is.
        PaimonStreamError: what `RowChange.compute` and `Committer.commit` raise.
    """

    def publish(computed: ComputedChange) -> Published | None:
        try:
            return _publish(computed, runtime, after_commit)
        except (CommitUnknown, *ANEW):
            raise
        except PaimonStreamError:
            change.abandon()
            raise

    return publish_computed(change, publish)


def publish_computed(change: RowChange, publish: Callable[[ComputedChange], _T]) -> _T | None:
    """Computes a change, and anew after each conflict, until it is published. Returns what
    `publish` returns; None if there is nothing to change.

    Args:
        change: the change.
        publish: publishes it in one snapshot. If it raises an error of `ANEW`, nothing is
            published, and the files stay for the next computation, or are removed here. After other
            errors, what becomes of the files is up to the caller.

    Raises:
        PaimonStreamError: the errors of `carry_out`, and what `publish` raises.
    """
    missing: set[object] = set()
    for conflicts in count(1):
        try:
            computed = change.compute()
        except NotFound as gone:
            change.abandon()
            path = gone.context.get("path")
            if path is None or path in missing or conflicts == MOST_CONFLICTS:
                raise
            missing.add(path)  # others may have replaced it, and the snapshot may have expired
            _LOG.info("%s The change is computed anew.", gone)
            continue
        except BaseException:
            change.abandon()
            raise
        if computed is None:
            return None
        try:
            return publish(computed)
        except ANEW as conflict:
            if conflicts == MOST_CONFLICTS:
                change.abandon()
                raise
            if isinstance(conflict, DeletedFiles):
                change.abandon()  # an orphan cleaner may have taken what was written long ago
            _LOG.info("%s The change is computed anew.", conflict)
    raise AssertionError("unreachable")


def _publish(
    computed: ComputedChange, runtime: Runtime, after_commit: AfterPublishing | None
) -> Published | None:
    """Publishes a change once. Raises the errors of `Committer.commit`."""
    table = computed.table
    guard_commit(table, computed.premises.snapshot, runtime.clock)
    request = CommitRequest(
        user=batch_user(table.options, runtime.ids),
        identifier=BATCH_IDENTIFIER,
        messages=computed.messages if computed.source is None else (),
        source=computed.source,
        kind=computed.kind,
        properties={VERSION_MARK: __version__},
        numbering=computed.numbering,
        seen=computed.premises.seen,
        stage_uuid=computed.uuid,
        premises=computed.premises,
    )
    with computed.owned():
        outcome = Committer(table, runtime=runtime).commit(request)
    if isinstance(outcome, Nothing):
        return None
    assert isinstance(outcome, Published)  # batch commits are never superseded
    if after_commit is not None:
        after_commit(table, outcome.newest)
    return outcome
