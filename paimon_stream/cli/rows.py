"""The commands `ls` and `databases`, which list the contents of a warehouse, and the commands
`head` and `cat`, which show the rows of a table.
"""

import json
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any, Final

import click
import pyarrow as pa
from pyarrow import csv

from paimon_stream.cli.command import (
    COUNT,
    OPTION,
    Session,
    option,
    pairs_of,
    table_command,
    tags,
)
from paimon_stream.cli.output import Column, CommandAnswer, Listing, json_of
from paimon_stream.cli.row_changes import WHERE, usage_errors_of
from paimon_stream.cli.text import jsonable
from paimon_stream.read.condition_text import TypedCondition
from paimon_stream.read.rows import BATCH_ROWS, read_batches
from paimon_stream.read.scan import PointInTime, Scan

_Place = tuple[str, str | None, str | None]
"""The names of a database and a table, and the table's location. The last two are None for a
database alone.
"""
_PLACES: Final[tuple[Column[_Place], ...]] = (
    Column("database", itemgetter(0)),
    Column("table", itemgetter(1)),
    Column("location", itemgetter(2), long_name=True),
)


@table_command(
    example="ls /data/warehouse",
    columns=_PLACES,
    of_warehouse=True,
    params=(option("--database", "List only the tables of this database.", metavar="NAME"),),
)
def ls(session: Session, database: str | None) -> CommandAnswer:
    """Lists the databases of a warehouse with their tables. A database without tables gets one
    line.
    """
    catalog = session.catalog
    places: list[_Place] = []
    databases = catalog.list_databases() if database is None else [database]
    for name in databases:
        tables = catalog.list_tables(name)
        places += [(name, table, catalog.location((name, table))) for table in tables]
        if not tables:
            places.append((name, None, None))
    document = {
        "warehouse": session.catalog_options.get("warehouse"),
        "tables": [json_of(_PLACES, place) for place in places],
    }
    return CommandAnswer(document=document, parts=[Listing(_PLACES, places, _NONE)])


@table_command(example="databases /data/warehouse", columns=_PLACES[:1], of_warehouse=True)
def databases(session: Session) -> CommandAnswer:
    """Lists the databases of a warehouse."""
    names = session.catalog.list_databases()
    places: list[_Place] = [(name, None, None) for name in names]
    document = {"warehouse": session.catalog_options.get("warehouse"), "databases": names}
    return CommandAnswer(document=document, parts=[Listing(_PLACES[:1], places, _NONE)])


_NONE: Final = "There are no databases."
_WHERE: Final = (
    "Show only rows that fulfil this condition, such as \"id >= 10 AND region = 'north'\"."
)
_FORMAT: Final = (
    "With csv and json, rows are written as they are read. With json, each is an object on a line."
)


@table_command(
    example="head --limit 5 --where \"region = 'north'\" /data/shop.db/orders",
    params=(
        option(
            "--limit",
            "Show at most this number of rows. By default, head shows 10 and cat shows all.",
            type=COUNT,
        ),
        option("--format", _FORMAT, "form", type=click.Choice(["table", "csv", "json"])),
        option(
            "--columns",
            "Show these columns, in this order, instead of all.",
            metavar="NAME[,NAME…]",
        ),
        option(WHERE, _WHERE, metavar="CONDITION"),
        option(
            "--snapshot", "Read this snapshot instead of the newest.", "snapshot_id", type=COUNT
        ),
        option("--tag", "Read the snapshot of this tag.", shell_complete=tags),
        option(
            "--as-of",
            "Read the newest snapshot that is not younger than this time.",
            "timestamp",
            metavar="TIME",
        ),
        OPTION,
    ),
)
def head(
    session: Session,
    limit: int | None,
    form: str | None,
    columns: str | None,
    where: str | None,
    snapshot_id: int | None,
    tag: str | None,
    timestamp: str | None,
    option: tuple[str, ...],
) -> CommandAnswer:
    """Shows some rows of the table, as a reader sees them. In a table with a primary key, rows of
    one key are merged. Rows have no order of their own, so another call may show other rows. `cat`
    is the same command, but writes all rows, as CSV, in little memory. With `--option
    incremental-between=3,7`, the rows are what changed after snapshot 3, up to snapshot 7.
    """
    context = click.get_current_context()
    is_document = context.params["as_json"]
    is_cat = context.info_name == "cat"
    if not is_cat:
        limit = limit or 10
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    condition = None if where is None else TypedCondition(where, WHERE)
    at = PointInTime.of(session.table.location, snapshot_id, tag, timestamp)
    with usage_errors_of(WHERE):
        scan = session.table._scan(at, names, None, condition, pairs_of(option, "--option"))
    batches = _first_rows(read_batches(scan, min(limit or BATCH_ROWS, BATCH_ROWS)), limit)
    form = _form(form, is_document=is_document, is_cat=is_cat)
    if form == "csv":
        return CommandAnswer(document={}, pieces=_csv(scan, batches))
    if form == "json":
        pieces = _json_document(scan, batches) if is_document else _json_lines(scan, batches)
        return CommandAnswer(document={}, pieces=pieces)
    return session.listing("rows", _listing(list(batches), is_filtered=where is not None))


def _form(typed: str | None, *, is_document: bool, is_cat: bool) -> str:
    """The form in which rows are written: `csv`, `json` or `table`. --json takes precedence over
    --format.
    """
    if is_document:
        # `cat` writes all rows, so it writes its document in pieces. For `head`, the rows are in a
        # listing. A listing has a table for people and a document for --json.
        return "json" if is_cat else "table"
    return typed or ("csv" if is_cat else "table")


def _first_rows(batches: Iterator[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    """The first `limit` rows. Without a limit, all rows. A batch is read only when it is needed."""
    left = limit
    for batch in batches:
        yield batch.slice(0, left)
        if left is not None:
            left -= batch.num_rows
            if left <= 0:
                return


def _csv(scan: Scan, batches: Iterator[pa.RecordBatch]) -> Iterator[str]:
    """The names of the columns as a line of CSV, and then the rows. NULL is an empty field without
    quotes, nested values are JSON, and bytes are Base64.
    """
    names = [column.name for column in scan.columns]
    without_rows = pa.table([pa.array([], pa.string()) for _ in names], names)
    yield _csv_lines(without_rows, with_names=True)
    for batch in batches:
        flat = pa.table([_flat(column) for column in batch.columns], names)
        yield _csv_lines(flat, with_names=False)


def _csv_lines(rows: pa.Table, *, with_names: bool) -> str:
    sink = pa.BufferOutputStream()
    csv.write_csv(rows, sink, csv.WriteOptions(include_header=with_names))
    text: str = sink.getvalue().to_pybytes().decode()
    return text


def _json_document(scan: Scan, batches: Iterator[pa.RecordBatch]) -> Iterator[str]:
    """The document of --json, with each row on a line."""
    yield f'{{"table": {json.dumps(scan.table.location)}, "rows": [\n'
    comma = ""
    for line in _json_lines(scan, batches):
        yield f"{comma}{line}"
        comma = ","
    yield "]}\n"


def _json_lines(scan: Scan, batches: Iterator[pa.RecordBatch]) -> Iterator[str]:
    """One line for each row. The row is a JSON object."""
    names = [column.name for column in scan.columns]
    for batch in batches:
        columns = [_printable(column).to_pylist() for column in batch.columns]
        for row in zip(*columns, strict=True):
            values = dict(zip(names, map(jsonable, row), strict=True))
            yield f"{json.dumps(values)}\n"


def _listing(batches: list[pa.RecordBatch], *, is_filtered: bool) -> Listing[Sequence[Any]]:
    if not batches and is_filtered:
        return Listing((), (), "No row fulfils the condition.")
    if not batches:
        return Listing((), (), "There are no rows.")
    rows = pa.Table.from_batches(batches)
    columns = [_column(place, rows.schema.field(place)) for place in range(rows.num_columns)]
    values = [_printable(column).to_pylist() for column in rows.columns]
    return Listing(columns, list(zip(*values, strict=True)), "")


def _flat(column: Any) -> Any:
    """The column in the form for CSV: nested values as JSON, and bytes as Base64 without quotes."""
    if not pa.types.is_nested(column.type) and not pa.types.is_binary(column.type):
        return _printable(column)
    texts = (
        None if value is None else json.dumps(jsonable(value)).strip('"')
        for value in column.to_pylist()
    )
    return pa.array(texts, pa.string())


def _column(place: int, field: pa.Field) -> Column[Sequence[Any]]:
    """The column at this place of the rows."""

    def words(row: Sequence[Any]) -> str:
        value = jsonable(row[place])
        if value is None:
            return "NULL"
        return value if isinstance(value, str) else json.dumps(value)

    is_number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
    return Column(
        field.name, itemgetter(place), title=field.name, for_people=words, ident=is_number
    )


def _printable(column: Any) -> Any:
    """Times and decimals as text. They are text because Python's times have no nanoseconds."""
    if pa.types.is_temporal(column.type) or pa.types.is_decimal(column.type):
        return column.cast(pa.string())
    return column
