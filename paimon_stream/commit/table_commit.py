"""Committing without Spark: whoever has commit messages makes them part of a table.

`commit` publishes; `filter_and_commit` is for whoever comes back after a failure with messages that may
have been published already (semantics.md 1.2); `abort` removes the files of messages that never will be.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from paimon_stream.commit.committer import CommitRequest, Committer, Outcome, Published, Superseded
from paimon_stream.commit.dead_attempts import data_files, remove_files
from paimon_stream.commit.identity import Marks, SnapshotRef
from paimon_stream.commit.message import CommitMessage
from paimon_stream.commit.observer import NO_OBSERVER, BatchObserver
from paimon_stream.commit.replay_errors import Refusals
from paimon_stream.commit.report import CommitReport
from paimon_stream.commit.usage import names_in_use
from paimon_stream.errors import DeletedFiles
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, Snapshot
from paimon_stream.runtime import Runtime, system
from paimon_stream.storage.base import Storage
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table, check_writable

__all__ = ["TableCommit"]

_LOG = logging.getLogger(__name__)
_SHOWN = 5


class TableCommit:
    """Commits to one table under one commit user. Made by `PaimonTable.new_commit`.

    Raises `UnsupportedTable` or `UnsupportedFeature` for a table that this release does not write.
    """

    def __init__(
        self,
        table: Table,
        user: str,
        *,
        storage: Storage | None = None,
        runtime: Runtime | None = None,
        observer: BatchObserver = NO_OBSERVER,
    ) -> None:
        check_writable(table)
        self._table = table
        self._user = user
        self._storage = storage or table.storage
        self._runtime = runtime or system()
        self._snapshots = SnapshotStore(self._storage, self._runtime)
        self._committer = Committer(table, self._storage, self._runtime, observer)

    @property
    def user(self) -> str:
        """The commit user."""
        return self._user

    def __repr__(self) -> str:
        return f"TableCommit({self._storage.location!r}, {self._user!r})"

    def commit(
        self,
        identifier: int,
        messages: Iterable[CommitMessage],
        watermark: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> CommitReport:
        """Publishes the messages as one snapshot; without any file as none, unless the table's options ask
        for it. `watermark` is epoch milliseconds.

        It does not look whether the identifier was used before it was called: after a failure call
        `filter_and_commit`. Raises as `Committer.commit`, and `SharedCheckpoint` where somebody else
        publishes this identifier or a later one under the same user meanwhile.
        """
        given = tuple(messages)
        outcome = self._publish(identifier, given, self._snapshots.latest(), watermark, properties, False)
        if isinstance(outcome, Superseded):
            raise self._shared(identifier, outcome.snapshot)
        return CommitReport.of(
            location=self._storage.location,
            user=self._user,
            identifier=identifier,
            messages=given,
            outcome=outcome,
        )

    def filter_and_commit(
        self,
        committables: Mapping[int, Sequence[CommitMessage]],
        watermark: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> int:
        """Publishes, in the order of their identifiers, those committables that are newer than the last
        commit of this user; returns how many it published.

        Every file must still exist and none may be in the table. Raises as `commit`; `DeletedFiles` where a
        file is gone or is in the table already; `HistoryUnknown` where no snapshot of this user is left
        and older ones have expired, so that nobody can tell (option `paimon-stream.on-unknown-history`).
        """
        latest = self._snapshots.latest()
        newest = self._newest_of_user(latest, min(committables, default=0))
        published = 0
        for identifier in sorted(committables):
            if newest is not None and identifier <= newest:
                continue
            given = tuple(committables[identifier])
            outcome = self._publish(identifier, given, latest, watermark, properties, True)
            if isinstance(outcome, Superseded):
                if outcome.snapshot.commit_identifier != identifier:
                    raise self._shared(identifier, outcome.snapshot)
                latest = outcome.snapshot
            elif isinstance(outcome, Published):
                latest = outcome.snapshot
                published += 1
        return published

    def abort(self, messages: Iterable[CommitMessage]) -> int:
        """Deletes the files of messages that were not, and will not be, committed; returns how many.

        Raises `DeletedFiles`, deleting nothing, if one of them is part of a snapshot or tag that is left,
        or noted in a journal, whose run may still commit it.
        """
        paths = data_files(self._table.layout, tuple(messages))
        used = names_in_use(self._storage, self._table, self._snapshots)
        refused = sorted(path for path in paths if path.rpartition("/")[2] in used)
        if refused:
            raise DeletedFiles(
                f"{self._storage.location}: {len(refused)} of {len(paths)} files must not be deleted: a "
                f"snapshot, a tag or a journal refers to them: {', '.join(refused[:_SHOWN])}. Nothing was "
                "deleted. Abort only messages that were never committed.",
                table=self._storage.location,
                user=self._user,
                count=len(refused),
                files=tuple(refused[:_SHOWN]),
            )
        return remove_files(self._storage, paths)

    def _publish(
        self,
        identifier: int,
        messages: tuple[CommitMessage, ...],
        seen: Snapshot | None,
        watermark: int | None,
        properties: Mapping[str, str] | None,
        checked: bool,
    ) -> Outcome:
        request = CommitRequest(
            user=self._user,
            identifier=identifier,
            messages=messages,
            watermark=watermark,
            properties=dict(properties or {}),
            renumber=True,
            checked=checked,
            seen=None if seen is None else SnapshotRef.of(seen),
            stage_uuid=self._runtime.ids.uuid(),
        )
        return self._committer.commit(request)

    def _newest_of_user(self, latest: Snapshot | None, smallest: int) -> int | None:
        """The identifier of this user's newest stream commit, None if there is none.

        Batch commits are passed over: their identifier is larger than any, and would swallow all others
        (semantics.md 1.3).
        """
        if latest is None:
            return None
        lowest = latest.id
        for snapshot in self._snapshots.walk_down(latest.id):
            lowest = snapshot.id
            if snapshot.commit_user == self._user and snapshot.commit_identifier != BATCH_IDENTIFIER:
                return snapshot.commit_identifier
        if lowest > 1 and smallest > 0:
            self._refusals(smallest).history_unknown(
                f"no snapshot of this user is left, and those before {lowest} have expired"
            )
        return None

    def _shared(self, identifier: int, snapshot: Snapshot) -> Exception:
        run_id = Marks.of(snapshot.properties).run_id
        return self._refusals(identifier).shared_checkpoint(snapshot.id, snapshot.commit_identifier, run_id)

    def _refusals(self, identifier: int) -> Refusals:
        return Refusals(
            location=self._storage.location,
            user=self._user,
            batch_id=identifier,
            options=self._table.options,
        )
