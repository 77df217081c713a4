"""What the doctor says of one stream: the facts, and the sentences about them. Only a restart shows
which columns the query has now. But the schema under which the stream's last batch was committed is
known, and rows with exactly its columns fitted then. So that is checked with the sink's own code.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from paimon_stream import options as opt
from paimon_stream.api.inspection import Writer
from paimon_stream.errors import (
    CommitLost,
    IncompatibleSchema,
    MissingExtra,
    PaimonStreamError,
    ReplayError,
)
from paimon_stream.extras import require
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.snapshot_json import Snapshot, SnapshotRef
from paimon_stream.reports import Report, iso
from paimon_stream.spark.checkpoint import Kind
from paimon_stream.stream.verdicts import AlreadyCommitted, Fresh, Reuse, Verdict
from paimon_stream.table.removals import Removals, Removed
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis(Report):
    """What a restart of one sink of one query would do.

    `verdict` is `fresh`, `reuse` or `already committed`; or the name of the error that the sink
    would raise; or `unknown` if the checkpoint cannot be used or read. `safe` says whether the
    stream goes on by itself and no row is lost or doubled. `batch` is the batch that Spark asks for
    next, and `replayed` says whether Spark has planned it before. `last_batch`, `last_snapshot` and
    `last_millis` (epoch) describe the stream's newest snapshot that is left in the table.
    `last_query_id` is the query that wrote it: a different query if the checkpoint was wiped.
    `explanation` is for people, `cure` says what to do, and each of `notes` is a reason to look
    before a restart. `known` lists the other streams of the table if this one is not safe.
    `other_users` are other commit users under which the query is registered in this table. Each of
    `history` says which batches of the stream a rollback or fast forward has taken away, which note
    of that cannot be read, or which batches have left nothing; it says nothing of the restart.
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


def in_words(
    verdict: Verdict,
    number: int,
    replayed: bool,
) -> tuple[str, str]:
    """The name of a verdict on a batch, and what the sink then does."""
    again = "Spark runs it again" if replayed else "Spark plans it when there are new rows"
    match verdict:
        case AlreadyCommitted(snapshot=Snapshot() as snapshot):
            where = f"Snapshot {snapshot.id} holds batch {number}"
            return "already committed", f"{where}. {again}; the sink skips it and goes on."
        case AlreadyCommitted():
            where = f"The files of batch {number} are in the table; its snapshot has expired"
            return "already committed", f"{where}. {again}; the sink skips it and goes on."
        case Reuse(entry=entry):
            files = sum(len(message.new_files) for message in entry.messages)
            what = f"A killed run prepared batch {number}, and did not commit it"
            return (
                "reuse",
                f"{what}. {again}; the sink commits the {files:,} prepared files and goes on.",
            )
        case Fresh(written_again=why):
            why = f" The sink does not use the files of a killed run: {why}." if why else ""
            return "fresh", f"Batch {number} is not in the table. {again}; the sink writes it.{why}"
    raise AssertionError("unreachable")


def of_checkpoint_kind(
    kind: Kind,
    path: str,
    newest_planned: int | None = None,
) -> tuple[str, str]:
    """Why no query can be restarted from what is at that path, and what to do. `newest_planned` is
    the newest batch in the checkpoint's folder `offsets`; None if there is none.
    """
    begins = (
        "Spark would begin a new query there, with batch 0, and read its source from the beginning"
    )
    other = "Give the checkpoint of the stream. If it starts for the first time, there is nothing to judge"
    lost = "Spark would give the query a new id, and the sink would not know its earlier batches."
    restore = (
        "Restore the file metadata. It holds the query's id, which the table's snapshots also name."
    )
    damaged = f"{path} is missing, empty or damaged. Spark cannot start from this checkpoint."
    unread = f"{path} cannot be read from here, so the next batch of the stream is not known."
    elsewhere = "Run the doctor where the checkpoint can be read. Or restart: in doubt, the sink writes nothing."
    return {
        Kind.MISSING: (f"There is no checkpoint at {path}. {begins}.", f"{other}."),
        Kind.EMPTY: (
            f"{path} is empty. {begins}.",
            f"{other}. Perhaps a volume is not mounted there.",
        ),
        Kind.OTHER: (f"{path} is no checkpoint: it has no file metadata. {begins}.", f"{other}."),
        Kind.NO_METADATA: (f"The checkpoint {path} lacks its file metadata. {lost}", restore),
        Kind.FILE: (
            f"{path} is a file, not a folder. Spark cannot start from it.",
            "Give the stream's checkpoint.",
        ),
        Kind.DAMAGED: (
            damaged,
            f"{_cure_of_damage(path, newest_planned)} Then run the doctor again.",
        ),
    }.get(kind, (unread, elsewhere))


def _cure_of_damage(path: str, newest_planned: int | None) -> str:
    """What to do about a damaged file of a checkpoint."""
    folder, _, name = path.rpartition("/")
    if folder.rpartition("/")[0].endswith("/sources"):
        anew = (
            "start a new checkpoint with a source that begins after the rows that the table holds."
        )
        return f"Restore the file from a copy. It holds what the source gave to a batch. If there is no copy, {anew}"
    match folder.rpartition("/")[2]:
        case "commits":
            only = f"Remove only this file, commits/{name}, and its checksum, commits/.{name}.crc, if there is one."
            then = f"Spark then runs batch {name} again with the same rows"
            return (
                f"{only} Keep offsets/{name}. {then}, and the sink skips it if the table holds it."
            )
        case "offsets" if name == str(newest_planned):
            look = f"Restore the file from a copy. If there is no copy, find out whether the table holds batch {name}"
            shows = f"a snapshot of the stream's commit user has {name} as its identifier"
            remove = f"remove offsets/{name} and commits/{name}, and their checksums, .{name}.crc"
            twice = "If the table holds the batch, do not remove them: its rows would be planned a second time."
            return f"{look}: {shows}. Only if it does not, {remove}; Spark then plans the batch again. {twice}"
        case "offsets":
            return f"Restore the file from a copy. Spark reads in it where batch {newest_planned} begins."
    return "Restore the file from a copy. It holds the query's id, which the table's snapshots also name."


def removals_in_words(removals: Removals, user: str) -> tuple[str, ...]:
    """What the notes say of the batches of a commit user, the oldest first, one text for each run
    that removed some; then the notes that cannot be read.
    """
    runs: dict[tuple[int, str, SnapshotRef | None, bool, bool], list[Removed]] = {}
    for one in removals.removed:
        if one.user == user and one.is_of_stream:
            run = (one.millis or 0, one.by, one.target, one.ended, one.certain)
            runs.setdefault(run, []).append(one)
    said = []
    for run in sorted(runs, key=lambda run: run[0]):
        millis, by, target, ended, certain = run
        to = "" if target is None else f" to snapshot {target.id}"
        batches = _span("batch", "batches", {one.identifier for one in runs[run]})
        places = {one.snapshot.id for one in runs[run] if one.snapshot is not None}
        where = f" ({_span('snapshot', 'snapshots', places)})" if places else ""
        did = "has removed" if ended else "had begun to remove, and did not end,"
        doubt = "" if certain else ". Whether the table was built on them is not known"
        said.append(f"A {by}{to} {did} {batches} of this stream{where} at {iso(millis)}{doubt}.")
    return (*said, *removals.doubts)


def _span(one: str, several: str, numbers: Collection[int | None]) -> str:
    """The smallest and the largest number, with the word for one or for several."""
    known = [number for number in numbers if number is not None]
    first, last = min(known), max(known)
    return f"{one} {first}" if first == last else f"{several} {first} to {last}"


def cure_of(
    error: PaimonStreamError,
    given: str,
    known: str | None,
    other_users: Sequence[str] = (),
) -> str:
    """The cure for the sink's error. `known` is where the table says that the stream's checkpoint
    is. `other_users` are those under which the query is registered here, if this one is new here.
    """
    if not isinstance(error, ReplayError | CommitLost):
        return "Do what the message says, then restart. Nothing was harmed."
    cures = {
        opt.ON_CHECKPOINT_RESET.key: "Put the right checkpoint back",
        opt.ON_UNKNOWN_HISTORY.key: "Look for the rows of the batch in the table",
        opt.ON_TABLE_CHANGE.key: "Find out who changed the table, and write again what is missing",
    }
    option = error.context.get("option")
    if command := error.context.get("command"):  # CommitLost
        cures[opt.ON_TABLE_CHANGE.key] = f"If it was no rollback, commit the files again: {command}"
    if option not in cures:
        return "Stop the other writer, then restart."
    how = (
        f"for one start: PaimonSink(…, options={{{option!r}: 'continue'}}). See docs/operations.md."
    )
    if option == opt.ON_CHECKPOINT_RESET.key and known not in (None, given):
        right = f"The table knows the checkpoint of this stream as {known}: give that one."
        return f"{right} Only where the stream itself was moved to {given}, let it continue, {how}"
    if option == opt.ON_UNKNOWN_HISTORY.key and other_users:
        old = f"This query wrote here as commit user {listed(other_users)}"
        same = f"{old}. If that is this sink, give it that name or commit user again. Otherwise:"
        return f"{same} {cures[option]}. Or let the stream continue, {how}"
    return f"{cures[option]}. Or let the stream continue, {how}"


def listed(users: Sequence[str]) -> str:
    """Commit users as part of a sentence."""
    return " or ".join(map(repr, users))


def judge_columns(
    table: Table,
    last: Snapshot | None,
    done_millis: int | None,
) -> list[str]:
    """The schema changes since the stream's `last` snapshot that need a look before a restart.
    `done_millis` is when Spark recorded its last batch as done. Raises what the sink would raise
    for the columns of that snapshot.
    """
    now = table.schema
    if last is None:
        if now.id == 0 or done_millis is None or now.time_millis <= done_millis:
            return []
        unknown = "no snapshot of that batch is left. Whether the columns of the query still fit is not known."
        return [
            f"The table's schema {now.id} is younger than the stream's last batch, and {unknown}"
        ]
    if last.schema_id == now.id:
        return []
    then = SchemaStore(table.storage).get(last.schema_id)
    since = f"The table's schema has changed since batch {last.commit_identifier}, from {then.id} to {now.id}"
    was, is_now = opt.Options(then.options).value(opt.BUCKET), table.options.value(opt.BUCKET)
    buckets = f"bucket was {was} and is now {is_now}. Rows for a partition of {was} buckets raise BucketCountChanged."
    notes = [] if was == is_now else [buckets]
    return [f"{since}: {one}" for one in (*notes, *_columns(then, table, since))]


def _columns(then: TableSchema, table: Table, since: str) -> list[str]:
    try:
        fit = require("paimon_stream.spark.schema_fit", "spark", "The check of a changed schema")
    except MissingExtra:
        return [
            "PySpark is not installed, so whether the columns of the query still fit is not known here."
        ]
    try:
        grown: TableSchema = fit.check_earlier_columns(then, table)
    except IncompatibleSchema as error:
        text = f"{since}. If the query still has the columns of that batch, the sink raises: {error.message}"
        raise type(error)(text, **error.context) from None
    added = sorted(set(grown.field_names) - set(table.schema.field_names))
    if not added:
        return []
    again = f"the sink adds these columns again if the query still has them: {', '.join(added)}."
    return [f"with {opt.MERGE_SCHEMA.key} = {table.options.value(opt.MERGE_SCHEMA)} {again}"]
