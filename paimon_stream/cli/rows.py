"""`ls`, `head`: what there is in a warehouse, and the first rows of a table."""

import json
from collections.abc import Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa

from paimon_stream.cli.clear import condition_of
from paimon_stream.cli.command import COUNT, Session, option, table_command
from paimon_stream.cli.completion import tags
from paimon_stream.cli.output import Answer, Column, Listing, json_of
from paimon_stream.cli.text import jsonable

_TABLES: Final[tuple[Column[tuple[str, str | None, str]], ...]] = (
    Column("database", itemgetter(0)),
    Column("table", itemgetter(1)),
    Column("location", itemgetter(2)),
)


@table_command(
    example="ls /data/warehouse",
    columns=_TABLES,
    of_warehouse=True,
    params=(option("--database", "List only the tables of this database.", metavar="NAME"),),
)
def ls(session: Session, database: str | None) -> Answer:
    """Lists the databases of a warehouse with their tables. A database without tables gets one line."""
    catalog, found = session.catalog, list[tuple[str, str | None, str]]()
    for name in catalog.list_databases() if database is None else [database]:
        there = [(name, table, catalog.location((name, table))) for table in catalog.list_tables(name)]
        found += there or [(name, None, f"{catalog.warehouse}/{name}.db")]
    listing = Listing(_TABLES, found, "There are no databases: the folder has none whose name ends in .db.")
    document = {"warehouse": catalog.warehouse, "tables": [json_of(_TABLES, one) for one in found]}
    return Answer(document=document, parts=[listing])


_COLUMNS: Final = "Show these columns, in this order, instead of all."
_WHERE: Final = "Show only rows that fulfil this condition, such as \"id >= 10 AND region = 'north'\"."


@table_command(
    example="head --limit 5 --where \"region = 'north'\" /data/shop.db/orders",
    params=(
        option("--limit", "Show at most this number of rows.", type=COUNT, default=10),
        option("--columns", _COLUMNS, "names", metavar="NAME[,NAME…]"),
        option("--where", _WHERE, metavar="CONDITION"),
        option("--snapshot", "Read this snapshot instead of the newest.", type=COUNT),
        option("--tag", "Read the snapshot of this tag.", shell_complete=tags),
        option("--as-of", "Read the newest snapshot that is not younger than this time.", metavar="TIME"),
    ),
)
def head(
    session: Session,
    limit: int,
    names: str | None,
    where: str | None,
    snapshot: int | None,
    tag: str | None,
    as_of: str | None,
) -> Answer:
    """Shows some rows of the table, as a reader sees them. In a table with a primary key, rows of one key are
    merged. Rows have no order of their own, so another call may show others."""
    chosen = None if names is None else [name.strip() for name in names.split(",")]
    condition = None if where is None else condition_of(where, session.raw.schema)
    read = partial(session.table.to_batches, snapshot, chosen, tag=tag, timestamp=as_of, filter=condition)
    batches, left = list[pa.RecordBatch](), limit
    for batch in read(batch_rows=limit):
        batches.append(batch.slice(0, left))
        left -= batches[-1].num_rows
        if not left:
            break
    if not batches:
        empty = "There are no rows." if where is None else "No row fulfils the condition."
        return session.listing("rows", Listing((), (), empty))
    rows = pa.Table.from_batches(batches)
    shown = [_column(place, rows.schema.field(place)) for place in range(rows.num_columns)]
    values = [_printable(one).to_pylist() for one in rows.columns]
    return session.listing("rows", Listing(shown, list(zip(*values, strict=True)), ""))


def _column(place: int, field: pa.Field) -> Column[Sequence[Any]]:
    def text(row: Sequence[Any]) -> str:
        value = row[place]
        return "NULL" if value is None else value if isinstance(value, str) else json.dumps(jsonable(value))

    is_number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
    return Column(field.name, itemgetter(place), title=field.name, text=text, ident=is_number)


def _printable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times as text, because Python's have no nanoseconds."""
    return column.cast(pa.string()) if pa.types.is_temporal(column.type) or pa.types.is_decimal(column.type) else column
