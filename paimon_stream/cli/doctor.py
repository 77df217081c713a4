"""`doctor`."""

from __future__ import annotations

from typing import Any

import click

from paimon_stream.api.doctor import Diagnosis, examine
from paimon_stream.cli.command import Session, pairs_of, table_command
from paimon_stream.cli.exits import FINDINGS, OK
from paimon_stream.cli.output import Answer, Lines
from paimon_stream.cli.text import iso

__all__ = ["doctor"]


@table_command(
    example="doctor --checkpoint /data/checkpoints/orders /data/warehouse/shop.db/orders",
    params=(
        click.Option(["--checkpoint"], metavar="FOLDER", help="The query's checkpointLocation."),
        click.Option(["--user"], help="The sink's commit_user, if it is given one."),
        click.Option(
            ["--name", "names"],
            multiple=True,
            help="The sink's name, if it has one; repeat it in their order.",
        ),
        click.Option(
            ["--mode"],
            type=click.Choice(["append", "update", "complete"]),
            default="append",
            show_default=True,
            help="The sink's mode.",
        ),
        click.Option(["--query-name"], help="The query's name, if it is given one."),
        click.Option(
            ["--option", "sink_option"], multiple=True, metavar="KEY=VALUE", help="A sink option; repeatable."
        ),
    ),
)
def doctor(
    session: Session,
    checkpoint: str | None,
    user: str | None,
    names: tuple[str, ...],
    mode: str,
    query_name: str | None,
    sink_option: tuple[str, ...],
) -> Answer:
    """Is a restart of the stream safe, what would it do, and what to do if not. Looks at the table and at
    the checkpoint, and says what the sink will say; writes nothing. Without --checkpoint each stream that
    is known to the table is asked about, with the checkpoint it had. Exit code 1 where a stream would stop
    or cannot be judged."""
    if user is not None and names:
        raise click.UsageError("Give --user or --name, not both.")
    found = examine(
        session.storage,
        checkpoint=checkpoint,
        user=user,
        names=names,
        mode=mode,
        query_name=query_name,
        options=pairs_of(sink_option, "--option"),
    )
    parts: list[str | Lines] = []
    for one in found:
        parts += ["", *_told(one)] if parts else _told(one)
    return Answer(
        document=session.document(safe=all(one.safe for one in found), streams=[_json(one) for one in found]),
        parts=parts or ["No stream of paimon_stream is known here. Give --checkpoint, or see `query`."],
        code=OK if all(one.safe for one in found) else FINDINGS,
    )


def _told(one: Diagnosis) -> list[str | Lines]:
    last = "none is left"
    if one.last_batch is not None:
        last = f"{one.last_batch} (snapshot {one.last_snapshot}, {iso(one.last_millis)})"
    pairs: list[tuple[str, object]] = [
        ("stream", one.user),
        ("query", one.query_id or "a new one"),
        ("checkpoint", one.checkpoint),
        ("last batch here", last),
        ("next batch", None if one.batch is None else f"{one.batch}{' (again)' * bool(one.replayed)}"),
        ("verdict", one.verdict),
        ("restart", "safe" if one.safe else "not before you have looked"),
    ]
    cure = [] if one.cure is None else [f"What to do: {one.cure}"]
    return [Lines(pairs), one.explanation, *(f"Note: {note}" for note in one.notes), *cure]


def _json(one: Diagnosis) -> dict[str, Any]:
    return {
        "user": one.user,
        "query_id": one.query_id,
        "checkpoint": one.checkpoint,
        "verdict": one.verdict,
        "safe": one.safe,
        "next_batch": one.batch,
        "replayed": one.replayed,
        "last_batch": one.last_batch,
        "last_snapshot": one.last_snapshot,
        "last_time": iso(one.last_millis),
        "explanation": one.explanation,
        "cure": one.cure,
        "option": one.option,
        "notes": one.notes,
    }
