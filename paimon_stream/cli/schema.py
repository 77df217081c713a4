"""The commands `schema` and `options`, which show columns and options, and the commands `create`
and `alter`, which set them.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

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
    """One option of a table.

    Attributes:
        key: the name of the option.
        text: the value that is set on the table; None if no value is set.
        default: the default that this package knows; None if there is none.
        doc: what the option means; None if this package does not know it.
    """

    key: str
    text: str | None
    default: str | None
    doc: str | None


_FIELDS: Final[tuple[Column[DataField], ...]] = (
    Column("id", lambda column: column.id, ident=True),
    Column("name", lambda column: column.name, "column"),
    Column("type", lambda column: str(column.type)),
    Column("nullable", lambda column: column.type.nullable, extra=True),
    Column(
        "description",
        lambda column: column.description,
        for_people=lambda column: column.description or "",
        prose=True,
    ),
)


def _value_of(setting: _Setting) -> str | None:
    """The value that is used: the value that is set, or else the default."""
    return setting.default if setting.text is None else setting.text


_SETTINGS: Final[tuple[Column[_Setting], ...]] = (
    Column("key", lambda setting: setting.key, "option"),
    Column("value", _value_of),
    Column("set", lambda setting: setting.text is not None),
    Column("default", lambda setting: setting.default),
    Column("known", lambda setting: setting.doc is not None, extra=True),
    Column(
        "doc",
        lambda setting: setting.doc,
        "meaning",
        for_people=lambda setting: setting.doc or "not known to this package",
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
        raise NotFound(
            f"has no schema {schema_id}. Its schemas are {', '.join(map(str, ids))}.",
            schema=schema_id,
        ).of_table(session.raw.location, subject=True)
    shown = session.raw.schema if schema_id is None else store.get(schema_id)
    document = session.document(
        id=shown.id,
        ids=ids,
        time=iso(shown.time_millis),
        comment=shown.comment,
        partition_keys=shown.partition_keys,
        primary_keys=shown.primary_keys,
        columns=[json_of(_FIELDS, column) for column in shown.fields],
    )
    pairs: list[tuple[str, object]] = [
        ("schema", f"{shown.id} of {ids[0]} to {ids[-1]}"),
        ("since", iso(shown.time_millis)),
        ("partition keys", ", ".join(shown.partition_keys) or "-"),
        ("primary keys", ", ".join(shown.primary_keys) or "-"),
        ("comment", shown.comment or "-"),
    ]
    parts: list[Part] = [pairs, "", Listing(_FIELDS, shown.fields, "There are no columns.")]
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
    texts = dict(session.raw.schema.options)
    all_known = {known.key: known for known in table_options()}
    names = {*texts, *all_known} if everything else {*texts}
    rows = []
    for name in sorted(names):
        text = "(hidden)" if name in texts and is_secret(name) else texts.get(name)
        known = all_known.get(name)
        default = None if known is None else known.default
        doc = None if known is None else known.doc
        rows.append(_Setting(name, text, default, doc))
    return session.listing("options", Listing(_SETTINGS, rows, "No options are set."))


_NAME_TYPE: Final = "'NAME TYPE'"
_NAME_AND_TYPE: Final = re.compile(r"\s*(?:`(?P<quoted>[^`]+)`|(?P<name>[^\s`]+))\s+(?P<type>\S.*)")


def _names(_: click.Context, __: click.Parameter, typed: str | None) -> Sequence[str]:
    """The names in the value of a command's option. click calls this function."""
    return [name.strip() for name in typed.split(",")] if typed else ()


def _words(typed: str, option: str, form: str) -> tuple[str, ...]:
    """The words of an option's value: one or two.

    Args:
        typed: the value.
        option: the option, for errors.
        form: the form of the value, as the help shows it: `'NAME TYPE'`, a form with `=`, or a
            word.

    Raises:
        click.UsageError: if the value has another form.
    """
    if form == _NAME_TYPE:
        return _name_and_type(typed, option)
    if "=" in form:
        [(key, value)] = pairs_of((typed,), option).items()
        return key, value
    return (typed,)


def _name_and_type(typed: str, option: str) -> tuple[str, str]:
    match = _NAME_AND_TYPE.fullmatch(typed)
    if match is None:
        raise click.UsageError(f"{option} takes a name and a type, such as 'price DECIMAL(10, 2)'.")
    return match["quoted"] or match["name"], match["type"]


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
        option(
            "--primary-key",
            "The primary key.",
            "primary_keys",
            metavar="NAME[,NAME…]",
            callback=_names,
        ),
        option(
            "--partition-key",
            "The partition key.",
            "partition_keys",
            metavar="NAME[,NAME…]",
            callback=_names,
        ),
        option(
            "--option", "An option of the table.", "options", multiple=True, metavar="KEY=VALUE"
        ),
        option("--comment", "What the table is for."),
        option("--if-not-exists", "Leave a table that is there as it is.", is_flag=True),
    ),
)
def create(
    session: Session,
    column: Texts,
    primary_keys: Sequence[str],
    partition_keys: Sequence[str],
    options: Texts,
    comment: str | None,
    if_not_exists: bool,
) -> CommandAnswer:
    """Creates a table without rows. Types are as in SQL. In a catalog, its database must exist."""
    columns = [_name_and_type(typed, "--column") for typed in column]
    set_options = pairs_of(options, "--option")
    if session.catalog_options:
        session.catalog.create_table(
            session.identifier,
            columns,
            if_not_exists,
            set_options,
            primary_keys=primary_keys,
            partition_keys=partition_keys,
            comment=comment,
        )
    else:
        PaimonTable.create(
            session.folder,
            columns,
            primary_keys=primary_keys,
            partition_keys=partition_keys,
            options=set_options,
            comment=comment,
            if_not_exists=if_not_exists,
            storage_options=session.storage_options,
        )
    return CommandAnswer(
        document=session.document(), parts=[f"The table {session.raw.location} is there."]
    )


class _Change(NamedTuple):
    """An option of `alter`.

    Attributes:
        option: the name of the option.
        form: the form of the option's value, by which `_words` splits the value.
        help: the text of the option in the help.
        change: a function that makes the change from the words of the value.
    """

    option: str
    form: str
    help: str
    change: Callable[..., SchemaChange]

    @property
    def parameter(self) -> str:
        """The name under which click passes the values."""
        return self.option.strip("-").replace("-", "_")


_CHANGES: Final = (
    _Change("--unset", "KEY", "Remove an option of the table.", SchemaChange.remove_option),
    _Change("--set", "KEY=VALUE", "Set an option of the table.", SchemaChange.set_option),
    _Change("--drop", "NAME", "Drop a column.", SchemaChange.drop_column),
    _Change("--rename", "OLD=NEW", "Rename a column.", SchemaChange.rename_column),
    _Change("--type", _NAME_TYPE, "Widen the type of a column.", SchemaChange.update_column_type),
    _Change("--add", _NAME_TYPE, "Add a column at the end.", SchemaChange.add_column),
    _Change(
        "--column-comment", "NAME=TEXT", "Describe a column.", SchemaChange.update_column_comment
    ),
)
"""The changes that `alter` can make, in the order in which it makes them."""


@table_command(
    example="alter --add 'note STRING' --yes /data/shop.db/orders",
    params=(
        *(
            option(change.option, change.help, multiple=True, metavar=change.form)
            for change in _CHANGES
        ),
        YES,
    ),
)
def alter(session: Session, yes: bool, **typed: Texts) -> CommandAnswer:
    """Changes options and columns of the table, all in one new schema. Each option can be given
    several times. The changes apply in the order of the list below. Streams use the new schema from
    their next batch on. Without --yes it only shows the columns as they would be after the change.
    """
    changes = [
        change.change(*_words(value, change.option, change.form))
        for change in _CHANGES
        for value in typed[change.parameter]
    ]
    old = session.raw.schema
    storage = session.raw.storage
    with naming(storage.location):
        has_snapshots = SnapshotStore(storage).latest_id() is not None
        new = altered(old, changes, used=has_snapshots, time_millis=0)
    if yes and session.catalog_options:
        session.catalog.alter_table(session.identifier, changes)
    elif yes:
        alter_table(storage, changes)
    columns = [json_of(_FIELDS, column) for column in new.fields]
    document = session.document(dry_run=not yes, id=new.id, columns=columns)
    verb = "are" if yes else "would be"
    heading = f"These {verb} the columns, in schema {new.id}:"
    parts: list[Part] = [heading, Listing(_FIELDS, new.fields, "")]
    return changed_answer(document, parts, done=yes, has_work=new != old)
