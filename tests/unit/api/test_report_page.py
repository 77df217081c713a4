"""The report of a table: what its parts say, on a page that needs no network."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_stream import PaimonTable
from paimon_stream.api.plots import Line, Panel, RangeRow, Ranges, TimePlot, gaps_of, lanes
from paimon_stream.api.report_page import PageSection, ReportPage, TableHealth, TablePage
from paimon_stream.api.report_sections import table_page
from paimon_stream.api.streams import StreamState, StreamWatch
from paimon_stream.commit.report import Phase
from paimon_stream.errors import InvalidOption
from paimon_stream.stream.batch_summary import phases_of
from paimon_stream.table.table import Table, load_table
from tests.kits.commits import Bench
from tests.kits.compacted_stream import CompactedStream, Held
from tests.kits.streams import At, PowerCut, Stream
from tests.unit.stream import test_compacting

TITLES = [
    "Findings of verify",
    "Read amplification",
    "Batches",
    "Commits by phase",
    "Attempts and conflicts",
    "Writers",
    "Sizes of files",
    "Files of level 0",
    "Manifests",
]


def part_of(table: Table, *, now_millis: int = 0) -> TablePage:
    return table_page(table, StreamWatch(table.storage).look(now_millis))


def sections_of(table: Table) -> list[PageSection]:
    return list(part_of(table).sections)


def by_title(sections: list[PageSection]) -> dict[str, PageSection]:
    return {section.title: section for section in sections}


def time_plot(section: PageSection) -> TimePlot:
    assert isinstance(section.plot, TimePlot)
    return section.plot


def names(section: PageSection) -> list[str]:
    return [line.name for panel in time_plot(section).panels for line in panel.lines]


def a_part(*sections: PageSection, location: str = "t") -> TablePage:
    return TablePage(TableHealth(stream=StreamState(location=location, state="well")), sections)


def keyed(where: str = "memory://reported/orders", partitions: int = 3) -> PaimonTable:
    columns = [("id", "BIGINT NOT NULL"), ("dt", "STRING NOT NULL")]
    options = {"bucket": "1", "num-sorted-run.compaction-trigger": "2"}
    table = PaimonTable.create(
        where,
        columns,
        partition_keys=["dt"],
        primary_keys=["dt", "id"],
        options=options,
        if_not_exists=True,
    )
    days = [f"2026-{one:04}" for one in range(partitions)]
    for _ in range(2):
        table.append(pa.table({"id": list(range(partitions)), "dt": days}))
    return PaimonTable.load(where)


def test_a_stream_is_shown_by_phase_batch_attempt_and_writer() -> None:
    stream = Stream(Bench())
    reports = [stream.batch(rows=10 + number) for number in range(4)]
    found = by_title(sections_of(stream.bench.table))
    assert list(found) == TITLES
    phases = found["Commits by phase"]
    assert [row[0] for row in phases.rows] == [2, 1, 0]
    assert names(phases) == list(reports[0].phases)
    assert len(time_plot(phases).moments) == 3
    assert [row[2] for row in found["Batches"].rows] == [13, 12, 11, 10]
    attempts = found["Attempts and conflicts"]
    assert (attempts.plot, attempts.rows) == (None, ())
    assert attempts.about == (
        "Each commit needed one attempt, no compaction lost to another writer, and the query was not restarted."
    )
    assert found["Writers"].rows[0][:3] == ("me", "APPEND", 4)
    assert [row[2] for row in found["Manifests"].rows] == [4, 3, 2, 1]
    assert found["Sizes of files"].about.startswith("4 files of 16 bytes in 1 partition. ")


def test_lost_attempts_restarts_and_files_of_a_killed_run_are_shown_at_their_batch() -> None:
    bench = Bench()
    stream, other = Stream(bench), Stream(bench, user="other", query_id="q2", checkpoint="/ck/b")
    stream.batch()
    stream.start(At(Phase.STAGED, other.batch))
    stream.batches(2)
    stream.start(At(Phase.STAGED, Stream.cut))
    with pytest.raises(PowerCut):
        stream.batch()
    stream.start()
    stream.batches(2)
    found = by_title(sections_of(bench.table))["Attempts and conflicts"]
    own = [[row[0], *row[2:]] for row in found.rows if row[2:] != [None, None, 0, 0]]
    assert list(found.header) == ["batch", "time", "attempts", "conflicts", "restarts", "reused"]
    assert own == [[3, 1, 0, 1, 1], [1, 2, 0, 1, 0]]
    assert "Other writers were faster at 1 attempt, and 0 compactions" in found.about
    assert (
        "The query was restarted 2 times, and reused the files of a killed run 1 time."
        in found.about
    )
    assert names(found) == [
        "more than one attempt",
        "restart of the query",
        "files of a killed run reused",
    ]


def test_a_compaction_that_lost_to_another_is_in_the_history_and_on_the_page(
    tmp_path: Path,
) -> None:
    table, pool = test_compacting.keyed(tmp_path), Held()
    stream = CompactedStream(table, pool=pool)
    test_compacting.run(stream, 5)
    pool.go_on()
    table.compact(full=True)
    test_compacting.run(stream, 2)
    assert stream.counts == {"compactionConflicts": 1}
    newest = table.history()[0]
    assert (newest.previous["batch"], newest.previous["conflicts"]) == (5, 1)
    found = by_title(sections_of(table._table))
    rows = found["Attempts and conflicts"].rows
    assert [(row[0], row[3]) for row in rows] == [
        (6, None),
        (5, 1),
        *((one, 0) for one in range(4, -1, -1)),
    ]
    assert "and 1 compaction lost to them." in found["Attempts and conflicts"].about
    assert "conflicts" not in names(found["Commits by phase"])
    seen = StreamWatch(table._table.storage).look(0)
    assert seen.previous["conflicts"] == 1
    assert seen.commit_millis == sum(phases_of(newest.previous).values()) > 0
    test_compacting.run(stream, 1)
    assert "conflicts" not in table.history()[0].previous


def test_a_table_with_keys_shows_levels_and_what_a_compaction_would_gain() -> None:
    found = by_title(sections_of(keyed()._table))
    assert sorted(found["Files of level 0"].rows) == [
        (f"dt=2026-{one:04}", 0, 2) for one in range(3)
    ]
    assert {row[-2:] for row in found["Read amplification"].rows} == {(2, 1)}
    assert (
        "2.0. Run: paimon-stream compact memory://reported/orders. "
        in found["Read amplification"].about
    )
    assert found["Findings of verify"].about.startswith("Nothing is wrong. Looked at: ")


def test_an_empty_table_has_nothing_to_draw() -> None:
    assert not any(section.plot for section in sections_of(Bench().table))


@pytest.mark.parametrize("damaged", ["snapshot/snapshot-2", "manifest"])
def test_a_damaged_table_says_what_is_damaged_and_shows_the_rest(damaged: str) -> None:
    stream = Stream(Bench())
    stream.batches(4)
    storage = stream.bench.storage
    path = (
        damaged
        if "/" in damaged
        else next(one.path for one in storage.list_files("manifest", "manifest-list"))
    )
    storage.delete(path)
    storage.put_if_absent(path, b"{")
    sections = sections_of(load_table(storage))
    name = path.rpartition("/")[2]
    found = by_title(sections)
    assert any(name in str(row) for row in found["Findings of verify"].rows)
    assert any(name in one.about for one in sections if one.title != "Findings of verify")
    assert found["Batches"].rows


def test_a_thousand_partitions_are_drawn_in_part_and_said_so() -> None:
    table = keyed("memory://reported/many", partitions=1000)
    page = table.report()
    sizes = by_title(list(page.tables[table.location].sections))["Sizes of files"]
    assert len(sizes.rows) == 1000
    assert isinstance(sizes.plot, Ranges)
    assert len(sizes.plot.rows) == 40
    assert "The 40 with most files are drawn." in sizes.about
    assert "Numbers, 100 of 1,000" in page.html()


def test_names_are_escaped_and_nothing_is_loaded_from_elsewhere() -> None:
    evil = "</script><script>alert(1)</script>"
    moment = TimePlot(
        moments=[0],
        panels=[
            Panel(title=evil, lines=[Line(evil, [1]), Line(evil, [1])]),
            lanes(evil, [Line(evil, [1])]),
        ],
        titles=[evil],
    )
    ranges = Ranges(rows=[RangeRow(name=evil, values=[1], text=evil)])
    sections = [
        PageSection(title=evil, about=evil, header=(evil,), rows=[(evil,)], plot=plot)
        for plot in (moment, ranges)
    ]
    sick = TableHealth.of(StreamState(location=evil, state="silent", why=evil))
    text = ReportPage(evil, {evil: TablePage(sick, sections)}, [sick]).html()
    assert "<script>alert" not in text
    assert not re.search(r"<(script|link|img|iframe)[^>]*(src|href)=", text)
    assert "default-src 'none'" in text


def test_wrong_arguments_and_files_are_named(tmp_path: Path) -> None:
    table = keyed("memory://reported/wrong")
    with pytest.raises(InvalidOption, match="snapshots"):
        table.report(snapshots=0)
    with pytest.raises(InvalidOption, match="No such file or directory"):
        table.report().save(tmp_path / "missing/r.html")
    assert repr(table.report()) == f"ReportPage({table.location!r}, 1 table)"
    assert table.report()._repr_html_().startswith("<iframe ")


def test_the_headline_says_which_tables_need_an_operator_and_what_to_run() -> None:
    well = TableHealth(stream=StreamState(location="/wh/shop.db/orders", state="well", batch=3))
    sick = TableHealth.of(
        StreamState(location="/wh/shop.db/my users", state="silent", why="No batch.")
    )
    page = ReportPage("/wh", {"a": TablePage(well, ()), "b": TablePage(sick, ())})
    text = page.html()
    assert "<h1>1 of 2 tables needs you</h1>" in text
    assert "▲ silent" in text
    assert "No batch. <code>paimon-stream doctor &#x27;/wh/shop.db/my users&#x27;</code>" in text
    assert text.index("<b>shop.db/my users</b>") < text.index("<b>shop.db/orders</b>")
    assert "<h1>All is well: 1 table, 1 stream</h1>" in ReportPage("/wh", {}, [well]).html()
    assert (
        "<h1>shop.db/orders streams well</h1>"
        in ReportPage("/wh", {"a": TablePage(well, ())}).html()
    )


def test_a_table_with_a_lost_file_needs_an_operator_though_its_stream_is_well() -> None:
    stream = Stream(Bench())
    stream.batches(4)
    storage = stream.bench.storage
    storage.delete(next(iter(storage.list_files("bucket-0", ""))).path)
    health = part_of(load_table(storage), now_millis=stream.bench.clock.now_millis()).health
    (problem,) = health.problems
    assert (health.stream.state, health.state) == ("well", "damaged")
    assert problem.command == f"paimon-stream verify {storage.location}"


def test_no_line_is_drawn_through_the_time_in_which_the_stream_was_down() -> None:
    stream = Stream(Bench())
    for rows in range(10, 14):
        stream.batch(rows=rows)
        stream.bench.clock.sleep(60)
    stream.bench.clock.sleep(7200)
    for rows in range(14, 18):
        stream.batch(rows=rows)
        stream.bench.clock.sleep(60)
    batches = by_title(sections_of(stream.bench.table))["Batches"]
    ((start, end),) = time_plot(batches).gaps
    assert 7_200_000 < end - start < 7_300_000
    assert "Nothing was committed in 1 long pause (grey), 2 h together." in batches.about
    (path,) = set(re.findall(r'<path class="line s0" d="([^"]*)"', batches.html()))
    assert path.count("M") == 2


def test_a_pause_is_longer_than_five_usual_ones_and_than_the_least() -> None:
    assert gaps_of([0, 10, 20, 100], 50) == [(20, 100)]
    assert gaps_of([0, 10, 20, 100], 90) == []
    assert gaps_of([0, 10, 20, 60], 1) == []
    assert gaps_of([5], 1) == gaps_of([], 1) == []


def test_one_slow_commit_does_not_flatten_the_others() -> None:
    values = [9000.0, *[100.0] * 30]
    panel = Panel(title="ms", lines=[Line("write", values)], form="bars", height=100)
    text = TimePlot(moments=range(0, 31_000, 1000), panels=[panel]).html()
    assert text.count('class="cut"') == 1
    assert "<title>9,000</title>" in text
    heights = [float(top) for top in re.findall(r"M[\d.]+ 100.0V([\d.]+)h", text)]
    assert heights[0] == 0
    assert max(heights[1:]) < 20
    even = Panel(title="ms", lines=[Line("write", [200.0, *[100.0] * 30])], form="bars")
    assert "cut" not in TimePlot(moments=range(0, 31_000, 1000), panels=[even]).html()


def test_a_number_that_never_changes_is_a_sentence() -> None:
    stream = Stream(Bench())
    stream.batch(rows=5)
    stream.batch(rows=9)
    batches = by_title(sections_of(stream.bench.table))["Batches"]
    assert [panel.title for panel in time_plot(batches).panels] == ["Rows of a batch"]
    assert batches.about == "2 batches of streams. Size of its files: always 4 B. Files: always 1."


def test_a_page_of_many_batches_is_small() -> None:
    stream = Stream(Bench())
    for rows in range(400):
        stream.batch(rows=1 + rows * 7919 % 500)
        stream.bench.clock.sleep(60)
    part = part_of(stream.bench.table)
    batches = by_title(list(part.sections))["Batches"]
    assert len(time_plot(batches).moments) == 200
    assert "The plot shows 200 of them" in batches.about
    assert len(ReportPage("t", {"t": part}).html()) < 500_000


# -- in a browser -------------------------------------------------------------------------------

BROWSER = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)


def opened(page: Path, *more: str) -> tuple[str, str]:
    """The page as a browser shows it, and what its console says."""
    command = [
        str(BROWSER),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--enable-logging=stderr",
        f"--user-data-dir={page.parent / 'profile'}",
        "--virtual-time-budget=10000",
        *more,
        "--dump-dom",
        page.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=True)
    return done.stdout, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium")
def test_a_browser_shows_the_page_without_an_error_and_a_link_opens_a_table(tmp_path: Path) -> None:
    stream = Stream(Bench())
    stream.batches(5)
    parts = {"a": part_of(stream.bench.table), "b": part_of(keyed()._table)}
    page = tmp_path / "both.html"
    ReportPage("t", parts).save(page)
    shown, console = opened(page)
    assert (shown.count('class="table" open'), console) == (0, "")
    linked = tmp_path / "linked.html"
    linked.write_text(
        page.read_text().replace("unfold();\n</script>", 'location.hash = "table-1";\n</script>')
    )
    shown, console = opened(linked)
    assert (shown.count('class="table" open'), console) == (1, "")


@pytest.mark.skipif(
    BROWSER is None or shutil.which("pdftotext") is None, reason="needs Chromium and poppler-utils"
)
def test_every_plot_and_all_numbers_are_on_paper_in_light_colours(tmp_path: Path) -> None:
    sections = [
        PageSection(
            title=f"Part {number}",
            about="",
            header=("a",),
            rows=[(f"number-{number}",)],
            plot=TimePlot(
                moments=[0, 1000],
                panels=[Panel(title=f"plot-{number}", lines=[Line("a", [1, 2])], form=form)],
            ),
        )
        for number, form in enumerate(["bars", "line", "dots", "bars"])
    ]
    page, paper = tmp_path / "page.html", tmp_path / "page.pdf"
    ReportPage("t", {"a": a_part(*sections[:2]), "b": a_part(*sections[2:])}).save(
        page
    )  # both tables are closed
    opened(page, "--force-dark-mode", f"--print-to-pdf={paper}")
    text = subprocess.run(
        ["pdftotext", str(paper), "-"], capture_output=True, text=True, check=True
    ).stdout
    for number in range(4):
        assert text.count(f"plot-{number}") == text.count(f"number-{number}") == 1, text
    shown = subprocess.run(
        ["pdftoppm", "-r", "20", "-gray", str(paper)], capture_output=True, check=True
    ).stdout
    grey = sorted(shown[15:])
    assert grey[len(grey) // 4] > 200, "most of the paper is white"


def styles(text: str) -> Any:
    return re.findall(r"prefers-color-scheme|@media print", text)


def test_the_page_is_for_light_dark_and_paper() -> None:
    assert set(styles(ReportPage("t", {}).html())) >= {"prefers-color-scheme", "@media print"}
