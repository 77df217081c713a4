"""The report of a table: what its parts say, on a page that needs no network."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_stream import PaimonTable
from paimon_stream.api.report_page import PageSection, ReportPage, sections_of
from paimon_stream.api.streams import StreamWatch
from paimon_stream.commit.report import Phase
from paimon_stream.errors import InvalidOption, MissingExtra
from paimon_stream.stream.batch_summary import phases_of
from paimon_stream.table.table import load_table
from tests.kits.commits import Bench
from tests.kits.compacted_stream import CompactedStream, Held
from tests.kits.streams import At, PowerCut, Stream
from tests.unit.stream import test_compacting

TITLES = [
    "Commits by phase",
    "Batches",
    "Attempts and conflicts",
    "Writers",
    "Manifests",
    "Sizes of files",
    "Files of level 0",
    "Read amplification",
    "Findings of verify",
]


def by_title(sections: list[PageSection]) -> dict[str, PageSection]:
    return {one.title: one for one in sections}


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
    assert [one["name"] for one in phases.traces] == list(reports[0].phases)
    assert all(len(one["x"]) == len(one["y"]) == 3 for one in phases.traces)
    assert [row[2] for row in found["Batches"].rows] == [13, 12, 11, 10]
    attempts = found["Attempts and conflicts"]
    assert "Other writers were faster at 0 attempts, and 0 compactions lost" in attempts.about
    assert [row[2:] for row in attempts.rows] == [[None, None, 0, 0], *[[1, 0, 0, 0]] * 3]
    assert [one["name"] for one in attempts.traces] == ["attempts"]
    assert found["Writers"].rows[0][:3] == ("me", "APPEND", 4)
    assert [row[2] for row in found["Manifests"].rows] == [4, 3, 2, 1]
    assert found["Sizes of files"].about == "4 files of 16 bytes in 1 partition."


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
        "The query was restarted 2 times, and reused the files of a killed run 1 times."
        in found.about
    )
    assert [one["name"] for one in found.traces] == ["attempts", "restarts", "reused"]


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
    assert "conflicts" not in [one["name"] for one in found["Commits by phase"].traces]
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
    assert "2.0. Run: paimon-stream compact" in found["Read amplification"].about
    assert found["Findings of verify"].about.startswith("Nothing is wrong. Looked at: ")


def test_an_empty_table_has_nothing_to_draw() -> None:
    assert not any(one.traces for one in sections_of(Bench().table))


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
    assert found["Batches"].traces


def test_a_thousand_partitions_are_drawn_in_part_and_said_so() -> None:
    pytest.importorskip("plotly")
    table = keyed("memory://reported/many", partitions=1000)
    page = table.report()
    sizes = by_title(list(page.tables[table.location]))["Sizes of files"]
    assert len(sizes.rows) == 1000
    assert len(sizes.traces[0]["x"]) == 40
    assert "The 40 with most files are drawn." in sizes.about
    assert "Numbers, 100 of 1,000" in page.html()


def test_names_are_escaped_and_nothing_is_loaded_from_elsewhere() -> None:
    pytest.importorskip("plotly")
    evil = "</script><script>alert(1)</script>"
    section = PageSection(
        title=evil,
        about=evil,
        header=(evil,),
        rows=[(evil,)],
        traces=[{"type": "bar", "x": [evil], "y": [1]}],
    )
    text = ReportPage(evil, {evil: [section]}, section).html()
    assert "<script>alert" not in text
    assert json.loads(re.findall(r'<script type="application/json">(.*?)</script>', text)[0])[
        "data"
    ][0]["x"] == [evil]
    assert not re.search(r"<(script|link|img|iframe)[^>]*(src|href)=", text)
    assert "default-src 'none'" in text


def test_wrong_arguments_and_files_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("plotly")
    table = keyed("memory://reported/wrong")
    with pytest.raises(InvalidOption, match="snapshots"):
        table.report(snapshots=0)
    with pytest.raises(InvalidOption, match="No such file or directory"):
        table.report().save(tmp_path / "missing/r.html")
    assert repr(table.report()) == f"ReportPage({table.location!r}, 1 table)"
    assert table.report()._repr_html_().startswith("<iframe ")
    monkeypatch.setitem(__import__("sys").modules, "plotly", None)
    with pytest.raises(MissingExtra, match="extra 'report'"):
        table.report()


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
@pytest.mark.parametrize("dark", [False, True])
def test_a_browser_draws_every_plot_without_an_error(tmp_path: Path, dark: bool) -> None:
    pytest.importorskip("plotly")
    stream = Stream(Bench())
    stream.batches(5)
    page = ReportPage("t", {"a": sections_of(stream.bench.table), "b": sections_of(keyed()._table)})
    one = ReportPage("t", {"a": page.tables["a"]})
    closed, both = tmp_path / "both.html", tmp_path / "one.html"
    page.save(closed)
    one.save(both)
    shown, console = opened(both, *(["--force-dark-mode"] if dark else []))
    assert console == ""
    plots = [section for section in one.tables["a"] if section.traces]
    assert len(plots) == 7
    assert shown.count('data-drawn="yes"') == len(plots)
    assert len(re.findall(r'<svg class="main-svg"', shown)) >= len(plots)
    shown, console = opened(closed)
    assert (shown.count('data-drawn="yes"'), console) == (0, "")  # drawn when a table is opened


@pytest.mark.skipif(
    BROWSER is None or shutil.which("pdftotext") is None, reason="needs Chromium and poppler-utils"
)
def test_every_plot_and_all_numbers_are_on_paper_in_light_colours(tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    sections = [
        PageSection(
            title=f"Part {number}",
            about="",
            header=("a",),
            rows=[(f"number-{number}",)],
            traces=[{"type": kind, "x": ["a", "b"], "y": [1, 2]}],
            layout={"xaxis": {"title": {"text": f"plot-{number}"}}},
        )
        for number, kind in enumerate(["bar", "scatter", "box", "bar"])
    ]
    page, paper = tmp_path / "page.html", tmp_path / "page.pdf"
    ReportPage("t", {"a": sections[:2], "b": sections[2:]}).save(page)  # both tables are closed
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
    pytest.importorskip("plotly")
    assert set(styles(ReportPage("t", {}).html())) >= {"prefers-color-scheme", "@media print"}
