"""Finds out whether a restart of a stream is safe, what the restart would do, and what to do if it
is not safe. The doctor writes nothing, neither a claim nor a register. `trial.py` tries whether the
storage can be written.

The doctor runs the checks that the sink makes before its first batch (`stream/evidence.py`), for
the query and the batch in the checkpoint. So the doctor's answer is the sink's, as long as nobody
changes the table, the checkpoint or the sink's arguments.

Invariant: no restart is called safe unless what the judgement reads can be read, and also the
manifest lists of the newest snapshot, which the commit of the batch reads next.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final

from paimon_stream.api.diagnosis import (
    Diagnosis,
    cure_of,
    in_words,
    judge_columns,
    listed,
    obstacle_of,
    removals_in_words,
)
from paimon_stream.api.inspection import Writer, writers_of
from paimon_stream.api.streams import registered_streams
from paimon_stream.errors import (
    CheckpointReset,
    CheckpointRewound,
    FormatError,
    HistoryUnknown,
    InvalidOption,
    PaimonStreamError,
    TableReplaced,
)
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, Snapshot
from paimon_stream.format.snapshot_marks import ONCE_PREFIX, Marks, own_properties
from paimon_stream.maintenance.expiring import ExpiringNotes, is_young
from paimon_stream.maintenance.needed import tag_names
from paimon_stream.maintenance.pins import read_pins, under_way
from paimon_stream.maintenance.tags import find_tag
from paimon_stream.options import Option, check_sink_options, warn_of_unfollowed_writes
from paimon_stream.runtime import Runtime, system
from paimon_stream.spark.checkpoint import Checkpoint, Kind, open_checkpoint, recorded_checkpoint
from paimon_stream.spark.sink_settings import SinkSettings
from paimon_stream.storage.base import Storage
from paimon_stream.stream.batch_summary import BatchSummary
from paimon_stream.stream.gather import gather
from paimon_stream.stream.identity import WriterIdentity
from paimon_stream.stream.judging import judge_from_storage
from paimon_stream.stream.replay_errors import StreamRefusals, gap_in_words
from paimon_stream.stream.verdicts import Batch, Verdict
from paimon_stream.stream.writable import check_writable
from paimon_stream.table.journal import Journal
from paimon_stream.table.layout import tag_path
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.register import RegisteredWriter
from paimon_stream.table.removals import read_removals
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import load_table

_NOT_PLANNED: Final = "not planned yet"
"""Stands for the hash of the offsets of a batch that Spark will plan anew. No plan has this hash.
"""

_NEW_QUERY: Final = "new-query"
"""Stands for the id of the query that Spark will begin if the checkpoint has no id. No query has
this id.
"""

_UNUSABLE: Final = (Kind.FILE, Kind.DAMAGED, Kind.UNREADABLE)
"""Kinds of checkpoint from which no batch can be read, so there is nothing to judge."""


def examine(
    storage: Storage,
    *,
    checkpoint: str | Checkpoint | None = None,
    user: str | None = None,
    names: Sequence[str] = (),
    query_name: str | None = None,
    options: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    mode: str = "append",
    runtime: Runtime | None = None,
) -> tuple[Diagnosis, ...]:
    """One diagnosis for each sink that writes to the table at the storage's root.

    The sinks are those with the given `names`, or the sink with the commit `user`. If neither is
    given, they are the sinks that are registered for the checkpoint's query. If `options` have a
    user prefix that the query has not used in this table, the sink that gets its user from that
    prefix is judged, too. Without a checkpoint, all streams that are registered in the table are
    judged, each with its registered checkpoint.

    Args:
        storage: the storage of the table.
        checkpoint: the query's checkpointLocation.
        user: the commit user of a sink.
        names: the names of sinks, in the order in which the batch function calls them.
        query_name: the name of the restarted query.
        options: the options of the restarted sink.
        storage_options: the storage options of the table, and of checkpoints in object stores.
        mode: the mode of the restarted sink.
        runtime: the clock and the ids; by default those of the system.

    Raises:
        NotFound: if there is no table.
        InvalidOption: for arguments that contradict each other, and for options that a sink must
            not change.
        CorruptMetadata, UnknownVersion: if the table cannot be loaded.
        StorageError: if the storage fails.
    """
    settings = SinkSettings(
        location=storage.location,
        token="doctor",
        options=dict(options or {}),
        storage_options=storage_options or {},
        mode=mode,
    )
    doctor = _Doctor(storage, settings, query_name, runtime or system())
    if checkpoint is not None:
        if isinstance(checkpoint, str):
            checkpoint = open_checkpoint(checkpoint, storage_options)
        return doctor.of_checkpoint(checkpoint, user, names)
    if names:
        raise InvalidOption(
            "A sink's name means nothing without its query. Give the checkpoint.",
            option="checkpoint",
        )
    return doctor.of_registered(user)


@dataclass(frozen=True, slots=True, kw_only=True)
class _NotingReplayErrors(StreamRefusals):
    """The refusals of a batch, as in the sink. If the operator's options let a batch pass, the
    refusal is noted, and not logged.

    Attributes:
        noted: reasons to look before a restart.
        history: facts that are shown, but do not concern the restart.
    """

    noted: list[str] = field(default_factory=list)
    history: list[str] = field(default_factory=list)

    def warn(self, doubt: str) -> None:
        self.noted.append(doubt)

    def left_nothing(self, first: int, last: int) -> None:
        self.history.append(gap_in_words(first, last))

    def decide(
        self,
        option: Option[str],
        kind: type[PaimonStreamError],
        cause: str,
        advice: str,
        **facts: Any,
    ) -> None:
        if self.options.value(option) == "continue":
            self.noted.append(
                f"{kind.__name__} is passed over, because {option.key} = continue: {cause}."
            )
            return
        StreamRefusals.decide(self, option, kind, cause, advice, **facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Others:
    """The other commit users whose sinks may be in one run with the judged sink.

    Attributes:
        users: the commit users whose sinks count as sinks of the same run.
        apart: the part of `users` that may instead be other names of the judged sink.
    """

    users: frozenset[str] = frozenset()
    apart: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Restart:
    """The restart of one sink, and what is known of its stream.

    Attributes:
        checkpoint: the checkpoint of the query.
        kind: the kind of the checkpoint.
        query_id: the id of the query in the checkpoint; None if it has none.
        identity: the identity of the restarted sink.
        batch: the batch that Spark asks for first.
        is_replay: whether Spark had already planned that batch.
        done: the newest batch that the query has done; None if it has done none.
        last: the stream's newest snapshot; None if none is left.
        owner: the query that has written as the sink's commit user; None if none is known.
        is_stranger: whether the query has done batches, but the table has no trace of the query.
        merges: whether the stream's newest batch was merged into rows of the table. The sink is
            then taken for one that merges.
    """

    checkpoint: Checkpoint
    kind: Kind
    query_id: str | None
    identity: WriterIdentity
    batch: Batch
    is_replay: bool
    done: int | None
    last: Snapshot | None
    owner: str | None
    is_stranger: bool
    merges: bool


class _Doctor:
    """Judges the sinks that write to one table.

    `settings` and `query_name` are the arguments of the restarted sinks and query.
    """

    def __init__(
        self, storage: Storage, settings: SinkSettings, query_name: str | None, runtime: Runtime
    ) -> None:
        check_sink_options(settings.options)
        warn_of_unfollowed_writes(settings.options)
        self._storage = storage
        self._settings = settings
        self._runtime = runtime
        self._query_name = query_name
        self._snapshots = SnapshotStore(storage, runtime)
        self._registered: tuple[RegisteredWriter, ...] = ()
        # A register that is broken is not read at this point. If the sink would read it, the
        # judgement reads it, too, and reports the damage.
        with suppress(FormatError):
            self._registered = registered_streams(storage)
        self._removals = read_removals(storage)
        self._table = load_table(storage, settings.options)

    # -- the sinks of a query ---------------------------------------------------------------------
    def of_checkpoint(
        self,
        checkpoint: Checkpoint,
        user: str | None,
        names: Sequence[str] = (),
        all_users: Sequence[str] = (),
    ) -> tuple[Diagnosis, ...]:
        """The diagnoses of the sinks that a query with this checkpoint has.

        Args:
            checkpoint: the checkpoint of the query.
            user: the commit user of the only sink to judge; None if no user is given.
            names: the names of the query's sinks, in the order in which they are called.
            all_users: all commit users of the query, if they are known. Only `user` is judged.
        """
        kind, path = checkpoint.kind()
        if kind in _UNUSABLE:
            obstacle = obstacle_of(kind, path, checkpoint.planned_batch())
            return (self._unusable(checkpoint.root, user, obstacle.explanation, obstacle.cure),)
        query_id = checkpoint.query_id() or _NEW_QUERY
        users = self._users_of(query_id, names) if user is None else [user]
        renamed: list[str] = []
        if not names and user is None:
            renamed = self._renamed_by_prefix(query_id, users)
        diagnoses = []
        for position, sink_user in enumerate(users):
            if names:
                # When a sink is called, its run has claimed only the users of the sinks that are
                # called before it.
                others = _Others(users=frozenset(users[:position]))
            else:
                other_users = frozenset({*users, *all_users} - {sink_user})
                others = _Others(users=other_users, apart=self._apart_from(sink_user, other_users))
            diagnoses.append(self._of_sink(checkpoint, kind, sink_user, others))
        for sink_user in renamed:
            diagnoses.append(self._of_sink(checkpoint, kind, sink_user, _Others()))
        return tuple(diagnoses)

    def of_registered(self, user: str | None) -> tuple[Diagnosis, ...]:
        """The diagnoses of all registered streams, or only of the stream with the given commit
        user.
        """
        query_ids = {writer.query_id for writer in self._registered}
        users = [writer.user for writer in self._registered]
        diagnoses: list[Diagnosis] = []
        for writer in sorted(self._registered, key=lambda writer: writer.user):
            if user not in (None, writer.user):
                continue
            if writer.checkpoint is None:
                diagnoses.append(
                    self._unusable(
                        None,
                        writer.user,
                        "The table does not know where the stream's checkpoint is.",
                        "Give the folder of its checkpoint.",
                    )
                )
                continue
            checkpoint = recorded_checkpoint(writer.checkpoint, self._settings.storage_options)
            query_id = checkpoint.query_id()
            is_of_later_query = query_id != writer.query_id and query_id in query_ids
            if user is None and query_id is not None and is_of_later_query:
                continue  # the later query is registered, too, and is judged
            diagnoses += self.of_checkpoint(checkpoint, writer.user, all_users=users)
        return tuple(diagnoses)

    def _default_user(self, query_id: str) -> str:
        return f"{self._settings.prefix or 'paimon-stream'}_{query_id}"

    def _renamed_by_prefix(self, query_id: str, users: Sequence[str]) -> list[str]:
        """The commit user that the sink gets from a prefix in the options, if none of the query's
        registered `users` has that prefix. In that case the registered users are not sinks of the
        new run.
        """
        default = self._default_user(query_id)
        is_registered = any(user == default or user.startswith(f"{default}_") for user in users)
        if self._settings.prefix is None or is_registered:
            return []
        return [default]

    def _apart_from(self, user: str, others: frozenset[str]) -> frozenset[str]:
        """The commit users in `others` that, as far as is known, were in no run together with
        `user`. One of the two users may be an old name of the other.
        """
        runs = {writer.user: writer.runs for writer in self._registered}
        runs_of_user = runs.get(user, frozenset())
        return frozenset(
            other for other in others if runs_of_user.isdisjoint(runs.get(other, frozenset()))
        )

    def _users_of(self, query_id: str, names: Sequence[str]) -> list[str]:
        """The commit users of the query's sinks. They are built from the names of the sinks or,
        without names, are those that are registered.
        """
        default = self._default_user(query_id)
        if names:
            return [f"{default}_{name}" if name else default for name in names]
        registered = [writer.user for writer in self._registered if writer.query_id == query_id]
        return sorted(registered) or [default]

    # -- one sink ---------------------------------------------------------------------------------
    def _of_sink(self, checkpoint: Checkpoint, kind: Kind, user: str, others: _Others) -> Diagnosis:
        """The diagnosis of one sink: the sink's own answer, and further facts that only the doctor
        knows.
        """
        restart = self._restart(checkpoint, kind, user)
        diagnosis = replace(
            _of_last(user, checkpoint.root, restart.last),
            query_id=restart.query_id,
            batch=restart.batch.batch_id,
            replayed=restart.is_replay,
            other_users=self._other_users(restart.identity),
            history=removals_in_words(self._removals, user),
        )
        refusals = self._refusals(restart)
        diagnosis = self._judged(diagnosis, restart, others, refusals)
        return self._concluded(diagnosis, restart, tuple(refusals.noted))

    def _restart(self, checkpoint: Checkpoint, kind: Kind, user: str) -> _Restart:
        batch, is_replay = _next_batch(checkpoint)
        identity = WriterIdentity(
            user=user,
            token="doctor",
            query_id=checkpoint.query_id() or _NEW_QUERY,
            run_id=f"restart-{self._runtime.ids.uuid()}",
            checkpoint=checkpoint.root,
            query_name=self._query_name,
        )
        last = self._last_of(identity)
        query_id = checkpoint.query_id()
        done = checkpoint.done_batch() if kind is Kind.QUERY else None
        return _Restart(
            checkpoint=checkpoint,
            kind=kind,
            query_id=query_id,
            identity=identity,
            batch=batch,
            is_replay=is_replay,
            done=done,
            last=last,
            owner=self._owner_of(user, last),
            is_stranger=done is not None and self._is_stranger(identity),
            merges=self._merges(identity.user, batch.batch_id, last),
        )

    def _merges(self, user: str, batch_id: int, last: Snapshot | None) -> bool:
        """Whether the stream's newest batch was merged into rows of the table, according to the
        journal of the batch or, if there is none, to the stream's last snapshot.
        """
        with suppress(FormatError):  # the judgement reads the journal, too, and reports the damage
            entry = Journal(self._storage, user).read(batch_id)
            if entry is not None:
                return entry.merges
        return last is not None and BatchSummary.of(own_properties(last)).rows_updated is not None

    def _judged(
        self,
        diagnosis: Diagnosis,
        restart: _Restart,
        others: _Others,
        refusals: _NotingReplayErrors,
    ) -> Diagnosis:
        """The diagnosis, with the verdict of the sink or the error that the sink would raise.
        `refusals` notes refusals that the operator's options let pass.
        """
        batch = restart.batch
        try:
            verdict = self._judge(restart, others.users, refusals)
            name, explanation = in_words(verdict, batch.batch_id, replayed=restart.is_replay)
            explanation += self._without_apart(restart, others)
            history = (*diagnosis.history, *refusals.history)
            diagnosis = replace(diagnosis, verdict=name, explanation=explanation, history=history)
            # The columns of a merge are those of its clauses, which nobody knows here.
            has_columns_of_table = restart.kind is Kind.QUERY and not restart.merges
            if has_columns_of_table and not restart.is_stranger:
                done_millis = batch.previous_done_millis
                refusals.noted.extend(judge_columns(self._table, restart.last, done_millis))
            refusals.noted.extend(self._doubts_of_base())
        except PaimonStreamError as error:
            # Only a commit user that is new in this table can be a new name of a sink.
            earlier_names = diagnosis.other_users if restart.owner is None else ()
            known_checkpoint = self._known_checkpoint(diagnosis.user, restart.last)
            diagnosis = replace(
                diagnosis,
                verdict=type(error).__name__,
                explanation=error.message,
                cure=cure_of(
                    error,
                    restart.checkpoint.root,
                    known_checkpoint,
                    earlier_names,
                    self._rollback_target(restart)
                    if isinstance(error, CheckpointRewound)
                    else None,
                ),
                option=error.context.get("option"),
            )
        return diagnosis

    def _doubts_of_base(self) -> list[str]:
        """Why no commit can build on the newest snapshot. A judgement reads only the snapshot itself,
        but each commit also reads its manifest lists.
        """
        latest = self._snapshots.latest()
        if latest is None:
            return []
        try:
            ManifestStore(self._storage).base_and_delta(latest)
        except FormatError as error:
            return [
                f"No batch with rows can be committed above snapshot {latest.id}: {error.message}"
            ]
        return []

    def _concluded(
        self, diagnosis: Diagnosis, restart: _Restart, notes: tuple[str, ...]
    ) -> Diagnosis:
        """The diagnosis, completed by facts that only the doctor looks at. They are in `restart`
        and `notes`.
        """
        if restart.is_stranger:
            return self._stranger(diagnosis, restart, notes)
        is_reset = diagnosis.verdict == CheckpointReset.__name__
        user_is_of_other_query = restart.owner not in (None, restart.identity.query_id)
        query_writes_as_others = bool(diagnosis.other_users)
        if is_reset and user_is_of_other_query and query_writes_as_others:
            return self._two_streams(diagnosis, restart)
        if restart.kind is not Kind.QUERY:
            return self._beginner(diagnosis, restart.kind)
        if diagnosis.cure is not None or notes:
            return replace(diagnosis, notes=notes, known=self._known(diagnosis.user))
        return replace(diagnosis, safe=True)

    def _refusals(self, restart: _Restart) -> _NotingReplayErrors:
        return _NotingReplayErrors(
            location=self._storage.location,
            user=restart.identity.user,
            batch_id=restart.batch.batch_id,
            options=self._table.options,
        )

    def _other_users(self, identity: WriterIdentity) -> tuple[str, ...]:
        """The other commit users under which the query is registered, or has published a snapshot
        that still exists.
        """
        registered = {(writer.user, writer.query_id) for writer in self._registered}
        published = {
            (snapshot.commit_user, Marks.of(own_properties(snapshot)).query_id)
            for snapshot in self._walk()
            if _is_of_stream(snapshot)
        }
        users = {
            user
            for user, query_id in registered | published
            if query_id == identity.query_id and user != identity.user
        }
        return tuple(sorted(users))

    def _without_apart(self, restart: _Restart, others: _Others) -> str:
        """A sentence with the error that the sink would raise if the users in `apart` were not
        sinks of the query. It is empty if the sink would raise no error.
        """
        if not others.apart:
            return ""
        try:
            self._judge(restart, others.users - others.apart, self._refusals(restart))
        except PaimonStreamError as error:
            users = " or ".join(map(repr, sorted(others.apart)))
            return (
                f" If the query no longer has a sink as {users}, this one stops: {type(error).__name__}. "
                "Give the names of the query's sinks, or the commit user of its only one."
            )
        return ""

    def _judge(
        self, restart: _Restart, others: frozenset[str], refusals: StreamRefusals
    ) -> Verdict:
        """The verdict of the sink on the batch if `others` were sinks of the same run. Raises what
        the sink would raise.
        """
        check_writable(self._table, in_stream=not self._settings.overwrites)
        if not restart.merges:
            self._settings.check_mode(self._table)
        evidence = gather(self._table, restart.identity, restart.batch, snapshots=self._snapshots)
        evidence = replace(evidence, claimed=others.__contains__)
        return judge_from_storage(
            self._table,
            evidence,
            refusals,
            self._runtime,
            overwrites=self._settings.overwrites,
            merges=restart.merges,
        )

    # -- checkpoints that do not belong here ------------------------------------------------------
    def _is_stranger(self, identity: WriterIdentity) -> bool:
        """Whether the table has no trace of the query. A register or snapshot without a query id
        may be the query's own, if it has the query's commit user.
        """
        registered = ((writer.user, writer.query_id) for writer in self._registered)
        published = (
            (snapshot.commit_user, Marks.of(own_properties(snapshot)).query_id)
            for snapshot in self._walk()
        )
        return not any(
            query_id == identity.query_id or (query_id is None and user == identity.user)
            for user, query_id in chain(registered, published)
        )

    def _stranger(
        self, diagnosis: Diagnosis, restart: _Restart, notes: tuple[str, ...]
    ) -> Diagnosis:
        """The diagnosis of a query that has done batches of which this table has no trace. If
        snapshots have expired, the query may have written these batches to this table.
        """
        known = self._known(diagnosis.user)
        trace = (
            f"The checkpoint is of query {diagnosis.query_id}, which has done its batches up to {restart.done} "
            "and has left no trace in this table"
        )
        if diagnosis.verdict == TableReplaced.__name__:
            return replace(diagnosis, known=known, notes=(*notes, f"{trace}."))
        checkpoint = self._known_checkpoint(diagnosis.user, restart.last)
        known_place = ""
        if checkpoint is not None:
            known_place = f" (for commit user {diagnosis.user!r} give {checkpoint})"
        oldest = next(iter(self._snapshots.ids()), 1)
        is_unknown = diagnosis.verdict == HistoryUnknown.__name__
        may_have_expired = oldest > 1 and diagnosis.cure is None
        if is_unknown or may_have_expired:
            cure_here = diagnosis.cure or "Look for its rows before it starts."
            return replace(
                diagnosis,
                known=known,
                explanation=f"{trace}. It is a stream into another table, or its snapshots have expired and "
                f"its notes in _paimon_stream were deleted. {diagnosis.explanation}",
                cure=f"If it wrote to another table, give the checkpoint of a stream of this table{known_place}, or the "
                "table of this stream: here it would add rows that do not belong to this table. If it wrote to this "
                f"table, do the following. {cure_here}",
                notes=notes,
            )
        would_write = ""
        if diagnosis.cure is None:
            would_write = (
                f" The sink would write batch {diagnosis.batch} here, without earlier batches."
            )
        return replace(
            diagnosis,
            option=None,
            known=known,
            explanation=f"{trace}: it is a stream into another table.{would_write}",
            cure=f"Give the checkpoint of a stream of this table{known_place}, or the table of this stream. "
            "Do not let it continue: it would add rows that do not belong to this table.",
        )

    def _two_streams(self, diagnosis: Diagnosis, restart: _Restart) -> Diagnosis:
        """The diagnosis if the checkpoint belongs to one stream of this table, and the commit user
        to another stream.
        """
        users_of_query = listed(diagnosis.other_users)
        checkpoint = self._known_checkpoint(diagnosis.user, restart.last)
        if checkpoint is None:
            checkpoint = "the checkpoint of its own stream"
        return replace(
            diagnosis,
            option=None,
            known=self._known(diagnosis.user),
            explanation=f"The checkpoint is of query {diagnosis.query_id}, which writes here as commit user "
            f"{users_of_query}. Commit user {diagnosis.user!r} is that of query {restart.owner}.",
            cure=f"To go on as commit user {diagnosis.user!r}, give {checkpoint}. To use the checkpoint of query "
            f"{diagnosis.query_id}, set commit user {users_of_query}; a new sink of this query needs a name that "
            "nobody has had here. Do not let this query continue as it is: the sink would mistake the batches of "
            "one stream for those of the other.",
        )

    def _beginner(self, diagnosis: Diagnosis, kind: Kind) -> Diagnosis:
        """The diagnosis if no query can be restarted from this checkpoint, although the sink would
        admit a new query.
        """
        explanation, cure = obstacle_of(kind, diagnosis.checkpoint or "")
        if diagnosis.cure is not None:
            explanation = f"{explanation} {diagnosis.explanation}"
            cure = diagnosis.cure
        known = self._known(diagnosis.user)
        return replace(diagnosis, explanation=explanation, cure=cure, known=known)

    def _unusable(
        self, root: str | None, user: str | None, explanation: str, cure: str
    ) -> Diagnosis:
        """The diagnosis if nothing can be judged. `root` is the folder of the checkpoint; None if
        that folder is not known.
        """
        last = None
        for snapshot in self._walk():
            if snapshot.commit_user == user and _is_of_stream(snapshot):
                last = snapshot
                break
        diagnosis = _of_last(user or "-", root, last)
        return replace(diagnosis, explanation=explanation, cure=cure, known=self._known(user))

    # -- what the table knows ---------------------------------------------------------------------
    def _owner_of(self, user: str, last: Snapshot | None) -> str | None:
        """The query that has written under this commit user, according to the register or, if there
        is none, to the user's last snapshot. None if no query has written, or if the query is not
        known.
        """
        for writer in self._registered:
            if writer.user == user:
                return writer.query_id
        if last is None or last.commit_user != user:
            return None
        return Marks.of(own_properties(last)).query_id

    def _known(self, user: str | None) -> tuple[Writer, ...]:
        """The streams of this table whose query is known, without the stream of `user`. Writers of
        other engines have no query. Batch writes with an identity have no checkpoint.
        """
        try:
            writers = writers_of(self._table)
        except PaimonStreamError:
            return ()  # the judgement meets the same error, and reports it
        return tuple(
            writer
            for writer in writers
            if writer.query_id is not None
            and writer.user != user
            and not writer.user.startswith(ONCE_PREFIX)
        )

    def _known_checkpoint(self, user: str, last: Snapshot | None) -> str | None:
        """The location of the stream's checkpoint, according to its register or, if there is none,
        to its last snapshot.
        """
        for writer in self._registered:
            if writer.user == user:
                return writer.checkpoint
        return None if last is None else Marks.of(own_properties(last)).checkpoint

    def _last_of(self, identity: WriterIdentity) -> Snapshot | None:
        """The stream's newest snapshot, even if another query wrote it. None if there is no such
        snapshot, or if a newer snapshot cannot be read.
        """
        for snapshot in self._walk():
            marks = Marks.of(own_properties(snapshot))
            # If a commit user contains the id of its query, each query has another commit user.
            is_of_earlier_query = (
                marks.checkpoint == identity.checkpoint
                and str(marks.query_id) in snapshot.commit_user
                and identity.query_id not in (None, marks.query_id)
            )
            is_own = is_of_earlier_query or snapshot.commit_user == identity.user
            if is_own and _is_of_stream(snapshot):
                return snapshot
        return None

    def _rollback_target(self, restart: _Restart) -> int | None:
        """The snapshot of the batch before the one that Spark asks for, if every later snapshot is
        of this stream, so that a rollback to it takes nothing of anybody else. None otherwise.
        """
        batch_id = restart.batch.batch_id
        for snapshot in self._walk():
            is_own = snapshot.commit_user == restart.identity.user and _is_of_stream(snapshot)
            if not is_own:
                return None
            if snapshot.commit_identifier < batch_id:
                return snapshot.id if snapshot.commit_identifier == batch_id - 1 else None
        return None

    def _walk(self) -> Iterator[Snapshot]:
        """The snapshots, newest first, up to the first one that cannot be read."""
        try:
            latest = self._snapshots.latest()
            yield from self._snapshots.walk_down(latest or 0)
        except PaimonStreamError:
            return  # the judgement meets the same error, and reports it


def _of_last(user: str, root: str | None, last: Snapshot | None) -> Diagnosis:
    """A diagnosis that says only what the stream's newest snapshot shows."""
    if last is None:
        return Diagnosis(user=user, checkpoint=root)
    return Diagnosis(
        user=user,
        checkpoint=root,
        last_batch=last.commit_identifier,
        last_snapshot=last.id,
        last_millis=last.time_millis,
        last_query_id=Marks.of(own_properties(last)).query_id,
    )


def _is_of_stream(snapshot: Snapshot) -> bool:
    """Whether a snapshot is of a stream that can be restarted. A batch write with an identity is
    batch 0 of a stream that is not restarted, so its snapshot does not count.
    """
    is_once = snapshot.commit_user.startswith(ONCE_PREFIX)
    return snapshot.commit_identifier != BATCH_IDENTIFIER and not is_once


def _next_batch(checkpoint: Checkpoint) -> tuple[Batch, bool]:
    """The batch that Spark asks for after a restart, and whether that batch is a replay. If the
    newest planned batch is not done, Spark runs it again. Otherwise it plans the next one.
    """
    planned = checkpoint.planned_batch()
    done = checkpoint.done_batch()
    is_replay = planned is not None and planned != done
    batch_id = 0
    if planned is not None:
        batch_id = planned if is_replay else planned + 1
    offsets = checkpoint.offsets_hash(batch_id) if is_replay else _NOT_PLANNED
    done_millis = checkpoint.last_done_millis(batch_id)
    batch = Batch(batch_id=batch_id, offsets_hash=offsets, previous_done_millis=done_millis)
    return batch, is_replay


_MINUTE: Final = 60_000
_UNITS: Final = ((24 * 60 * _MINUTE, "days"), (60 * _MINUTE, "hours"), (_MINUTE, "minutes"))


def leftovers(
    storage: Storage,
    now_millis: int,
) -> tuple[str, ...]:
    """Texts about what interrupted commands have left in a table. Each text names the command that
    completes the interrupted one. There is one text for all pins of rollbacks, one for each note of
    an expiry that is not running any more, and one for each tag that cannot be read. In a Hive
    catalog there are texts about what its metastore does not know, too. `now_millis` is the time
    since the epoch by the local clock. Raises `StorageError`.
    """
    texts = []
    pins = read_pins(storage)
    if pins:
        ages = ", ".join(f"{pin.path} ({_age(now_millis - pin.millis)})" for pin in pins)
        texts.append(f"{ages}: {under_way(storage, pins, 'nothing expires').message}")
    for note in ExpiringNotes(storage).written():
        if not is_young(note.millis, now_millis):
            texts.append(
                f"{note.path} ({_age(now_millis - note.millis)}): the expiry of snapshot {note.snapshot_id} "
                "was interrupted. expire_snapshots() finishes it."
            )
    for name in tag_names(storage):
        tag = find_tag(storage, name)
        if isinstance(tag, FormatError):
            age = _age(now_millis - storage.stat(tag_path(name)).modified_millis)
            texts.append(f"{tag_path(name)} ({age}): {tag.message}")
    untold = getattr(storage, "untold", None)
    if untold is not None:
        texts += untold()
    return tuple(texts)


def _age(millis: int) -> str:
    if millis < -_MINUTE:
        return "its time is in the future"
    for scale, unit in _UNITS:
        if millis >= 2 * scale:
            return f"{millis // scale} {unit} old"
    return f"{max(millis, 0) // _MINUTE} minutes old"
