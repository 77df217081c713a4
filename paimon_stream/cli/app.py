"""The commands by name, and how the process ends.

A command's module is imported when the command is called, so that `--help` is quick.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, Final

import click

from paimon_stream._version import __version__
from paimon_stream.cli.exits import INTERRUPTED, MEANING
from paimon_stream.cli.output import say

__all__ = ["COMMANDS", "cli"]

COMMANDS: Final = {
    "snapshots": ("snapshots", "The snapshots, newest first: who made each, when, how many rows."),
    "files": ("files", "The live data files of a snapshot."),
    "manifests": ("files", "The manifests of a snapshot."),
    "partitions": ("files", "The partitions of a snapshot, with files, rows and bytes."),
    "stats": ("files", "The table in numbers."),
    "schema": ("schema", "The columns and keys, now or under an earlier schema."),
    "options": ("schema", "The options of the table, those that are set and the defaults of the others."),
    "query": ("query", "Which streams write here: the last batch of each, gaps, checkpoint."),
    "verify": ("verify", "Is all so that the snapshots say: files, sizes, counts, rows, hints."),
    "doctor": ("doctor", "Is a restart of the stream safe, what would it do, and what to do if not."),
    "expire": ("expire", "Expire old snapshots, and delete the files that only they need."),
    "orphans": ("orphans", "Find, and delete, files that nothing refers to."),
    "tag": ("tags", "List, create and delete tags."),
    "rollback": ("tags", "Make an earlier snapshot or a tag the newest again."),
    "compact-manifests": ("orphans", "Merge the manifests into few."),
    "truncate": ("clear", "Clear the whole table."),
    "drop-partition": ("clear", "Clear some partitions."),
    "repair-hints": ("orphans", "Set the hints LATEST and EARLIEST right."),
}
"""Each command's module in this package, and the line that the list of commands has of it."""

_EXITS: Final = "\n".join(f"  {code:>3}  {meaning.replace('`', '')}" for code, meaning in MEANING.items())


class _Commands(click.Group):
    """A group that knows its commands by name, and imports them late."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"paimon_stream.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def main(self, args: Sequence[str] | None = None, *_: Any, **__: Any) -> Any:
        """Runs a command and ends the process with its exit code. Ctrl-C is one line and 130."""
        try:
            code = self._run(list(sys.argv[1:] if args is None else args))
        except KeyboardInterrupt:
            say("interrupted. What was published stands; what was not is invisible, and can be run again.")
            code = INTERRUPTED
        except BrokenPipeError:
            # Whoever read our answer has seen enough (`| head`). Python must not complain at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = 0
        sys.exit(code)

    def _run(self, args: list[str]) -> int:
        try:
            with self.make_context("paimon-stream", args) as ctx:
                self.invoke(ctx)
        except click.exceptions.Exit as end:
            return end.exit_code
        except click.ClickException as wrong:
            wrong.show()
            return wrong.exit_code
        except click.Abort:
            return INTERRUPTED
        return 0


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=f"\b\nExit codes:\n{_EXITS}\n\n\b\nExample:\n  paimon-stream snapshots /data/shop.db/orders",
)
@click.version_option(__version__, prog_name="paimon-stream")
def cli() -> None:
    """Looks into Apache Paimon tables, and looks after them. TABLE is the table's own folder,
    <warehouse>/<database>.db/<table>. Every command has --json and --help."""
