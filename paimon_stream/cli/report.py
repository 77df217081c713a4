"""The command `report`, which writes a page about a table, or about the tables of a warehouse."""

from typing import Final

import click

from paimon_stream.api.report_page import PageSection, ReportPage, TableHealth, TablePage
from paimon_stream.api.report_sections import table_page
from paimon_stream.api.streams import StreamState
from paimon_stream.cli.command import COUNT, FOUND_IN, Session, option, table_command
from paimon_stream.cli.output import CommandAnswer
from paimon_stream.cli.text import in_commands
from paimon_stream.cli.watch import Watched, sick_first
from paimon_stream.errors import PaimonStreamError

_FULL: Final = (
    "Show the plots of at most this number of tables. In a warehouse, tables with problems come "
    "first."
)


@table_command(
    example="report -o orders.html /data/shop.db/orders",
    of_warehouse=True,
    params=(
        click.Option(
            ["-o", "--output"], required=True, metavar="FILE", help="Write the page to this file."
        ),
        option("--tables", _FULL, "most_tables", type=COUNT, default=20),
        option(
            "--snapshots", "Look at this number of the newest snapshots.", type=COUNT, default=500
        ),
        option(
            "--sample",
            "Read this number of data files in full.",
            type=click.IntRange(min=0),
            default=0,
        ),
        FOUND_IN,
    ),
)
def report(
    session: Session, output: str, most_tables: int, snapshots: int, sample: int
) -> CommandAnswer:
    """Writes a page about a table, or about the tables of a warehouse. Its headline says whether
    all is well. Each table has a line, those with problems first, each with the reason and a
    command. Then come plots and numbers of each table: what verify finds, what a compaction would
    gain, batches, commits by phase, attempts and conflicts, writers, sizes of files, files of level
    0, and manifests. The page needs no network. If some data cannot be read, the page names it and
    shows the rest.
    """
    params = click.get_current_context().params
    place = params["warehouse"]
    watched = Watched(session, [place])
    states = sick_first(watched.look(0))
    tables = {
        state.location: _part(watched, state, snapshots=snapshots, sample=sample)
        for state in states[:most_tables]
    }
    others = [TableHealth.of(state) for state in states[most_tables:]]
    ReportPage(place or params["found_in"] or "Report", tables, others).save(output)
    document = {"output": output, "tables": [state.location for state in states]}
    return CommandAnswer(document=document, parts=[f"{output} is written."])


def _part(
    watched: Watched,
    state: StreamState,
    *,
    snapshots: int,
    sample: int,
) -> TablePage:
    """The part about a table, or a part that says why the table cannot be read."""
    try:
        table = watched.session(state.location).raw
    except PaimonStreamError as error:
        section = PageSection(title="Not readable", about=in_commands(error.message))
        return TablePage(TableHealth.of(state), [section])
    return table_page(table, state, snapshots=snapshots, sample=sample)
