"""The parts that all commands share: the table, `--json`, `--storage-option`, `--debug`, and the
printing of errors in one line. A command is a function that takes a `Session` and the command's own
options, and returns a `CommandAnswer`. It prints nothing itself.

When the user presses Tab inside a command, the shell offers folders, and names from the table. If
anything fails, nothing is offered, because an unfinished line is not an error.
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
from paimon_stream.catalogs.filesystem import names_of, unknown_options
from paimon_stream.catalogs.metastore import metastore_of
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
    """The completion for folders. The shell finds the folders itself."""
    return [CompletionItem(typed, type="dir")]


def columns_from(columns: Sequence[Column[object]]) -> Offer:
    """The completion for names of columns. It replaces the text after the last comma."""

    def offer(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
        before, comma, beginning = typed.rpartition(",")
        names = (column.name.replace(" ", "_") for column in columns)
        return [
            CompletionItem(f"{before}{comma}{name}") for name in names if name.startswith(beginning)
        ]

    return offer


def _of_table(names_in: Callable[[Table], Iterable[str]]) -> Offer:
    """The completion for names that come from the table of the unfinished line."""

    def offer(context: click.Context, _: click.Parameter, typed: str) -> list[CompletionItem]:
        # If an option still lacks its value, click has not assigned the arguments yet.
        location = context.params.get("location") or next(iter(context.args), "")
        branch = context.params.get("branch")
        try:
            table = load_table(open_storage(with_branch(location, branch)))
            names = list(names_in(table))
        except PaimonStreamError:
            return []
        # The shell gets one name per line. So a line end in a name would begin another name.
        return [
            CompletionItem(name) for name in names if name.startswith(typed) and name.isprintable()
        ]

    return offer


branches = _of_table(lambda table: branch_names(whole_of(table.storage)))
users = _of_table(lambda table: dict.fromkeys(writer.user for writer in writers_of(table)))
tags = _of_table(lambda table: sorted(read_tags(table.storage)))
snapshots_and_tags = _of_table(
    lambda table: [
        *map(str, reversed(SnapshotStore(table.storage).ids())),
        *sorted(read_tags(table.storage)),
    ]
)


@dataclass
class Session:
    """The table or the warehouse that a command works on. It is opened when it is first used.

    Attributes:
        location: the folder of the table, or its name in a catalog; "" for a whole warehouse.
        storage_options: the storage options that were typed.
        branch: the branch of the table; None for main.
        catalog_options: the options of the catalog that has the table; empty if the location is a
            folder.
    """

    location: str
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    branch: str | None = None
    catalog_options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def folder(self) -> str:
        """The location of the table, or of its branch."""
        folder: str = with_branch(self.location, self.branch)
        return folder

    @property
    def identifier(self) -> tuple[str, str]:
        """The names of the database and of the table or its branch, in the catalog."""
        database, table = names_of(self.location)
        return database, with_branch(table, self.branch)

    @cached_property
    def table(self) -> PaimonTable:
        """The table or its branch. It is at the location, or has that name in the catalog. Raises
        the errors of `PaimonTable.load`.
        """
        if self.catalog_options:
            return self.catalog.get_table(self.identifier)
        storage = open_storage(self.folder, self.storage_options)
        try:
            return PaimonTable(load_table(storage))
        except NotFound:
            if _is_local_file(storage.location):
                raise NotFound(
                    "is a file. Give the table's own folder, <warehouse>/<database>.db/<table>."
                ).of_table(storage.location, subject=True) from None
            raise

    @property
    def raw(self) -> Table:
        """The table in the form that functions of lower layers expect."""
        return self.table._table

    @cached_property
    def catalog(self) -> PaimonCatalog:
        """The catalog that the options describe. Raises `UnsupportedFeature` and `InvalidOption`,
        also for a storage option that the catalog does not use.
        """
        options = {**self.catalog_options, **self.storage_options}
        if metastore_of(options) not in ("hive", "rest"):  # tables may be in any store
            warehouse = options.get("warehouse", "")
            typed = {key.lower(): value for key, value in self.storage_options.items()}
            unknown = {key: typed[key] for key in unknown_options(warehouse, typed)}
            if unknown:
                open_storage(warehouse, unknown)  # it refuses them, and says which options it knows
        opened = catalog(options)
        unused = {
            key: value
            for key, value in self.storage_options.items()
            if key.lower() not in opened.storage_options and not _OF_CATALOG.match(key)
        }
        if unused:
            open_storage(opened.warehouse, unused)  # it refuses them, too
        return opened

    @property
    def stores(self) -> Mapping[str, str]:
        """The storage options of the table. If there is a catalog, the catalog provides them."""
        return self.catalog.storage_options if self.catalog_options else self.storage_options

    def listing(
        self, key: str, listing: Listing[Any], code: int = OK, **body: Any
    ) -> CommandAnswer:
        """The answer of a command that lists things. In the JSON, these things are under `key`. The
        members in `body` follow them.
        """
        rows = [json_of(listing.columns, row) for row in listing.rows]
        return CommandAnswer(
            document=self.document(**{key: rows}, **body), parts=[listing], code=code
        )

    def document(self, **body: Any) -> dict[str, Any]:
        """The JSON of an answer. It has the table's location, and then the members in `body`."""
        return {"table": self.raw.location, **body}


def _is_local_file(location: str) -> bool:
    """Whether a local path leads to a file, and not to a folder of a table."""
    folder, _, name = location.rpartition("/")
    return bool(name) and location.startswith("/") and open_storage(folder or "/").exists(name)


def option(
    name: str, help_text: str, parameter: str | None = None, **settings: Any
) -> click.Option:
    """An option of a command. The help of the option shows its default if there is one.

    Args:
        name: the name of the option as users type it, such as `--limit`.
        help_text: what the option does, for the help.
        parameter: the name of the parameter that gets the value; None for the name of the option.
        settings: other arguments of `click.Option`.
    """
    names = [name] if parameter is None else [name, parameter]
    show_default = "default" in settings or None
    return click.Option(names, help=help_text, show_default=show_default, **settings)


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
_WAREHOUSE_ARGUMENT: Final = click.Argument(
    ["warehouse"], required=False, metavar="[WAREHOUSE]", shell_complete=folders
)
_TABLE_ARGUMENT: Final = click.Argument(
    ["location"], required=True, metavar="TABLE", shell_complete=folders
)
_FIND_IN: Final = "Find TABLE, given as DATABASE.TABLE, in this folder."
FOUND_IN = option("--warehouse", _FIND_IN, "found_in", metavar="FOLDER")
"""The option of commands that take a table or a warehouse as their argument. Without an argument,
they are about this warehouse.
"""
_OF_TABLES = (
    option("--warehouse", _FIND_IN, metavar="FOLDER"),
    option(
        "--branch",
        "Work on this branch, as TABLE$branch_NAME does.",
        metavar="NAME",
        shell_complete=branches,
    ),
)
_SHARED = (
    option("--catalog", _CATALOG, "catalog_name", metavar="NAME"),
    option("--storage-option", _STORAGE, multiple=True, metavar="KEY=VALUE|KEY=@FILE"),
    option("--json", "Answer with one JSON document.", "as_json", is_flag=True),
    option("--debug", "Show the traceback of an error.", is_flag=True),
)

CommandFunction = Callable[..., CommandAnswer]
Texts = tuple[str, ...]


class TableCommand(click.Command):
    """A command about a table or a warehouse.

    Attributes:
        ask: the function that returns the answer. It takes a `Session`, and the command's own
            options by name.
    """

    def __init__(
        self,
        name: str,
        ask: CommandFunction,
        *,
        params: Sequence[click.Parameter],
        columns: Sequence[Column[Any]],
        help_text: str,
    ) -> None:
        super().__init__(name, callback=self._run, params=[*params], help=help_text)
        self.ask = ask
        self._columns = columns

    def _run(
        self,
        storage_option: Texts,
        as_json: bool,
        debug: bool,
        location: str | None = None,
        warehouse: str | None = None,
        catalog_name: str | None = None,
        branch: str | None = None,
        shown_columns: str | None = None,
        wide: bool = False,
        found_in: str | None = None,
        **own_options: Any,
    ) -> None:
        """Prints the answer, and ends the command with the exit code. click calls this method with
        all options by name.
        """
        is_folder = location is not None and "/" in location
        is_warehouse_twice = found_in is not None and warehouse is not None and "/" in warehouse
        if (is_folder and (catalog_name or warehouse)) or is_warehouse_twice:
            raise click.UsageError(
                "TABLE has a slash, so it is a location. Leave --warehouse and --catalog out."
            )
        warehouse = found_in or warehouse
        of_catalog = {} if is_folder else catalog_options(catalog_name, warehouse)
        if location is None and not of_catalog:
            raise click.UsageError("Give WAREHOUSE, or --catalog.")
        session = Session(location or "", _storage_options(storage_option), branch, of_catalog)
        names = None if shown_columns is None else shown_columns.split(",")
        choose(self._columns, names)  # unknown names are refused before anything is done
        code = _answered(
            session,
            partial(self.ask, session, **own_options),
            partial(show, as_json=as_json, columns=names, wide=wide),
            debug=debug,
        )
        click.get_current_context().exit(code)


def table_command(
    *,
    name: str | None = None,
    example: str,
    params: Sequence[click.Parameter] = (),
    columns: Sequence[Column[Any]] = (),
    of_warehouse: bool = False,
) -> Callable[[CommandFunction], TableCommand]:
    """Turns a function into a command. The function's docstring is the help text.

    Args:
        name: the name of the command; by default, the name of the function.
        example: a command line without `paimon-stream`, for the end of the help text.
        params: the command's own click parameters, which are passed by name.
        columns: the columns of the listing that the command returns. Users choose among them with
            `--columns`.
        of_warehouse: whether the command is about a warehouse rather than a table.
    """

    def make(function: CommandFunction) -> TableCommand:
        place = _WAREHOUSE_ARGUMENT if of_warehouse else _TABLE_ARGUMENT
        shared: list[click.Parameter] = [_columns_option(columns)] if columns else []
        if any(column.is_narrower_in_a_narrow_table for column in columns):
            shared.append(_WIDE)
        if not of_warehouse:
            shared += _OF_TABLES
        description = inspect.cleandoc(function.__doc__ or "")
        return TableCommand(
            name or function.__name__.replace("_", "-"),
            function,
            params=[place, *params, *shared, *_SHARED],
            columns=columns,
            help_text=f"{description}\n\n\b\nExample:\n  paimon-stream {example}",
        )

    return make


def catalog_options(name: str | None, warehouse: str | None) -> dict[str, str]:
    """The options of the catalog. They are the options that the file of catalogs has under the
    catalog's name, and the warehouse. Options that are not typed come from the environment. Raises
    a usage error if the file has no such section. This error shows no value.
    """
    if not name and not warehouse:
        name = os.environ.get("PAIMON_STREAM_CATALOG")
    if not warehouse and not name:
        warehouse = os.environ.get(_WAREHOUSE)
    typed = {"warehouse": warehouse} if warehouse else {}
    return {**_options_in_file(name), **typed} if name else typed


def _options_in_file(name: str) -> dict[str, str]:
    """The options that the file of catalogs has under the name. Raises what `catalog_options`
    raises.
    """
    file = os.environ.get("PAIMON_STREAM_CONFIG") or "~/.config/paimon-stream/catalogs.toml"
    path = Path(file).expanduser()
    try:
        parser = "tomllib" if sys.version_info >= (3, 11) else "tomli"
        toml = require(parser, "cli", "--catalog")
        content = toml.loads(path.read_text(encoding="utf-8"))
        mode = path.stat().st_mode
        options = dict(_flat(content["catalog"][name]))
    except (OSError, ValueError, MissingExtra) as error:
        raise click.UsageError(f"{path}, the file of catalogs, cannot be read: {error}") from None
    except (LookupError, TypeError, AttributeError):
        raise click.UsageError(
            f"{path} has no section [catalog.{name}]. Add it, or correct the name."
        ) from None
    # 0o044: the group or all others may read the file.
    if mode & 0o044 and any(is_secret(key) or _SECRET.search(key) for key in options):
        say(f"warning: other users can read the secrets in {path}. Run: chmod 600 {path}")
    return options


def _flat(section: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """The options of a section. In TOML, `s3.endpoint` without quotes is a nested section. This
    function turns it into the option `s3.endpoint`.
    """
    for key, value in section.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        elif isinstance(value, str):
            yield prefix + key, value
        else:
            yield prefix + key, str(value).lower()


_WIDE: Final = option(
    "--wide", "Print whole rows, one on a line, also where they do not fit.", is_flag=True
)


def _columns_option(columns: Sequence[Column[Any]]) -> click.Option:
    names = ", ".join(column.name.replace(" ", "_") for column in columns)
    return option(
        "--columns",
        f"Show these columns, in this order. The columns are: {names}. The name all shows all of them.",
        "shown_columns",
        metavar="NAME[,NAME…]",
        shell_complete=columns_from(columns),
    )


def _answered(
    session: Session,
    ask: Callable[[], CommandAnswer],
    tell: Callable[[CommandAnswer], None],
    *,
    debug: bool,
) -> int:
    """Shows the answer, or the error in place of an answer, and returns the exit code. Errors and
    warnings are also printed to standard error.
    """
    with _log_lines():
        try:
            answer = ask()
            tell(answer)
        except (click.exceptions.Exit, click.ClickException, click.Abort, BrokenPipeError):
            raise
        except Exception as error:  # noqa: BLE001 - any error becomes one line and an exit code
            if debug:
                traceback.print_exc(file=sys.stderr)
            place = session.location or session.catalog_options.get("warehouse", "")
            answer = _failed(place, error)
            tell(answer)
        return answer.code


def _failed(location: str, error: Exception) -> CommandAnswer:
    """An answer that shows the error. The error is also printed as one line."""
    kind = type(error).__name__
    message = str(error)
    code = DEFECT
    facts: dict[str, Any] = {}
    if isinstance(error, PaimonStreamError):
        code = code_of(error)
        context = jsonable(error.context)
        facts = {key: value for key, value in context.items() if value not in (None, [])}
        unsaid = ", ".join(
            f"{key}: {value}" for key, value in facts.items() if not _is_said(value, message)
        )
        more = f" ({unsaid})" if unsaid else ""
        say(f"{kind}: {in_commands(message)}{more}")
    else:
        say(f"unexpected {kind}: {message}. This is a defect. --debug shows where.")
    document = {"type": kind, "message": message, "facts": facts, "exit_code": code}
    return CommandAnswer(document={"table": shown_location(location), "error": document}, code=code)


def _is_said(fact: object, message: str) -> bool:
    """Whether a message names the fact. If the fact is a list, one of its items is enough, because
    messages often name only the first item.
    """
    items = fact if isinstance(fact, list) else [fact]
    return any(str(item) in message for item in items)


@contextmanager
def _log_lines() -> Iterator[None]:
    """Prints warnings of the package as lines on standard error while a command runs."""
    logger = logging.getLogger("paimon_stream")
    handler = _WarningLines(logging.WARNING)
    logger.addHandler(handler)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: say(
                f"warning: {in_commands(str(message))}"
            )
            yield
    finally:
        logger.removeHandler(handler)


class _WarningLines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        say(f"{record.levelname.lower()}: {in_commands(record.getMessage())}")


def pairs_of(typed: Texts, option: str) -> dict[str, str]:
    """Turns `("k=v",)` into a mapping. Raises a usage error for a text without `=`."""
    pairs = {}
    for pair in typed:
        key, sign, value = pair.partition("=")
        if not key.strip() or not sign:
            raise click.UsageError(f"{option} takes KEY=VALUE.")
        pairs[key.strip()] = value
    return pairs


def _storage_options(typed: Texts) -> dict[str, str]:
    """The storage options. `KEY=@FILE` reads the value from a file, because other users of the
    machine can see a command line. `KEY=@@value` stands for the value `@value`.
    """
    options = pairs_of(typed, "--storage-option")
    for key, value in options.items():
        if value.startswith("@@"):
            options[key] = value[1:]
        elif value.startswith("@"):
            try:
                options[key] = Path(value[1:]).read_text().strip()
            except (OSError, ValueError) as error:
                raise click.UsageError(
                    f"The file of --storage-option {key} cannot be read: {type(error).__name__}."
                ) from None
    return options


def changed_answer(
    document: Mapping[str, Any], parts: Sequence[Part], *, done: bool, has_work: bool
) -> CommandAnswer:
    """The answer of a command that needs --yes. The exit code is 5 if --yes is missing and there is
    something to do.
    """
    if done or not has_work:
        return CommandAnswer(document=document, parts=parts)
    return CommandAnswer(
        document=document, parts=[*parts, "Nothing was changed. Give --yes to do it."], code=DRY_RUN
    )
