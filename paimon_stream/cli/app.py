"""The commands by their names, completion for shells, and the end of the process. A command's
module is imported only when the command is called, so that `--help` is fast.
"""

import difflib
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, Final

import click
from click.shell_completion import get_completion_class, shell_complete

from paimon_stream._version import __version__
from paimon_stream.cli.exits import INTERRUPTED, MEANING, USAGE, ctrl_c_is_handled
from paimon_stream.cli.output import say

COMMANDS: Final = {
    "ls": ("rows", "List the databases and tables of a warehouse."),
    "databases": ("rows", "List the databases of a warehouse."),
    "head": ("rows", "Show some rows, or write all (cat), perhaps as CSV."),
    "snapshots": ("snapshots", "List the snapshots, newest first (also: history)."),
    "files": ("files", "List the live data files."),
    "manifests": ("files", "List the manifests."),
    "partitions": ("files", "List the partitions with their rows and bytes."),
    "stats": ("files", "Show the table in numbers."),
    "schema": ("schema", "Show the columns and keys (also: describe)."),
    "options": ("schema", "List the table's options."),
    "create": ("schema", "Create a table."),
    "alter": ("schema", "Change columns and options."),
    "query": ("snapshots", "List the streams and other writers."),
    "watch": ("watch", "Show the streams of tables, again and again."),
    "report": ("report", "Write a page with plots of a table or a warehouse."),
    "verify": ("orphans", "Check every snapshot, manifest and file."),
    "doctor": ("doctor", "Judge whether a stream can be restarted."),
    "expire": ("snapshots", "Expire old snapshots and delete their files."),
    "orphans": ("orphans", "Find or delete files that nothing refers to."),
    "tag": ("tags", "List, create and delete tags."),
    "branch": ("tags", "List, create and delete branches."),
    "rollback": ("tags", "Make an earlier snapshot the newest again."),
    "recommit": ("snapshots", "Commit a batch again that another engine replaced."),
    "rebuild-index": ("orphans", "Rebuild the index of dynamic buckets."),
    "drop-lost-files": ("clear", "Make a table whole without files that are lost."),
    "compact": ("compact", "Rewrite small files into larger ones."),
    "compact-manifests": ("orphans", "Merge small manifests into large ones."),
    "delete": ("row_changes", "Delete the rows that fulfil a condition."),
    "update": ("row_changes", "Give the rows that fulfil a condition new values."),
    "truncate": ("clear", "Clear the whole table."),
    "drop-partition": ("clear", "Clear some partitions."),
    "expire-partitions": ("clear", "Drop partitions that are too old."),
    "repair-hints": ("orphans", "Correct the hints LATEST and EARLIEST."),
}
"""The module of each command in this package, and its line in the list of commands, which is 80
columns wide.
"""
_ALIASES: Final = {"cat": "head", "history": "snapshots", "describe": "schema"}

_COMPLETE: Final = "_PAIMON_STREAM_COMPLETE"
"""The environment variable with which a shell requests its completion script, and later each
completion.
"""

_EXITS: Final = "\n".join(
    f"  {code:>3}  {meaning.replace('`', '')}" for code, meaning in MEANING.items()
)


class _Commands(click.Group):
    """A group that knows the names of its commands, and imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *_ALIASES]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = _ALIASES.get(cmd_name, cmd_name)
        if name not in COMMANDS:
            return None
        module_name, _ = COMMANDS[name]
        module = importlib.import_module(f"paimon_stream.cli.{module_name}")
        command: click.Command = getattr(module, name.replace("-", "_"))
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and name not in _ALIASES:
            similar = difflib.get_close_matches(name, COMMANDS, n=1)
            if similar:
                ctx.fail(f"There is no command {name!r}. Did you mean {similar[0]!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def main(self, args: Sequence[str] | None = None, *_: Any, **__: Any) -> Any:
        """Runs a command and ends the process with its exit code. On Ctrl-C it prints one line and
        ends with 130.
        """
        instruction = os.environ.get(_COMPLETE)
        if instruction:
            sys.exit(self._complete(instruction))
        words = sys.argv[1:] if args is None else args
        try:
            code = self._run(list(words))
        except KeyboardInterrupt:
            ctrl_c_is_handled()
            say(
                "interrupted. What was published stays. The rest is invisible, and can be run again."
            )
            code = INTERRUPTED
        except BrokenPipeError:
            # The reader of standard output has closed it, as `| head` does. Python must not report
            # an error when the process ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = 0
        sys.exit(code)

    def _complete(self, instruction: str) -> int:
        """Prints a shell's completion script (`bash_source`) or the completions of an unfinished
        line (`bash_complete`).
        """
        shell, _, _ = instruction.partition("_")
        if get_completion_class(shell) is None:
            say(
                f"{_COMPLETE}={instruction} names no shell. Use bash_source, zsh_source or fish_source."
            )
            return USAGE
        return shell_complete(self, {}, "paimon-stream", _COMPLETE, instruction)

    def _run(self, args: list[str]) -> int:
        """Runs a command, and returns its exit code."""
        try:
            with self.make_context("paimon-stream", args) as ctx:
                self.invoke(ctx)
        except click.exceptions.Exit as end:
            return end.exit_code
        except click.ClickException as error:
            error.show()
            return error.exit_code
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
    """Inspects and maintains Apache Paimon tables. TABLE is the table's own folder,
    <warehouse>/<database>.db/<table>. Every command has --json and --help."""
