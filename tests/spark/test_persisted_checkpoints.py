"""Checkpoints and tables of killed streams of a release, moved and restarted by Spark.

The points of a batch differ in what is beside the table, which
`tests/persisted/test_killed_streams.py` goes through one by one. Here are three of them for each
stream, with checkpoints of this Spark and of older ones.
"""

from __future__ import annotations

from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from paimon_stream import CommitReport, PaimonSink, PaimonTable
from tests.persisted.archive import Killed, all_killed
from tests.persisted.queries import start
from tests.persisted.streams import FILES, STREAMS, ordered

pytestmark = pytest.mark.spark35

HERE = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
POINTS = {"0-judged": "committed", "1-staged": "committed", "1-published": "already committed"}


WRITTEN_BY = sorted({killed.path.parent for killed in all_killed() if killed.spark <= HERE})


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize(
    "folder", WRITTEN_BY, ids=lambda folder: f"{folder.parent.name}-{folder.name}"
)
def test_checkpoints_of_killed_streams_go_on(
    folder: Path, point: str, spark_session: SparkSession, tmp_path: Path
) -> None:
    """All streams of a release at once, for each takes its time to start."""
    reports: dict[str, list[CommitReport]] = {}
    queries = []
    for killed in map(Killed, sorted(folder.iterdir())):
        stream = STREAMS[killed.stream]
        killed.unpack(tmp_path / stream.name)
        root = tmp_path / stream.name / point
        reports[stream.name] = []
        sink = PaimonSink(
            str(root / "table"), mode=stream.mode, on_commit=reports[stream.name].append
        )
        queries.append(start(spark_session, stream, root, sink))
    for query in queries:
        assert query.awaitTermination(120), "the query hangs"
    assert reports.keys() == STREAMS.keys()
    for name, found in reports.items():
        outcomes = [report.outcome for report in found]
        assert outcomes == [POINTS[point], *["committed"] * (FILES - 1 - int(point[0]))], name
        table = PaimonTable.load(str(tmp_path / name / point / "table"))
        assert [snapshot.commit_identifier for snapshot in table.snapshots()] == list(range(FILES))
        assert ordered(table.to_arrow().to_pylist()) == STREAMS[name].expected(FILES), name
