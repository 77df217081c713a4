"""`delete` and `update`, which change the rows that fulfil a condition."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click
import pyarrow.compute as pc

from paimon_stream.change.delete_rows import DeleteReport
from paimon_stream.change.update_rows import UpdateReport
from paimon_stream.cli.command import YES, Session, changed_answer, option, table_command
from paimon_stream.cli.output import CommandAnswer
from paimon_stream.cli.progress import progress
from paimon_stream.cli.text import count
from paimon_stream.errors import InvalidOption
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.read.condition_text import columns_of, condition_in_text, value_in_text

WHERE: Final = "--where"
_SET: Final = "--set"


@contextmanager
def usage_errors_of(option: str) -> Iterator[None]:
    """A context that turns the error for a text of an option that is not one on the table's columns
    into a usage error.
    """
    try:
        yield
    except InvalidOption as wrong:
        if wrong.context.get("option") != option:
            raise
        raise click.UsageError(wrong.message) from None


_EXAMPLE: Final = "Such as \"amount >= 10 AND region = 'north' AND note IS NULL\"."
_WHERE: Final = option(WHERE, _EXAMPLE, required=True, metavar="CONDITION")


@table_command(example='delete --yes --where "id = 7" /data/shop.db/events', params=(_WHERE, YES))
def delete(session: Session, where: str, yes: bool) -> CommandAnswer:
    """Deletes the rows that fulfil a condition, in one snapshot: in a table with a primary key by
    rows of kind -D, in an append table with deletion vectors if it has them, else by rewriting the
    files that have such rows. Earlier snapshots keep the rows until they expire. Without --yes it
    only counts the rows.
    """
    condition = _condition(where, session.raw.schema)
    with progress() as reporter:
        report = session.table.delete(condition, dry_run=not yes, progress=reporter)
    return _changed(report, "deleted")


@table_command(
    example='update --yes --set n=n+1 --where "id = 7" /data/shop.db/events',
    params=(
        option(
            _SET,
            "Give this column the value of this SQL text, which may name the old values of columns. "
            "Can be repeated.",
            "assignments",
            required=True,
            multiple=True,
            metavar="COLUMN=SQL",
        ),
        _WHERE,
        YES,
    ),
)
def update(session: Session, assignments: tuple[str, ...], where: str, yes: bool) -> CommandAnswer:
    """Gives columns of the rows that fulfil a condition new values, in one snapshot: in a table with
    a primary key by newer rows, in an append table with deletion vectors and appended rows if it has
    them, else by rewriting the files that have such rows. `--where true` takes all rows. Earlier
    snapshots keep the old rows until they expire. Without --yes it only counts the rows.
    """
    schema = session.raw.schema
    updates = _updates(assignments, schema)
    condition = _condition(where, schema)
    with progress() as reporter:
        report = session.table.update(condition, updates, dry_run=not yes, progress=reporter)
    return _changed(report, "updated")


def _condition(where: str, schema: TableSchema) -> pc.Expression:
    with usage_errors_of(WHERE):
        return condition_in_text(where, schema, WHERE)


def _updates(assignments: tuple[str, ...], schema: TableSchema) -> dict[str, pc.Expression]:
    """The new values by column. Raises a usage error for what is no assignment to a column of the
    table, and for a column that comes twice.
    """
    updates: dict[str, pc.Expression] = {}
    for assignment in assignments:
        name, sign, text = assignment.partition("=")
        name = name.strip()
        if not name or not sign:
            raise click.UsageError(f'{_SET} takes COLUMN=SQL, such as "amount=amount * 2".')
        if name in updates:
            raise click.UsageError(f"{_SET} names the column {name!r} twice. Name it once.")
        if name not in schema.by_name:
            raise click.UsageError(
                f"{_SET} names a column {name!r}, which the table does not have. The columns are: "
                f"{', '.join(schema.field_names)}."
            )
        place = f"{_SET} {name}"
        with usage_errors_of(place):
            updates[name] = value_in_text(text, schema.field(name), columns_of(schema), place)
    return updates


def _changed(report: DeleteReport | UpdateReport, participle: str) -> CommandAnswer:
    """The answer that says how many rows were changed, or would be. `participle` says how."""
    is_done = not report.dry_run
    if not report.rows:
        sentence = "No row fulfils the condition."
        return changed_answer(report.to_json(), [sentence], done=is_done, has_work=False)
    verb = f"would be {participle}"
    if report.snapshot_id is not None:
        were = "was" if report.rows == 1 else "were"
        verb = f"{were} {participle}, in snapshot {report.snapshot_id}"
    of_files = f" of {count(report.files, 'file')}" if report.files else ""
    sentence = f"{count(report.rows, 'row')}{of_files} {verb}."
    return changed_answer(report.to_json(), [sentence], done=is_done, has_work=True)
