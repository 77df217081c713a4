"""The command `doctor`."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import click

from paimon_stream.api.diagnosis import Diagnosis, stopped_by
from paimon_stream.api.doctor import examine, leftovers
from paimon_stream.api.inspection import Writer
from paimon_stream.api.trial import NOT_TRIED, WriteTrial, try_writing
from paimon_stream.cli.command import (
    Session,
    Texts,
    folders,
    option,
    pairs_of,
    table_command,
    users,
)
from paimon_stream.cli.compact import CompactionAdvice
from paimon_stream.cli.exits import FINDINGS, OK
from paimon_stream.cli.output import Column, CommandAnswer, Listing, Part, json_of
from paimon_stream.cli.text import in_commands, iso, listed, moment, size
from paimon_stream.runtime import system
from paimon_stream.table.register import registered_writers
from paimon_stream.table.table import load_table

_KNOWN: Final[tuple[Column[Writer], ...]] = (
    Column("user", lambda writer: writer.user),
    Column("query_id", lambda writer: writer.query_id, "query"),
    Column("last_batch", lambda writer: writer.last_batch, ident=True),
    Column("last_snapshot", lambda writer: writer.last_snapshot, "snapshot", ident=True),
    Column(
        "last_time",
        lambda writer: iso(writer.last_millis),
        "time",
        for_people=lambda writer: moment(writer.last_millis),
    ),
    Column("checkpoint", lambda writer: writer.checkpoint),
)
_NAME: Final = (
    "The sink's name, if it has one. Repeat the option for several sinks, in their order."
)
_READ_ONLY: Final = "Write nothing, not even to try whether the sink could."
_OPTION: Final = "An option of the sink. Can be given several times."


@table_command(
    example="doctor --checkpoint /checkpoints/orders /data/shop.db/orders",
    params=(
        option(
            "--checkpoint",
            "The query's checkpointLocation.",
            metavar="FOLDER",
            shell_complete=folders,
        ),
        option("--user", "The sink's commit_user, if it has one.", shell_complete=users),
        option("--name", _NAME, "names", multiple=True),
        option(
            "--mode",
            "The sink's mode.",
            type=click.Choice(["append", "update", "complete"]),
            default="append",
        ),
        option("--query-name", "The query's name, if it has one."),
        option("--option", _OPTION, "sink_option", multiple=True, metavar="KEY=VALUE"),
        option("--read-only", _READ_ONLY, is_flag=True),
    ),
)
def doctor(
    session: Session,
    checkpoint: str | None,
    user: str | None,
    names: Texts,
    mode: str,
    query_name: str | None,
    sink_option: Texts,
    read_only: bool,
) -> CommandAnswer:
    """Judges whether a stream can be restarted, what the restart would do, and what to do if it
    cannot be restarted. The doctor runs the sink's own checks on the table and the checkpoint. In
    the folders that the sink writes, it creates hidden files and removes them again. It changes
    nothing else. It names what it could not try. Without --checkpoint it judges every stream that
    is registered in the table, with the checkpoint that is registered for the stream. The exit code
    is 0 only if each stream can continue by itself. It is 1 if a stream would stop or cannot be
    judged. The doctor also names maintenance commands that were killed, each with the command that
    completes it, the buckets that need a compaction, and what a Hive Metastore does not know of the
    table. That does not change the exit code.
    """
    if user is not None and names:
        raise click.UsageError("Give --user or --name, not both.")
    options = pairs_of(sink_option, "--option")
    diagnoses = examine(
        session.raw.storage,
        checkpoint=checkpoint,
        user=user,
        names=names,
        query_name=query_name,
        options=options,
        storage_options=session.stores,
        mode=mode,
    )
    trial = NOT_TRIED
    if not read_only:
        trial = try_writing(load_table(session.raw.storage, options))
        diagnoses = tuple(stopped_by(diagnosis, trial.failures) for diagnosis in diagnoses)
    left_behind = leftovers(session.raw.storage, system().clock.now_millis())
    advice = CompactionAdvice(session)
    parts: list[Part] = []
    if not diagnoses:
        parts.append(_nobody(session, user))
    for paragraph in _paragraphs(diagnoses, trial, left_behind, advice):
        parts += _after_line(parts, paragraph)
    is_safe = bool(diagnoses) and all(diagnosis.safe for diagnosis in diagnoses)
    is_safe = is_safe and not trial.failures
    document = session.document(
        safe=is_safe,
        streams=[_json(diagnosis) for diagnosis in diagnoses],
        trial=_trial_document(trial),
        left_behind=left_behind,
        to_compact=advice.document(),
    )
    return CommandAnswer(document=document, parts=parts, code=OK if is_safe else FINDINGS)


def _paragraphs(
    diagnoses: Iterable[Diagnosis],
    trial: WriteTrial,
    left_behind: Iterable[str],
    advice: CompactionAdvice,
) -> Iterator[Sequence[Part]]:
    """What the doctor has found, for people. An empty line stands between two paragraphs."""
    yield from map(_diagnosis_parts, diagnoses)
    yield _trial_parts(trial)
    yield [f"Left behind: {in_commands(text)}" for text in left_behind]
    if advice.needed:
        yield [f"To compact: {advice.summary()}.", *advice.parts()]


def _trial_document(trial: WriteTrial) -> dict[str, Any]:
    """What was tried in the table's folders, for programs."""
    return {
        "tried": trial.tried,
        "failures": [error.message for error in trial.failures],
        "not_tried": trial.not_tried,
        "free_bytes": trial.free_bytes,
    }


def _trial_parts(trial: WriteTrial) -> list[Part]:
    """What the doctor tried in the table's folders, and what it could not try."""
    parts: list[Part] = [
        f"The sink could not write: {in_commands(error.message)}" for error in trial.failures
    ]
    if trial.tried and not trial.failures:
        free = "" if trial.free_bytes is None else f" {size(trial.free_bytes)} are free."
        parts.append(
            f"Tried: files can be created and removed in the folders that the sink writes.{free}"
        )
    return [*parts, f"Not tried: {'; '.join(trial.not_tried)}."]


def _after_line(before: Sequence[Part], parts: Sequence[Part]) -> list[Part]:
    """These parts of the output, with an empty line first if the output has parts before them."""
    return ["", *parts] if before and parts else [*parts]


def _nobody(session: Session, user: str | None) -> str:
    registered = {writer.user for writer in registered_writers(session.raw.storage)}
    if user is not None and registered:
        return f"No stream of commit user {user!r} is registered here. Registered: {listed(sorted(registered))}."
    return (
        "No stream is registered in this table, so none was judged. Give --checkpoint to judge one."
    )


def _diagnosis_parts(diagnosis: Diagnosis) -> list[Part]:
    parts: list[Part] = [_pairs_of(diagnosis), diagnosis.explanation]
    parts += [f"Note: {note}" for note in diagnosis.notes]
    if diagnosis.cure is not None:
        parts.append(f"What to do: {diagnosis.cure}")
    parts += [f"Earlier: {in_commands(event)}" for event in diagnosis.history]
    if diagnosis.known and not diagnosis.safe:
        parts += ["", "The streams of this table:", Listing(_KNOWN, diagnosis.known, "")]
    return parts


def _pairs_of(diagnosis: Diagnosis) -> list[tuple[str, object]]:
    """The facts of a diagnosis for people, each with its name."""
    stream = diagnosis.user
    query = diagnosis.query_id
    next_batch = None
    if diagnosis.batch is not None:
        again = " (again)" if diagnosis.replayed else ""
        next_batch = f"{diagnosis.batch}{again}"
        if not diagnosis.query_id:
            stream = "a new one"
            query = "a new one"
    also = None
    if diagnosis.other_users:
        also = f"the query writes here as {listed(diagnosis.other_users)}"
    return [
        ("stream", stream),
        ("query", query),
        ("also", also),
        ("checkpoint", diagnosis.checkpoint),
        ("last batch", _last_batch_of(diagnosis)),
        ("next batch", next_batch),
        ("verdict", diagnosis.verdict),
        ("restart", "safe" if diagnosis.safe else "not safe: read on"),
    ]


def _last_batch_of(diagnosis: Diagnosis) -> str:
    if diagnosis.last_batch is None:
        return "-" if diagnosis.user == "-" else "none is left in the table"
    last_batch = f"{diagnosis.last_batch} (snapshot {diagnosis.last_snapshot}, {moment(diagnosis.last_millis)})"
    is_of_other = diagnosis.last_query_id not in (None, diagnosis.query_id)
    if diagnosis.query_id is not None and is_of_other:
        last_batch += f", written by query {diagnosis.last_query_id}"
    return last_batch


def _json(diagnosis: Diagnosis) -> dict[str, Any]:
    renamed = {"batch": "next_batch", "last_millis": "last_time"}
    facts = {renamed.get(key, key): value for key, value in diagnosis.to_json().items()}
    return {
        **facts,
        "last_time": iso(diagnosis.last_millis),
        "known": [json_of(_KNOWN, stream) for stream in diagnosis.known],
    }
