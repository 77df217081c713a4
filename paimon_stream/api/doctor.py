"""Whether a restart of a stream is safe, what it would do, and what to do if it is not safe.
Nothing here writes: no claim, no register, no probe of the storage.

The doctor runs the sink's checks before its first batch (`stream/evidence.py`), for the query and
batch of the checkpoint. So its answer is the sink's, while nobody changes the table, the checkpoint
or the sink's arguments.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final

from paimon_stream.api.diagnosis import (
    Diagnosis,
    cure_of,
    in_words,
    judge_columns,
    listed,
    of_checkpoint_kind,
    removals_in_words,
)
from paimon_stream.api.inspection import Writer, writers_of
from paimon_stream.errors import (
    CheckpointReset,
    FormatError,
    HistoryUnknown,
    InvalidOption,
    PaimonStreamError,
    TableReplaced,
)
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, Snapshot
from paimon_stream.format.snapshot_marks import Marks, own_properties
from paimon_stream.maintenance.expiring import ExpiringNotes, is_young
from paimon_stream.maintenance.needed import tag_names
from paimon_stream.maintenance.pins import read_pins, under_way
from paimon_stream.maintenance.tags import find_tag
from paimon_stream.options import Option, check_sink_options
from paimon_stream.runtime import Runtime, system
from paimon_stream.spark.checkpoint import Checkpoint, Kind, open_checkpoint
from paimon_stream.spark.sink_settings import SinkSettings
from paimon_stream.storage.base import Storage
from paimon_stream.stream.gather import gather
from paimon_stream.stream.identity import WriterIdentity
from paimon_stream.stream.register import registered_writers
from paimon_stream.stream.replay_errors import ReplayErrors, gap_in_words
from paimon_stream.stream.reuse import judge
from paimon_stream.stream.verdicts import Batch, Verdict
from paimon_stream.stream.writable import check_writable
from paimon_stream.table.layout import tag_path
from paimon_stream.table.removals import read_removals
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import load_table

_NOT_PLANNED: Final = "not planned yet"
"""Stands for the offsets of a batch that Spark will plan anew. No plan has this hash."""

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

    `checkpoint` is the query's checkpointLocation. The sinks are those with these `names`, in the
    order in which the batch function calls them, or the one with the commit `user`; if neither is
    given, those that are registered for the checkpoint's query, and the one that `options` give a
    prefix which the query has not had here. Without a checkpoint, all streams
    that are registered in the table are judged, each with its registered checkpoint. `options`,
    `mode` and `query_name` are the arguments of the restarted sink and query. `storage_options` are
    those of the table, and of checkpoints in object stores. Raises `NotFound` if there is no table,
    `InvalidOption`, `CorruptMetadata`, `StorageError`.
    """
    given, stores = dict(options or {}), storage_options or {}
    settings = SinkSettings(
        location=storage.location, token="doctor", options=given, storage_options=stores, mode=mode
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
class _NotingReplayErrors(ReplayErrors):
    """Refuses as the sink does. What the operator's options allow is noted instead of logged."""

    noted: list[str] = field(default_factory=list)
    history: list[str] = field(default_factory=list)

    def warn(self, text: str) -> None:
        self.noted.append(text)

    def left_nothing(self, first: int, last: int) -> None:
        """Is shown, and says nothing of the restart."""
        self.history.append(gap_in_words(first, last))

    def decide(
        self,
        option: Option[str],
        kind: type[PaimonStreamError],
        cause: str,
        cure: str,
        **facts: Any,
    ) -> None:
        if self.options.value(option) == "continue":
            self.noted.append(
                f"{kind.__name__} is passed over, because {option.key} = continue: {cause}."
            )
            return
        ReplayErrors.decide(self, option, kind, cause, cure, **facts)


class _Doctor:
    def __init__(
        self, storage: Storage, settings: SinkSettings, query_name: str | None, runtime: Runtime
    ) -> None:
        check_sink_options(settings.options)
        self._storage, self._settings, self._runtime = storage, settings, runtime
        self._query_name = query_name
        self._snapshots = SnapshotStore(storage, runtime)
        try:
            self._registered = registered_writers(storage)
        except FormatError:
            # if the sink would read the broken register, the judgement does, too, and reports it
            self._registered = ()
        self._removals = read_removals(storage)
        self._table = load_table(storage, settings.options)

    def of_checkpoint(
        self,
        checkpoint: Checkpoint,
        user: str | None,
        names: Sequence[str] = (),
        known: Sequence[str] = (),
    ) -> tuple[Diagnosis, ...]:
        """`known` are users of whom only `user` is judged."""
        kind, path = checkpoint.kind()
        if kind in _UNUSABLE:
            why = of_checkpoint_kind(kind, path, checkpoint.planned_batch())
            return (self._unusable(checkpoint.root, user, *why),)
        query_id = checkpoint.query_id()
        query_id = query_id or _NEW_QUERY
        users = self._users_of(query_id, names) if user is None else [user]
        renamed = [] if names or user is not None else self._renamed_by_prefix(query_id, users)
        found = []
        for position, one in enumerate(users):
            others = frozenset(users[:position] if names else {*users, *known} - {one})
            apart = frozenset() if names else self._apart_from(one, others)
            found.append(self._of_sink(checkpoint, kind, one, others, apart))
        found += [self._of_sink(checkpoint, kind, one, frozenset()) for one in renamed]
        return tuple(found)

    def of_registered(self, user: str | None) -> tuple[Diagnosis, ...]:
        everybody = {one.query_id for one in self._registered}
        users = [one.user for one in self._registered]
        found: list[Diagnosis] = []
        for register in sorted(self._registered, key=lambda one: one.user):
            if user not in (None, register.user):
                continue
            if register.checkpoint is None:
                unknown = "The table does not know where the stream's checkpoint is."
                found.append(
                    self._unusable(
                        None, register.user, unknown, "Give the folder of its checkpoint."
                    )
                )
                continue
            checkpoint = open_checkpoint(register.checkpoint, self._settings.storage_options)
            now = checkpoint.query_id()
            if user is None and now is not None and now != register.query_id and now in everybody:
                continue  # its checkpoint now belongs to a later query, which is registered, too
            found += self.of_checkpoint(checkpoint, register.user, known=users)
        return tuple(found)

    def _default_user(self, query_id: str) -> str:
        return f"{self._settings.prefix or 'paimon-stream'}_{query_id}"

    def _renamed_by_prefix(self, query_id: str, registered: Sequence[str]) -> list[str]:
        """The commit user that the sink gets by a given prefix under which its query has not
        registered so far. The users that have are then no sinks of the new run.
        """
        default = self._default_user(query_id)
        if self._settings.prefix is None or any(
            one == default or one.startswith(f"{default}_") for one in registered
        ):
            return []
        return [default]

    def _apart_from(self, user: str, others: frozenset[str]) -> frozenset[str]:
        """The other users that have been in no run with this one, as far as is known: one of the two
        may be an old name of the other.
        """
        runs = {one.user: one.runs for one in self._registered}
        mine = runs.get(user, frozenset())
        return frozenset(one for one in others if mine.isdisjoint(runs.get(one, frozenset())))

    def _users_of(self, query_id: str, names: Sequence[str]) -> list[str]:
        default = self._default_user(query_id)
        if names:
            return [f"{default}_{name}" if name else default for name in names]
        return sorted(one.user for one in self._registered if one.query_id == query_id) or [default]

    def _of_sink(
        self,
        checkpoint: Checkpoint,
        kind: Kind,
        user: str,
        others: frozenset[str],
        apart: frozenset[str] = frozenset(),
    ) -> Diagnosis:
        """The sink's answer, and what the doctor knows beyond it. `others` are taken for sinks of
        the same run; those of them that are `apart` may be other names of this one.
        """
        batch, replayed = _next_batch(checkpoint)
        query, run, root = (
            checkpoint.query_id() or _NEW_QUERY,
            f"restart-{self._runtime.ids.uuid()}",
            checkpoint.root,
        )
        facts = {
            "query_id": query,
            "run_id": run,
            "checkpoint": root,
            "query_name": self._query_name,
        }
        identity = WriterIdentity(user=user, token="doctor", **facts)
        where, options = self._storage.location, self._table.options
        refuse = _NotingReplayErrors(
            location=where, user=user, batch_id=batch.batch_id, options=options
        )
        last = self._last_of(identity)
        diagnosis = _of_last(user, checkpoint.root, last)
        other_users = tuple(
            sorted(
                one.user for one in self._registered if one.query_id == query and one.user != user
            )
        )
        diagnosis = replace(
            diagnosis,
            query_id=checkpoint.query_id(),
            batch=batch.batch_id,
            replayed=replayed,
            other_users=other_users,
            history=removals_in_words(self._removals, user),
        )
        owner = self._owner_of(user, last)
        done = checkpoint.done_batch() if kind is Kind.QUERY else None
        stranger = done is not None and self._is_stranger(identity)
        try:
            judged = self._judge(identity, batch, others, refuse)
            verdict, said = in_words(judged, batch.batch_id, replayed)
            said += self._without(identity, batch, others, apart)
            history = (*diagnosis.history, *refuse.history)
            diagnosis = replace(diagnosis, verdict=verdict, explanation=said, history=history)
            if not stranger and kind is Kind.QUERY:
                refuse.noted.extend(judge_columns(self._table, last, batch.previous_done_millis))
        except PaimonStreamError as error:
            new_names = () if owner is not None else other_users
            cure = cure_of(error, checkpoint.root, self._known_checkpoint(user, last), new_names)
            name, option = type(error).__name__, error.context.get("option")
            diagnosis = replace(
                diagnosis, verdict=name, explanation=error.message, cure=cure, option=option
            )
        if stranger:
            return self._stranger(diagnosis, done, last, tuple(refuse.noted))
        is_reset = diagnosis.verdict == CheckpointReset.__name__
        if is_reset and done is not None and other_users and owner not in (None, query):
            return self._beside(diagnosis, owner, last)
        if kind is not Kind.QUERY:
            return self._beginner(diagnosis, kind)
        if diagnosis.cure is not None or refuse.noted:
            return replace(diagnosis, notes=tuple(refuse.noted), known=self._known(user))
        return replace(diagnosis, safe=True)

    def _without(
        self,
        identity: WriterIdentity,
        batch: Batch,
        others: frozenset[str],
        apart: frozenset[str],
    ) -> str:
        """What the sink raises if the query has no sinks as the users that are `apart`, as a
        sentence; empty if nothing.
        """
        where, options = self._storage.location, self._table.options
        refuse = _NotingReplayErrors(
            location=where, user=identity.user, batch_id=batch.batch_id, options=options
        )
        try:
            if apart:
                self._judge(identity, batch, others - apart, refuse)
        except PaimonStreamError as error:
            users = " or ".join(map(repr, sorted(apart)))
            kind = type(error).__name__
            cure = "Give the names of the query's sinks, or the commit user of its only one."
            return f" If the query has no sink as {users} any more, this one stops: {kind}. {cure}"
        return ""

    def _judge(
        self, identity: WriterIdentity, batch: Batch, others: frozenset[str], refuse: ReplayErrors
    ) -> Verdict:
        check_writable(self._table, in_stream=not self._settings.overwrites)
        self._settings.check_mode(self._table)
        found = gather(self._table, identity, batch, snapshots=self._snapshots)
        evidence = replace(found, claimed=others.__contains__)
        return judge(
            self._table, evidence, refuse, self._runtime, overwrites=self._settings.overwrites
        )

    def _is_stranger(self, identity: WriterIdentity) -> bool:
        """Whether the table holds nothing of this query. What an unknown query has left under its
        commit user may be its own.
        """
        user, query = identity.user, identity.query_id
        registered = ((one.user, one.query_id) for one in self._registered)
        published = (
            (one.commit_user, Marks.of(own_properties(one)).query_id) for one in self._walk()
        )
        return not any(
            theirs == query or (theirs is None and whose == user)
            for whose, theirs in chain(registered, published)
        )

    def _stranger(
        self, diagnosis: Diagnosis, done: int | None, last: Snapshot | None, noted: tuple[str, ...]
    ) -> Diagnosis:
        """The query has done batches, but none of them is known in this table. If snapshots have
        expired, it may have done them here.
        """
        known = self._known(diagnosis.user)
        what = f"has done its batches up to {done} and has left no trace in this table"
        who = f"The checkpoint is of query {diagnosis.query_id}, which {what}"
        if diagnosis.verdict == TableReplaced.__name__:
            return replace(diagnosis, known=known, notes=(*noted, f"{who}."))
        right = self._known_checkpoint(diagnosis.user, last)
        those = "the checkpoint of a stream of this table"
        if right is not None:
            those = f"{those} (for commit user {diagnosis.user!r} give {right})"
        cure = f"Give {those}, or the table of this stream"
        risk = "rows of another stream would come into this table"
        oldest = next(iter(self._snapshots.ids()), 1)
        if diagnosis.verdict == HistoryUnknown.__name__ or (oldest > 1 and diagnosis.cure is None):
            gone = "its snapshots have expired and its notes in _paimon_stream were deleted"
            why = f"{who}. It is a stream into another table, or {gone}. {diagnosis.explanation}"
            mine = f"{diagnosis.cure}" if diagnosis.cure else "Look for its rows before it starts."
            cure = f"If it wrote elsewhere: {cure}; here {risk}. If it wrote here: {mine}"
            return replace(diagnosis, known=known, explanation=why, cure=cure, notes=noted)
        would = f" The sink would write batch {diagnosis.batch} here, without earlier batches."
        why = f"{who}: it is a stream into another table.{would if diagnosis.cure is None else ''}"
        cure = f"{cure}. Do not let it continue: {risk}."
        return replace(diagnosis, option=None, known=known, explanation=why, cure=cure)

    def _owner_of(self, user: str, last: Snapshot | None) -> str | None:
        """The query that has written as this commit user, by its register or else by its last
        snapshot; None if none has, or it is not known.
        """
        registered = [one.query_id for one in self._registered if one.user == user]
        if registered:
            return registered[0]
        if last is None or last.commit_user != user:
            return None
        return Marks.of(own_properties(last)).query_id

    def _beside(self, diagnosis: Diagnosis, owner: str | None, last: Snapshot | None) -> Diagnosis:
        """The checkpoint is of one stream of this table, and the commit user of another one."""
        theirs = listed(diagnosis.other_users)
        query = diagnosis.query_id
        why = (
            f"The checkpoint is of query {query}, which writes here as commit user {theirs}. Commit user "
            f"{diagnosis.user!r} is that of query {owner}."
        )
        right = self._known_checkpoint(diagnosis.user, last)
        own = "its own checkpoint" if right is None else f"its checkpoint: give {right}"
        cure = (
            f"For commit user {diagnosis.user!r} take {own}. For this checkpoint take commit user {theirs}; a new "
            "sink of its query needs a name that nobody has had here. Do not let it continue: the rows of one stream "
            "would be taken for those of the other."
        )
        return replace(
            diagnosis, option=None, known=self._known(diagnosis.user), explanation=why, cure=cure
        )

    def _beginner(self, diagnosis: Diagnosis, kind: Kind) -> Diagnosis:
        """No query can be restarted from this checkpoint, even if the sink would admit a new
        query.
        """
        why, cure = of_checkpoint_kind(kind, diagnosis.checkpoint or "")
        if diagnosis.cure is not None:
            why, cure = f"{why} {diagnosis.explanation}", diagnosis.cure
        return replace(diagnosis, explanation=why, cure=cure, known=self._known(diagnosis.user))

    def _unusable(
        self, root: str | None, user: str | None, explanation: str, cure: str
    ) -> Diagnosis:
        last = next(
            (one for one in self._walk() if one.commit_user == user and _is_batch(one)), None
        )
        diagnosis = _of_last(user or "-", root, last)
        return replace(diagnosis, explanation=explanation, cure=cure, known=self._known(user))

    def _known(self, besides: str | None) -> tuple[Writer, ...]:
        """The other streams of this table, without those of other engines."""
        try:
            found = writers_of(self._table)
        except PaimonStreamError:
            return ()  # the judgement meets it, too, and says so
        return tuple(one for one in found if one.query_id is not None and one.user != besides)

    def _known_checkpoint(self, user: str, last: Snapshot | None) -> str | None:
        """Where the stream's checkpoint is, according to its register or else to its last
        snapshot.
        """
        of_last = None if last is None else Marks.of(own_properties(last)).checkpoint
        return next((one.checkpoint for one in self._registered if one.user == user), of_last)

    def _last_of(self, identity: WriterIdentity) -> Snapshot | None:
        """The stream's newest snapshot, whatever its query. None if there is none, or a newer one
        cannot be read.
        """
        for snapshot in self._walk():
            marks = Marks.of(own_properties(snapshot))
            # A commit user that contains the query's id differs from query to query.
            earlier = (
                marks.checkpoint == identity.checkpoint
                and str(marks.query_id) in snapshot.commit_user
            )
            earlier = earlier and identity.query_id not in (None, marks.query_id)
            if (earlier or snapshot.commit_user == identity.user) and _is_batch(snapshot):
                return snapshot
        return None

    def _walk(self) -> Iterator[Snapshot]:
        """The snapshots, newest first, up to the first one that cannot be read."""
        try:
            latest = self._snapshots.latest()
            yield from self._snapshots.walk_down(latest or 0)
        except PaimonStreamError:
            return  # the judgement meets it, too, and says so


def _of_last(user: str, root: str | None, last: Snapshot | None) -> Diagnosis:
    """A diagnosis that says only what the stream's newest snapshot shows."""
    found = Diagnosis(user=user, checkpoint=root)
    if last is None:
        return found
    query, batch = Marks.of(own_properties(last)).query_id, last.commit_identifier
    return replace(
        found,
        last_batch=batch,
        last_snapshot=last.id,
        last_millis=last.time_millis,
        last_query_id=query,
    )


def _is_batch(snapshot: Snapshot) -> bool:
    return snapshot.commit_identifier != BATCH_IDENTIFIER


def _next_batch(checkpoint: Checkpoint) -> tuple[Batch, bool]:
    """The batch that Spark asks for after a restart, and whether that batch is a replay. If the
    newest planned batch is not done, Spark runs it again. Otherwise it plans the next one.
    """
    planned, done = checkpoint.planned_batch(), checkpoint.done_batch()
    replayed = planned is not None and planned != done
    batch_id = 0 if planned is None else planned if replayed else planned + 1
    offsets = checkpoint.offsets_hash(batch_id) if replayed else _NOT_PLANNED
    done_millis = checkpoint.done_millis(batch_id - 1)
    return Batch(
        batch_id=batch_id, offsets_hash=offsets, previous_done_millis=done_millis
    ), replayed


_MINUTE: Final = 60_000
_UNITS: Final = ((24 * 60 * _MINUTE, "days"), (60 * _MINUTE, "hours"), (_MINUTE, "minutes"))


def leftovers(
    storage: Storage,
    now_millis: int,
) -> tuple[str, ...]:
    """What interrupted commands have left in a table, and which command ends each. A text for each:
    the pins of rollbacks together, the notes of expiries that are not at work now, and tags that
    cannot be read. `now_millis` is the time since the epoch by the local clock. Raises
    `StorageError`.
    """
    found = []
    pins = read_pins(storage)
    if pins:
        named = ", ".join(f"{one.path} ({_age(now_millis - one.millis)})" for one in pins)
        found.append(f"{named}: {under_way(storage, pins, 'nothing expires').message}")
    for note in ExpiringNotes(storage).written():
        if not is_young(note.millis, now_millis):
            what = f"the expiry of snapshot {note.snapshot_id} was interrupted. expire_snapshots() finishes it."
            found.append(f"{note.path} ({_age(now_millis - note.millis)}): {what}")
    for name in tag_names(storage):
        wrong = find_tag(storage, name)
        if isinstance(wrong, FormatError):
            age = _age(now_millis - storage.stat(tag_path(name)).modified_millis)
            found.append(f"{tag_path(name)} ({age}): {wrong.message}")
    return tuple(found)


def _age(millis: int) -> str:
    if millis < -_MINUTE:
        return "its time is in the future"
    scale, unit = next((one for one in _UNITS if millis >= 2 * one[0]), _UNITS[-1])
    return f"{max(millis, 0) // scale} {unit} old"
