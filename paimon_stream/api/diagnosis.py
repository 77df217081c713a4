"""The doctor's diagnosis of one stream: the facts, and the sentences about these facts.

Only a restart shows which columns the query has now. But the schema under which the stream's last
batch was committed is known, and at that time rows with exactly the columns of this schema fitted.
So rows with those columns are checked with the sink's own code.
"""

import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from paimon_stream import options as opt
from paimon_stream.api.inspection import Writer
from paimon_stream.errors import (
    CheckpointReset,
    CheckpointRewound,
    CommitLost,
    IncompatibleSchema,
    MissingExtra,
    PaimonStreamError,
    ReplayError,
)
from paimon_stream.extras import require
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.snapshot_json import Snapshot, SnapshotRef
from paimon_stream.reports import Report, count, iso
from paimon_stream.spark.checkpoint import Kind
from paimon_stream.stream.verdicts import AlreadyCommitted, Fresh, Reuse, Verdict
from paimon_stream.table.removals import Removals, Removed
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis(Report):
    """What a restart of one sink of one query would do.

    Attributes:
        user: the commit user of the sink; "-" if it is not known.
        query_id: the id of the query in the checkpoint; None if the checkpoint has no id.
        checkpoint: the folder of the checkpoint; None if it is not known.
        verdict: `fresh`, `reuse` or `already committed`; or the name of the error that the sink
            would raise; or `unknown` if the checkpoint cannot be used or read.
        safe: whether the stream goes on without help, and no row is lost or doubled.
        batch: the batch that Spark asks for next.
        replayed: whether Spark had already planned that batch.
        last_batch: the batch of the stream's newest snapshot that is left in the table.
        last_snapshot: the id of that snapshot.
        last_millis: the time of that snapshot, in epoch milliseconds.
        last_query_id: the id of the query that wrote that snapshot. It is another query if the
            checkpoint was deleted since.
        explanation: sentences for people about the verdict.
        cure: a sentence that says what to do; None if there is nothing to do.
        option: the key of the option that would let the stream continue; None if there is none.
        notes: texts, each of which is a reason to look before a restart.
        known: the other streams of the table, if the restart is not safe.
        other_users: other commit users under which the query is registered in this table.
        history: which batches of the stream a rollback or fast forward has removed, which notes
            about removals cannot be read, and which batches have left nothing. These texts do not
            concern the restart.
    """

    user: str
    query_id: str | None = None
    checkpoint: str | None = None
    verdict: str = "unknown"
    safe: bool = False
    batch: int | None = None
    replayed: bool | None = None
    last_batch: int | None = None
    last_snapshot: int | None = None
    last_millis: int | None = None
    last_query_id: str | None = None
    explanation: str = ""
    cure: str | None = None
    option: str | None = None
    notes: tuple[str, ...] = ()
    known: tuple[Writer, ...] = ()
    other_users: tuple[str, ...] = ()
    history: tuple[str, ...] = ()


class VerdictInWords(NamedTuple):
    """The name of a verdict on a batch, and a text that says what the sink then does."""

    name: str
    explanation: str


def in_words(
    verdict: Verdict,
    batch_id: int,
    *,
    replayed: bool,
) -> VerdictInWords:
    """A verdict on a batch, for people.

    Args:
        verdict: the verdict of the judgement.
        batch_id: the id of the batch.
        replayed: whether Spark had already planned the batch.
    """
    again = "Spark runs it again" if replayed else "Spark plans it when there are new rows"
    match verdict:
        case AlreadyCommitted(snapshot=Snapshot() as snapshot):
            return VerdictInWords(
                "already committed",
                f"Snapshot {snapshot.id} holds batch {batch_id}. {again}; the sink skips it and goes on.",
            )
        case AlreadyCommitted():
            return VerdictInWords(
                "already committed",
                f"The files of batch {batch_id} are in the table; its snapshot has expired. "
                f"{again}; the sink skips it and goes on.",
            )
        case Reuse(entry=entry):
            files = count(sum(len(message.new_files) for message in entry.messages), "file")
            return VerdictInWords(
                "reuse",
                f"A killed run prepared batch {batch_id}, and did not commit it. "
                f"{again}; the sink commits {files} that it prepared and goes on.",
            )
        case Fresh(why_not_reused=reason):
            unused = (
                f" The sink does not use the files of a killed run: {reason}." if reason else ""
            )
            return VerdictInWords(
                "fresh",
                f"Batch {batch_id} is not in the table. {again}; the sink writes it.{unused}",
            )
    raise AssertionError("unreachable")


_NEW_QUERY_BEGINS: Final = (
    "Spark would begin a new query there, with batch 0, and read its source from the beginning."
)
_GIVE_THE_CHECKPOINT: Final = (
    "Give the checkpoint of the stream. If it starts for the first time, there is nothing to judge."
)


class Obstacle(NamedTuple):
    """The reason why no query can be restarted from a checkpoint, and what to do."""

    explanation: str
    cure: str


def obstacle_of(
    kind: Kind,
    path: str,
    newest_planned: int | None = None,
) -> Obstacle:
    """The reason why no query can be restarted from a checkpoint of this kind, and what to do.

    Args:
        kind: what is at the checkpoint's location.
        path: the path of the file or folder that shows the kind.
        newest_planned: the newest batch in the checkpoint's folder `offsets`; None if there is
            none.
    """
    match kind:
        case Kind.MISSING:
            return Obstacle(
                f"There is no checkpoint at {path}. {_NEW_QUERY_BEGINS}",
                _GIVE_THE_CHECKPOINT,
            )
        case Kind.EMPTY:
            return Obstacle(
                f"{path} is empty. {_NEW_QUERY_BEGINS}",
                f"{_GIVE_THE_CHECKPOINT} Perhaps a volume is not mounted there.",
            )
        case Kind.OTHER:
            return Obstacle(
                f"{path} is not a checkpoint: it has no file named metadata. {_NEW_QUERY_BEGINS}",
                _GIVE_THE_CHECKPOINT,
            )
        case Kind.NO_METADATA:
            return Obstacle(
                f"The checkpoint {path} lacks its file named metadata. Spark would give the query a new id, and "
                "the sink would not know its earlier batches.",
                "Restore the file metadata. It holds the query's id, which the table's snapshots also name.",
            )
        case Kind.FILE:
            return Obstacle(
                f"{path} is a file, not a folder. Spark cannot start from it.",
                "Give the stream's checkpoint.",
            )
        case Kind.DAMAGED:
            return Obstacle(
                f"{path} is missing, empty or damaged. Spark cannot start from this checkpoint.",
                f"{_cure_of_damage(path, newest_planned)} Then run the doctor again.",
            )
    return Obstacle(
        f"{path} cannot be read from here, so the next batch of the stream is not known.",
        "Run the doctor where the checkpoint can be read. Or restart: in doubt, the sink writes nothing.",
    )


def _cure_of_damage(path: str, newest_planned: int | None) -> str:
    """A text that says what to do about a damaged file of a checkpoint. `path` is the file, and
    `newest_planned` is the newest batch in the checkpoint's folder `offsets`.
    """
    folder, _, name = path.rpartition("/")
    parent, _, folder_name = folder.rpartition("/")
    is_newest_plan = folder_name == "offsets" and name == str(newest_planned)
    if parent.endswith("/sources"):
        return (
            "Restore the file from a copy. It holds what the source gave to a batch. If there is no copy, start a new "
            "checkpoint with a source that begins after the rows that the table holds."
        )
    if folder_name == "commits":
        return (
            f"Remove only this file, commits/{name}, and its checksum, commits/.{name}.crc, if there is one. "
            f"Keep offsets/{name}. Spark then runs batch {name} again with the same rows, and the sink skips it if "
            "the table holds it."
        )
    if is_newest_plan:
        return (
            "Restore the file from a copy. If there is no copy, find out whether the table holds batch "
            f"{name}: a snapshot of the stream's commit user has {name} as its identifier. Only if it does not, "
            f"remove offsets/{name} and commits/{name}, and their checksums, .{name}.crc; Spark then plans the batch "
            "again. If the table holds the batch, do not remove them: its rows would be planned a second time."
        )
    if folder_name == "offsets":
        return (
            f"Restore the file from a copy. Spark reads in it where batch {newest_planned} begins."
        )
    return "Restore the file from a copy. It holds the query's id, which the table's snapshots also name."


class _Removal(NamedTuple):
    """One run that removed snapshots. The attributes are the fields that all `Removed` of the run
    share. `millis` is 0 if the time is not known.
    """

    millis: int
    by: str
    target: SnapshotRef | None
    ended: bool
    certain: bool


def removals_in_words(removals: Removals, user: str) -> tuple[str, ...]:
    """Texts about the removed batches of a commit user. There is one text for each run that removed
    batches, the oldest run first, and then one text for each unreadable note.
    """
    by_removal: dict[_Removal, list[Removed]] = {}
    for removed in removals.removed:
        if removed.user == user and removed.is_of_stream:
            removal = _Removal(
                millis=removed.millis or 0,
                by=removed.by,
                target=removed.target,
                ended=removed.ended,
                certain=removed.certain,
            )
            by_removal.setdefault(removal, []).append(removed)
    texts = [
        _removal_in_words(removal, by_removal[removal])
        for removal in sorted(by_removal, key=lambda removal: removal.millis)
    ]
    return (*texts, *removals.doubts)


def _removal_in_words(removal: _Removal, removed: Sequence[Removed]) -> str:
    """A sentence about a run, and about the snapshots of one stream that it removed."""
    target = "" if removal.target is None else f" to snapshot {removal.target.id}"
    verb = "has removed" if removal.ended else "had begun to remove, and did not end,"
    batches = _span("batch", "batches", {attempt.identifier for attempt in removed})
    ids = {attempt.snapshot.id for attempt in removed if attempt.snapshot is not None}
    snapshots = f" ({_span('snapshot', 'snapshots', ids)})" if ids else ""
    doubt = "" if removal.certain else ". Whether the table was built on them is not known"
    return f"A {removal.by}{target} {verb} {batches} of this stream{snapshots} at {iso(removal.millis)}{doubt}."


def _span(singular: str, plural: str, numbers: Collection[int | None]) -> str:
    """A text with the smallest and the largest number, after the singular or plural of a word."""
    known_numbers = [number for number in numbers if number is not None]
    first = min(known_numbers)
    last = max(known_numbers)
    if first == last:
        return f"{singular} {first}"
    return f"{plural} {first} to {last}"


def cure_of(
    error: PaimonStreamError,
    checkpoint: str,
    known_checkpoint: str | None,
    other_users: Sequence[str] = (),
    rollback_target: int | None = None,
) -> str:
    """The cure for the sink's error.

    Args:
        error: the error that the sink would raise.
        checkpoint: the folder of the checkpoint that is judged.
        known_checkpoint: the location of the stream's checkpoint, according to the table; None if
            the table does not say that.
        other_users: the commit users under which the query is registered in this table, if the
            commit user of the judged sink is new in the table; otherwise ().
        rollback_target: the snapshot of the batch before the judged one, if all later snapshots are
            of this stream; otherwise None.
    """
    if not isinstance(error, ReplayError | CommitLost):
        return _DO_WHAT_IT_SAYS
    option = error.context.get("option")
    cause_cure = _cure_of_cause(option, error.context.get("command"))
    if cause_cure is None:
        return "Stop the other writer, then restart."
    for_one_start = (
        f"for one start: PaimonSink(…, options={{{option!r}: 'continue'}}). See docs/operations.md."
    )
    read_again = f"{_read_again(error)} " if isinstance(error, CheckpointReset) else ""
    is_moved = option == opt.ON_CHECKPOINT_RESET.key and known_checkpoint is not None
    if is_moved and known_checkpoint != checkpoint:
        return (
            f"According to the table, the checkpoint of this stream is {known_checkpoint}: give that one. "
            f"{read_again}Only where the stream itself was moved to {checkpoint}, let it continue, {for_one_start}"
        )
    if isinstance(error, CheckpointReset):
        return f"{cause_cure}. {read_again}Only after that let the stream continue, {for_one_start}"
    if isinstance(error, CheckpointRewound) and rollback_target is not None:
        take_back = _take_back(error, rollback_target)
        return f"{cause_cure}. {take_back} Or let the stream continue, {for_one_start}"
    if option == opt.ON_UNKNOWN_HISTORY.key and other_users:
        return (
            f"This query wrote here as commit user {listed(other_users)}. If that is this sink, give it that name or "
            f"commit user again. Otherwise: {cause_cure}. Or let the stream continue, {for_one_start}"
        )
    return f"{cause_cure}. Or let the stream continue, {for_one_start}"


def _read_again(error: CheckpointReset) -> str:
    """What to do before a stream with a new checkpoint may continue."""
    command = shlex.join(("paimon-stream", "truncate", "--yes", str(error.context["table"])))
    return (
        "With this one, Spark reads its source again: truncate the table first, with "
        f"`{command}`, or let the source begin after the rows that are here."
    )


def _take_back(error: CheckpointRewound, snapshot_id: int) -> str:
    """How the table becomes what an older checkpoint knows, if the newest checkpoint is lost."""
    place = (str(error.context["table"]), str(snapshot_id))
    command = shlex.join(("paimon-stream", "rollback", "--yes", *place))
    return (
        "If it is lost, if no other query uses a copy of it, and if the source still has the rows from batch "
        f"{error.context['batch']} on, take the table back to this checkpoint, with `{command}`, and restart: Spark "
        "reads these rows again."
    )


def stopped_by(diagnosis: Diagnosis, failures: Sequence[PaimonStreamError]) -> Diagnosis:
    """The diagnosis, changed to say that the sink cannot write the table because of the given
    failures. A restart is not safe in that case. The judgement of the batch stays as it is.
    """
    if not failures:
        return diagnosis
    if not diagnosis.safe:
        notes = tuple(f"The sink could not write: {failure.message}" for failure in failures)
        return replace(diagnosis, notes=(*diagnosis.notes, *notes))
    return replace(
        diagnosis,
        safe=False,
        verdict=type(failures[0]).__name__,
        explanation=failures[0].message,
        cure=_DO_WHAT_IT_SAYS,
        notes=tuple(failure.message for failure in failures[1:]),
    )


_DO_WHAT_IT_SAYS: Final = "Do what the message says, then restart. Nothing was harmed."


def _cure_of_cause(option: object, command: object) -> str | None:
    """What to do about the cause of an error, as the beginning of a sentence; None if no option
    lets the stream continue after the error.

    Args:
        option: the key of the option that would let the stream continue.
        command: the command that commits lost files again, from `CommitLost`.
    """
    if option == opt.ON_CHECKPOINT_RESET.key:
        return "Put the right checkpoint back"
    if option == opt.ON_UNKNOWN_HISTORY.key:
        return "Look for the rows of the batch in the table"
    if option == opt.ON_TABLE_CHANGE.key and command:
        return f"If it was no rollback, commit the files again: {command}"
    if option == opt.ON_TABLE_CHANGE.key:
        return "Find out who changed the table, and write again what is missing"
    return None


def listed(users: Sequence[str]) -> str:
    """Commit users as part of a sentence: each in quotes, with "or" between them."""
    return " or ".join(map(repr, users))


def judge_columns(
    table: Table,
    last: Snapshot | None,
    done_millis: int | None,
) -> list[str]:
    """The schema changes since the stream's last batch that need a look before a restart.

    Args:
        table: the table to which the stream writes.
        last: the stream's newest snapshot; None if none is left.
        done_millis: when Spark recorded the stream's last batch as done, in epoch milliseconds;
            None if that is not known.

    Raises:
        PaimonStreamError: what the sink would raise for the columns of that snapshot.
    """
    newest = table.schema
    if last is None:
        was_never_changed = newest.id == 0
        if was_never_changed or done_millis is None or newest.time_millis <= done_millis:
            return []
        return [
            f"The table's schema {newest.id} is younger than the stream's last batch, and no snapshot of that batch is "
            "left. Whether the columns of the query still fit is not known."
        ]
    if last.schema_id == newest.id:
        return []
    earlier = SchemaStore(table.storage).get(last.schema_id)
    since = f"The table's schema has changed since batch {last.commit_identifier}, from {earlier.id} to {newest.id}"
    notes = []
    buckets_then = opt.Options(earlier.options).value(opt.BUCKET)
    buckets_now = table.options.value(opt.BUCKET)
    if buckets_then != buckets_now:
        notes.append(
            f"{since}: bucket was {buckets_then} and is now {buckets_now}. "
            f"Rows for a partition of {buckets_then} buckets raise BucketCountChanged."
        )
    columns_note = _columns_note(earlier, table, since)
    if columns_note is not None:
        notes.append(f"{since}: {columns_note}")
    return notes


def _columns_note(earlier: TableSchema, table: Table, since: str) -> str | None:
    """What an operator must know if the query has the columns of an `earlier` schema; None if there
    is nothing to know. Raises the sink's error, with a message that begins with `since`.
    """
    try:
        schema_fit = require(
            "paimon_stream.spark.schema_fit", "spark", "The check of a changed schema"
        )
    except MissingExtra:
        return "PySpark is not installed, so whether the columns of the query still fit is not known here."
    try:
        grown: TableSchema = schema_fit.check_earlier_columns(earlier, table)
    except IncompatibleSchema as error:
        raise type(error)(
            f"{since}. If the query still has the columns of that batch, the sink raises: {error.message}",
            **error.context,
        ) from None
    added = sorted(set(grown.field_names) - set(table.schema.field_names))
    if not added:
        return None
    return (
        f"with {opt.MERGE_SCHEMA.key} = {table.options.value(opt.MERGE_SCHEMA)} "
        f"the sink adds these columns again if the query still has them: {', '.join(added)}."
    )
