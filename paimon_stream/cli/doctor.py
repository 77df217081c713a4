"""`doctor`."""

from typing import Any, Final

import click

from paimon_stream.api.diagnosis import Diagnosis
from paimon_stream.api.doctor import examine, leftovers
from paimon_stream.api.inspection import Writer
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
from paimon_stream.cli.text import in_commands, iso, listed, moment
from paimon_stream.runtime import system
from paimon_stream.stream.register import registered_writers

_KNOWN: Final[tuple[Column[Writer], ...]] = (
    Column("user", lambda one: one.user),
    Column("query_id", lambda one: one.query_id, "query"),
    Column("last_batch", lambda one: one.last_batch, ident=True),
    Column("last_snapshot", lambda one: one.last_snapshot, "snapshot", ident=True),
    Column(
        "last_time",
        lambda one: iso(one.last_millis),
        "time",
        text=lambda one: moment(one.last_millis),
    ),
    Column("checkpoint", lambda one: one.checkpoint),
)
_NAME: Final = (
    "The sink's name, if it has one. Repeat the option for several sinks, in their order."
)
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
    ),
)
def doctor(
    session: Session, user: str | None, names: Texts, sink_option: Texts, **asked: Any
) -> CommandAnswer:
    """Judges whether a stream can be restarted, what the restart would do, and what to do if it
    cannot be restarted. The doctor runs the sink's own checks on the table and the checkpoint, and
    writes nothing. Without --checkpoint it judges every stream that is registered in the table,
    with the checkpoint that is registered for it. The exit code is 0 only if each stream goes on by
    itself. It is 1 if a stream would stop or cannot be judged. The doctor also names what killed
    maintenance commands have left, and the command that ends each, and which buckets need a
    compaction. That does not change the exit code.
    """
    if user is not None and names:
        raise click.UsageError("Give --user or --name, not both.")
    asked |= {"user": user, "names": names, "options": pairs_of(sink_option, "--option")}
    found = examine(session.raw.storage, storage_options=session.stores, **asked)
    parts: list[Part] = [] if found else [_nobody(session, user)]
    for one in found:
        parts += ["", *_shown(one)] if parts else _shown(one)
    left = leftovers(session.raw.storage, system().clock.now_millis())
    parts += ["", *(f"Left behind: {in_commands(one)}" for one in left)] if left else []
    advice = CompactionAdvice(session)
    parts += ["", f"To compact: {advice.summary()}.", *advice.parts()] if advice.needed else []
    safe = bool(found) and all(one.safe for one in found)
    judged = {"safe": safe, "streams": [_json(one) for one in found]}
    document = session.document(**judged, left_behind=left, to_compact=advice.document())
    return CommandAnswer(document=document, parts=parts, code=OK if safe else FINDINGS)


def _nobody(session: Session, user: str | None) -> str:
    known = {one.user for one in registered_writers(session.raw.storage)}
    if user is not None and known:
        return f"No stream of commit user {user!r} is registered here. Registered: {listed(sorted(known))}."
    return (
        "No stream is registered in this table, so none was judged. Give --checkpoint to judge one."
    )


def _shown(one: Diagnosis) -> list[Part]:
    last = "none is left in the table"
    if one.last_batch is not None:
        last = f"{one.last_batch} (snapshot {one.last_snapshot}, {moment(one.last_millis)})"
        if one.query_id is not None and one.last_query_id not in (None, one.query_id):
            last += f", written by query {one.last_query_id}"
    elif one.user == "-":
        last = "-"
    pairs: list[tuple[str, object]] = [
        ("stream", one.user if one.query_id or one.batch is None else "a new one"),
        ("query", one.query_id or ("a new one" if one.batch is not None else None)),
        (
            "also",
            f"the query writes here as {listed(one.other_users)}" if one.other_users else None,
        ),
        ("checkpoint", one.checkpoint),
        ("last batch", last),
        (
            "next batch",
            None if one.batch is None else f"{one.batch}{' (again)' * bool(one.replayed)}",
        ),
        ("verdict", one.verdict),
        ("restart", "safe" if one.safe else "not safe: read on"),
    ]
    cure = [] if one.cure is None else [f"What to do: {one.cure}"]
    parts: list[Part] = [pairs, one.explanation, *(f"Note: {note}" for note in one.notes), *cure]
    parts += [f"Earlier: {in_commands(past)}" for past in one.history]
    others: list[Part] = ["", "The streams of this table:", Listing(_KNOWN, one.known, "")]
    return [*parts, *others] if one.known and not one.safe else parts


def _json(one: Diagnosis) -> dict[str, Any]:
    renamed = {"batch": "next_batch", "last_millis": "last_time"}
    facts = {renamed.get(key, key): value for key, value in one.to_json().items()}
    return {
        **facts,
        "last_time": iso(one.last_millis),
        "known": [json_of(_KNOWN, stream) for stream in one.known],
    }
