"""Renders `docs/cli.md` from the commands.

python -m paimon_stream.cli.page > docs/cli.md
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from typing import Final

import click

from paimon_stream.cli.app import COMMANDS, cli
from paimon_stream.cli.exits import MEANING

__all__ = ["render"]

_START: Final = """\
# Command line

<!-- Generated: python -m paimon_stream.cli.page > docs/cli.md -->

    pip install '.[cli]'                                       # in a checkout
    paimon-stream snapshots /data/warehouse/shop.db/orders     # or: python -m paimon_stream snapshots …

`TABLE` is the table's own folder, `<warehouse>/<database>.db/<table>`. Spark is not needed.

- The answer is on standard output, everything else (errors, warnings, progress) on standard error.
- `--json` makes the answer one JSON document. Its keys are stable: none is renamed or removed, new ones may
  come. It begins with `table`. Where the command fails, it is `{"table": …, "error": {"type", "message",
  "facts", "exit_code"}}`, unless the command line itself is wrong. Sizes are bytes; times are ISO 8601 in
  UTC, and epoch milliseconds where the key ends in `millis`.
- What changes something that is there shows what it would do, and does it with `--yes`.
- Long work shows a bar with rate and time left on a terminal, else a line every 5 seconds.
- Ctrl-C is safe at any point: a commit is there as a whole or not at all, and what a clean-up has not deleted
  stays for the next one.
- `--storage-option KEY=VALUE` passes options to the storage, `--debug` shows the traceback of an error.

## Exit codes

| code | meaning |
|---|---|
"""
_SHARED: Final = ("--columns", "--storage-option", "--json", "--debug")


def render() -> str:
    """The whole page, in Markdown."""
    codes = "".join(f"| {code} | {meaning} |\n" for code, meaning in MEANING.items())
    return _START + codes + "".join(_command(name, command) for name, command in _commands())


def _commands() -> Iterator[tuple[str, click.Command]]:
    context = click.Context(cli)
    for name in COMMANDS:
        command = cli.get_command(context, name)
        if isinstance(command, click.Group):
            yield from ((f"{name} {one}", made) for one, made in command.commands.items())
        elif command is not None:
            yield name, command


def _command(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=f"paimon-stream {name}")
    usage = " ".join(piece for piece in command.collect_usage_pieces(context) if piece != "[OPTIONS]")
    text, _, example = inspect.cleandoc(command.help or "").partition("\n\n\b\nExample:\n")
    own = [
        (_option(one), one.help or "")
        for one in command.params
        if isinstance(one, click.Option) and one.opts[0] not in _SHARED
    ]
    parts = [f"\n## `{name} {usage}`\n", text, f"\n    {example.strip()}\n"]
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
    sys.stdout.write(render())
