"""What all commands share: the table, `--json`, `--storage-option`, `--debug`, and errors in one
line. A command is a function that takes a `Session` and the command's own options, and returns a
`CommandAnswer`. It prints nothing itself.

When the user presses Tab inside a command, a shell offers folders, and names that the table knows.
If anything goes wrong, nothing is offered, because an unfinished line is not an error.
"""

import inspect
import logging
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from paimon_stream.api.catalog import PaimonCatalog, catalog
from paimon_stream.api.inspection import writers_of
from paimon_stream.api.table import PaimonTable
from paimon_stream.catalogs.filesystem import names_of
from paimon_stream.catalogs.opening import open_storage
from paimon_stream.cli.exits import DEFECT, DRY_RUN, OK, code_of
from paimon_stream.cli.output import (
    Column,
    CommandAnswer,
    Listing,
    Part,
    choose,
    json_of,
    say,
    show,
)
from paimon_stream.cli.text import in_commands, jsonable
from paimon_stream.errors import MissingExtra, NotFound, PaimonStreamError
from paimon_stream.extras import require
from paimon_stream.maintenance.tags import read_tags
from paimon_stream.options import is_secret
from paimon_stream.storage.branch import branch_names, whole_of, with_branch
from paimon_stream.storage.location import shown_location
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import Table, load_table

Offer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def folders(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
    """Folders. The shell finds them itself."""
    return [CompletionItem(typed, type="dir")]


def columns_from(columns: Sequence[Column[object]]) -> Offer:
    """The names of columns, each after the last comma of the typed text."""

    def offer(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
        before, comma, begun = typed.rpartition(",")
        names = (column.name.replace(" ", "_") for column in columns)
        return [
            CompletionItem(f"{before}{comma}{name}") for name in names if name.startswith(begun)
        ]

    return offer


def _of_table(find: Callable[[Table], Iterable[str]]) -> Offer:
    def offer(context: click.Context, _: click.Parameter, typed: str) -> list[CompletionItem]:
        # If an option still lacks its value, click has not assigned the arguments yet.
        location = context.params.get("location") or next(iter(context.args), "")
        try:
            names = list(
                find(load_table(open_storage(with_branch(location, context.params.get("branch")))))
            )
        except PaimonStreamError:
            return []
        # The shell gets one name a line, so a line end in a name would begin another one.
        return [
            CompletionItem(name) for name in names if name.startswith(typed) and name.isprintable()
        ]

    return offer


branches = _of_table(lambda table: branch_names(whole_of(table.storage)))
users = _of_table(lambda table: dict.fromkeys(one.user for one in writers_of(table)))
tags = _of_table(lambda table: sorted(read_tags(table.storage)))
snapshots_and_tags = _of_table(
    lambda table: [
        *map(str, reversed(SnapshotStore(table.storage).ids())),
        *sorted(read_tags(table.storage)),
    ]
)


@dataclass
class Session:
    """The table that a command works on. It is opened at its first use."""

    location: str
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    branch: str | None = None
    catalog_options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def where(self) -> Any:
        """The location of the table or its branch, or, in a catalog, the names of database and
        table.
        """
        if not self.catalog_options:
            return with_branch(self.location, self.branch)
        database, table = names_of(self.location)
        return database, with_branch(table, self.branch)

    @cached_property
    def table(self) -> PaimonTable:
        """The table, or its branch, at the location or of that name in the catalog. Raises
        `NotFound`.
        """
        if self.catalog_options:
            return self.catalog.get_table(self.where)
        storage = open_storage(self.where, self.storage_options)
        try:
            return PaimonTable(load_table(storage))
        except NotFound:
            folder, _, name = storage.location.rpartition("/")
            if (
                name
                and storage.location.startswith("/")
                and open_storage(folder or "/").exists(name)
            ):
                text = "is a file. Give the table's own folder, <warehouse>/<database>.db/<table>."
                raise NotFound(text).of_table(storage.location, subject=True) from None
            raise

    @property
    def raw(self) -> Table:
        """The table as functions of lower layers take it."""
        return self.table._table

    @cached_property
    def catalog(self) -> PaimonCatalog:
        """The catalog that is given. Raises `InvalidOption`, also for a storage option that it does
        not use.
        """
        found, typed = (
            catalog({**self.catalog_options, **self.storage_options}),
            self.storage_options.items(),
        )
        left = {key: one for key, one in typed if key.lower() not in found.storage_options}
        if unknown := {key: one for key, one in left.items() if not _OF_CATALOG.match(key)}:
            open_storage(found.warehouse, unknown)  # it refuses them, and says which it knows
        return found

    @property
    def stores(self) -> Mapping[str, str]:
        """The storage options of the table, which are those of the catalog if there is one."""
        return self.catalog.storage_options if self.catalog_options else self.storage_options

    def listing(
        self, key: str, listing: Listing[Any], code: int = OK, **body: Any
    ) -> CommandAnswer:
        """The answer of a command that lists things: in the JSON they are under `key`, before the
        body.
        """
        found = [json_of(listing.columns, one) for one in listing.rows]
        return CommandAnswer(
            document=self.document(**{key: found}, **body), parts=[listing], code=code
        )

    def document(self, **body: Any) -> dict[str, Any]:
        """The JSON of an answer: the table's location, then the body."""
        return {"table": self.raw.location, **body}


def option(name: str, text: str, into: str | None = None, **how: Any) -> click.Option:
    """An option of a command, with its help text, which shows the default if there is one. `into`
    is the parameter that gets its value, if it has another name. `how` has click's other arguments.
    """
    shown = "default" in how or None
    return click.Option(
        [name] if into is None else [name, into], help=text, show_default=shown, **how
    )


COUNT = click.IntRange(min=1)
"""The type of a number of things, and of an id."""

OPTION = option(
    "--option", "Set an option for this call. Can be repeated.", multiple=True, metavar="KEY=VALUE"
)
"""The option by which options of the table are set for one call."""

YES = option("--yes", "Do it. Without --yes the command only shows what it would do.", is_flag=True)
"""The option of commands that change or delete something."""

_STORAGE = "Set an option of the storage, or read it from a file. Can be given several times."
_WAREHOUSE: Final = "PAIMON_STREAM_WAREHOUSE"
"""The environment variable with the warehouse in which tables are found by name."""

_CATALOG: Final = "Find TABLE, given as DATABASE.TABLE, in this catalog of the file of catalogs."
_SECRET: Final = re.compile("password|secret|authorization|token$", re.IGNORECASE)
_OF_CATALOG: Final = re.compile("(warehouse|metastore)$|table-default[.]", re.IGNORECASE)
_OF_TABLES = (
    option("--warehouse", "Find TABLE, given as DATABASE.TABLE, in this folder.", metavar="FOLDER"),
    option(
        "--branch",
        "Work on this branch, as TABLE$branch_NAME does.",
        metavar="NAME",
        shell_complete=branches,
    ),
)
_SHARED = (
    option("--catalog", _CATALOG, "named", metavar="NAME"),
    option("--storage-option", _STORAGE, multiple=True, metavar="KEY=VALUE|KEY=@FILE"),
    option("--json", "CommandAnswer with one JSON document.", "as_json", is_flag=True),
    option("--debug", "Show the traceback of an error.", is_flag=True),
)

CommandFunction = Callable[..., CommandAnswer]
Texts = tuple[str, ...]


def table_command(
    *,
    name: str | None = None,
    example: str,
    params: Sequence[click.Parameter] = (),
    columns: Sequence[Column[Any]] = (),
    of_warehouse: bool = False,
) -> Callable[[CommandFunction], click.Command]:
    """Turns a function into a command. The function's docstring is the help text, followed by
    `example`. `params` are the command's own click parameters, which are passed by name. `columns`
    are the columns of the listing that it returns; users choose among them with `--columns`. The
    command is about a warehouse if `of_warehouse`.
    """

    def make(function: CommandFunction) -> click.Command:
        def callback(
            storage_option: Texts,
            as_json: bool,
            debug: bool,
            location: str | None = None,
            warehouse: str | None = None,
            named: str | None = None,
            branch: str | None = None,
            shown: str | None = None,
            **own: Any,
        ) -> None:
            is_place = location is not None and "/" in location
            if is_place and (named or warehouse):
                raise click.UsageError(
                    "TABLE has a slash, so it is a location. Leave --warehouse and --catalog out."
                )
            of_catalog = {} if is_place else catalog_options(named, warehouse)
            if location is None and not of_catalog:
                raise click.UsageError("Give WAREHOUSE, or --catalog.")
            session = Session(location or "", _storage_options(storage_option), branch, of_catalog)
            chosen = None if shown is None else shown.split(",")
            choose(columns, chosen)
            tell = partial(show, as_json=as_json, columns=chosen)
            click.get_current_context().exit(
                _answered(session, lambda: function(session, **own), tell, debug=debug)
            )

        into, place = ("warehouse", "[WAREHOUSE]") if of_warehouse else ("location", "TABLE")
        called = name or function.__name__.replace("_", "-")
        shared: list[click.Parameter] = [
            click.Argument(
                [into], required=not of_warehouse, metavar=place, shell_complete=folders
            ),
            *params,
            *([_columns_option(columns)] if columns else []),
            *(() if of_warehouse else _OF_TABLES),
            *_SHARED,
        ]
        text = (
            f"{inspect.cleandoc(function.__doc__ or '')}\n\n\b\nExample:\n  paimon-stream {example}"
        )
        made = click.Command(called, callback=callback, params=shared, help=text)
        made.ask = function  # type: ignore[attr-defined]  # `watch` shows the answers of other commands
        return made

    return make


def catalog_options(name: str | None, warehouse: str | None) -> dict[str, str]:
    """The options of the catalog: those that the file of catalogs has under its name, and the
    warehouse. What is not typed is in the environment. Raises a usage error, which shows no value,
    if there is no such section.
    """
    named = name or (None if warehouse else os.environ.get("PAIMON_STREAM_CATALOG"))
    folder = warehouse or (None if named else os.environ.get(_WAREHOUSE))
    found = {} if not folder else {"warehouse": folder}
    if not named:
        return found
    path = Path(
        os.environ.get("PAIMON_STREAM_CONFIG") or "~/.config/paimon-stream/catalogs.toml"
    ).expanduser()
    try:
        toml = require("tomllib" if sys.version_info >= (3, 11) else "tomli", "cli", "--catalog")
        read, mode = toml.loads(path.read_text(encoding="utf-8")), path.stat().st_mode
        found = dict(_flat(read["catalog"][named])) | found
    except (OSError, ValueError, MissingExtra) as why:
        raise click.UsageError(f"{path}, the file of catalogs, cannot be read: {why}") from None
    except (LookupError, TypeError, AttributeError):
        raise click.UsageError(
            f"{path} has no section [catalog.{named}]. Add it, or correct the name."
        ) from None
    if mode & 0o044 and any(is_secret(key) or _SECRET.search(key) for key in found):
        say(f"warning: other users can read the secrets in {path}. Run: chmod 600 {path}")
    return found


def _flat(section: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """The options of a section. In TOML, `s3.endpoint` without quotes is a section in it, and here
    the same option.
    """
    for key, one in section.items():
        text = one if isinstance(one, str) else str(one).lower()
        yield from (
            _flat(one, f"{before}{key}.") if isinstance(one, dict) else [(before + key, text)]
        )


def _columns_option(columns: Sequence[Column[Any]]) -> click.Option:
    names = ", ".join(column.name.replace(" ", "_") for column in columns)
    text = f"Show these columns, in this order. The columns are: {names}. The name all shows all of them."
    return option(
        "--columns", text, "shown", metavar="NAME[,NAME…]", shell_complete=columns_from(columns)
    )


def _answered(
    session: Session,
    ask: Callable[[], CommandAnswer],
    tell: Callable[[CommandAnswer], None],
    *,
    debug: bool,
) -> int:
    """Shows the answer, or the error as an answer, and returns the exit code. Errors and warnings
    are also printed to standard error.
    """
    with _log_lines():
        try:
            answer = ask()
            tell(answer)
        except (click.exceptions.Exit, click.ClickException, click.Abort, BrokenPipeError):
            raise
        except Exception as error:  # noqa: BLE001 - people get a line and programs a code, for any error
            if debug:
                traceback.print_exc(file=sys.stderr)
            answer = _failed(
                session.location or session.catalog_options.get("warehouse", ""), error
            )
            tell(answer)
        return answer.code


def _failed(location: str, error: Exception) -> CommandAnswer:
    kind, message, code, facts = type(error).__name__, str(error), DEFECT, dict[str, Any]()
    if isinstance(error, PaimonStreamError):
        code = code_of(error)
        facts = {
            key: value for key, value in jsonable(error.context).items() if value not in (None, [])
        }
        said = {key: value for key, value in facts.items() if not _is_said(value, message)}
        more = f" ({', '.join(f'{key}: {value}' for key, value in said.items())})" if said else ""
        say(f"{kind}: {in_commands(message)}{more}")
    else:
        say(f"unexpected {kind}: {message}. This is a defect. --debug shows where.")
    document = {"type": kind, "message": message, "facts": facts, "exit_code": code}
    return CommandAnswer(document={"table": shown_location(location), "error": document}, code=code)


def _is_said(fact: object, message: str) -> bool:
    """Whether a message names the fact; of a list, one item is enough, because messages often name
    just the first.
    """
    return any(str(one) in message for one in (fact if isinstance(fact, list) else [fact]))


@contextmanager
def _log_lines() -> Iterator[None]:
    """Prints warnings of the package as lines on standard error while a command runs."""
    logger, handler = logging.getLogger("paimon_stream"), _Said(logging.WARNING)
    logger.addHandler(handler)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: say(
                f"warning: {in_commands(str(message))}"
            )
            yield
    finally:
        logger.removeHandler(handler)


class _Said(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        say(f"{record.levelname.lower()}: {in_commands(record.getMessage())}")


def pairs_of(given: Texts, option: str) -> dict[str, str]:
    """`("k=v",)` as a mapping. Raises a usage error for a text without `=`."""
    for one in given:
        if not one.partition("=")[0].strip() or "=" not in one:
            raise click.UsageError(f"{option} takes KEY=VALUE.")
    return {key.strip(): value for key, _, value in (one.partition("=") for one in given)}


def _storage_options(given: Texts) -> dict[str, str]:
    """The storage options. `KEY=@FILE` reads the value from a file, because other users of the
    machine can see a command line; `KEY=@@value` is a value that begins with `@`.
    """
    found = pairs_of(given, "--storage-option")
    for key, value in found.items():
        if value.startswith("@@"):
            found[key] = value[1:]
        elif value.startswith("@"):
            try:
                found[key] = Path(value[1:]).read_text().strip()
            except (OSError, ValueError) as failed:
                text = (
                    f"The file of --storage-option {key} cannot be read: {type(failed).__name__}."
                )
                raise click.UsageError(text) from None
    return found


def changed_answer(
    document: Mapping[str, Any], parts: Sequence[Part], *, done: bool, something: bool
) -> CommandAnswer:
    """The answer of a command that needs --yes. The exit code is 5 if --yes is missing and there is
    something to do.
    """
    if done or not something:
        return CommandAnswer(document=document, parts=parts)
    return CommandAnswer(
        document=document, parts=[*parts, "Nothing was changed. Give --yes to do it."], code=DRY_RUN
    )
