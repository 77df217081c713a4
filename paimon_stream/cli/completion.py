"""What a shell offers when the user presses Tab inside a command: folders, and names that the table knows. If anything
goes wrong, nothing is offered, because an unfinished line is not an error."""

from collections.abc import Callable, Iterable, Sequence

import click
from click.shell_completion import CompletionItem

from paimon_stream.api.inspection import writers_of
from paimon_stream.cli.output import Column
from paimon_stream.errors import PaimonStreamError
from paimon_stream.maintenance.tags import read_tags
from paimon_stream.storage.branch import branch_names, whole_of, with_branch
from paimon_stream.storage.uri import open_storage
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
        return [CompletionItem(f"{before}{comma}{name}") for name in names if name.startswith(begun)]

    return offer


def _of_table(find: Callable[[Table], Iterable[str]]) -> Offer:
    def offer(context: click.Context, _: click.Parameter, typed: str) -> list[CompletionItem]:
        # If an option still lacks its value, click has not assigned the arguments yet.
        location = context.params.get("location") or next(iter(context.args), "")
        try:
            names = list(find(load_table(open_storage(with_branch(location, context.params.get("branch"))))))
        except PaimonStreamError:
            return []
        # The shell gets one name a line, so a line end in a name would begin another one.
        return [CompletionItem(name) for name in names if name.startswith(typed) and name.isprintable()]

    return offer


branches = _of_table(lambda table: branch_names(whole_of(table.storage)))
users = _of_table(lambda table: dict.fromkeys(one.user for one in writers_of(table)))
tags = _of_table(lambda table: sorted(read_tags(table.storage)))
snapshots_and_tags = _of_table(
    lambda table: [*map(str, reversed(SnapshotStore(table.storage).ids())), *sorted(read_tags(table.storage))]
)
