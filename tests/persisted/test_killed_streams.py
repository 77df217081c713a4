"""Streams of each release that were killed at each point of a batch continue with the present code.

Each row is in the table once, and each batch is one snapshot. These tests need no Spark;
`tests/spark/test_persisted_checkpoints.py` restarts the same checkpoints with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from paimon_stream import PaimonTable
from tests.persisted.archive import Killed, all_killed
from tests.persisted.copies import BATCHES
from tests.persisted.restart import Restart
from tests.persisted.streams import EARLIER, FILES, STREAMS, Stream, ordered

BEFORE_JOURNAL = {"batch-started", "judged", "written"}
PREPARED = {"journaled", "base-read", "checked", "staged"}
"""Of these, some releases write the journal before the base is read, others after it."""

PUBLIC = {"linked", "published", "confirmed", "hinted", "finished"}
ALL = [f"{batch}-{point}" for batch in BATCHES for point in (*BEFORE_JOURNAL, *PREPARED, *PUBLIC)]
SOME = ("0-judged", "1-journaled", "1-staged", "1-linked", "1-finished")
LATER = {"soon": timedelta(minutes=1), "a month later": timedelta(days=30)}


def points_of(stream: Stream, points: Collection[str]) -> set[str]:
    """The names of the folders, which name the sink if there are several."""
    return {
        point + ("" if sink is None else f".{sink}") for point in points for sink in stream.sinks
    }


def goes_on(root: Path, stream: Stream, later: timedelta) -> None:
    """Restarts the stream that was killed at the point that the folder names, and looks at all that
    it does.
    """
    point, _, killed = root.name.partition(".")
    batch, _, where = point.partition("-")
    restart = Restart(root, stream, later)
    prepared = restart.data_files()
    journalled = {
        sink
        for sink, user in restart.users.items()
        if any(root.rglob(f"_paimon_stream/{user}/{batch}"))
    }
    first, *rest = restart.to_the_end()
    for place, (sink, report) in enumerate(zip(stream.sinks, first, strict=True)):
        assert report.identifier == int(batch)
        at = place - stream.sinks.index(killed or None)
        public = at < 0 or (at == 0 and where in PUBLIC)
        assert report.outcome == ("already committed" if public else "committed"), (where, sink)
        is_prepared = at == 0 and where in PREPARED and sink in journalled
        reusable = is_prepared and later < timedelta(hours=12)
        assert report.reused is reusable, (where, sink)
    assert len(rest) == FILES - 1 - int(batch)
    assert {report.outcome for reports in rest for report in reports} <= {"committed"}

    for sink in stream.sinks:
        assert [one.commit_identifier for one in restart.snapshots(sink)] == list(range(FILES))
    assert ordered(restart.table().to_arrow().to_pylist()) == stream.expected(FILES), root.name
    written_again = where in PREPARED and not any(report.reused for report in first)
    assert prepared <= restart.data_files() or written_again, where
    # What no journal names is left to orphans. By the format, rows are written before a batch is
    # judged.
    blind = BEFORE_JOURNAL if stream.by_format else {"written"}
    unnamed = where in blind or (where in PREPARED and (killed or None) not in journalled)
    if stream.mode == "append" and not unnamed:
        assert restart.data_files() == {Path(file.path).name for file in restart.table().files()}, (
            where
        )
    if stream.branch is not None:
        main = PaimonTable.load(str(root / "table"))
        assert ordered(main.to_arrow().to_pylist()) == ordered(EARLIER)


def cases() -> Iterator[Any]:
    """The archives, each with its points. `make test` takes those of the newest Spark: of 0.1.0 all
    points, of the others some.
    """
    newest = max(killed.spark for killed in all_killed())
    for killed in all_killed():
        stream, is_newest = STREAMS[killed.stream], killed.spark == newest
        whole = is_newest and killed.release == "0.1.0"
        marks = () if whole else pytest.mark.full
        yield pytest.param(killed, points_of(stream, ALL), id=killed.name, marks=marks)
        if is_newest and not whole:
            yield pytest.param(killed, points_of(stream, SOME), id=f"{killed.name}-some")


@pytest.mark.parametrize("later", LATER.values(), ids=LATER)
@pytest.mark.parametrize(("killed", "points"), list(cases()))
def test_a_stream_that_a_release_was_killed_in_goes_on(
    killed: Killed, points: set[str], later: timedelta, tmp_path: Path
) -> None:
    kills = killed.unpack(tmp_path, points)
    assert {root.name for root in kills} == points
    for root in kills:
        goes_on(root, STREAMS[killed.stream], later)


@pytest.mark.parametrize("killed", all_killed(), ids=lambda killed: killed.name)
def test_each_archive_has_all_points(killed: Killed) -> None:
    assert killed.points() == points_of(STREAMS[killed.stream], ALL)
