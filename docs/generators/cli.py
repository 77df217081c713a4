"""Renders `docs/cli.md` from the commands.

python -m docs.generators.cli tests/golden > docs/cli.md

The answers on the page are the real answers of the commands for tables in that folder.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
from click.testing import CliRunner

from paimon_stream.api.table import PaimonTable
from paimon_stream.cli.app import COMMANDS, cli
from paimon_stream.cli.exits import MEANING
from paimon_stream.cli.output import Listing, listing_lines
from paimon_stream.cli.snapshots import COLUMNS

__all__ = ["commands", "render"]

_START: Final = """\
# Command line

<!-- Generated: python -m docs.generators.cli tests/golden > docs/cli.md -->

    pip install '.[cli]'                                       # in a checkout
    paimon-stream snapshots /data/shop.db/orders               # or: python -m paimon_stream snapshots …

`TABLE` is the table's own folder, `<warehouse>/<database>.db/<table>`. No command starts Spark. PySpark is
needed only if `doctor` has to judge a schema that has changed.

- The answer goes to standard output; errors, warnings and progress go to standard error.
- `--json` makes the answer one JSON document. Its keys are stable: no key is renamed or removed, but new keys
  may be added. The document begins with `table`. If the command fails, it is `{"table": …, "error": {"type",
  "message", "facts", "exit_code"}}`, unless the command line itself is wrong. Sizes are bytes. Times are
  ISO 8601 in UTC, or epoch milliseconds if the key ends in `millis`.
- A command that changes or deletes something only shows what it would do, unless you give `--yes`.
- On a terminal, long work shows a bar with rate and time left. Otherwise it prints a line every 5 seconds.
- Ctrl-C is safe at any point. A commit is published as a whole or not at all, and the next clean-up deletes
  the files that an interrupted one has left.
- `--storage-option KEY=VALUE` sets an option of the storage, and `--storage-option KEY=@FILE` reads it from a
  file. Other users of the machine can see a command line, so give secrets in a file, or in the environment
  (`AWS_SECRET_ACCESS_KEY` and others). A value that begins with `@` is written `KEY=@@…`.
- `--warehouse FOLDER`, or the environment variable `PAIMON_STREAM_WAREHOUSE`, is where a table that is given as
  `database.table` is found. `--catalog NAME`, or `PAIMON_STREAM_CATALOG`, finds it in a catalog whose options are in
  a file ([catalogs](catalogs.md#at-the-terminal)). A text with a slash is always a location.
- `--branch NAME` works on a branch of the table. A table that is given as `TABLE$branch_NAME` means the same.
- `history` is another name of `snapshots`, `describe` of `schema`, and `cat` is `head` for all rows.
- `--debug` shows the traceback of an error.

## Tables and columns

A list is a table. If the terminal is too narrow for it, each row is still one line: times have no seconds, long
names lose their middle, kinds of snapshots are letters, and the columns that matter least are left out. `--wide`
prints the whole table. At 80 columns:

{narrow}
On a terminal of fewer than 60 columns, each row is a block of lines:

{block}
In a file or a pipe, each row is one line, however wide. `--columns` chooses the columns and their order, by
their titles or JSON keys. `--columns all` shows all columns. `--help` of a command lists its columns. The
document of `--json` always has all columns.

A partition is written as `dt=2026-11-21,hour=7`, and is shown in a form that can be typed again. NULL is the
missing value. A text is in double quotes, as in JSON, if it contains anything but letters, digits, spaces and
the signs `-_.:+@`: `region="a, b"`. The shell needs its own quotes around such a text: `'region="a, b"'`.

A DATE is `2024-02-29`, a TIMESTAMP `2024-02-29T10:30:00`. A TIMESTAMP WITH LOCAL TIME ZONE may end in `Z` or
an offset such as `+09:00`; without one it is UTC. A date or time that does not exist is refused.

## Completion

The shells bash (4.4 or later), zsh and fish complete commands, options and folders. They also complete the
users, tags, snapshots and columns of the table that is already on the line. To enable completion in the
running shell:

    eval "$(_PAIMON_STREAM_COMPLETE=bash_source paimon-stream)"       # bash: in ~/.bashrc
    eval "$(_PAIMON_STREAM_COMPLETE=zsh_source paimon-stream)"        # zsh: in ~/.zshrc
    _PAIMON_STREAM_COMPLETE=fish_source paimon-stream | source        # fish: in ~/.config/fish/config.fish

## Exit codes

| code | meaning |
|---|---|
"""
_SHARED: Final = (
    "--columns",
    "--wide",
    "--catalog",
    "--warehouse",
    "--branch",
    "--storage-option",
    "--json",
    "--debug",
)


_ANSWERS: Final = {
    "head --limit 3": "pk_updates",
    "snapshots": "append_partitioned",
    "partitions": "append_partitioned",
    "files --limit 2": "append_partitioned",
    "manifests": "append_partitioned",
    "stats": "pk_updates",
    "schema": "pk_updates",
    "options": "pk_updates",
    "query": "append_partitioned",
    "verify --sample 100": "append_partitioned",
    "rollback": "append_partitioned",
    "compact": "compaction/append_remainder",
}
"""The commands, with their options, whose answers are shown, and the table of each."""

_ARGUMENTS: Final = {"rollback": ["1"]}


def render(tables: Path) -> str:
    """The whole page in Markdown, with answers about the tables in the folder."""
    codes = "".join(f"| {code} | {meaning} |\n" for code, meaning in MEANING.items())
    start = _START.replace("{narrow}", _snapshots(tables, 80)).replace("{block}", _block(tables))
    return start + codes + "".join(_command(name, command, tables) for name, command in commands())


def _snapshots(tables: Path, width: int) -> str:
    """The snapshots of a table on a terminal of this width."""
    store = PaimonTable.load(str(tables / "overwritten" / "db.db" / "t"))
    listing = Listing(COLUMNS, store.snapshots()[::-1], "")
    return "".join(f"    {line.plain}\n" for line in listing_lines(listing, width))


def _block(tables: Path) -> str:
    """The first snapshot of the table on a terminal that is narrower than a table may be."""
    return _snapshots(tables, 59).partition("    \n")[0]


def _answer(name: str, tables: Path) -> str:
    """The command's answer on a terminal that is wide enough. Empty if the command has no
    example.
    """
    for asked, table in _ANSWERS.items():
        called, *options = asked.split()
        if called == name:
            location = str(tables / table / "db.db" / "t")
            shown = (
                CliRunner()
                .invoke(cli, [name, *options, location, *_ARGUMENTS.get(name, [])])
                .stdout
            )
            return "".join(f"    {line}".rstrip() + "\n" for line in shown.splitlines())
    return ""


def commands() -> Iterator[tuple[str, click.Command]]:
    """All commands, with the name of the group before that of a command of a group."""
    context = click.Context(cli)
    for name in COMMANDS:
        command = cli.get_command(context, name)
        if isinstance(command, click.Group):
            yield from ((f"{name} {one}", made) for one, made in command.commands.items())
        elif command is not None:
            yield name, command


def _command(name: str, command: click.Command, tables: Path) -> str:
    context = click.Context(command, info_name=f"paimon-stream {name}")
    usage = " ".join(
        piece for piece in command.collect_usage_pieces(context) if piece != "[OPTIONS]"
    )
    text, _, example = inspect.cleandoc(command.help or "").partition("\n\n\b\nExample:\n")
    own = [
        (_option(one), one.help or "")
        for one in command.params
        if isinstance(one, click.Option) and one.opts[0] not in _SHARED
    ]
    parts = [f"\n## `{name} {usage}`\n", text, f"\n    {example.strip()}\n"]
    answer = _answer(name, tables)
    if answer:
        parts.append(f"It answers, for example:\n\n{answer}")
    if own:
        parts.append("| option | |\n|---|---|")
        parts += [f"| `{_cell(option)}` | {_cell(said)} |" for option, said in own]
    return "\n".join(parts).rstrip("\n") + "\n"


def _option(one: click.Option) -> str:
    names = "/".join((*one.opts[:1], *one.secondary_opts))
    if one.is_flag:
        return names
    if isinstance(one.type, click.Choice):
        return f"{names} {'|'.join(map(str, one.type.choices))}"
    return f"{names} {one.metavar or ('N' if isinstance(one.type, click.IntRange) else 'TEXT')}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").strip()


if __name__ == "__main__":
    sys.stdout.write(render(Path(sys.argv[1])))
