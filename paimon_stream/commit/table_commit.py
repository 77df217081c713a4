"""Commits without Spark: makes the files of commit messages part of a table.

`commit` publishes messages. `filter_and_commit` is for a caller that comes back after a failure
with messages that may already have been published (semantics.md §1.2). `overwrite` replaces what is
in the table. `abort` removes the files of messages that will never be published.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from paimon_stream._version import __version__
from paimon_stream.commit import conflicts
from paimon_stream.commit.checks import missing_files
from paimon_stream.commit.committer import Committer
from paimon_stream.commit.guard import guard_commit
from paimon_stream.commit.overwrite import Overwrite, OverwriteSource, plan_drop, plan_overwrite
from paimon_stream.commit.plan import collect
from paimon_stream.commit.refusals import CommitRefusals
from paimon_stream.commit.report import NO_OBSERVER, BatchObserver, CommitReport
from paimon_stream.commit.request import CommitRequest, Outcome, Published, Superseded
from paimon_stream.commit.sequence import Numbering
from paimon_stream.commit.window import require_last
from paimon_stream.errors import DeletedFiles
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, CommitKind, Snapshot, SnapshotRef
from paimon_stream.format.snapshot_marks import VERSION_MARK
from paimon_stream.options import BUCKET, COMMIT_USER_PREFIX, LONG, Arguments, Options
from paimon_stream.runtime import IdSource, Runtime, system
from paimon_stream.table.lineage import newest_of
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.message_files import check_messages, data_files, remove_files
from paimon_stream.table.references import names_in_use
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table, check_committable

_SHOWN = 5
_MESSAGES = "a list of CommitMessage"

AfterPublishing = Callable[[Table, Snapshot], None]
"""Called for the table after a commit. It never raises."""


class TableCommit:
    """Commits to one table under one commit user; made by `PaimonTable.new_commit`. Messages may
    come from any engine. Raises `UnsupportedFeature` for a table to which this release cannot
    commit. Its methods raise `InvalidOption` for arguments of a wrong type, with nothing published
    or deleted.
    """

    def __init__(
        self,
        table: Table,
        user: str,
        *,
        runtime: Runtime | None = None,
        observer: BatchObserver = NO_OBSERVER,
        after_commit: AfterPublishing | None = None,
        digest: str | None = None,
    ) -> None:
        """`digest` is that of the table's first schema when the rows were written, if that was
        earlier.
        """
        check_committable(table)
        self._table = table
        self._user = user
        self._storage = table.storage
        self._arguments = Arguments(self._storage.location)
        self._runtime = runtime or system()
        self._snapshots = SnapshotStore(self._storage, self._runtime)
        self._committer = Committer(table, self._runtime, observer, self._snapshots, digest)
        self._after_commit = after_commit
        self._last: Snapshot | None = None
        self._guarded = False

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
        """Publishes the messages as one snapshot, and their compaction, if any, as a second one
        after it. Without files there is no snapshot, unless the table's options ask for one.
        `watermark` is epoch milliseconds.

        It does not check whether the identifier was used before the call; after a failure, call
        `filter_and_commit`. Raises the errors of `Committer.commit`; `CommitLost` or
        `TableRolledBack` if the last snapshot that this object has published was replaced or rolled
        back; and `SharedCheckpoint` if somebody else publishes this identifier or a later one under
        the same user meanwhile.
        """
        identifier = self._arguments.whole("identifier", identifier, least=LONG[0], most=LONG[1])
        watermark, properties = self._taken_marks(watermark, properties)
        given = self._taken_messages(messages)
        latest = self._latest()
        outcome = self._publish(
            identifier, given, latest, properties, watermark=watermark, renumber=True
        )
        if isinstance(outcome, Superseded):
            raise self._refusals(identifier).shared_checkpoint(outcome.snapshot)
        where, user = self._storage.location, self._user
        return CommitReport.of(
            location=where, user=user, identifier=identifier, messages=given, outcome=outcome
        )

    def numbers(self, *, replaces: bool = False) -> Numbering | None:
        """The first sequence number for rows that are about to be written. None for a table without
        primary key. For `replaces` see `Sequences.next`. Raises `CorruptMetadata`, `StorageError`.
        """
        return self._committer.numbers(replaces=replaces)

    def append(
        self,
        messages: tuple[CommitMessage, ...],
        numbering: Numbering | None,
        properties: Mapping[str, str] | None = None,
        identifier: int | None = None,
    ) -> CommitReport:
        """Publishes rows that were just written with this numbering, as a batch commit under this
        user. With an identifier it is safe to repeat, as for `overwrite`. Raises the errors of
        `commit`, and `SequenceConflict` if others have used these numbers meanwhile.
        """
        more: dict[str, Any] = {
            "renumber": True,
            "numbering": numbering,
            "force_snapshot": identifier is not None,
        }
        return self._once(self._user, identifier, messages, properties, **more)

    def filter_and_commit(
        self,
        committables: Mapping[int, Iterable[CommitMessage]],
        watermark: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> int:
        """Publishes the committables that are newer than the last commit of this user, in the order
        of their identifiers. Returns how many it published. Every file must still exist, also of
        compactions, changelogs and indexes, and none may be in the table.

        Raises the errors of `commit`; with nothing published `FormatError` for messages that do not
        fit the table, and `DeletedFiles` for a file of any committable that is gone or already in
        the table; `HistoryUnknown` if the last commit of this user is not known, because snapshots
        have expired (option `paimon-stream.on-unknown-history`).
        """
        watermark, properties = self._taken_marks(watermark, properties)
        taken = self._taken_committables(committables)
        latest = self._latest()
        newest = self._newest_of_user(latest, min(taken)) if taken else None
        wanted = {one: given for one, given in taken.items() if newest is None or one > newest}
        for given in wanted.values():
            check_messages(self._table.layout, given, self._storage.location)
        for identifier, given in wanted.items():
            self._check_files_exist(identifier, given, latest)
        published = 0
        for identifier, given in wanted.items():
            outcome = self._publish(
                identifier,
                given,
                latest,
                properties,
                watermark=watermark,
                checked=True,
                renumber=True,
            )
            if isinstance(outcome, Superseded):
                if outcome.snapshot.commit_identifier != identifier:
                    raise self._refusals(identifier).shared_checkpoint(outcome.snapshot)
                latest = outcome.snapshot
            elif isinstance(outcome, Published):
                latest = outcome.newest
                published += 1
        return published

    def overwrite(
        self,
        partition: Mapping[str, Any] | None = None,
        messages: Iterable[CommitMessage] = (),
        identifier: int | None = None,
        *,
        dynamic: bool | None = None,
        watermark: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> CommitReport:
        """Replaces files of the table with the messages' files, in one snapshot.

        With a `partition` such as `{"dt": "2024-02-29"}` it replaces all matching partitions; `{}`
        matches the whole table. All files must lie in these partitions, and without files they are
        cleared. Without a `partition`, `dynamic` or else the table's option
        `dynamic-partition-overwrite` decides whether only the partitions that get files are
        replaced, or the whole table. If a dynamic overwrite has nothing to replace, there is no
        snapshot. Earlier snapshots keep their files.

        With an identifier it is safe to repeat: if this user has published the identifier or a
        later one, nothing is done. Without one it is a batch commit under a new user (semantics.md
        R1.2), and a repetition is another overwrite.

        Raises `InvalidOption`, `IncompatibleSchema` and `InvalidData` for a partition that the
        table cannot have, `OutsidePartition` for files outside it, and the errors of `commit` and
        `filter_and_commit`.
        """
        # Not the identifier that all batch commits share: what has it cannot be repeated.
        most = BATCH_IDENTIFIER - 1
        identifier = self._arguments.whole(
            "identifier", identifier, least=LONG[0], most=most, optional=True
        )
        watermark, properties = self._taken_marks(watermark, properties)
        given = self._taken_messages(messages)
        check_messages(self._table.layout, given, self._storage.location)
        manifests = ManifestStore(self._storage)
        planned = plan_overwrite(
            self._table, manifests, given, partition=partition, dynamic=dynamic
        )
        return self._overwrite(planned, identifier, watermark, properties)

    def truncate(self) -> CommitReport:
        """Clears the whole table in a batch commit under a new user. Raises the errors of
        `overwrite`.
        """
        return self.overwrite({})

    def drop_partitions(self, partitions: Iterable[Mapping[str, Any]]) -> CommitReport:
        """Clears all partitions that match one of the specs, such as `[{"dt": "2024-02-29"}]`, in
        one batch commit under a new user. Raises the errors of `overwrite`, and `InvalidOption` if
        no spec is given.
        """
        manifests = ManifestStore(self._storage)
        return self._overwrite(plan_drop(self._table, manifests, partitions), None, None, None)

    def clear(self, source: OverwriteSource) -> CommitReport:
        """Publishes this overwrite without rows in one batch commit under a new user; if nothing is
        to be removed any more, there is no snapshot. Raises the errors of `overwrite`.
        """
        return self._overwrite(
            Overwrite(source=source, messages=(), always=False), None, None, None
        )

    def _overwrite(
        self,
        planned: Overwrite,
        identifier: int | None,
        watermark: int | None,
        properties: Mapping[str, str] | None,
    ) -> CommitReport:
        user = (
            batch_user(self._table.options, self._runtime.ids) if identifier is None else self._user
        )
        more = {
            "source": planned.source,
            "kind": CommitKind.OVERWRITE,
            "force_snapshot": planned.always,
        }
        return self._once(
            user, identifier, planned.messages, properties, watermark=watermark, **more
        )

    def _once(
        self,
        user: str,
        identifier: int | None,
        messages: tuple[CommitMessage, ...],
        properties: Mapping[str, str] | None,
        **more: Any,
    ) -> CommitReport:
        """A batch commit, or with an identifier one that is made only if the user has not published
        it or a later one. Raises `SharedCheckpoint` if somebody publishes a later one meanwhile.
        """
        latest, number = self._latest(), BATCH_IDENTIFIER if identifier is None else identifier
        newest = None if identifier is None else self._newest_of_user(latest, identifier)
        known: dict[str, Any] = {
            "location": self._storage.location,
            "user": user,
            "identifier": number,
        }
        if newest is not None and newest >= number:
            return CommitReport(**known, outcome="already committed")
        outcome = self._publish(
            number, messages, latest, properties, user, checked=identifier is not None, **more
        )
        if not isinstance(outcome, Superseded):
            return CommitReport.of(**known, messages=messages, outcome=outcome)
        if outcome.snapshot.commit_identifier == number:
            return CommitReport(
                **known, outcome="already committed", snapshot_id=outcome.snapshot.id
            )
        raise self._refusals(number).shared_checkpoint(outcome.snapshot)

    def abort(self, messages: Iterable[CommitMessage]) -> int:
        """Deletes the files of messages that were not and will not be committed. Returns how many.
        Raises, and deletes nothing, `DeletedFiles` if a snapshot, tag or long-lived changelog of
        the table or of a branch refers to one of them, or a journal, whose run may still commit it;
        `CorruptMetadata` or `StorageError` if any of these cannot be read; `FormatError` for
        messages that do not fit the table.
        """
        given = self._taken_messages(messages)
        check_messages(self._table.layout, given, self._storage.location)
        paths = data_files(self._table.layout, given)
        names = {path: path.rpartition("/")[2] for path in paths}
        used = names_in_use(self._storage, self._runtime, set(names.values()))
        refused = sorted(path for path, name in names.items() if name in used)
        if refused:
            raise DeletedFiles(
                f"{len(refused)} of {len(paths)} files must not be deleted, because a snapshot, tag, branch, "
                f"changelog or journal refers to them: {', '.join(refused[:_SHOWN])}. Nothing was deleted. Abort only "
                "messages that were never committed.",
                user=self._user,
                count=len(refused),
                files=tuple(refused[:_SHOWN]),
            ).of_table(self._storage.location)
        return remove_files(self._storage, paths)

    def _taken_marks(
        self, watermark: int | None, properties: Mapping[str, str] | None
    ) -> tuple[int | None, dict[str, str]]:
        """The watermark, None or a whole number of 64 bits, and the properties, None or a mapping
        of texts.
        """
        return (
            self._arguments.whole(
                "watermark", watermark, least=LONG[0], most=LONG[1], optional=True
            ),
            self._arguments.mapping("properties", properties, "{'name': 'value'}", texts=True),
        )

    def _taken_messages(
        self, messages: Iterable[CommitMessage], name: str = "messages"
    ) -> tuple[CommitMessage, ...]:
        """The messages of a list, or of an iterator, which is taken once."""
        return self._arguments.items(name, messages, CommitMessage, _MESSAGES)

    def _taken_committables(
        self, committables: Mapping[int, Iterable[CommitMessage]]
    ) -> dict[int, tuple[CommitMessage, ...]]:
        """The messages of each identifier, in ascending order of the identifiers."""
        given = self._arguments
        if not isinstance(committables, Mapping):
            raise given.wrong(
                "committables", committables, f"a dict of identifiers, each with {_MESSAGES}"
            )
        keys = {
            given.whole("a key of committables", key, least=LONG[0], most=LONG[1]): key
            for key in committables
        }
        return {
            one: self._taken_messages(committables[keys[one]], f"committables[{one}]")
            for one in sorted(keys)
        }

    def _check_files_exist(
        self, identifier: int, messages: tuple[CommitMessage, ...], latest: Snapshot | None
    ) -> None:
        collected = collect(messages, table_buckets=self._table.options.value(BUCKET))
        layout = self._table.layout
        where, user, name = self._storage.location, self._user, layout.partition
        context = conflicts.CommitContext(
            location=where, user=user, identifier=identifier, partition_name=name, base=latest
        )
        gone = missing_files(self._storage, layout, collected.append, collected.compact)
        conflicts.check_files_exist(context, gone)

    def _publish(
        self,
        identifier: int,
        messages: tuple[CommitMessage, ...],
        seen: Snapshot | None,
        properties: Mapping[str, str] | None,
        user: str | None = None,
        **more: Any,
    ) -> Outcome:
        """Publishes, then runs the table's maintenance, which cannot fail the commit. `more` is for
        the request.
        """
        request = CommitRequest(
            user=user or self._user,
            identifier=identifier,
            messages=messages,
            properties={VERSION_MARK: __version__, **(properties or {})},
            seen=None if seen is None else SnapshotRef.of(seen),
            stage_uuid=self._runtime.ids.uuid(),
            **more,
        )
        outcome = self._committer.commit(request)
        if isinstance(outcome, Published):
            self._last = outcome.newest
            if self._after_commit is not None:
                self._after_commit(self._table, outcome.newest)
        return outcome

    def _latest(self) -> Snapshot | None:
        """The newest snapshot. Raises `CommitLost` or `TableRolledBack` if the last snapshot that
        this object has published was lost.
        """
        latest = self._snapshots.latest()
        if not self._guarded:
            guard_commit(self._table, latest, self._runtime.clock)
            self._guarded = True
        require_last(self._snapshots, self._user, self._last, latest)
        return latest

    def _newest_of_user(self, latest: Snapshot | None, smallest: int) -> int | None:
        """The identifier of this user's newest stream commit, None if there is none. Batch commits
        are skipped: their identifier is larger than any other, so every stream commit would count
        as committed (semantics.md §1.3).
        """
        if latest is None:
            return None
        user, batch = self._user, BATCH_IDENTIFIER
        found, since = newest_of(
            self._snapshots,
            latest,
            lambda one: one.commit_user == user and one.commit_identifier != batch,
        )
        if found is None and since > 1:
            why = f"no snapshot of this user is left, and those before {since} have expired"
            self._refusals(smallest).history_unknown(why)
        return None if found is None else found.commit_identifier

    def _refusals(self, identifier: int) -> CommitRefusals:
        where, options = self._storage.location, self._table.options
        return CommitRefusals(location=where, user=self._user, batch_id=identifier, options=options)


def batch_user(
    options: Options,
    ids: IdSource,
) -> str:
    """A commit user for one batch commit, as Java makes it: `commit.user-prefix`, if set, plus a
    UUID.
    """
    if not options.is_set(COMMIT_USER_PREFIX):
        return ids.uuid()
    return f"{options.value(COMMIT_USER_PREFIX)}_{ids.uuid()}"
