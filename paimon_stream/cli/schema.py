"""`schema`, `options`; `create` and `alter`, which make and change them."""

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import click

from paimon_stream.api.table import PaimonTable
from paimon_stream.cli.command import (
    YES,
    Session,
    Texts,
    changed_answer,
    option,
    pairs_of,
    table_command,
)
from paimon_stream.cli.output import Column, CommandAnswer, Listing, Part, json_of
from paimon_stream.cli.text import iso
from paimon_stream.errors import NotFound, naming
from paimon_stream.format.types import DataField
from paimon_stream.options import is_secret, table_options
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.schema_change import SchemaChange, altered
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import alter_table


class _Setting(NamedTuple):
    """One option of a table: the text that is set, and what this package knows of it, if
    anything.
    """

    key: str
    given: str | None
    default: str | None
    doc: str | None


_FIELDS: Final[tuple[Column[DataField], ...]] = (
    Column("id", lambda one: one.id, ident=True),
    Column("name", lambda one: one.name, "column"),
    Column("type", lambda one: str(one.type)),
    Column("nullable", lambda one: one.type.nullable, extra=True),
    Column(
        "description",
        lambda one: one.description,
        text=lambda one: one.description or "",
        prose=True,
    ),
)

_SETTINGS: Final[tuple[Column[_Setting], ...]] = (
    Column("key", lambda one: one.key, "option"),
    Column("value", lambda one: one.default if one.given is None else one.given),
    Column("set", lambda one: one.given is not None),
    Column("default", lambda one: one.default),
    Column("known", lambda one: one.doc is not None, extra=True),
    Column(
        "doc",
        lambda one: one.doc,
        "meaning",
        text=lambda one: one.doc or "not known to this package",
        prose=True,
    ),
)


@table_command(
    example="schema --id 0 /data/shop.db/orders",
    columns=_FIELDS,
    params=(
        option(
            "--id",
            "Show the schema with this id, not the newest.",
            "schema_id",
            type=click.IntRange(min=0),
        ),
    ),
)
def schema(session: Session, schema_id: int | None) -> CommandAnswer:
    """Shows the columns, keys and comment of the table, as they are now or in an earlier schema."""
    store = SchemaStore(session.raw.storage)
    ids = store.ids()
    if schema_id is not None and schema_id not in ids:
        text = f"has no schema {schema_id}. Its schemas are {', '.join(map(str, ids))}."
        raise NotFound(text, schema=schema_id).of_table(session.raw.location, subject=True)
    found = session.raw.schema if schema_id is None else store.get(schema_id)
    facts = {key: getattr(found, key) for key in ("comment", "partition_keys", "primary_keys")}
    columns = [json_of(_FIELDS, one) for one in found.fields]
    document = session.document(
        id=found.id, ids=ids, time=iso(found.time_millis), **facts, columns=columns
    )
    lines: list[tuple[str, object]] = [
        ("schema", f"{found.id} of {ids[0]} to {ids[-1]}"),
        ("since", iso(found.time_millis)),
        ("partition keys", ", ".join(found.partition_keys) or "-"),
        ("primary keys", ", ".join(found.primary_keys) or "-"),
        ("comment", found.comment or "-"),
    ]
    parts: list[Part] = [lines, "", Listing(_FIELDS, found.fields, "There are no columns.")]
    return CommandAnswer(document=document, parts=parts)


@table_command(
    example="options --all /data/shop.db/orders",
    columns=_SETTINGS,
    params=(
        option("--all", "List the defaults of the other options, too.", "everything", is_flag=True),
    ),
)
def options(session: Session, everything: bool) -> CommandAnswer:
    """Lists the options that are set on the table. With --all it also lists the options that this
    package knows and that are not set. The values of credentials are hidden.
    """
    own = session.raw.schema.options
    known = {one.key: (one.default, one.doc) for one in table_options()}
    names = sorted({*own, *known} if everything else own)
    shown = {name: "(hidden)" if is_secret(name) else value for name, value in own.items()}
    found = [_Setting(name, shown.get(name), *known.get(name, (None, None))) for name in names]
    return session.listing("options", Listing(_SETTINGS, found, "No options are set."))


_NAME_TYPE: Final = "'NAME TYPE'"
_KEYS = {
    "metavar": "NAME[,NAME…]",
    "callback": lambda _, __, typed: [one.strip() for one in typed.split(",")] if typed else (),
}


def _words(typed: str, option: str, form: str) -> tuple[str, ...]:
    """The words of an option's value. Raises a usage error for another form."""
    if form != _NAME_TYPE:
        return next(iter(pairs_of((typed,), option).items())) if "=" in form else (typed,)
    found = re.fullmatch(r"\s*(?:`([^`]+)`|([^\s`]+))\s+(\S.*)", typed)
    if found is None:
        raise click.UsageError(f"{option} takes a name and a type, such as 'price DECIMAL(10, 2)'.")
    return found[1] or found[2], found[3]


@table_command(
    example="create --column 'id BIGINT' --primary-key id /data/shop.db/t",
    params=(
        option(
            "--column",
            "A column. Backticks quote names.",
            multiple=True,
            required=True,
            metavar=_NAME_TYPE,
        ),
        option("--primary-key", "The primary key.", "primary_keys", **_KEYS),
        option("--partition-key", "The partition key.", "partition_keys", **_KEYS),
        option(
            "--option", "An option of the table.", "options", multiple=True, metavar="KEY=VALUE"
        ),
        option("--comment", "What the table is for."),
        option("--if-not-exists", "Leave a table that is there as it is.", is_flag=True),
    ),
)
def create(
    session: Session, column: Texts, options: Texts, if_not_exists: bool, **described: Any
) -> CommandAnswer:
    """Creates a table without rows. Types are as in SQL. In a catalog, its database must exist."""
    columns = [_words(one, "--column", _NAME_TYPE) for one in column]
    described["options"] = pairs_of(options, "--option")
    if session.catalog_options:
        session.catalog.create_table(session.where, columns, if_not_exists, **described)
    else:
        described |= {"if_not_exists": if_not_exists, "storage_options": session.storage_options}
        PaimonTable.create(session.where, columns, **described)
    return CommandAnswer(
        document=session.document(), parts=[f"The table {session.raw.location} is there."]
    )


_CHANGES: Final[tuple[tuple[str, str, str, Callable[..., SchemaChange]], ...]] = (
    ("--unset", "KEY", "Remove an option of the table.", SchemaChange.remove_option),
    ("--set", "KEY=VALUE", "Set an option of the table.", SchemaChange.set_option),
    ("--drop", "NAME", "Drop a column.", SchemaChange.drop_column),
    ("--rename", "OLD=NEW", "Rename a column.", SchemaChange.rename_column),
    ("--type", _NAME_TYPE, "Widen the type of a column.", SchemaChange.update_column_type),
    ("--add", _NAME_TYPE, "Add a column at the end.", SchemaChange.add_column),
    ("--column-comment", "NAME=TEXT", "Describe a column.", SchemaChange.update_column_comment),
)


@table_command(
    example="alter --add 'note STRING' --yes /data/shop.db/orders",
    params=(
        *(option(name, text, multiple=True, metavar=form) for name, form, text, _ in _CHANGES),
        YES,
    ),
)
def alter(session: Session, yes: bool, **given: Texts) -> CommandAnswer:
    """Changes options and columns of the table, all in one new schema. Each option can be given
    several times; they apply in the order of the list below. Streams follow with their next batch.
    Without --yes it only shows the columns as they would be.
    """
    asked = [
        (one, typed) for one in _CHANGES for typed in given[one[0].strip("-").replace("-", "_")]
    ]
    changes = [make(*_words(typed, name, form)) for (name, form, _, make), typed in asked]
    old, storage = session.raw.schema, session.raw.storage
    with naming(storage.location):
        new = altered(
            old, changes, used=SnapshotStore(storage).latest_id() is not None, time_millis=0
        )
    if yes and session.catalog_options:
        session.catalog.alter_table(session.where, changes)
    elif yes:
        alter_table(storage, changes)
    document = session.document(
        dry_run=not yes, id=new.id, columns=[json_of(_FIELDS, one) for one in new.fields]
    )
    text = f"{'These are' if yes else 'These would be'} the columns, in schema {new.id}:"
    return changed_answer(
        document, [text, Listing(_FIELDS, new.fields, "")], done=yes, something=new != old
    )
