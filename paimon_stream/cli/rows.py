"""`ls`, `databases`, `head`, `cat`: what there is in a warehouse, and the rows of a table."""

import json
from collections.abc import Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, Final

import click
import pyarrow as pa
from pyarrow import csv

from paimon_stream.cli.clear import condition_of
from paimon_stream.cli.command import COUNT, Session, option, table_command, tags
from paimon_stream.cli.output import Column, CommandAnswer, Listing, json_of
from paimon_stream.cli.text import jsonable
from paimon_stream.read.rows import BATCH_ROWS, read_batches
from paimon_stream.read.scan import Scan

_Found = tuple[str, str | None, str | None]
_TABLES: Final[tuple[Column[_Found], ...]] = tuple(
    Column(key, itemgetter(at)) for at, key in enumerate(("database", "table", "location"))
)


@table_command(
    example="ls /data/warehouse",
    columns=_TABLES,
    of_warehouse=True,
    params=(option("--database", "List only the tables of this database.", metavar="NAME"),),
)
def ls(session: Session, database: str | None) -> CommandAnswer:
    """Lists the databases of a warehouse with their tables. A database without tables gets one
    line.
    """
    catalog, found = session.catalog, list[_Found]()
    for name in catalog.list_databases() if database is None else [database]:
        there = [
            (name, table, catalog.location((name, table))) for table in catalog.list_tables(name)
        ]
        found += there or [(name, None, None)]
    tables, warehouse = (
        [json_of(_TABLES, one) for one in found],
        session.catalog_options.get("warehouse"),
    )
    return CommandAnswer(
        document={"warehouse": warehouse, "tables": tables}, parts=[Listing(_TABLES, found, _NONE)]
    )


@table_command(example="databases /data/warehouse", columns=_TABLES[:1], of_warehouse=True)
def databases(session: Session) -> CommandAnswer:
    """Lists the databases of a warehouse."""
    names = session.catalog.list_databases()
    listing = Listing(_TABLES[:1], [(name, None, None) for name in names], _NONE)
    return CommandAnswer(
        document={"warehouse": session.catalog_options.get("warehouse"), "databases": names},
        parts=[listing],
    )


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
            "Show at most this number of rows: head 10, cat all, if it is not given.",
            type=COUNT,
        ),
        option("--format", _FORMAT, "form", type=click.Choice(["table", "csv", "json"])),
        option(
            "--columns",
            "Show these columns, in this order, instead of all.",
            metavar="NAME[,NAME…]",
        ),
        option("--where", _WHERE, metavar="CONDITION"),
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
    ),
)
def head(
    session: Session,
    limit: int | None,
    form: str | None,
    columns: str | None,
    where: str | None,
    **at: Any,
) -> CommandAnswer:
    """Shows some rows of the table, as a reader sees them. In a table with a primary key, rows of
    one key are merged. Rows have no order of their own, so another call may show others. `cat` is
    the same command: it writes all rows, as CSV, in little memory.
    """
    context = click.get_current_context()
    is_document, is_cat = context.params["as_json"], context.info_name == "cat"
    limit = limit if is_cat else limit or 10
    form = (
        ("json" if is_cat else "table") if is_document else form or ("csv" if is_cat else "table")
    )
    chosen = None if columns is None else [name.strip() for name in columns.split(",")]
    condition = None if where is None else condition_of(where, session.raw.schema)
    scan = session.table._scan(columns=chosen, partition=None, filter=condition, **at)
    batches = _first(read_batches(scan, min(limit or BATCH_ROWS, BATCH_ROWS)), limit)
    if form != "table":
        return CommandAnswer(
            document={},
            text=_csv(scan, batches) if form == "csv" else _lines(scan, batches, is_document),
        )
    found = list(batches)
    if not found:
        empty = "There are no rows." if where is None else "No row fulfils the condition."
        return session.listing("rows", Listing((), (), empty))
    rows = pa.Table.from_batches(found)
    shown = [_column(place, rows.schema.field(place)) for place in range(rows.num_columns)]
    values = [_printable(one).to_pylist() for one in rows.columns]
    return session.listing("rows", Listing(shown, list(zip(*values, strict=True)), ""))


def _first(batches: Iterator[pa.RecordBatch], left: int | None) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.slice(0, left)
        if left is not None and (left := left - batch.num_rows) <= 0:
            return


def _csv(scan: Scan, batches: Iterator[pa.RecordBatch]) -> Iterator[str]:
    """The rows below their names. NULL is nothing, not even quotes; nested values are JSON, and
    bytes Base64.
    """
    nothing = pa.table({one.name: pa.array([], pa.string()) for one in scan.columns})
    for batch in chain((nothing,), batches):
        sink = pa.BufferOutputStream()
        flat = pa.table([_flat(one) for one in batch.columns], nothing.schema.names)
        csv.write_csv(flat, sink, csv.WriteOptions(include_header=batch is nothing))
        yield sink.getvalue().to_pybytes().decode()


def _lines(scan: Scan, batches: Iterator[pa.RecordBatch], is_document: bool) -> Iterator[str]:
    """Each row as an object on a line; with `is_document`, all of them as the document of
    --json.
    """
    yield f'{{"table": {json.dumps(scan.table.location)}, "rows": [\n' if is_document else ""
    names, begun = [one.name for one in scan.columns], ""
    for batch in batches:
        for row in zip(*(_printable(one).to_pylist() for one in batch.columns), strict=True):
            yield f"{begun}{json.dumps(dict(zip(names, map(jsonable, row), strict=True)))}\n"
            begun = "," * is_document
    yield "]}\n" if is_document else ""


def _flat(column: Any) -> Any:
    if not pa.types.is_nested(column.type) and not pa.types.is_binary(column.type):
        return _printable(column)
    texts = (
        None if one is None else json.dumps(jsonable(one)).strip('"') for one in column.to_pylist()
    )
    return pa.array(texts, pa.string())


def _column(place: int, field: pa.Field) -> Column[Sequence[Any]]:
    def text(row: Sequence[Any]) -> str:
        value = jsonable(row[place])
        return "NULL" if value is None else value if isinstance(value, str) else json.dumps(value)

    is_number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
    return Column(field.name, itemgetter(place), title=field.name, text=text, ident=is_number)


def _printable(column: Any) -> Any:
    """Times as text, because Python's have no nanoseconds."""
    return (
        column.cast(pa.string())
        if pa.types.is_temporal(column.type) or pa.types.is_decimal(column.type)
        else column
    )
