"""Tables with primary keys in real queries: what a batch replaces, and what Java reads then."""

from __future__ import annotations

import datetime as dt
import logging
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions

from paimon_stream import PaimonTable, errors
from paimon_stream.commit.report import Phase
from paimon_stream.commit.table_cache import MAX_SEQUENCE
from tests.kits.keyed import COLUMNS as CHANGED
from tests.kits.keyed import ENGINES, some_changes
from tests.kits.params import few
from tests.kits.spark_jobs import Job
from tests.spark.test_replay import FailAt
from tests.spark.test_sink import seen_by_user

COLUMNS = (("id", "BIGINT NOT NULL"), ("day", "STRING"))
SUMS = {"merge-engine": "aggregation", "fields.count.aggregate-function": "sum"}
OFF = {"paimon-stream.compact": "off"}
OPERATIONS = {"paimon-stream.operation-column": "op"}


def keyed(job: Job, columns: Any = COLUMNS, **options: str) -> PaimonTable:
    return job.create(columns, primary_keys=["id"], options={"bucket": "2", **options})


def changes(job: Job, *rows: tuple[int | None, str], operations: str = "") -> None:
    """A source file with these rows, `operations` saying what each does, one letter for each."""
    job.schema = "id bigint, day string" + (", op string" if operations else "")
    columns = {"id": [row[0] for row in rows], "day": [row[1] for row in rows]}
    number = len(list((job.root / "source").glob("*")))
    job.write_source(
        number, pa.table({**columns, **({"op": list(operations)} if operations else {})})
    )


def tuples(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in rows), key=repr)


def merged(job: Job, java: Any) -> list[tuple[Any, ...]]:
    """The rows, as Java and we read them."""
    found = tuples(job.load().to_arrow().to_pylist())
    assert tuples(java.read(job.table)) == found
    return found


# -- what stays -----------------------------------------------------------------------------------


@pytest.mark.spark35
def test_the_newest_row_of_a_key_stays_and_deletes_take_it_away(job: Job, java: Any) -> None:
    keyed(job)
    changes(job, (1, "a"), (2, "b"), (1, "c"), (3, "d"), (5, "e"), operations="cccrI")
    changes(job, (2, "e"), (4, "f"), (2, "g"), (3, "d"), (1, "x"), (1, "y"), operations="uuudDc")
    job.run(job.sink(options=OPERATIONS))
    assert merged(job, java) == [(1, "y"), (2, "g"), (4, "f"), (5, "e")]
    files = java.files(job.table)
    assert {file["level"] for file in files} == {0}
    assert sum(file["deleteRowCount"] for file in files) == 1
    properties = job.load().snapshots()[-1].properties
    assert int(properties[MAX_SEQUENCE]) == max(file["maxSequenceNumber"] for file in files) < 100
    query = job.run(job.sink(options=OPERATIONS))
    assert query.lastProgress is None or len(job.identifiers()) == 2


@pytest.mark.full
def test_updates_of_an_aggregation_replace_its_earlier_results(job: Job, java: Any) -> None:
    job.create(
        [("day", "STRING NOT NULL"), ("count", "BIGINT"), ("last", "BIGINT")],
        primary_keys=["day"],
        options={"bucket": "3"},
    )
    job.add_files(3)
    counted = job.stream().groupBy("day")
    frame = counted.agg(functions.count("*").alias("count"), functions.max("id").alias("last"))
    query = job.sink(mode="update").start(
        frame, checkpoint=str(job.checkpoint), trigger={"availableNow": True}
    )
    assert query.awaitTermination(900)
    assert merged(job, java) == [("d0", 9, 16), ("d1", 9, 17)]
    assert job.identifiers() == [0, 1, 2]


@pytest.mark.spark35
@pytest.mark.parametrize(
    "phase",
    few([Phase.WRITTEN, Phase.STAGED, Phase.PUBLISHED], lambda phase: phase is Phase.STAGED),
)
def test_updates_of_an_aggregation_that_was_stopped_go_on_as_if_it_was_not(
    job: Job, java: Any, phase: Phase
) -> None:
    """Spark replays the batch with the state it had before the batch. The table gets each result
    once.
    """
    columns = [("day", "STRING NOT NULL"), ("count", "BIGINT"), ("last", "BIGINT")]
    job.create(columns, primary_keys=["day"], options={"bucket": "2"})
    job.add_files(3)
    results = job.stream().groupBy("day")
    frame = results.agg(functions.count("*").alias("count"), functions.max("id").alias("last"))
    stopped = job.sink(mode="update", observer=FailAt(phase, 1))
    job.run_failing(stopped, frame=frame, output_mode="update")
    job.run(job.sink(mode="update"), frame=frame, output_mode="update")
    job.forget_last_batch()
    job.run(job.sink(mode="update"), frame=frame, output_mode="update")
    assert merged(job, java) == [("d0", 9, 16), ("d1", 9, 17)]
    assert job.identifiers() == [0, 1, 2]


@pytest.mark.full
@pytest.mark.parametrize("phase", [Phase.JOURNALED, Phase.PUBLISHED])
def test_sums_are_added_once_whatever_is_replayed(job: Job, java: Any, phase: Phase) -> None:
    keyed(job, [("id", "BIGINT NOT NULL"), ("count", "BIGINT")], **SUMS)
    job.add_files(3)
    frame = job.stream().selectExpr("id % 2 as id", "1L as count")
    job.run_failing(job.sink(observer=FailAt(phase, 1)), frame=frame)
    job.run(frame=frame)
    assert merged(job, java) == [(0, 9), (1, 9)]
    job.forget_last_batch()
    job.run(frame=frame)
    assert [report.outcome for report in job.reports[-2:]] == ["committed", "already committed"]
    assert merged(job, java) == [(0, 9), (1, 9)]


@pytest.mark.full
def test_in_complete_mode_the_result_replaces_the_table(job: Job, java: Any) -> None:
    job.create(
        [("day", "STRING NOT NULL"), ("count", "BIGINT")],
        primary_keys=["day"],
        options={"bucket": "1"},
    )
    job.add_files(2)
    frame = job.stream().groupBy("day").count()
    job.run(job.sink(mode="complete"), frame=frame, output_mode="complete")
    assert merged(job, java) == [("d0", 6), ("d1", 6)]
    text = job.run_failing(frame=frame, output_mode="complete", checkpoint=job.root / "other")
    seen_by_user(text, errors.UnsupportedFeature, "the sink upserts", "mode='complete'")


@pytest.mark.full
@pytest.mark.parametrize("engine", ["by two", "sums in groups"])
def test_a_stream_of_random_changes_is_what_a_dict_makes_of_it(
    job: Job, java: Any, engine: str
) -> None:
    """Composite keys in partitions, keys that change several times in a batch, values that come
    late.
    """
    chosen, random, keys = ENGINES[engine], Random(engine), ["p", "g", "k"]
    more = {"p": ["a", "b", "ü/="], "g": range(3)}
    columns = [("p", "STRING NOT NULL"), ("g", "INT NOT NULL"), *CHANGED]
    options = {"bucket": "2", "bucket-key": "g", **chosen.options}
    job.create(columns, primary_keys=keys, partition_keys=["p"], options=options)
    job.schema = "op string, p string, g int, v string, k int, n bigint, s int"
    model = chosen.model(keys=keys)
    letters = {"+I": "c", "+U": "u", "-U": "-U", "-D": "d"}
    for number in range(4):
        batch = some_changes(random, chosen, model, 60, keys=4, more=more)
        model.take(batch)
        rows = [{"op": letters[kind], **row} for kind, row in batch]
        schema = [
            (name, pa.string() if name in ("op", "p", "v") else pa.int32()) for name in rows[0]
        ]
        fields = pa.schema([(name, pa.int64() if name == "n" else type_) for name, type_ in schema])
        job.write_source(number, pa.Table.from_pylist(rows, fields))
    job.run(job.sink(options=OPERATIONS))
    names = [name for name, _ in columns]
    wanted = [{name: row[name] for name in names} for row in model.found()]
    assert sorted(map(repr, merged(job, java))) == sorted(
        repr(tuple(row.values())) for row in wanted
    )


KEYS: dict[str, tuple[str, list[Any]]] = {
    "BOOLEAN": ("boolean", [True, False]),
    "SMALLINT": ("smallint", [-1, 0, 7]),
    "FLOAT": ("float", [-1.5, 0.0, float("inf")]),
    "DOUBLE": ("double", [-1.5, 0.0, float("inf")]),
    "DECIMAL(9, 2)": ("decimal(9, 2)", [Decimal("-1.50"), Decimal("0.25"), Decimal("7.00")]),
    "DECIMAL(30, 2)": ("decimal(30, 2)", [Decimal("-1.50"), Decimal("0.25"), Decimal("7.00")]),
    "CHAR(3)": ("string", ["a", "b", "abc"]),
    "STRING": ("string", ["", "\uffff", "😀", "a"]),
    "BYTES": ("binary", [b"", b"\x7f", b"\x80"]),
    "DATE": ("date", [dt.date(1969, 1, 1), dt.date(2024, 2, 29)]),
    "TIME(3)": ("int", [0, 86_399_999, 5]),
    "TIMESTAMP(3)": (
        "timestamp_ntz",
        [dt.datetime(1969, 1, 1), dt.datetime(2024, 2, 29, 1, 2, 3, 4000)],
    ),
    "TIMESTAMP(6)": (
        "timestamp_ntz",
        [dt.datetime(1969, 1, 1), dt.datetime(2024, 2, 29, 1, 2, 3, 4)],
    ),
    "TIMESTAMP(9)": (
        "timestamp_ntz",
        [dt.datetime(1969, 1, 1), dt.datetime(2024, 2, 29, 1, 2, 3, 4)],
    ),
    "TIMESTAMP_LTZ(6)": (
        "timestamp",
        [dt.datetime(1999, 1, 1), dt.datetime(2024, 2, 29, 1, 2, 3, 4)],
    ),
}


@pytest.mark.spark35
@pytest.mark.parametrize("bucket_key", ["k", pytest.param("n", marks=pytest.mark.full)])
def test_rows_of_every_type_of_key_come_to_their_bucket_in_order(
    job: Job, java: Any, bucket_key: str
) -> None:
    """One table whose key has a column of each type, so that each takes part in bucket and
    order.
    """
    names = [f"k{number}" for number in range(len(KEYS))]
    columns = [(name, f"{type_} NOT NULL") for name, type_ in zip(names, KEYS, strict=True)]
    columns += [("n", "INT NOT NULL"), ("p", "STRING NOT NULL"), ("v", "INT")]
    exact = [
        name for name, type_ in zip(names, KEYS, strict=True) if type_ not in ("FLOAT", "DOUBLE")
    ]
    keys = [*(names if bucket_key == "k" else exact), "n", "p"]
    buckets = ",".join(names) if bucket_key == "k" else "n"
    table = job.create(
        columns,
        primary_keys=keys,
        partition_keys=["p"],
        options={"bucket": "3", "bucket-key": buckets},
    )
    rows = []
    for value in range(120):
        key = [values[value % len(values)] for _, values in KEYS.values()]
        rows.append((*key, value % 7, "pq"[value % 2], value))
    types = ", ".join(f"{name} {sql}" for name, (sql, _) in zip(names, KEYS.values(), strict=True))
    frame = job.spark.createDataFrame(rows, f"{types}, n int, p string, v int").coalesce(1)
    table.append(frame)
    job.sink(commit_user="me")(frame.limit(30), 0)  # rows of streams go another way
    newest: dict[Any, int] = {}
    for *key, value in [*rows, *rows[:30]]:
        newest[repr(key if bucket_key == "k" else [*key[: len(names)], *key[-2:]])] = value
    found = sorted(table.to_arrow(columns=["v"]).column("v").to_pylist())
    assert found == sorted(newest.values())
    assert sorted(row["v"] for row in java.read(job.table)) == found
    assert len(table.files()) <= 2 * 2 * 3  # a bucket of a batch is one file


@pytest.mark.spark35
@pytest.mark.parametrize(
    ("shuffle", "files"), [("auto", 2), pytest.param("none", 10, marks=pytest.mark.full)]
)
def test_of_the_rows_of_a_key_in_many_tasks_the_last_one_stays(
    job: Job, java: Any, shuffle: str, files: int
) -> None:
    keyed(job)
    frame = job.spark.range(0, 4000, 1, 5).selectExpr(
        "id * 7 % 40 as id", "cast(id as string) as day"
    )
    options = {"paimon-stream.shuffle": shuffle, "paimon-stream.small-batch": "off"}
    sink = job.sink(commit_user="me", options=options)
    sink(frame, 0)
    last = sorted(((last * 7 % 40, str(last)) for last in range(3960, 4000)), key=repr)
    assert merged(job, java) == last
    assert job.reports[0].files == files
    sink(
        job.spark.createDataFrame(
            [(1, "newer"), (1, "newest")], "id bigint, day string"
        ).repartition(1),
        1,
    )
    assert merged(job, java) == sorted(
        [one for one in last if one[0] != 1] + [(1, "newest")], key=repr
    )


def test_large_batches_of_few_tasks_are_written_where_they_are_and_the_last_row_of_a_key_stays(
    job: Job, java: Any
) -> None:
    keyed(job, bucket="1")
    job.schema, rows = "id bigint, day string", 1_500
    for number in range(3):
        for part in range(
            2
        ):  # each is a partition of the batch; the keys of the second come again in the next batch
            first = 2 * number + part
            ids = np.arange((number + part) * rows, (number + part + 1) * rows)
            chance = np.random.default_rng(first)
            days = [f"{first} {chance.bytes(1000).hex()}" for _ in ids]
            job.write_source(first, pa.table({"id": chance.permutation(ids), "day": days}))
    sink = job.sink(options={"paimon-stream.small-batch": "off", **OFF})
    stream = job.spark.readStream.schema(job.schema).option("maxFilesPerTrigger", 2)
    job.run(sink, frame=stream.parquet(str(job.root / "source")))
    assert [one.files for one in job.reports] == [1, 2, 2]
    newest: dict[int, str] = {}
    for path in sorted((job.root / "source").glob("*.parquet")):
        found = pq.read_table(path)
        newest |= dict(zip(found["id"].to_pylist(), found["day"].to_pylist(), strict=True))
    assert merged(job, java) == sorted(newest.items(), key=repr)


@pytest.mark.full
def test_columns_that_come_new_join_the_table_and_the_operation_column_does_not(
    job: Job, java: Any
) -> None:
    keyed(job)
    changes(job, (1, "a"), (2, "b"), operations="cc")
    options = {**OPERATIONS, "paimon-stream.merge-schema": "add"}
    job.run(job.sink(options=options))
    frame = job.spark.createDataFrame(
        [(1, "c", "U", 7), (2, "d", "D", 8)], "id bigint, day string, op string, n int"
    )
    job.sink(options=options, commit_user="me")(frame, 0)
    assert job.load().schema.field_names == ("id", "day", "n")
    assert merged(job, java) == [(1, "c", 7)]


# -- what is refused ------------------------------------------------------------------------------


def test_null_in_a_key_and_unknown_operations_are_named_and_counted(job: Job) -> None:
    keyed(job)
    changes(job, (1, "a"), (None, "b"), (None, "c"))
    text = job.run_failing()
    seen_by_user(text, errors.NullInNotNull, "'id'", "2 ", "primary key")
    assert job.load().latest_snapshot() is None
    assert not job.data_files()
    (job.root / "source" / "0000.parquet").unlink()
    changes(job, (1, "a"), (2, "b"), operations="cx")
    text = job.run_failing(job.sink(options=OPERATIONS), checkpoint=job.root / "other")
    seen_by_user(text, errors.BadRowKind, "'op'", "'x'", "in 1 row")
    mapping = {**OPERATIONS, "paimon-stream.operation-mapping": "c=+I, x=-D"}
    job.run(job.sink(options=mapping), checkpoint=job.root / "third")
    assert tuples(job.load().to_arrow().to_pylist()) == [(1, "a")]


def test_an_operation_column_must_make_sense(job: Job) -> None:
    keyed(job)
    changes(job, (1, "a"), operations="c")
    for options, kind, message in (
        ({"paimon-stream.operation-column": "day"}, errors.InvalidOption, "rowkind.field"),
        ({"paimon-stream.operation-column": "nope"}, errors.IncompatibleSchema, "no such column"),
        ({"paimon-stream.operation-mapping": "c=+I"}, errors.InvalidOption, "nothing to map"),
        (
            {},
            errors.IncompatibleSchema,
            "'op'.*or paimon-stream.operation-column if the column says",
        ),
    ):
        with pytest.raises(kind, match=message):
            job.sink(options=options).start(job.stream(), checkpoint=str(job.checkpoint))


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"deletion-vectors.enabled": "true", **OFF}, errors.UnsupportedFeature, "invisible"),
        pytest.param(
            {"merge-engine": "first-row", **OFF},
            errors.UnsupportedFeature,
            "invisible",
            marks=pytest.mark.full,
        ),
        pytest.param(
            {"changelog-producer": "lookup", **OFF},
            errors.UnsupportedFeature,
            "changelog",
            marks=pytest.mark.full,
        ),
        pytest.param(
            {"changelog-producer": "full-compaction", **OFF},
            errors.UnsupportedFeature,
            "Set paimon-stream.compact to auto",
            marks=pytest.mark.full,
        ),
        pytest.param(
            {"merge-engine": "aggregation", "fields.day.aggregate-function": "hll_sketch"},
            errors.UnsupportedFeature,
            "hll_sketch",
            marks=pytest.mark.full,
        ),
    ],
    ids=lambda given: next(iter(given.values())) if isinstance(given, dict) else "",
)
def test_tables_that_this_release_cannot_write_are_refused_before_any_write(
    job: Job, options: dict[str, str], kind: type[Exception], message: str
) -> None:
    keyed(job, **{key: value for key, value in options.items() if key not in OFF})
    of_sink = {key: value for key, value in options.items() if key in OFF}
    changes(job, (1, "a"))
    before = {str(path) for path in job.table.rglob("*")}
    with pytest.raises(kind, match=message):
        job.sink(options=of_sink).start(job.stream(), checkpoint=str(job.checkpoint))
    seen_by_user(job.run_failing(job.sink(options=of_sink)), kind, message)  # type: ignore[arg-type]
    assert {str(path) for path in job.table.rglob("*")} == before


@pytest.mark.parametrize(
    ("option", "value", "message", "kept"),
    few(
        [
            ("deletion-vectors.enabled", "true", "invisible", "b"),
            ("merge-engine", "first-row", "invisible", "a"),
            ("changelog-producer", "lookup", "changelog", "b"),
            ("changelog-producer", "full-compaction", "changelog", "b"),
        ],
        lambda option, value, message, kept: value == "lookup",
    ),
)
def test_what_only_a_compaction_shows_is_written_where_there_is_one_and_said_once(
    job: Job,
    java: Any,
    caplog: pytest.LogCaptureFixture,
    option: str,
    value: str,
    message: str,
    kept: str,
) -> None:
    keyed(job, **{option: value, "write-only": "true"})
    changes(job, (1, "a"))
    changes(job, (1, "b"))
    with caplog.at_level(logging.WARNING, "paimon_stream"):
        job.run()
    said = [one.getMessage() for one in caplog.records if message in one.getMessage()]
    assert len(said) == 1 and f"{option} = {value}" in said[0] and "write-only" in said[0]
    if message == "changelog":
        assert java.read_changes(job.table, 1) == []
        assert merged(job, java) == [(1, kept)]
    else:
        assert java.read(job.table) == []
    java.compact(job.table, full=True)
    assert tuples(java.read(job.table)) == [(1, kept)]
    if message == "changelog":
        assert java.read_changes(job.table, 1) == [("+I", {"id": 1, "day": kept})]


def test_a_changelog_has_every_change_of_the_stream_and_java_streams_it(
    job: Job, java: Any
) -> None:
    columns = [*COLUMNS, ("kind", "STRING")]
    keyed(job, columns, **{"rowkind.field": "kind", "changelog-producer": "input"})
    job.schema = "id bigint, day string, kind string"
    batches = [
        [(1, "a", "+I"), (2, "b", "+I"), (1, "a", "-U"), (1, "c", "+U")],
        [(2, "b", "-D"), (3, "d", "+I"), (3, "d", "-D"), (1, "c", "-U"), (1, "e", "+U")],
    ]
    for number, rows in enumerate(batches):
        ids, days, kinds = zip(*rows, strict=True)
        job.write_source(number, pa.table({"id": ids, "day": days, "kind": kinds}))
    job.run()
    assert merged(job, java) == [(1, "e", "+U")]
    assert [one["changelogRecordCount"] for one in java.snapshots(job.table)] == [4, 5]
    for first in (1, 2):
        found = [(*row.values(),) for _, row in java.read_changes(job.table, first)]
        wanted = [row for rows in batches[first - 1 :] for row in rows]
        assert sorted(found) == sorted(wanted)
        for key in (1, 2, 3):  # what happened to one key comes in order
            assert [row for row in found if row[0] == key] == [
                row for row in wanted if row[0] == key
            ]


@pytest.mark.full
def test_java_makes_one_changelog_of_what_both_write(job: Job, java: Any) -> None:
    keyed(job, bucket="1", **{"changelog-producer": "lookup", "write-only": "true"})
    changes(job, (1, "a"), (2, "b"), operations="cc")
    changes(job, (1, "c"), (2, "b"), operations="ud")
    job.run(job.sink(options=OPERATIONS))
    java.write(job.table, [{"id": 3, "day": "java"}], commit_identifier=1)
    java.compact(job.table, full=True)
    wanted = [("+I", {"id": 1, "day": "c"}), ("+I", {"id": 3, "day": "java"})]
    assert sorted(java.read_changes(job.table, 1), key=repr) == wanted


# -- other writers --------------------------------------------------------------------------------


def test_a_batch_is_numbered_and_written_again_where_java_was_faster(job: Job, java: Any) -> None:
    keyed(job, bucket="1")
    changes(job, (1, "ours"), (2, "ours"))
    changes(job, (1, "newer"))
    asked: list[int] = []

    def java_writes(messages: Any) -> None:
        asked.append(messages[0].new_files[0].min_sequence_number)
        if len(asked) == 1:
            java.write(
                job.table, [{"id": 1, "day": "java"}, {"id": 3, "day": "java"}], commit_identifier=1
            )

    job.run(job.sink(before_commit=java_writes))
    assert asked == [0, 2, 4]
    assert merged(job, java) == [(1, "newer"), (2, "ours"), (3, "java")]
    assert len(list(job.table.rglob("data-*"))) == len(job.load().files()) == 3
    assert [one.commit_user == "java-oracle" for one in job.load().snapshots()] == [
        True,
        False,
        False,
    ]


@pytest.mark.full
def test_a_collision_stops_the_stream_or_is_left_to_chance_as_options_say(
    job: Job, java: Any
) -> None:
    keyed(job, bucket="1")
    changes(job, (1, "ours"))

    def java_writes(_: Any) -> None:
        java.write(job.table, [{"id": 1, "day": "java"}], commit_identifier=1)

    fail = {"paimon-stream.on-sequence-conflict": "fail"}
    text = job.run_failing(job.sink(before_commit=java_writes, options=fail))
    seen_by_user(text, errors.SequenceConflict, "'java-oracle'", "bucket 0")
    assert len(job.data_files()) == 1  # ours were removed
    job.run(job.sink(options=fail))
    assert merged(job, java) == [(1, "ours")]
    ignore = {"paimon-stream.on-sequence-conflict": "ignore"}
    changes(job, (1, "late"), (2, "late"))
    written: list[Any] = []

    def java_writes_again(messages: Any) -> None:
        written.extend(messages)
        java.write(job.table, [{"id": 1, "day": "faster"}], commit_identifier=2)

    job.run(job.sink(before_commit=java_writes_again, options=ignore))
    assert len(written) == 1
    assert merged(job, java) == [
        (1, "faster"),
        (2, "late"),
    ]  # of equal numbers the older file has the row


@pytest.mark.full
def test_where_sequence_fields_decide_another_writer_changes_nothing(job: Job, java: Any) -> None:
    keyed(job, bucket="1", **{"sequence.field": "day"})
    changes(job, (1, "b"), (2, "b"))
    asked: list[int] = []

    def java_writes(_: Any) -> None:
        asked.append(1)
        java.write(job.table, [{"id": 1, "day": "c"}, {"id": 2, "day": "a"}], commit_identifier=1)

    job.run(job.sink(before_commit=java_writes))
    assert asked == [1]
    assert merged(job, java) == [(1, "c"), (2, "b")]


@pytest.mark.full
def test_what_a_killed_run_prepared_is_used_only_where_nobody_was_faster(
    job: Job, java: Any
) -> None:
    keyed(job, bucket="1")
    changes(job, (1, "a"))
    job.run_failing(job.sink(observer=FailAt(Phase.STAGED, 0)))
    prepared = job.data_files()
    job.run()
    assert job.data_files() == prepared
    changes(job, (1, "b"))
    job.run_failing(job.sink(observer=FailAt(Phase.STAGED, 1)))
    prepared = job.data_files() - prepared
    java.write(job.table, [{"id": 1, "day": "java"}], commit_identifier=1)
    job.run()
    assert merged(job, java) == [(1, "b")]
    assert not prepared & job.data_files()


@pytest.mark.spark35
def test_appends_of_a_dataframe_and_of_arrow_rows_upsert(job: Job, java: Any) -> None:
    table = keyed(job)
    table.append(pa.table({"id": [1, 2, 1], "day": ["a", "b", "c"]}))
    table.append(job.spark.range(2, 4).selectExpr("id", "'spark' as day"))
    assert merged(job, java) == [(1, "c"), (2, "spark"), (3, "spark")]
    some = job.spark.createDataFrame(
        [("gone", 2, None), ("kept", 4, "new")], "OP string, id int, day string"
    )
    table.append(some, operation_column="op", operation_mapping="gone=-D,kept=+U")
    assert merged(job, java) == [(1, "c"), (3, "spark"), (4, "new")]
    with pytest.raises(errors.BadRowKind, match="'gone'"):
        table.append(some, operation_column="op")
    table.overwrite(job.spark.range(7, 8).selectExpr("id", "'new' as day"))
    assert merged(job, java) == [(7, "new")]
    with pytest.raises(errors.NullInNotNull):
        table.append(pa.table({"id": pa.array([None], pa.int64()), "day": ["a"]}))
