"""`schema`, `options`."""

from dataclasses import dataclass
from typing import Final

import click

from paimon_stream.cli.command import Session, option, table_command
from paimon_stream.cli.output import Answer, Column, Listing, Part, json_of
from paimon_stream.cli.text import iso
from paimon_stream.errors import NotFound
from paimon_stream.format.types import DataField
from paimon_stream.options import Option, is_secret, table_options
from paimon_stream.table.schema import SchemaStore


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setting:
    """One option of a table: the text that is set, and the option's declaration in this package, if any."""

    key: str
    given: str | None
    known: Option[object] | None

    @property
    def default(self) -> str | None:
        return None if self.known is None else self.known.default


_FIELDS: Final[tuple[Column[DataField], ...]] = (
    Column("id", lambda one: one.id, ident=True),
    Column("name", lambda one: one.name, "column"),
    Column("type", lambda one: str(one.type)),
    Column("nullable", lambda one: one.type.nullable, extra=True),
    Column("description", lambda one: one.description, text=lambda one: one.description or "", prose=True),
)

_SETTINGS: Final[tuple[Column[_Setting], ...]] = (
    Column("key", lambda one: one.key, "option"),
    Column("value", lambda one: one.default if one.given is None else one.given),
    Column("set", lambda one: one.given is not None),
    Column("default", lambda one: one.default),
    Column("known", lambda one: one.known is not None, extra=True),
    Column(
        "doc",
        lambda one: None if one.known is None else one.known.doc,
        "meaning",
        text=lambda one: "not known to this package" if one.known is None else one.known.doc,
        prose=True,
    ),
)


@table_command(
    example="schema --id 0 /data/shop.db/orders",
    columns=_FIELDS,
    params=(
        option("--id", "Show the schema with this id instead of the newest.", "schema_id", type=click.IntRange(min=0)),
    ),
)
def schema(session: Session, schema_id: int | None) -> Answer:
    """Shows the columns, keys and comment of the table, as they are now or in an earlier schema."""
    store = SchemaStore(session.raw.storage)
    ids = store.ids()
    if schema_id is not None and schema_id not in ids:
        raise NotFound(
            f"has no schema {schema_id}. Its schemas are {', '.join(map(str, ids))}.", schema=schema_id
        ).of_table(session.raw.location, subject=True)
    found = session.raw.schema if schema_id is None else store.get(schema_id)
    document = session.document(
        id=found.id,
        ids=ids,
        time=iso(found.time_millis),
        comment=found.comment,
        partition_keys=found.partition_keys,
        primary_keys=found.primary_keys,
        columns=[json_of(_FIELDS, one) for one in found.fields],
    )
    lines: list[tuple[str, object]] = [
        ("schema", f"{found.id} of {ids[0]} to {ids[-1]}"),
        ("since", iso(found.time_millis)),
        ("partition keys", ", ".join(found.partition_keys) or "-"),
        ("primary keys", ", ".join(found.primary_keys) or "-"),
        ("comment", found.comment or "-"),
    ]
    parts: list[Part] = [lines, "", Listing(_FIELDS, found.fields, "There are no columns.")]
    return Answer(document=document, parts=parts)


@table_command(
    example="options --all /data/shop.db/orders",
    columns=_SETTINGS,
    params=(option("--all", "List the defaults of the other options, too.", "everything", is_flag=True),),
)
def options(session: Session, everything: bool) -> Answer:
    """Lists the options that are set on the table. With --all it also lists the options that this package
    knows and that are not set. The values of credentials are hidden."""
    own = session.raw.schema.options
    known = {one.key: one for one in table_options()}
    names = sorted({*own, *known} if everything else own)
    shown = {name: "(hidden)" if is_secret(name) else value for name, value in own.items()}
    found = [_Setting(key=name, given=shown.get(name), known=known.get(name)) for name in names]
    return session.listing("options", Listing(_SETTINGS, found, "No options are set."))
