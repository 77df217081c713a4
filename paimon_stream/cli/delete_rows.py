"""`delete`, and its condition on rows as people type it: `amount >= 10 AND region = 'north' AND note IS NULL`."""

import operator
import re
from collections.abc import Callable
from functools import reduce
from typing import Any, Final

import click
import pyarrow.compute as pc

from paimon_stream.cli.command import YES, Session, changed_answer, table_command
from paimon_stream.cli.output import Answer
from paimon_stream.cli.progress import progress
from paimon_stream.cli.text import count
from paimon_stream.format.binary_columns import value_scalar
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.table.partition_value import expected_form, partition_value

_SYNTAX: Final = (
    "Write COLUMN OP VALUE, joined by AND. OP is =, !=, <, <=, >, >=, IS NULL or IS NOT NULL. A text is in single "
    "quotes, a column with other characters than letters, digits and _ in backticks."
)
_PIECE: Final = re.compile(
    r"""\s*(?:`(?P<quoted>[^`]+)`|(?P<column>[^\W\d]\w*))\s*
        (?:(?P<null>IS\s+(?:NOT\s+)?NULL)
          |(?P<op><=|>=|<>|!=|==|=|<|>)\s*(?:'(?P<text>(?:[^']|'')*)'|(?P<bare>[^\s'`<>=!()]+)))
        \s*(?P<end>AND\b|$)""",
    re.VERBOSE | re.IGNORECASE,
)
_OPERATORS: Final[dict[str, Callable[[Any, Any], pc.Expression]]] = {
    "=": operator.eq, "==": operator.eq, "!=": operator.ne, "<>": operator.ne,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def condition_of(typed: str, schema: TableSchema) -> pc.Expression:
    """The condition as an expression. Raises a usage error for what is not a condition on the table's columns."""
    found: list[pc.Expression] = []
    at, end = 0, "and"
    while end:
        piece = _PIECE.match(typed, at)
        if piece is None:
            raise click.UsageError(f"--where is not understood from {typed[at:].strip()!r} on. {_SYNTAX}")
        found.append(_comparison(piece, schema))
        at, end = piece.end(), piece["end"]
    return reduce(operator.and_, found)


def _comparison(piece: re.Match[str], schema: TableSchema) -> pc.Expression:
    name = piece["quoted"] or piece["column"]
    if name not in schema.field_names:
        raise click.UsageError(f"--where names a column {name!r}. The columns: {', '.join(schema.field_names)}.")
    type_, column = schema.field(name).type, pc.field(name)
    if piece["null"]:
        return column.is_valid() if "NOT" in piece["null"].upper() else column.is_null()
    if type_.is_nested:
        raise click.UsageError(
            f"--where compares {name} with a value, but its type is {type_}. Only IS NULL can be asked."
        )
    if type_.is_string and piece["text"] is None:
        raise click.UsageError(f"--where compares {name} with {piece['bare']}. A text is in single quotes.")
    text = piece["bare"] if piece["text"] is None else piece["text"].replace("''", "'")
    value = partition_value(type_, text)
    if value is None:
        raise click.UsageError(f"--where: {text!r} is no value of {name}, a {type_}. {expected_form(type_)}")
    other = value_scalar(value, type_)
    return _OPERATORS[piece["op"]](column, other)


_WHERE = click.Option(
    ["--where"],
    required=True,
    metavar="CONDITION",
    help="Such as \"amount >= 10 AND region = 'north' AND note IS NULL\".",
)


@table_command(example='delete --yes --where "id = 7" /data/shop.db/events', params=(_WHERE, YES))
def delete(session: Session, where: str, yes: bool) -> Answer:
    """Deletes the rows of an append table that fulfil a condition, in one snapshot, by deletion vectors. Earlier
    snapshots keep the rows until they expire. Without --yes it only counts the rows."""
    condition = condition_of(where, session.raw.schema)
    with progress() as reporter:
        report = session.table.delete(condition, dry_run=not yes, progress=reporter)
    rows, files = count(report.rows, "row"), count(report.files, "file")
    verb = "would be deleted" if report.snapshot_id is None else f"were deleted, in snapshot {report.snapshot_id}"
    text = f"{rows} of {files} {verb}." if report.rows else "No row fulfils the condition."
    return changed_answer(report.to_json(), [text], done=yes, something=bool(report.rows))
