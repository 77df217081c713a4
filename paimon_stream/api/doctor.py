"""Is a restart of a stream safe, what would it do, and what to do if not.

The doctor asks what the sink asks before its first batch (`stream/evidence.py`), with the identity
and the batch that Spark would come with after a restart, which it reads from the checkpoint. So its answer
is the sink's, as long as nobody changes the table, the checkpoint or the sink's arguments in between.

Nothing here writes: no claim, no register, no probe of the storage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from paimon_stream.errors import FormatError, InvalidOption, PaimonStreamError, ReplayError
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, Snapshot
from paimon_stream.format.snapshot_marks import Marks
from paimon_stream.options import (
    COMMIT_USER_PREFIX,
    ON_CHECKPOINT_RESET,
    ON_TABLE_CHANGE,
    ON_UNKNOWN_HISTORY,
    Option,
    Options,
    check_sink_options,
)
from paimon_stream.runtime import Runtime, system
from paimon_stream.spark.checkpoint import Checkpoint, open_checkpoint
from paimon_stream.storage.base import Storage
from paimon_stream.stream.claims import RegisteredWriter, registered_writers
from paimon_stream.stream.evidence import Batch, FirstJudgement, gather, judge
from paimon_stream.stream.identity import WriterIdentity
from paimon_stream.stream.ledger import AlreadyCommitted, Fresh, Reuse
from paimon_stream.stream.replay_errors import ReplayErrors
from paimon_stream.stream.writable import check_writable
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table, load_table

__all__ = ["Diagnosis", "examine"]

_NOT_PLANNED: Final = "not planned yet"
"""The offsets of a batch that Spark will plan anew: no other plan has the same hash."""

_NEW_QUERY: Final = "new-query"
"""The id of the query that Spark will begin where a checkpoint has none yet: like no other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What a restart of one sink of one query would do.

    `verdict` is `fresh`, `reuse` or `already committed`; the name of the error that the sink would raise; or
    `unknown` where the checkpoint cannot be read from here. `safe` says whether the stream goes on by itself
    with no row lost or doubled. `batch` is the one that Spark asks for next, and `replayed` whether it has
    planned that before. `last_batch`, `last_snapshot` and `last_millis` (epoch) are the newest of this sink
    that is left in the table. `explanation` is a sentence for people, `cure` what to do, `notes` what else
    is worth knowing.
    """

    user: str
    query_id: str | None
    checkpoint: str | None
    batch: int | None
    replayed: bool | None
    verdict: str = "unknown"
    safe: bool = False
    explanation: str = ""
    cure: str | None = None
    option: str | None = None
    last_batch: int | None = None
    last_snapshot: int | None = None
    last_millis: int | None = None
    notes: tuple[str, ...] = ()


def examine(
    storage: Storage,
    *,
    checkpoint: str | None = None,
    user: str | None = None,
    names: Sequence[str] = (),
    query_name: str | None = None,
    options: Mapping[str, str] | None = None,
    mode: str = "append",
    runtime: Runtime | None = None,
) -> tuple[Diagnosis, ...]:
    """One diagnosis for each sink, of the table at the storage's root.

    `checkpoint` is the query's checkpointLocation. The sinks are those of `names`, in the order in which
    the batch function calls them, or the one of the commit `user`, or else those that are registered for
    the checkpoint's query. Without a checkpoint, all streams that are registered in the table, each with
    the checkpoint it had. `options`, `mode` and `query_name` are what the sink and the query will be given.

    Raises `NotFound` where there is no table, `InvalidOption`, `CorruptMetadata`, `StorageError`.
    """
    doctor = _Doctor(storage, dict(options or {}), query_name, mode == "complete", runtime or system())
    if checkpoint is not None:
        return doctor.of_checkpoint(open_checkpoint(checkpoint), user, names)
    if names:
        raise InvalidOption(
            "A sink's name says nothing without its query: give the checkpoint, too.", option="checkpoint"
        )
    return doctor.of_registered(user)


@dataclass(frozen=True, slots=True, kw_only=True)
class _NotingReplayErrors(ReplayErrors):
    """Refuses as the sink does; what an operator's option lets pass is noted instead of logged."""

    noted: list[str] = field(default_factory=list)

    def decide(self, option: Option[str], kind: type[ReplayError], cause: str, cure: str) -> None:
        if self.options.value(option) == "continue":
            self.noted.append(f"{kind.__name__} is passed over, because {option.key} = continue: {cause}.")
            return
        ReplayErrors.decide(self, option, kind, cause, cure)


class _Doctor:
    """One examination of one table."""

    def __init__(
        self,
        storage: Storage,
        options: Mapping[str, str],
        query_name: str | None,
        overwrites: bool,
        runtime: Runtime,
    ) -> None:
        check_sink_options(options)
        self._storage = storage
        self._options = options
        self._query_name = query_name
        self._overwrites = overwrites
        self._runtime = runtime
        self._snapshots = SnapshotStore(storage, runtime)
        self._registered = _registered(storage)
        self._table = load_table(storage, options)

    # -- which sinks ------------------------------------------------------------------------------

    def of_checkpoint(
        self, checkpoint: Checkpoint, user: str | None, names: Sequence[str]
    ) -> tuple[Diagnosis, ...]:
        query_id = checkpoint.query_id()
        if user is not None:
            users = [user]
        elif query_id is None and not _is_readable(checkpoint):
            return (_unreadable(checkpoint, user),)
        else:
            users = self._users_of(query_id or _NEW_QUERY, names)
        found = []
        for position, one in enumerate(users):
            others = users[:position] if names else [other for other in users if other != one]
            found.append(self._of_sink(checkpoint, query_id, one, frozenset(others)))
        return tuple(found)

    def of_registered(self, user: str | None) -> tuple[Diagnosis, ...]:
        found = []
        for register in sorted(self._registered, key=lambda one: one.user):
            if user not in (None, register.user):
                continue
            if register.checkpoint is None:
                found.append(_unreadable(None, register.user))
                continue
            checkpoint = open_checkpoint(register.checkpoint)
            if checkpoint.query_id() is None:
                found.append(_unreadable(checkpoint, register.user))
                continue
            others = frozenset(one.user for one in self._registered if one.user != register.user)
            found.append(self._of_sink(checkpoint, checkpoint.query_id(), register.user, others))
        return tuple(found)

    def _users_of(self, query_id: str, names: Sequence[str]) -> list[str]:
        given = Options(self._options)
        prefix = given.value(COMMIT_USER_PREFIX) if given.is_set(COMMIT_USER_PREFIX) else "paimon-stream"
        default = f"{prefix}_{query_id}"
        if names:
            return [f"{default}_{name}" if name else default for name in names]
        known = sorted(one.user for one in self._registered if one.query_id == query_id)
        return known or [default]

    # -- one of them ------------------------------------------------------------------------------

    def _of_sink(
        self, checkpoint: Checkpoint, query_id: str | None, user: str, others: frozenset[str]
    ) -> Diagnosis:
        if not _is_readable(checkpoint):
            return _unreadable(checkpoint, user)
        batch, replayed = _next_batch(checkpoint)
        identity = WriterIdentity(
            user=user,
            query_id=query_id or _NEW_QUERY,
            run_id=f"restart-{self._runtime.ids.uuid()}",
            checkpoint=checkpoint.root,
            query_name=self._query_name,
            token="doctor",
        )
        refuse = _NotingReplayErrors(
            location=self._storage.location, user=user, batch_id=batch.batch_id, options=self._table.options
        )
        last = self._last_of(user, identity.query_id)
        known = Diagnosis(
            user=user,
            query_id=query_id,
            checkpoint=checkpoint.root,
            batch=batch.batch_id,
            replayed=replayed,
            last_batch=None if last is None else last.commit_identifier,
            last_snapshot=None if last is None else last.id,
            last_millis=None if last is None else last.time_millis,
        )
        try:
            judged = self._judge(self._table, identity, batch, others, refuse)
        except PaimonStreamError as error:
            return replace(
                known,
                verdict=type(error).__name__,
                explanation=error.message,
                cure=_cure(error),
                option=error.context.get("option"),
                notes=tuple(refuse.noted),
            )
        verdict, said = _in_words(judged, batch, replayed)
        notes = tuple(refuse.noted)
        return replace(known, verdict=verdict, safe=not notes, explanation=said, notes=notes)

    def _judge(
        self,
        table: Table,
        identity: WriterIdentity,
        batch: Batch,
        others: frozenset[str],
        refuse: ReplayErrors,
    ) -> FirstJudgement:
        check_writable(table)
        evidence = gather(table, identity, batch, claimed=others.__contains__, runtime=self._runtime)
        return judge(table, self._snapshots, evidence, refuse, self._runtime, overwrites=self._overwrites)

    def _last_of(self, user: str, query_id: str | None) -> Snapshot | None:
        """The newest snapshot of the sink that is left; None too where one in between cannot be read."""
        try:
            latest = self._snapshots.latest()
            for snapshot in self._snapshots.walk_down(0 if latest is None else latest.id):
                ours = snapshot.commit_user == user and snapshot.commit_identifier != BATCH_IDENTIFIER
                if ours and Marks.of(snapshot.properties).query_id in (None, query_id):
                    return snapshot
        except PaimonStreamError:
            return None  # the judgement meets it, too, and says so
        return None


def _registered(storage: Storage) -> tuple[RegisteredWriter, ...]:
    try:
        return registered_writers(storage)
    except FormatError:
        return ()  # the judgement meets the broken one, too, if the sink would, and says so


def _is_readable(checkpoint: Checkpoint) -> bool:
    return checkpoint.storage is not None


def _next_batch(checkpoint: Checkpoint) -> tuple[Batch, bool]:
    """The batch that Spark asks for after a restart, and whether it runs that again: the newest that it has
    planned, unless that is done; then the next, which it plans anew."""
    planned, done = checkpoint.planned_batch(), checkpoint.done_batch()
    replayed = planned is not None and planned != done
    batch_id = 0 if planned is None else planned if replayed else planned + 1
    batch = Batch(
        batch_id=batch_id,
        offsets_hash=checkpoint.offsets_hash(batch_id) if replayed else _NOT_PLANNED,
        previous_done_millis=checkpoint.done_millis(batch_id - 1),
    )
    return batch, replayed


def _in_words(judged: FirstJudgement, batch: Batch, replayed: bool) -> tuple[str, str]:
    number = batch.batch_id
    again = "Spark runs it again" if replayed else "Spark plans it when there are new rows"
    match judged.verdict:
        case AlreadyCommitted(snapshot=snapshot):
            where = "a snapshot that has expired since" if snapshot is None else f"snapshot {snapshot.id}"
            return (
                "already committed",
                f"Batch {number} is in the table, by {where}. {again}; the sink skips it and goes on.",
            )
        case Reuse(entry=entry):
            files = sum(len(message.new_files) for message in entry.messages)
            return (
                "reuse",
                f"Batch {number} was prepared by a killed run, and is not in the table. {again}; the "
                f"sink commits the {files} files that are there and goes on.",
            )
        case Fresh():
            why = (
                f" Files of a killed run are not used: {judged.written_again}."
                if judged.written_again
                else ""
            )
            return "fresh", f"Batch {number} is not in the table. {again}; the sink writes it.{why}"
    raise AssertionError("unreachable")


def _cure(error: PaimonStreamError) -> str:
    if not isinstance(error, ReplayError):
        return "Do what the message says, then restart; nothing was harmed."
    named = {
        ON_CHECKPOINT_RESET.key: "Put the right checkpoint back",
        ON_UNKNOWN_HISTORY.key: "Look for the rows of the batch in the table",
        ON_TABLE_CHANGE.key: "Find out who changed the table, and write again what is missing",
    }
    option = error.context.get("option")
    if option not in named:
        return "Stop the other writer, then restart."
    return (
        f"{named[option]}. Or let the stream continue, for one start: PaimonSink(…, options={{{option!r}: "
        "'continue'}). See docs/operations.md."
    )


def _unreadable(checkpoint: Checkpoint | None, user: str | None) -> Diagnosis:
    where = "is not known" if checkpoint is None else f"{checkpoint.root} cannot be read from here"
    return Diagnosis(
        user=user or "-",
        query_id=None,
        checkpoint=None if checkpoint is None else checkpoint.root,
        batch=None,
        replayed=None,
        explanation=f"The stream's checkpoint {where}, so nobody can say which batch comes next.",
        cure="Give the folder of its checkpoint; or just restart: the sink writes nothing in doubt.",
    )
