"""`schema`, `options`."""

from __future__ import annotations

import click

from paimon_stream.cli.command import Session, table_command
from paimon_stream.cli.output import Answer, Column, Lines, Listing
from paimon_stream.cli.text import iso
from paimon_stream.errors import NotFound
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.options import table_options
from paimon_stream.table.schema import SchemaStore

__all__ = ["options", "schema"]


@table_command(
    example="schema --id 0 /data/warehouse/shop.db/orders",
    params=(
        click.Option(
            ["--id", "schema_id"], type=click.IntRange(min=0), help="The schema of this id, not the newest."
        ),
    ),
)
def schema(session: Session, schema_id: int | None) -> Answer:
    """The columns, keys and comment of the table, now or under an earlier schema."""
    ids = SchemaStore(session.raw.storage).ids()
    found = session.raw.schema if schema_id is None else _earlier(session, schema_id, ids)
    document = session.document(
        id=found.id,
        ids=ids,
        time=iso(found.time_millis),
        comment=found.comment,
        partition_keys=found.partition_keys,
        primary_keys=found.primary_keys,
        columns=[
            {
                "id": one.id,
                "name": one.name,
                "type": str(one.type),
                "nullable": one.type.nullable,
                "description": one.description,
            }
            for one in found.fields
        ],
    )
    lines = Lines(
        [
            ("schema", f"{found.id} of {ids[0]} to {ids[-1]}"),
            ("since", iso(found.time_millis)),
            ("partition keys", ", ".join(found.partition_keys) or "-"),
            ("primary keys", ", ".join(found.primary_keys) or "-"),
            ("comment", found.comment or "-"),
        ]
    )
    columns = [Column("id", number=True), Column("column"), Column("type"), Column("description")]
    rows = [(str(one.id), one.name, str(one.type), one.description or "") for one in found.fields]
    return Answer(document=document, parts=[lines, "", Listing(columns, rows, "There are no columns.")])


def _earlier(session: Session, schema_id: int, ids: list[int]) -> TableSchema:
    if schema_id not in ids:
        raise NotFound(
            f"{session.raw.location} has no schema {schema_id}; there are {', '.join(map(str, ids))}.",
            table=session.raw.location,
            schema=schema_id,
        )
    return SchemaStore(session.raw.storage).get(schema_id)


@table_command(
    example="options --all /data/warehouse/shop.db/orders",
    params=(click.Option(["--all", "everything"], is_flag=True, help="The defaults of the others, too."),),
)
def options(session: Session, everything: bool) -> Answer:
    """The options that are set on the table, and with --all what this package knows of the others."""
    own = session.raw.schema.options
    known = {one.key: one for one in table_options()}
    names = sorted({*own, *known} if everything else own)
    found = [
        {
            "key": name,
            "value": own.get(name, known[name].default if name in known else None),
            "set": name in own,
            "default": known[name].default if name in known else None,
            "known": name in known,
            "doc": known[name].doc if name in known else None,
        }
        for name in names
    ]
    columns = [Column("option"), Column("value"), Column("set"), Column("default"), Column("meaning")]
    rows = [
        (one["key"], one["value"], one["set"], one["default"], one["doc"] or "not known to this package")
        for one in found
    ]
    return Answer(
        document=session.document(options=found), parts=[Listing(columns, rows, "No options are set.")]
    )
