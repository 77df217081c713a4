"""Commits files to a table without Spark. Commit messages name the files.

`commit` publishes messages. `filter_and_commit` is for a caller that comes back after a failure
with messages that may already have been published (semantics.md §1.2). `overwrite` replaces what is
in the table. `abort` removes the files of messages that will never be published.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from paimon_stream._version import __version__
from paimon_stream.commit import conflicts
from paimon_stream.commit.checks import missing_files
from paimon_stream.commit.committer import Committer
from paimon_stream.commit.guard import guard_commit
from paimon_stream.commit.overwrite import Overwrite, plan_drop, plan_overwrite
from paimon_stream.commit.plan import collect
from paimon_stream.commit.refusals import CommitRefusals
from paimon_stream.commit.report import NO_OBSERVER, BatchObserver, CommitReport
from paimon_stream.commit.request import (
    ChangeSource,
    CommitRequest,
    Nothing,
    Outcome,
    Published,
    Superseded,
)
from paimon_stream.commit.sequence import Numbering
from paimon_stream.commit.window import require_last
from paimon_stream.errors import DeletedFiles
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, CommitKind, Snapshot, SnapshotRef
from paimon_stream.format.snapshot_marks import VERSION_MARK
from paimon_stream.options import (
    BUCKET,
    COMMIT_USER_PREFIX,
    DATA_EVOLUTION,
    LONG,
    Arguments,
    Options,
)
from paimon_stream.runtime import IdSource, Runtime, system
from paimon_stream.table.lineage import newest_of
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.message_files import (
    check_committable_here,
    check_messages,
    data_files,
    remove_files,
)
from paimon_stream.table.references import names_in_use
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table, check_committable

_SHOWN = 5
_MESSAGES = "a list of CommitMessage"

AfterPublishing = Callable[[Table, Snapshot], None]
"""Called for the table after a commit. It never raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _CommitOrder:
    """What a caller asks `TableCommit` to publish.

    Attributes:
        user: the commit user.
        identifier: the commit identifier. None for a batch commit, which cannot be repeated.
        messages: the files that were written.
        properties: properties of the snapshot.
        watermark: epoch milliseconds.
        source: as in `CommitRequest`, like the following attributes.
        kind: what the commit does.
        renumber: whether files in fixed buckets get their sequence numbers now.
        numbering: how the rows got their numbers.
        checked: whether the commit checks that every file exists.
        force_snapshot: whether there is a snapshot even without changes.
    """

    user: str
    identifier: int | None
    messages: tuple[CommitMessage, ...]
    properties: Mapping[str, str] | None
    watermark: int | None = None
    source: ChangeSource | None = None
    kind: CommitKind = CommitKind.APPEND
    renumber: bool = False
    numbering: Numbering | None = None
    checked: bool = False
    force_snapshot: bool = False

    @property
    def snapshot_identifier(self) -> int:
        """The identifier that the snapshot gets. All batch commits share one identifier."""
        if self.identifier is None:
            return BATCH_IDENTIFIER
        return self.identifier


class TableCommit:
    """Commits to one table under one commit user. `PaimonTable.new_commit` makes it. Messages may
    come from any engine. Raises `UnsupportedFeature` for a table to which this release cannot
    commit. Its methods raise `InvalidOption` for arguments of a wrong type. In that case, nothing
    is published or deleted.
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
        """Prepares commits. `digest` is the digest of the table's first schema when the rows were
        written. None: the digest is read now.
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
        """The newest snapshot that this object has published."""
        self._guarded = False
        """Whether `guard_commit` was asked, which is done once."""

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
        """Publishes the messages as one snapshot. If they have a compaction, it follows as a second
        snapshot. Without files there is no snapshot, unless the table's options ask for one.

        This does not check whether the identifier was used before the call. After a failure, call
        `filter_and_commit`.

        Args:
            identifier: the commit identifier.
            messages: the files that were written.
            watermark: epoch milliseconds.
            properties: properties of the snapshot.

        Raises:
            CommitLost, TableRolledBack: the last snapshot that this object has published was
                replaced or rolled back.
            SharedCheckpoint: somebody else publishes this identifier or a later one under the same
                user meanwhile.
            UnsupportedFeature: a message asks for a search for conflicts (`check_from_snapshot`).
            UnsupportedTable: another engine writes the table, and `paimon-stream.commit.guard` is
                strict.
            PaimonStreamError: the errors of `Committer.commit`.
        """
        identifier = self._arguments.whole("identifier", identifier, least=LONG[0], most=LONG[1])
        watermark, properties = self._checked_marks(watermark, properties)
        all_messages = self._checked_messages(messages)
        latest = self._latest()
        order = _CommitOrder(
            user=self._user,
            identifier=identifier,
            messages=all_messages,
            properties=properties,
            watermark=watermark,
            renumber=True,
        )
        outcome = self._publish_order(order, latest)
        if isinstance(outcome, Superseded):
            raise self._refusals(identifier).shared_checkpoint(outcome.snapshot)
        return self._report(order, outcome)

    def numbers(self, *, replaces: bool = False) -> Numbering | None:
        """The sequence numbers for a batch that is about to be written. None for a table without a
        primary key, and for a table whose rows get their numbers later. `replaces` says whether the
        batch replaces what is in the table. Raises `CorruptMetadata`, `StorageError`.
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
        user. With an identifier, the call is safe to repeat, as `overwrite` is. Raises the errors
        of `commit`, and `SequenceConflict` if other commits have used these numbers meanwhile.
        """
        return self._publish_once(
            _CommitOrder(
                user=self._user,
                identifier=identifier,
                messages=messages,
                properties=properties,
                renumber=True,
                numbering=numbering,
                force_snapshot=identifier is not None,
            )
        )

    def filter_and_commit(
        self,
        committables: Mapping[int, Iterable[CommitMessage]],
        watermark: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> int:
        """Publishes the committables that are newer than the last commit of this user, in the order
        of their identifiers. Returns how many it published. Every file must still exist, including
        the files of compactions, changelogs and indexes. No file may be in the table already.

        Args:
            committables: the messages of each identifier.
            watermark: epoch milliseconds.
            properties: properties of the snapshots.

        Raises:
            FormatError: messages do not fit the table. Nothing was published.
            DeletedFiles: a file of any committable is gone, or already in the table. Nothing was
                published.
            HistoryUnknown: the last commit of this user is not known, because snapshots have
                expired (option `paimon-stream.on-unknown-history`).
            PaimonStreamError: the errors of `commit`.
        """
        watermark, properties = self._checked_marks(watermark, properties)
        by_identifier = self._checked_committables(committables)
        latest = self._latest()
        wanted = self._newer_committables(by_identifier, latest)
        self._check_all(wanted, latest)
        published = 0
        for identifier, all_messages in wanted.items():
            order = _CommitOrder(
                user=self._user,
                identifier=identifier,
                messages=all_messages,
                properties=properties,
                watermark=watermark,
                renumber=True,
                checked=True,
            )
            outcome = self._publish_order(order, latest)
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
        """Replaces files of the table with the messages' files, in one snapshot. Earlier snapshots
        keep their files.

        Args:
            partition: a spec such as `{"dt": "2024-02-29"}`. All matching partitions are replaced,
                and without files they are cleared. `{}` matches the whole table. All files must lie
                in these partitions.
            messages: the new files.
            identifier: makes the overwrite safe to repeat: if this user has published the
                identifier or a later one, nothing is done. Without one it is a batch commit under a
                new user (semantics.md R1.2), and a repetition is another overwrite.
            dynamic: if no partition is given, whether only the partitions that get files are
                replaced, or the whole table. None: the table's option `dynamic-partition-overwrite`
                decides. If a dynamic overwrite has nothing to replace, there is no snapshot.
            watermark: epoch milliseconds.
            properties: properties of the snapshot.

        Raises:
            InvalidOption, IncompatibleSchema, InvalidData: the table cannot have such a partition.
            OutsidePartition: a file is outside the partition.
            PaimonStreamError: the errors of `commit` and `filter_and_commit`.
        """
        # All batch commits share one identifier, and a commit that has it cannot be repeated.
        identifier = self._arguments.whole(
            "identifier", identifier, least=LONG[0], most=BATCH_IDENTIFIER - 1, optional=True
        )
        watermark, properties = self._checked_marks(watermark, properties)
        all_messages = self._checked_messages(messages)
        check_messages(self._table.layout, all_messages, self._storage.location)
        manifests = ManifestStore(self._storage)
        planned = plan_overwrite(
            self._table, manifests, all_messages, partition=partition, dynamic=dynamic
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
        return self._overwrite(plan_drop(self._table, manifests, partitions))

    def clear(self, source: ChangeSource) -> CommitReport:
        """Publishes the removals of a source, without new rows, in one batch commit under a new
        user. If there is nothing to remove any more, there is no snapshot. Raises the errors of
        `overwrite`.
        """
        return self._publish_once(
            _CommitOrder(
                user=batch_user(self._table.options, self._runtime.ids),
                identifier=None,
                messages=(),
                properties=None,
                source=source,
                kind=CommitKind.OVERWRITE,
            )
        )

    def _overwrite(
        self,
        planned: Overwrite,
        identifier: int | None = None,
        watermark: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> CommitReport:
        """Publishes an overwrite. Without an identifier, the commit has a new user."""
        user = self._user
        if identifier is None:
            user = batch_user(self._table.options, self._runtime.ids)
        return self._publish_once(
            _CommitOrder(
                user=user,
                identifier=identifier,
                messages=planned.messages,
                properties=properties,
                watermark=watermark,
                source=planned.source,
                kind=CommitKind.OVERWRITE,
                force_snapshot=planned.always,
            )
        )

    def _publish_once(self, order: _CommitOrder) -> CommitReport:
        """Makes a batch commit. If the order has an identifier, the commit is made only if the user
        has not published this identifier or a later one. Raises `SharedCheckpoint` if somebody
        publishes a later identifier meanwhile.
        """
        latest = self._latest()
        number = order.snapshot_identifier
        already = CommitReport(
            location=self._storage.location,
            user=order.user,
            identifier=number,
            outcome="already committed",
        )
        if order.identifier is not None:
            newest = self._newest_of_user(latest, order.identifier)
            if newest is not None and newest >= number:
                return already
        outcome = self._publish_order(replace(order, checked=order.identifier is not None), latest)
        if not isinstance(outcome, Superseded):
            return self._report(order, outcome)
        if outcome.is_open:
            raise self._refusals(number).superseded_and_open(outcome.snapshot)
        if outcome.snapshot.commit_identifier == number:
            return replace(already, snapshot_id=outcome.snapshot.id)
        raise self._refusals(number).shared_checkpoint(outcome.snapshot)

    def _report(self, order: _CommitOrder, outcome: Published | Nothing) -> CommitReport:
        return CommitReport.of(
            location=self._storage.location,
            user=order.user,
            identifier=order.snapshot_identifier,
            messages=order.messages,
            outcome=outcome,
        )

    def abort(self, messages: Iterable[CommitMessage]) -> int:
        """Deletes the files of messages that were not committed and never will be. Returns how many
        files were deleted.

        Raises:
            DeletedFiles: a snapshot, tag or long-lived changelog of the table or of a branch refers
                to one of the files. The same error is raised if a journal refers to a file that its
                run may still commit. Nothing was deleted.
            CorruptMetadata, StorageError: something that may refer to the files cannot be read.
                Nothing was deleted.
            FormatError: messages do not fit the table.
        """
        all_messages = self._checked_messages(messages)
        check_messages(self._table.layout, all_messages, self._storage.location)
        paths = data_files(self._table.layout, all_messages)
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

    def _checked_marks(
        self, watermark: int | None, properties: Mapping[str, str] | None
    ) -> tuple[int | None, dict[str, str]]:
        """The watermark and the properties, after a check. The watermark must be None or a whole
        number of 64 bits. The properties must be None or a mapping of texts. Otherwise raises
        `InvalidOption`.
        """
        watermark = self._arguments.whole(
            "watermark", watermark, least=LONG[0], most=LONG[1], optional=True
        )
        texts = self._arguments.mapping("properties", properties, "{'name': 'value'}", texts=True)
        return watermark, texts

    def _checked_messages(
        self, messages: Iterable[CommitMessage], name: str = "messages"
    ) -> tuple[CommitMessage, ...]:
        """The messages as a tuple. They come from a list, or from an iterator, which is read
        once.
        """
        return self._arguments.items(name, messages, CommitMessage, _MESSAGES)

    def _checked_committables(
        self, committables: Mapping[int, Iterable[CommitMessage]]
    ) -> dict[int, tuple[CommitMessage, ...]]:
        """The messages of each identifier, in ascending order of the identifiers."""
        arguments = self._arguments
        if not isinstance(committables, Mapping):
            raise arguments.wrong(
                "committables", committables, f"a dict of identifiers, each with {_MESSAGES}"
            )
        by_identifier = {
            arguments.whole("a key of committables", key, least=LONG[0], most=LONG[1]): messages
            for key, messages in committables.items()
        }
        return {
            identifier: self._checked_messages(messages, f"committables[{identifier}]")
            for identifier, messages in sorted(by_identifier.items())
        }

    def _newer_committables(
        self, by_identifier: Mapping[int, tuple[CommitMessage, ...]], latest: Snapshot | None
    ) -> dict[int, tuple[CommitMessage, ...]]:
        """The committables that are newer than the last commit of this user."""
        newest = None
        if by_identifier:
            newest = self._newest_of_user(latest, min(by_identifier))
        return {
            identifier: messages
            for identifier, messages in by_identifier.items()
            if newest is None or identifier > newest
        }

    def _check_all(
        self, committables: Mapping[int, tuple[CommitMessage, ...]], latest: Snapshot | None
    ) -> None:
        """Checks all committables before the first one is published. Raises the errors of
        `filter_and_commit`.
        """
        for messages in committables.values():
            check_messages(self._table.layout, messages, self._storage.location)
            self._check_committable_here(messages)
        for identifier, messages in committables.items():
            self._check_files_exist(identifier, messages, latest)

    def _check_committable_here(self, messages: Iterable[CommitMessage]) -> None:
        """Raises `UnsupportedFeature` for messages that this package cannot commit safely."""
        schema = self._table.schema
        columns = None
        if self._table.options.value(DATA_EVOLUTION):
            columns = frozenset(schema.field_names)
        check_committable_here(messages, self._storage.location, columns)

    def _check_files_exist(
        self, identifier: int, messages: tuple[CommitMessage, ...], latest: Snapshot | None
    ) -> None:
        """Raises `DeletedFiles` if a file of the messages does not exist."""
        collected = collect(messages, table_buckets=self._table.options.value(BUCKET))
        layout = self._table.layout
        context = conflicts.CommitContext(
            location=self._storage.location,
            user=self._user,
            identifier=identifier,
            partition_name=layout.partition,
            base=latest,
        )
        missing = missing_files(self._storage, layout, collected.append, collected.compact)
        conflicts.check_files_exist(context, missing)

    def _publish_order(self, order: _CommitOrder, seen: Snapshot | None) -> Outcome:
        """Publishes, then runs the table's maintenance, which cannot fail the commit. `seen` is the
        newest snapshot that was searched for this commit.
        """
        self._check_committable_here(order.messages)
        request = CommitRequest(
            user=order.user,
            identifier=order.snapshot_identifier,
            messages=order.messages,
            source=order.source,
            kind=order.kind,
            watermark=order.watermark,
            properties={VERSION_MARK: __version__, **(order.properties or {})},
            renumber=order.renumber,
            numbering=order.numbering,
            checked=order.checked,
            seen=SnapshotRef.of_optional(seen),
            stage_uuid=self._runtime.ids.uuid(),
            force_snapshot=order.force_snapshot,
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
        """The identifier of this user's newest stream commit, or None. Batch commits are skipped,
        because their identifier is larger than any other. Otherwise every stream commit would count
        as committed (semantics.md §1.3).
        """
        if latest is None:
            return None

        def is_stream_commit(snapshot: Snapshot) -> bool:
            return (
                snapshot.commit_user == self._user
                and snapshot.commit_identifier != BATCH_IDENTIFIER
            )

        newest, since = newest_of(self._snapshots, latest, is_stream_commit)
        if newest is None and since > 1:
            self._refusals(smallest).history_unknown(
                f"no snapshot of this user is left, and those before {since} have expired"
            )
        if newest is None:
            return None
        return newest.commit_identifier

    def _refusals(self, identifier: int) -> CommitRefusals:
        return CommitRefusals(
            location=self._storage.location,
            user=self._user,
            batch_id=identifier,
            options=self._table.options,
        )


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
