"""What all commands share: the table, `--json`, `--storage-option`, `--debug`, and errors in one line. A command is a
function that takes a `Session` and the command's own options, and returns an `Answer`. It prints nothing itself."""

import inspect
import logging
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import click

from paimon_stream.api.catalog import PaimonCatalog, catalog
from paimon_stream.api.table import PaimonTable
from paimon_stream.cli.completion import branches, columns_from, folders
from paimon_stream.cli.exits import DEFECT, DRY_RUN, OK, code_of
from paimon_stream.cli.output import Answer, Column, Listing, Part, choose, json_of, say, show
from paimon_stream.cli.text import in_commands, jsonable
from paimon_stream.errors import NotFound, PaimonStreamError
from paimon_stream.storage.base import Storage
from paimon_stream.storage.branch import with_branch
from paimon_stream.storage.location import shown_location
from paimon_stream.storage.uri import open_storage
from paimon_stream.table.table import Table, load_table


@dataclass
class Session:
    """The table that a command works on. It is opened at its first use."""

    location: str
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    branch: str | None = None

    @cached_property
    def storage(self) -> Storage:
        """The table's folder, or the branch that is given."""
        return open_storage(with_branch(self.location, self.branch), self.storage_options)

    @cached_property
    def raw(self) -> Table:
        """The table as functions of lower layers take it. Raises `NotFound` if there is none."""
        try:
            return load_table(self.storage)
        except NotFound:
            location = self.storage.location
            folder, _, name = location.rpartition("/")
            if name and location.startswith("/") and open_storage(folder or "/").exists(name):
                text = "is a file. Give the table's own folder, <warehouse>/<database>.db/<table>."
                raise NotFound(text).of_table(location, subject=True) from None
            raise

    @cached_property
    def catalog(self) -> PaimonCatalog:
        """The catalog of the warehouse that the location names. Raises `InvalidOption`."""
        return catalog({"warehouse": self.location, **self.storage_options})

    @property
    def table(self) -> PaimonTable:
        """The table as the public class `PaimonTable`."""
        return PaimonTable(self.raw)

    def listing(self, key: str, listing: Listing[Any], code: int = OK, **body: Any) -> Answer:
        """The answer of a command that lists things: in the JSON they are under `key`, before the body."""
        found = [json_of(listing.columns, one) for one in listing.rows]
        return Answer(document=self.document(**{key: found}, **body), parts=[listing], code=code)

    def document(self, **body: Any) -> dict[str, Any]:
        """The JSON of an answer: the table's location, then the body."""
        return {"table": self.raw.location, **body}


def option(name: str, text: str, into: str | None = None, **how: Any) -> click.Option:
    """An option of a command, with its help text, which shows the default if there is one. `into` is the parameter that
    gets its value, if it has another name. `how` has click's other arguments."""
    shown = "default" in how or None
    return click.Option([name] if into is None else [name, into], help=text, show_default=shown, **how)


COUNT = click.IntRange(min=1)
"""The type of a number of things, and of an id."""

OPTION = option("--option", "Set an option for this call. Can be repeated.", multiple=True, metavar="KEY=VALUE")
"""The option by which options of the table are set for one call."""

YES = option("--yes", "Do it. Without --yes the command only shows what it would do.", is_flag=True)
"""The option of commands that change or delete something."""

_STORAGE = "Set an option of the storage, or read it from a file. Can be given several times."
_WAREHOUSE: Final = "PAIMON_STREAM_WAREHOUSE"
"""The environment variable with the warehouse in which tables are found by name."""

_OF_TABLES = (
    option("--warehouse", "Find TABLE, given as DATABASE.TABLE, in this folder.", metavar="FOLDER", envvar=_WAREHOUSE),
    option("--branch", "Work on this branch, as TABLE$branch_NAME does.", metavar="NAME", shell_complete=branches),
)
_SHARED = (
    option("--storage-option", _STORAGE, multiple=True, metavar="KEY=VALUE|KEY=@FILE"),
    option("--json", "Answer with one JSON document.", "as_json", is_flag=True),
    option("--debug", "Show the traceback of an error.", is_flag=True),
)

CommandFunction = Callable[..., Answer]


def table_command(
    *,
    name: str | None = None,
    example: str,
    params: Sequence[click.Parameter] = (),
    columns: Sequence[Column[Any]] = (),
    of_warehouse: bool = False,
) -> Callable[[CommandFunction], click.Command]:
    """Turns a function into a command. The function's docstring is the help text, followed by `example`. `params` are
    the command's own click parameters, which are passed by name. `columns` are the columns of the listing that it
    returns; users choose among them with `--columns`. The command is about a warehouse if `of_warehouse`."""

    def make(function: CommandFunction) -> click.Command:
        def callback(
            location: str,
            storage_option: tuple[str, ...],
            as_json: bool,
            debug: bool,
            branch: str | None = None,
            warehouse: str | None = None,
            shown: str | None = None,
            **own: Any,
        ) -> None:
            session = Session(location, _storage_options(storage_option), branch)
            chosen = None if shown is None else shown.split(",")
            choose(columns, chosen)
            answer = _answer(session, lambda: function(_found(session, warehouse), **own), debug=debug)
            show(answer, as_json=as_json, columns=chosen)
            click.get_current_context().exit(answer.code)

        called = name or function.__name__.replace("_", "-")
        shared: list[click.Parameter] = [
            click.Argument(
                ["location"],
                metavar="WAREHOUSE" if of_warehouse else "TABLE",
                envvar=_WAREHOUSE if of_warehouse else None,
                shell_complete=folders,
            ),
            *params,
            *([_columns_option(columns)] if columns else []),
            *(() if of_warehouse else _OF_TABLES),
            *_SHARED,
        ]
        return click.Command(
            called,
            callback=callback,
            params=shared,
            help=f"{inspect.cleandoc(function.__doc__ or '')}\n\n\b\nExample:\n  paimon-stream {example}",
        )

    return make


def _found(session: Session, warehouse: str | None) -> Session:
    """The session of a table that is given by its name and not by its folder, which has a slash."""
    if warehouse is None or "/" in session.location:
        return session
    return replace(session, location=replace(session, location=warehouse).catalog.location(session.location))


def _columns_option(columns: Sequence[Column[Any]]) -> click.Option:
    names = ", ".join(column.name.replace(" ", "_") for column in columns)
    text = f"Show these columns, in this order. The columns are: {names}. The name all shows all of them."
    return option("--columns", text, "shown", metavar="NAME[,NAME…]", shell_complete=columns_from(columns))


def _answer(session: Session, ask: Callable[[], Answer], *, debug: bool) -> Answer:
    """The answer, or the error as an answer. Errors and warnings are also printed to standard error."""
    with _log_lines():
        try:
            return ask()
        except (click.exceptions.Exit, click.ClickException, click.Abort):
            raise
        except Exception as error:  # noqa: BLE001 - people get a line and programs a code, for any error
            if debug:
                traceback.print_exc(file=sys.stderr)
            return _failed(session.location, error)


def _failed(location: str, error: Exception) -> Answer:
    kind, message, code, facts = type(error).__name__, str(error), DEFECT, dict[str, Any]()
    if isinstance(error, PaimonStreamError):
        code = code_of(error)
        facts = {key: value for key, value in jsonable(error.context).items() if value not in (None, [])}
        said = {key: value for key, value in facts.items() if not _is_said(value, message)}
        more = f" ({', '.join(f'{key}: {value}' for key, value in said.items())})" if said else ""
        say(f"{kind}: {in_commands(message)}{more}")
    else:
        say(f"unexpected {kind}: {message}. This is a defect. --debug shows where.")
    document = {"type": kind, "message": message, "facts": facts, "exit_code": code}
    return Answer(document={"table": shown_location(location), "error": document}, code=code)


def _is_said(fact: object, message: str) -> bool:
    """Whether a message names the fact; of a list, one item is enough, because messages often name just the first."""
    return any(str(one) in message for one in (fact if isinstance(fact, list) else [fact]))


@contextmanager
def _log_lines() -> Iterator[None]:
    """Prints warnings of the package as lines on standard error while a command runs."""
    logger, handler = logging.getLogger("paimon_stream"), _Said(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _Said(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        say(f"{record.levelname.lower()}: {in_commands(record.getMessage())}")


def pairs_of(given: tuple[str, ...], option: str) -> dict[str, str]:
    """`("k=v",)` as a mapping. Raises a usage error for a text without `=`."""
    for one in given:
        if not one.partition("=")[0].strip() or "=" not in one:
            raise click.UsageError(f"{option} takes KEY=VALUE.")
    return {key.strip(): value for key, _, value in (one.partition("=") for one in given)}


def _storage_options(given: tuple[str, ...]) -> dict[str, str]:
    """The storage options. `KEY=@FILE` reads the value from a file, because other users of the machine can
    see a command line; `KEY=@@value` is a value that begins with `@`."""
    found = pairs_of(given, "--storage-option")
    for key, value in found.items():
        if value.startswith("@@"):
            found[key] = value[1:]
        elif value.startswith("@"):
            try:
                found[key] = Path(value[1:]).read_text().strip()
            except (OSError, ValueError) as failed:
                raise click.UsageError(
                    f"The file of --storage-option {key} cannot be read: {type(failed).__name__}."
                ) from None
    return found


def changed_answer(document: Mapping[str, Any], parts: Sequence[Part], *, done: bool, something: bool) -> Answer:
    """The answer of a command that needs --yes. The exit code is 5 if --yes is missing and there is something to do."""
    if done or not something:
        return Answer(document=document, parts=parts)
    return Answer(document=document, parts=[*parts, "Nothing was changed. Give --yes to do it."], code=DRY_RUN)
