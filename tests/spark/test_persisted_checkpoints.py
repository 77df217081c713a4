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

import paimon_stream
from paimon_stream import CommitReport, PaimonTable
from tests.kits.params import few
from tests.persisted.archive import Killed, all_killed
from tests.persisted.queries import sink_of, start
from tests.persisted.streams import FILES, STREAMS, ordered

HERE = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
POINTS = {"0-judged": "committed", "1-staged": "committed", "1-published": "already committed"}
WRITTEN_BY = sorted({killed.path.parent for killed in all_killed() if killed.spark <= HERE})


@pytest.mark.spark35
@pytest.mark.parametrize("point", few(POINTS, lambda point: point == "1-staged"))
@pytest.mark.parametrize(
    "folder",
    few(WRITTEN_BY, lambda folder: folder == WRITTEN_BY[0]),
    ids=[f"{folder.parent.name}-{folder.name}" for folder in WRITTEN_BY],
)
def test_checkpoints_of_killed_streams_go_on(
    folder: Path, point: str, spark_session: SparkSession, tmp_path: Path
) -> None:
    """All streams of a release at once, for each takes its time to start. Those of the format go on
    by it and, from another copy, by sinks. Of two sinks, the second was killed, so the first had
    published its batch.
    """
    if HERE >= (4, 0):
        paimon_stream.register(spark_session)
    reports: dict[str, dict[str | None, list[CommitReport]]] = {}
    restarted, queries = [], []
    for killed in map(Killed, sorted(folder.glob("*.tar.xz"))):
        stream = STREAMS[killed.stream]
        where = point if stream.sinks == (None,) else f"{point}.{stream.sinks[-1]}"
        for by_format in (True, False) if stream.by_format else (False,):
            name = f"{stream.name}-by-sinks" if stream.by_format and not by_format else stream.name
            (root,) = killed.unpack(tmp_path / name, [where])
            found = {sink: list[CommitReport]() for sink in stream.sinks}
            sinks = [
                sink_of(stream, root, sink, on_commit=found[sink].append) for sink in stream.sinks
            ]
            restarted.append((name, stream, root))
            if not by_format:
                reports[name] = found
            queries.append(start(spark_session, stream, root, *([] if by_format else sinks)))
    for query in queries:
        assert query.awaitTermination(900), "the query hangs"
    rest = ["committed"] * (FILES - 1 - int(point[0]))
    for name, stream, root in restarted:
        for sink in stream.sinks if name in reports else ():
            first = POINTS[point] if sink == stream.sinks[-1] else "already committed"
            assert [report.outcome for report in reports[name][sink]] == [first, *rest], name
        table = PaimonTable.load(stream.location(root))
        for sink in stream.sinks:
            batches = [
                one.commit_identifier for one in table.snapshots() if is_of(one.commit_user, sink)
            ]
            assert batches == list(range(FILES)), name
        assert ordered(table.to_arrow().to_pylist()) == stream.expected(FILES), name


def is_of(user: str, sink: str | None) -> bool:
    """Whether it is the commit user of the sink of a query."""
    _, _, rest = user.partition("paimon-stream_")
    return bool(rest) and rest.partition("_")[2] == (sink or "")
