"""Streams that read tables by `format("paimon_stream")`: each batch's rows, beside Java, and when
one must fail.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError

pytest.importorskip("pyspark.sql.datasource", reason="needs Spark 4")

import pyspark
from pyspark.errors import StreamingQueryException
from pyspark.serializers import CPickleSerializer
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from paimon_stream import PaimonTable, SchemaChange, catalog, register
from paimon_stream.errors import (
    IncompatibleSchema,
    InvalidOption,
    NotFound,
    TableRolledBack,
    UnsupportedFeature,
)
from paimon_stream.maintenance.needed import ChangelogStore
from paimon_stream.runtime import system
from paimon_stream.spark.datasource_read import schema_of
from paimon_stream.spark.datasource_stream import StreamReader
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.consumers import consumers
from tests.kits.params import few
from tests.kits.spark_jobs import TIMEOUT_SECONDS, Job

WITH_LIMITS = not pyspark.__version__.startswith(("4.0", "4.1"))
IDS = StructType().add("id", "long")
KEPT = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "2"}


class Stream:
    """What Spark does with a reader: asks for offsets, plans, and reads in tasks."""

    def __init__(
        self, table: PaimonTable | Path, columns: StructType | None = None, **options: str
    ) -> None:
        path = table.location if isinstance(table, PaimonTable) else str(table)
        given = {"path": path, **{name.replace("_", "-"): one for name, one in options.items()}}
        self.reader = StreamReader(given, columns or schema_of(given))
        self.in_task = CPickleSerializer().loads(CPickleSerializer().dumps(self.reader))
        self.at = self.reader.initialOffset()

    def between(self, start: Any, end: Any) -> list[dict[str, Any]]:
        splits = self.reader.partitions(start, end)
        batches = [batch for split in splits for batch in self.in_task.read(split)]
        return [row for batch in batches for row in batch.to_pylist()]

    def next(self) -> list[dict[str, Any]]:
        start, self.at = self.at, self.reader.latestOffset()
        return self.between(start, self.at)

    def ids(self) -> list[int]:
        return sorted(row["id"] for row in self.next())


def made(tmp_path: Path, **arguments: Any) -> PaimonTable:
    columns = [("id", "BIGINT"), ("day", "STRING")]
    return PaimonTable.create(
        str(tmp_path / "db.db" / "t"), columns, partition_keys=["day"], **arguments
    )


def change_schema(table: PaimonTable, *changes: SchemaChange) -> None:
    folder = Path(table.location)
    catalog({"warehouse": str(folder.parent.parent)}).alter_table(
        f"{folder.parent.stem}.{folder.name}", changes
    )


def add(table: PaimonTable, *ids: int) -> None:
    table.append(pa.table({"id": list(ids), "day": [f"d{one % 2}" for one in ids]}))


# -- beside Java ----------------------------------------------------------------------------------

COLUMNS = [("id", "INT NOT NULL"), ("p", "INT NOT NULL"), ("v", "STRING")]
APPEND = {"bucket": "1", "bucket-key": "id", "write-only": "true"}
CASES = {
    "append": ((), APPEND),
    "unaware": ((), {"write-only": "true"}),
    "input": (("id", "p"), {"bucket": "1", "write-only": "true", "changelog-producer": "input"}),
    "lookup": (("id", "p"), {"bucket": "2", "write-only": "true", "changelog-producer": "lookup"}),
    "full": (
        ("id", "p"),
        {"bucket": "1", "write-only": "true", "changelog-producer": "full-compaction"},
    ),
    "first": (
        ("id", "p"),
        {
            "bucket": "1",
            "write-only": "true",
            "changelog-producer": "lookup",
            "merge-engine": "first-row",
        },
    ),
    "vectors": (
        ("id", "p"),
        {
            "bucket": "1",
            "write-only": "true",
            "changelog-producer": "lookup",
            "deletion-vectors.enabled": "true",
        },
    ),
}


def grown(java: Any, path: Path, case: str, overwrites: bool = True) -> Iterator[int]:
    """A table of Java's that grows step by step: writes with deletes, compactions, and an
    overwrite.
    """
    keys, options = CASES[case]
    java.create_table(path, COLUMNS, partition_keys=["p"], primary_keys=keys, options=options)
    for number in range(1, 7):
        rows = [{"id": one, "p": one % 2, "v": f"v{number}"} for one in range(number, number + 5)]
        kinds = ["-D", *["+I"] * 4] if keys and number > 2 and case != "first" else None
        java.write(path, rows, "w", number, kinds=kinds)
        yield number
        if number % 2 == 0:
            java.compact(path, commit_user="w", commit_identifier=100 + number)
            yield number
        if number == 4 and overwrites and case != "first":
            java.write(path, rows[:2], "o", 1, overwrite={"p": "1"} if keys else {})
            yield number


@pytest.mark.parametrize("case", few(CASES, lambda case: case in ("append", "lookup")))
def test_a_stream_of_changes_has_the_rows_and_kinds_of_java(
    case: str, tmp_path: Path, java: Any
) -> None:
    for _ in grown(java, tmp_path / "t", case):
        pass
    options = {"scan.mode": "from-snapshot", "scan.snapshot-id": "1"}
    found = Stream(tmp_path / "t", **options, **{"read.changelog": "true"}).next()
    theirs = java.read_changes(tmp_path / "t", 1)
    assert found and Counter(str((kind, sorted(row.items()))) for kind, row in theirs) == Counter(
        str((row.pop("rowkind"), sorted(row.items()))) for row in [dict(one) for one in found]
    )
    plain = Stream(tmp_path / "t", **options).next()
    given = [{key: one[key] for key in plain[0]} for one in found if one["rowkind"] in ("+I", "+U")]
    assert Counter(map(str, plain)) == Counter(map(str, given))


@pytest.mark.parametrize(
    ("case", "begin"),
    few(
        product(["input", "lookup", "full", "vectors", "first"], [0, 1, 2, 3, 6]),
        lambda case, begin: (case, begin) == ("lookup", 2),
    ),
)
def test_the_rows_of_the_start_and_the_changes_after_it_are_the_table(
    case: str, begin: int, tmp_path: Path, java: Any
) -> None:
    stream, state = None, dict[tuple[int, int], str]()

    def take(rows: list[dict[str, Any]]) -> None:
        for row in rows:  # the changes of a key are in one split, in their order
            key = (row["id"], row["p"])
            if row["rowkind"] in ("-D", "-U"):
                state.pop(key, None)
            else:
                state[key] = row["v"]

    for step, _ in enumerate(grown(java, tmp_path / "t", case, overwrites=False)):
        if step >= begin:
            stream = stream or Stream(tmp_path / "t", **{"read.changelog": "true"})
            take(stream.next())
    assert stream is not None
    java.compact(tmp_path / "t", commit_user="w", commit_identifier=999)
    take(stream.next())
    rows = PaimonTable.load(str(tmp_path / "t")).to_arrow().to_pylist()
    assert state == {(row["id"], row["p"]): row["v"] for row in rows}


# -- where it starts, and what it passes over ------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "first"),
    [
        ({}, [1, 2, 3, 4]),
        ({"scan.mode": "latest"}, []),
        ({"scan.mode": "from-snapshot", "scan.snapshot-id": "2"}, [3, 4]),
        ({"snapshot-id": "2"}, [3, 4]),
        ({"scan.mode": "from-snapshot-full", "scan.snapshot-id": "1"}, [1, 2, 3, 4]),
        ({"scan.mode": "from-timestamp", "scan.timestamp-millis": "{second}"}, [3, 4]),
        ({"scan.mode": "from-timestamp", "scan.timestamp-millis": "1"}, [1, 2, 3, 4]),
        ({"partition": "day=d1"}, [1, 3]),
    ],
    ids=str,
)
def test_a_stream_starts_where_its_mode_says(
    mode: dict[str, str], first: list[int], tmp_path: Path
) -> None:
    table = made(tmp_path)
    add(table, 1, 2)
    while table.snapshots()[0].time_millis == system().clock.now_millis():
        pass  # two snapshots of one millisecond cannot be told by their time
    add(table, 3, 4)
    table.compact(full=True)
    options = {
        key: one.format(second=table.snapshots()[1].time_millis) for key, one in mode.items()
    }
    stream = Stream(table, **options)
    start = stream.at
    assert stream.ids() == first
    end = stream.at
    add(table, 5, 7)
    assert stream.ids() == [5, 7]
    assert stream.ids() == []
    again = Stream(table, **options)  # as after a crash in the first batch
    assert sorted(row["id"] for row in again.between(start, end)) == first


@pytest.mark.parametrize(
    "mode", few(["latest-full", "latest", "from-snapshot"], lambda mode: mode == "latest-full")
)
def test_a_stream_waits_for_the_first_snapshot(mode: str, tmp_path: Path) -> None:
    table = made(tmp_path)
    stream = Stream(
        table, **{"scan.mode": mode}, **({"snapshot-id": "2"} if mode == "from-snapshot" else {})
    )
    assert stream.ids() == []
    add(table, 1)
    assert stream.ids() == ([] if mode == "from-snapshot" else [1])
    add(table, 2)
    assert stream.ids() == [2]


def test_what_an_overwrite_adds_is_given_if_asked_for(tmp_path: Path) -> None:
    table = made(tmp_path)
    add(table, 1)
    streams = [Stream(table), Stream(table, streaming_read_overwrite="true")]
    assert [one.ids() for one in streams] == [[1], [1]]
    table.overwrite(pa.table({"id": [2], "day": ["d0"]}))
    add(table, 3)
    assert [one.ids() for one in streams] == [[3], [2, 3]]


def test_a_stream_keeps_its_columns_when_those_of_the_table_change(tmp_path: Path) -> None:
    table = made(tmp_path)
    add(table, 1)
    stream = Stream(table)
    assert stream.next() == [{"id": 1, "day": "d1"}]
    change_schema(
        table, SchemaChange.add_column("more", "STRING"), SchemaChange.rename_column("id", "number")
    )
    table = PaimonTable.load(table.location)
    table.append(pa.table({"number": [2], "day": ["d0"], "more": ["x"]}))
    assert stream.next() == [{"id": 2, "day": "d0"}]
    assert Stream(table, StructType().add("more", "string").add("number", "long")).next() == [
        {"more": None, "number": 1},
        {"more": "x", "number": 2},
    ]


def test_a_stream_has_no_older_columns_because_the_schema_names_a_snapshot(tmp_path: Path) -> None:
    table = PaimonTable.create(str(tmp_path / "db.db" / "t"), [("id", "BIGINT")])
    table.append(pa.table({"id": [1]}))
    change_schema(
        table,
        SchemaChange.add_column("name", "STRING"),
        SchemaChange.set_option("scan.snapshot-id", "1"),
    )
    table.append(pa.table({"id": [2], "name": ["b"]}))
    options = {"path": table.location}
    with pytest.raises(InvalidOption, match=r"without its columns name, .* scan\.snapshot-id"):
        StreamReader(options, schema_of(options))
    for start in (
        {"scan.mode": "latest-full"},
        {"scan.mode": "from-snapshot", "scan.snapshot-id": "2"},
        {"scan.snapshot-id": "2"},
    ):
        schema = schema_of(options | start)
        assert schema.names == ["id", "name"]
        StreamReader(options | start, schema)


def test_a_stream_ends_when_values_may_not_fit_its_columns_any_more(tmp_path: Path) -> None:
    table = PaimonTable.create(str(tmp_path / "db.db" / "t"), [("id", "INT"), ("day", "STRING")])
    table.append(pa.table({"id": pa.array([1], pa.int32()), "day": ["d1"]}))
    stream = Stream(table)
    assert stream.ids() == [1]
    start = stream.at
    change_schema(table, SchemaChange.update_column_type("id", "BIGINT"))
    PaimonTable.load(table.location).append(pa.table({"id": [2**40], "day": ["d1"]}))
    with pytest.raises(IncompatibleSchema, match=r"'id' is BIGINT in files.* restart a query"):
        stream.next()
    again = Stream(table)
    assert again.between(start, again.reader.latestOffset(start)) == [{"id": 2**40, "day": "d1"}]


# -- what it may lose -----------------------------------------------------------------------------


def test_a_snapshot_that_expired_unread_ends_the_stream(tmp_path: Path) -> None:
    table = made(tmp_path)
    add(table, 1)
    stream = Stream(table)
    assert stream.ids() == [1]
    for one in range(2, 6):
        add(table, one)
    table.expire_snapshots(retain_max=2, retain_min=2, older_than="0 s")
    with pytest.raises(
        NotFound,
        match=r"lost snapshots 2 to 3, which .* oldest one is 4\. .*consumer-id.*scan\.mode",
    ):
        stream.next()
    with pytest.raises(NotFound, match="lost snapshots 1 to 3"):
        Stream(table, **{"scan.mode": "from-snapshot", "scan.snapshot-id": "1"}).next()
    assert Stream(table, **{"scan.mode": "from-snapshot", "scan.snapshot-id": "4"}).ids() == [4, 5]


def test_a_time_before_the_oldest_snapshot_begins_with_it_as_in_java(
    tmp_path: Path, java: Any
) -> None:
    table = made(tmp_path)
    for one in range(1, 6):
        add(table, one)
    since = {"scan.mode": "from-timestamp", "scan.timestamp-millis": "1"}
    assert Stream(table, **since).ids() == ids_since(java, table, **since) == [1, 2, 3, 4, 5]
    table.expire_snapshots(retain_max=2, retain_min=2, older_than="0 s")
    stream = Stream(table, **since)
    start = stream.at
    assert stream.ids() == ids_since(java, table, **since) == [4, 5]
    end = stream.at
    add(table, 6)
    assert stream.ids() == [6]
    table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s")
    if "first" in end:  # from Spark 4.2 on; else the batch would begin with what is left
        with pytest.raises(NotFound, match="lost snapshots 4 to 5"):
            Stream(table, **since).between(start, end)
    with pytest.raises(NotFound, match="no snapshot of 1970"):
        table.to_arrow(timestamp=1)
    with pytest.raises(Py4JJavaError, match="no snapshot earlier than or equal"):
        java.read(table.location, options=since)


def ids_since(java: Any, table: PaimonTable, **options: str) -> list[int]:
    """What a new stream of Java reads, up to the newest snapshot."""
    planned = java.table(table.location).copy(options)
    newest = table.snapshots()[-1].id
    scan = planned.newStreamScan()
    rows = []
    while (scan.checkpoint() or 0) <= newest:
        rows += java._read_splits(planned, scan.plan().splits(), False)
    return sorted(row["id"] for row in rows)


def test_a_consumer_keeps_what_its_stream_has_not_read(tmp_path: Path, java: Any) -> None:
    table = made(tmp_path)
    add(table, 1)
    stream = Stream(table, consumer_id="me")
    assert stream.ids() == [1]
    stream.reader.commit(stream.at)
    assert consumers(LocalStorage(table.location)) == java.consumers(table.location) == {"me": 2}
    for one in range(2, 6):
        add(table, one)
    table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s")
    anew = Stream(table, consumer_id="me")
    assert stream.ids() == anew.ids() == [2, 3, 4, 5]
    java.set_consumer(table.location, "me", 7)
    waiting = Stream(table, consumer_id="me")
    assert waiting.ids() == []
    add(table, 6)
    add(table, 7)
    assert waiting.ids() == [7]


@pytest.mark.parametrize("keyed", few([False, True], bool))
def test_changelogs_that_outlive_their_snapshots_are_read(
    keyed: bool, tmp_path: Path, java: Any
) -> None:
    options = {"bucket": "1", "write-only": "true", **KEPT, "changelog.num-retained.max": "9"}
    options |= {"changelog-producer": "input"} if keyed else {"bucket-key": "id"}
    path, keys = tmp_path / "t", ["id"] if keyed else []
    java.create_table(path, [("id", "INT NOT NULL")], primary_keys=keys, options=options)
    java.write(path, [{"id": 0}], "w", 1)
    stream = Stream(path)
    assert stream.ids() == [0]
    for number in range(1, 6):
        java.write(path, [{"id": number}], "w", number + 1)
    java.expire_by_options(
        path, **{"snapshot.time-retained": "1 ms", "changelog.time-retained": "1 d"}
    )
    table = PaimonTable.load(str(path))
    assert table.snapshots()[0].id > 2
    assert stream.ids() == [1, 2, 3, 4, 5]
    since = {"scan.mode": "from-timestamp", "scan.timestamp-millis": "1"}
    oldest = min(ChangelogStore(LocalStorage(table.location)).ids())
    left = [number for number in range(6) if number + 1 >= oldest]
    assert Stream(path, **since).ids() == ids_since(java, table, **since) == left


def test_a_first_batch_is_run_again_when_only_changelogs_of_it_are_left(
    tmp_path: Path, java: Any
) -> None:
    path = tmp_path / "t"
    options = {"bucket": "1", "bucket-key": "id", "write-only": "true", **KEPT}
    options["changelog.num-retained.max"] = "5"
    java.create_table(path, [("id", "INT NOT NULL")], options=options)
    for number in range(3):
        java.write(path, [{"id": number}], "w", number + 1)
    since = {"scan.mode": "from-timestamp", "scan.timestamp-millis": "1"}
    stream = Stream(path, **since)
    start = stream.at
    assert stream.ids() == [0, 1, 2]
    # Spark below 4.2 does not keep where the batch began.
    end = {name: value for name, value in stream.at.items() if name != "first"}
    for number in range(3, 6):
        java.write(path, [{"id": number}], "w", number + 1)
    java.expire_by_options(
        path, **{"snapshot.time-retained": "1 ms", "changelog.time-retained": "1 d"}
    )
    table = PaimonTable.load(str(path))
    assert table.snapshots()[0].id > end["snapshot"]
    oldest = min(ChangelogStore(LocalStorage(table.location)).ids())
    assert 1 < oldest <= end["snapshot"]
    left = [number for number in range(3) if number + 1 >= oldest]
    again = Stream(path, **since).between(start, end)
    assert sorted(row["id"] for row in again) == left


def test_a_table_that_was_rolled_back_ends_the_stream(tmp_path: Path) -> None:
    table = made(tmp_path)
    for one in (1, 2, 3):
        add(table, one)
    stream, late = Stream(table), Stream(table)
    assert stream.ids() == [1, 2, 3]
    late.at = {**stream.at}
    table.rollback_to(2)
    with pytest.raises(TableRolledBack, match=r"snapshot 3 is not the one.*new checkpoint"):
        stream.next()
    add(table, 4)
    add(table, 5)
    with pytest.raises(TableRolledBack, match="snapshot 3 is not the one"):
        late.next()


@pytest.mark.parametrize("noted", few([True, False], bool))
def test_a_rollback_ends_the_stream_also_when_what_it_had_read_has_expired(
    noted: bool, tmp_path: Path
) -> None:
    table = made(tmp_path)
    for one in range(1, 6):
        add(table, one)
    stream = Stream(table, consumer_id="me")
    assert stream.ids() == [1, 2, 3, 4, 5]
    stream.reader.commit(stream.at)
    table.rollback_to(3)
    if noted:
        add(table, 4)  # snapshot 5 has as many rows as before
    else:  # as after a rollback of another engine
        for note in Path(table.location, "_paimon_stream").glob("r*.json"):
            note.unlink()
        add(table, 4, 5)
    for one in (6, 7, 8):
        add(table, one)
    table.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s")
    assert table.snapshots()[0].id == 6  # the consumer keeps what it has not read
    with pytest.raises(TableRolledBack, match="snapshot 5 is not the one"):
        stream.next()


@pytest.mark.skipif(not WITH_LIMITS, reason="before 4.2 Spark does not say where a batch begins")
def test_a_first_batch_that_is_run_again_begins_where_it_began(tmp_path: Path) -> None:
    table = made(tmp_path)
    for one in (1, 2, 3):
        add(table, one)
    killed = Stream(table, consumer_id="me")
    start, end = killed.at, json.loads(json.dumps(killed.reader.latestOffset(killed.at)))
    other = Stream(table, consumer_id="me")
    assert other.ids() == [1, 2, 3]
    other.reader.commit(other.at)
    again = Stream(table, consumer_id="me", **{"scan.mode": "latest"})
    assert sorted(row["id"] for row in again.between(start, end)) == [1, 2, 3]
    assert again.reader.latestOffset(end) == end
    add(table, 4)
    assert [row["id"] for row in again.between(end, again.reader.latestOffset(end))] == [4]


PLAIN = {"changelog-producer": "none", "bucket": "1"}


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        (
            {"scan.mode": "from-snapshot"},
            InvalidOption,
            r"scan.mode = from-snapshot needs a snapshot id \(scan.snapshot-id\), but the options name no",
        ),
        (
            {"scan.mode": "latest", "snapshot-id": "1"},
            InvalidOption,
            r"latest needs no snapshot, tag or time, but .* a snapshot id",
        ),
        (
            {"tag": "first", "scan.mode": "latest"},
            InvalidOption,
            r"the options name a tag \(scan.tag-name\)\.",
        ),
        ({"where": "id = 1"}, InvalidOption, "as a stream with the option where, which is for"),
        ({"scan.mode": "compacted-full"}, InvalidOption, "'scan.mode' is 'compacted-full'"),
        (
            {"scan.mode": "from-snapshot", "snapshot-id": "one"},
            InvalidOption,
            "snapshot_id is 'one'",
        ),
        ({"consumer-id": "../../x"}, InvalidOption, "consumer-id = .* names no file"),
        (
            {"read.stream.max-snapshots-per-trigger": "0"},
            InvalidOption,
            "max-snapshots-per-trigger",
        ),
    ],
)
def test_wrong_options_are_refused(
    options: dict[str, str], error: Any, text: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=text):
        Stream(made(tmp_path), IDS, **options)


def test_a_stream_has_the_columns_that_came_after_a_snapshot_in_the_schema(tmp_path: Path) -> None:
    table = made(tmp_path, options={"scan.snapshot-id": "1"})
    add(table, 1)
    assert Stream(table).ids() == [1]
    change_schema(table, SchemaChange.add_column("note", "STRING"))
    with pytest.raises(InvalidOption, match=r"without its columns note, .* has scan\.snapshot-id"):
        Stream(table)
    rows = Stream(table, **{"scan.mode": "latest-full"}).next()
    assert rows == [{"id": 1, "day": "d1", "note": None}]
    by_name = {"path": table.location, "columns": "id"}
    StreamReader(by_name, schema_of(by_name))


def test_a_keyed_table_without_a_changelog_is_refused_with_the_cure(tmp_path: Path) -> None:
    columns = [("id", "BIGINT NOT NULL"), ("day", "STRING")]
    table = PaimonTable.create(
        str(tmp_path / "t"), columns, primary_keys=["id"], options={"bucket": "1"}
    )
    with pytest.raises(UnsupportedFeature, match=r"no changelog.* Set changelog-producer to input"):
        Stream(table)


# -- in Spark -------------------------------------------------------------------------------------


def reading(job: Job, table: PaimonTable, **options: str) -> DataFrame:
    register(job.spark)
    return job.spark.readStream.format("paimon_stream").options(**options).load(table.location)


@pytest.mark.parametrize(
    ("door", "rounds"),
    [
        ("format", 1),
        pytest.param("format", 3, marks=pytest.mark.full),
        pytest.param("sink", 3, marks=pytest.mark.full),
    ],
)
def test_rows_go_from_table_to_table_once(door: str, rounds: int, job: Job, java: Any) -> None:
    source = made(job.root / "source")
    job.create(options={"write-only": "true"})

    def run() -> None:
        rows = reading(job, source, **{"consumer-id": "copy"})
        if door == "sink":
            job.run(frame=rows)
            return
        writer = rows.writeStream.format("paimon_stream").option(
            "checkpointLocation", str(job.checkpoint)
        )
        query = writer.trigger(availableNow=True).start(str(job.table))
        assert query.awaitTermination(TIMEOUT_SECONDS), "the query hangs"

    firsts = range(0, 10 * rounds, 10)
    for first in firsts:
        add(source, *range(first, first + 10))
        run()
        job.forget_last_batch()
        files = job.data_files()
        add(source, first + 1000)
        run()  # again, and then the new row
        assert files <= job.data_files()
    run()  # Spark below 4.2 ends a run after the batch that it has run again
    assert sorted(row["id"] for row in java.read(job.table)) == sorted(
        [*range(10 * rounds), *(first + 1000 for first in firsts)]
    )
    assert job.identifiers() == list(range(2 * rounds if WITH_LIMITS else rounds + 1))
    assert rounds < consumers(LocalStorage(source.location))["copy"] <= 2 * rounds + 1
    assert job.load().verify().healthy


@pytest.mark.full
def test_a_restart_reads_on_from_the_checkpoint_over_expiry(job: Job) -> None:
    source = made(job.root / "source")
    job.create()
    add(source, 1)
    job.run(frame=reading(job, source, **{"scan.mode": "latest"}))
    for one in (2, 3, 4):
        add(source, one)
    job.run(frame=reading(job, source, **{"scan.mode": "latest"}))
    assert job.ids() == [2, 3, 4]
    for one in (5, 6, 7):
        add(source, one)
    source.expire_snapshots(retain_max=1, retain_min=1, older_than="0 s")
    with pytest.raises(StreamingQueryException, match=r"NotFound: .* lost snapshots 5 to 6"):
        job.run(frame=reading(job, source))
    assert job.ids() == [2, 3, 4]


@pytest.mark.skipif(not WITH_LIMITS, reason="Spark offers limits from 4.2 on")
def test_a_limit_of_snapshots_makes_batches(job: Job) -> None:
    source = made(job.root / "source")
    job.create()
    for one in range(3):
        add(source, one)
    options = {
        "scan.mode": "from-snapshot",
        "snapshot-id": "1",
        "read.stream.max-snapshots-per-trigger": "2",
    }
    job.run(frame=reading(job, source, **options))
    assert [one.rows for one in job.reports] == [2, 1]
    job.run(frame=reading(job, source, **options), function=None)
    assert job.ids() == [0, 1, 2]


@pytest.mark.skipif(WITH_LIMITS, reason="Spark offers limits from 4.2 on")
def test_a_limit_is_refused_where_spark_has_none(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match=r"needs Spark 4\.2"):
        Stream(made(tmp_path), IDS, **{"read.stream.max-snapshots-per-trigger": "2"})


def test_what_goes_to_tasks_does_not_grow(tmp_path: Path) -> None:
    table, sizes = made(tmp_path), set()
    stream = Stream(table)
    for number in range(4):
        add(table, number)
        assert stream.ids() == [number]
        sizes.add(len(CPickleSerializer().dumps(stream.reader)))
    assert len(sizes) == 1
