"""A Flink stream and this package write one table at the same time."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pyarrow as pa
import pytest

from paimon_stream.errors import CommitUnknown, CorruptMetadata, IndexConflict
from tests.kits.beside_flink import LIVE, Shared, repeated, wait_until
from tests.kits.flink import Flink
from tests.kits.params import few

FIRST = 1_000_000
"""Flink writes ids from here on, and we write those below."""

KINDS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "append": ((), {}),
    "buckets": ((), {"bucket": "2", "bucket-key": "id"}),
    "keyed": (("id",), {"bucket": "2"}),
    "input": (("id",), {"bucket": "2", "changelog-producer": "input"}),
}


@pytest.mark.parametrize("name", few(KINDS, lambda name: name == "keyed"))
def test_nothing_is_lost_or_doubled_while_both_write_and_compact(flink: Flink, name: str) -> None:
    keys, options = KINDS[name]
    shared = Shared(flink, f"at_once_{name}", keys, options=options)
    job = shared.fill(f"rows_of_{name}", FIRST, 1500)
    batches = 0
    while job.status() != "FINISHED":
        assert "FAILED" not in job.status(), job.status()
        ids = range(batches * 10, batches * 10 + 10)
        repeated(partial(shared.append, ids, identity=f"batch {batches}"))
        batches += 1
        if batches % 5 == 0:
            repeated(partial(shared.table.compact, full=batches % 10 == 0))
    assert shared.ids() == Counter([*range(batches * 10), *range(FIRST, FIRST + 1500)])
    assert shared.ours() == shared.flinks()
    shared.table.compact(full=True)
    # The two engines have numbered rows of other keys alike. That ends with a compaction.
    assert shared.codes() == set()
    assert shared.ours() == shared.flinks()


@pytest.mark.full
def test_both_add_to_the_same_sums(flink: Flink) -> None:
    options = {
        "bucket": "2",
        "merge-engine": "aggregation",
        "fields.v.aggregate-function": "sum",
    }
    shared = Shared(flink, "sums_at_once", ("id",), options=options)
    flink.define(
        "CREATE TEMPORARY TABLE additions (id BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '150', "
        "'fields.id.kind' = 'sequence', 'fields.id.start' = '0', 'fields.id.end' = '1499')"
    )
    job = flink.start(f"INSERT INTO {shared.name} SELECT MOD(id, 20), 1, 'f' FROM additions")
    batches = 0
    while job.status() != "FINISHED":
        assert "FAILED" not in job.status(), job.status()
        keys = pa.array(range(20), pa.int64())
        ones = pa.array([1] * 20, pa.int32())
        rows = pa.table({"id": keys, "v": ones, "s": ["o"] * 20})
        repeated(partial(shared.table.append, rows, identity=f"batch {batches}"))
        batches += 1
    shared.table.compact(full=True)
    assert sum(shared.table.to_arrow().column("v").to_pylist()) == 1500 + 20 * batches
    assert shared.ours() == shared.flinks()


@pytest.mark.full
def test_of_rows_of_one_key_from_both_the_one_with_the_highest_sequence_field_stays(
    flink: Flink,
) -> None:
    """Flink's values of v are even and grow with its ids. Ours are odd, and grow faster."""
    options = {"bucket": "2", "sequence.field": "v"}
    shared = Shared(flink, "sequenced_at_once", ("id",), options=options)
    flink.define(
        "CREATE TEMPORARY TABLE versions (id BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '150', "
        "'fields.id.kind' = 'sequence', 'fields.id.start' = '0', 'fields.id.end' = '1499')"
    )
    job = flink.start(
        f"INSERT INTO {shared.name} SELECT MOD(id, 20), CAST(2 * id AS INT), 'f' FROM versions"
    )
    highest = {key: 2 * (1480 + key) for key in range(20)}
    batches = 0
    while job.status() != "FINISHED":
        assert "FAILED" not in job.status(), job.status()
        start = batches * 300 % 6001
        keys = range(batches % 2, 20, 2)
        values = [start + 2 * key + 1 for key in keys]
        texts = ["o"] * len(keys)
        shared.table.append(
            pa.table(
                {
                    "id": pa.array(keys, pa.int64()),
                    "v": pa.array(values, pa.int32()),
                    "s": texts,
                }
            )
        )
        highest |= {key: max(highest[key], v) for key, v in zip(keys, values, strict=True)}
        batches += 1
    rows = shared.table.to_arrow().to_pylist()
    assert {row["id"]: row["v"] for row in rows} == highest
    assert {row["s"] for row in rows if row["v"] % 2} <= {"o"}
    assert shared.ours() == shared.flinks()


def is_refused(shared: Shared, batch: int) -> bool:
    """Appends ten rows, unless the hash index lacks keys of ours."""
    while True:
        try:
            shared.append(range(batch * 10, batch * 10 + 10))
        except (CommitUnknown, IndexConflict):
            continue  # Flink has replaced our snapshot, or was faster each time. The keys are the same.
        except CorruptMetadata as refused:
            if "paimon-stream rebuild-index TABLE --yes" not in str(refused):
                raise
            return True
        else:
            return False


def test_beside_a_flink_stream_our_writer_of_dynamic_buckets_stops_and_a_rebuild_mends_the_index(
    flink: Flink,
) -> None:
    """Flink puts its whole index over ours. In turns, both write on."""
    shared = Shared(flink, "dynamic_at_once", ("id",), options={"bucket": "-1"})
    job = shared.fill("rows_of_dynamic", FIRST, 1500)
    batches = 0
    while not is_refused(shared, batches):
        batches += 1
    wait_until(lambda: job.status() == "FINISHED", job)
    assert "row-not-indexed" in shared.codes()
    shared.table.rebuild_index(dry_run=False)
    shared.append(range(batches * 10 + 10), 7)
    flink.sql(f"INSERT INTO {shared.name} VALUES (0, CAST(1 AS INT), 'f')")
    shared.append(range(5), 8)
    shared.table.compact(full=True)
    assert shared.ids() == Counter([*range(batches * 10 + 10), *range(FIRST, FIRST + 1500)])
    assert shared.ours() == shared.flinks()
    assert shared.codes() == set()


@pytest.mark.parametrize("name", few(("append", "keyed"), lambda name: name == "keyed"))
def test_a_flink_job_that_is_killed_goes_on_from_its_checkpoint_while_we_write(
    flink: Flink, name: str
) -> None:
    keys, options = KINDS[name]
    source = Shared(flink, f"source_of_killed_{name}")
    shared = Shared(flink, f"killed_{name}", keys, options=options)
    copy = f"INSERT INTO {shared.name} SELECT * FROM {source.name} /*+ OPTIONS({LIVE}) */"
    job = flink.start(copy)
    batches = 0

    def write(count: int) -> None:
        nonlocal batches
        for _ in range(count):
            source.append(range(FIRST + batches * 20, FIRST + batches * 20 + 20))
            ids = range(batches * 5, batches * 5 + 5)
            repeated(partial(shared.append, ids, identity=f"batch {batches}"))
            batches += 1

    for _ in range(2):
        write(4)
        wait_until(lambda: FIRST + batches * 20 - 1 in shared.ids(), job)
        write(2)
        flink.kill()
        write(2)
        flink.start_jvm()
        job = flink.start(copy, restored_from=flink.newest_checkpoint())
    write(2)
    expected = Counter([*range(batches * 5), *range(FIRST, FIRST + batches * 20)])
    wait_until(lambda: shared.ids() == expected, job)
    job.stop()
    assert shared.ids() == expected
    assert shared.ours() == shared.flinks()
