"""The command `report`, which writes a page about a table, or about the tables of a warehouse."""

from collections.abc import Sequence
from typing import Final

import click

from paimon_stream.api.report_page import PageSection, ReportPage, sections_of
from paimon_stream.api.streams import StreamState
from paimon_stream.cli.command import COUNT, FOUND_IN, Session, option, table_command
from paimon_stream.cli.output import CommandAnswer
from paimon_stream.cli.text import in_commands
from paimon_stream.cli.watch import COLUMNS, Watched, sick_first
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
    """Writes a page with plots and numbers of a table, or of the tables of a warehouse: commits by
    phase, batches, attempts and conflicts, writers, manifests, sizes of files, files of level 0,
    read amplification, what verify finds, and what a compaction would gain. The page needs no
    network. If some data cannot be read, the page names it and shows the rest.
    """
    params = click.get_current_context().params
    place = params["warehouse"]
    watched = Watched(session, [place])
    states = sick_first(watched.look(0))
    tables = {
        state.location: _sections(watched, state.location, snapshots=snapshots, sample=sample)
        for state in states[:most_tables]
    }
    overview = _overview(states, len(states) - most_tables) if len(states) > 1 else None
    ReportPage(place or params["found_in"] or "Report", tables, overview).save(output)
    document = {"output": output, "tables": [state.location for state in states]}
    return CommandAnswer(document=document, parts=[f"{output} is written."])


def _sections(
    watched: Watched, location: str, *, snapshots: int, sample: int
) -> Sequence[PageSection]:
    """The sections about a table, or one section that says why the table cannot be read."""
    try:
        table = watched.session(location).raw
        return sections_of(table, snapshots=snapshots, sample=sample)
    except PaimonStreamError as error:
        return [PageSection(title="Not readable", about=in_commands(error.message))]


def _overview(states: Sequence[StreamState], without_plots: int) -> PageSection:
    """A section with a row for each table. The last `without_plots` tables have no plots."""
    about = "Tables with problems come first."
    if without_plots > 0:
        about += f" The plots of {without_plots:,} others are left out."
    return PageSection(
        title="Streams",
        about=about,
        header=[column.name for column in COLUMNS],
        rows=[[column.cell(state) for column in COLUMNS] for state in states],
    )
