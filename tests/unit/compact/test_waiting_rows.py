"""Compactions of postponed tables: rows that wait get their buckets once, whatever others do
meanwhile and wherever it fails.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_stream import PaimonTable
from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.compact import rewrite
from paimon_stream.errors import CommitUnknown, FormatError, NotFound, UnsupportedFeature
from paimon_stream.maintenance.expire import expire_snapshots
from paimon_stream.options import Options
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.table import load_table
from paimon_stream.write.key_task import write_keyed_task
from paimon_stream.write.task import WriteSpec
from tests.kits import waiting as kit
from tests.kits.compaction import Acting, changelog, data_files, failed_runs, live, problems, run
from tests.kits.faults import Fault, FaultyStorage, Killed, Moment
from tests.kits.params import few
from tests.kits.reading import batch_of
from tests.kits.seeds import examples

TWO = {"postpone.default-bucket-num": "2"}


def made(tmp_path: Path, **options: str) -> PaimonTable:
    """Rows of two partitions wait, in three files each: the newest row of a key is `late`, one is
    deleted.
    """
    table = kit.postponed(tmp_path / "db.db" / "t", **{**TWO, **options})
    for number, v in enumerate(("early", "middle", "late")):
        kit.write(
            table.location, [(dt, id_, v) for dt in "ab" for id_ in range(6)], identifier=number
        )
    kit.write(table.location, [("a", 5, "gone")], ["-D"], identifier=3)
    return table


SEEN = sorted((dt, id_, "late") for dt in "ab" for id_ in range(6) if (dt, id_) != ("a", 5))


def nothing_left(table: PaimonTable) -> bool:
    named = {one.meta.file_name for s in table.snapshots() for one in table.files(s.id)}
    return data_files(table) == named


# -- what it does
# -------------------------------------------------------------------------------------


def test_rows_get_their_buckets_in_one_snapshot(tmp_path: Path) -> None:
    table = made(tmp_path)
    plan = table.compact(dry_run=True)
    assert (plan.files_before, plan.rows_before, plan.snapshot_id) == (7, 37, None)
    report = table.compact()
    newest = table.latest_snapshot()
    assert newest is not None and report.snapshot_id == newest.id == 5
    assert (newest.commit_kind.value, newest.total_record_count, newest.delta_record_count) == (
        "COMPACT",
        12,
        -25,
    )
    assert kit.found(table.location) == SEEN
    assert {
        (one.bucket, one.total_buckets, one.file.level) for one in kit.files(table.location)
    } == {
        (0, 2, 0),
        (1, 2, 0),
    }
    assert [(one.partition["dt"], one.bucket, one.files) for one in report.buckets] == [
        ("a", -2, 4),
        ("b", -2, 3),
    ]
    assert table.compact().snapshot_id is None
    assert not problems(table)


def test_only_the_wanted_partitions_are_taken_and_numbers_go_on(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.compact(partitions=[{"dt": "b"}], options={"postpone.default-bucket-num": "3"})
    assert {one.bucket for one in kit.waiting(table.location)} == {-2}
    assert kit.found(table.location) == [row for row in SEEN if row[0] == "b"]
    highest = max(one.file.max_sequence_number for one in kit.files(table.location))
    kit.write(table.location, [("b", 1, "newer")], identifier=9)
    table.compact()
    files = [one for one in kit.files(table.location) if one.total_buckets == 3]
    assert len(kit.files(table.location)) > len(files), (
        "the other partition has the number of the table"
    )
    assert max(one.file.min_sequence_number for one in files) == highest + 1
    assert ("b", 1, "newer") in kit.found(table.location)
    assert not problems(table)


def test_a_full_compaction_merges_behind_it(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.compact()
    kit.write(table.location, [("a", 0, "newest"), ("b", 5, "x")], ["+U", "-D"], identifier=9)
    report = table.compact(full=True)
    assert {one.file.level for one in kit.files(table.location)} == {5}
    assert {one.bucket for one in report.buckets} == {-2, 0, 1}
    found = kit.found(table.location)
    assert found[0] == ("a", 0, "newest") and len(found) == 10


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"merge-engine": "first-row", "ignore-delete": "true"}, "early"),
        ({"merge-engine": "partial-update", "ignore-delete": "true"}, "late"),
        (
            {
                "merge-engine": "aggregation",
                "fields.v.aggregate-function": "min",
                "ignore-delete": "true",
            },
            "early",
        ),
        ({"sequence.field": "v"}, "middle"),
    ],
)
def test_rows_are_merged_as_the_table_says(
    tmp_path: Path, options: dict[str, str], expected: str
) -> None:
    table = made(tmp_path, **options)
    table.compact()
    assert ("b", 1, expected) in kit.found(table.location)
    assert not problems(table)


@pytest.mark.parametrize("producer", ["input", "lookup", "full-compaction"])
def test_the_changelog_comes_with_the_rows(tmp_path: Path, producer: str) -> None:
    table = made(tmp_path, **{"changelog-producer": producer})
    assert not changelog(table)
    table.compact(full=True)
    of_a_key = [(kind, row[2]) for kind, _, row in changelog(table) if row[:2] == ["b", 1]]
    assert of_a_key == (
        [("+I", v) for v in ("early", "middle", "late")]
        if producer == "input"
        else [("+I", "late")]
    )


def test_what_does_not_fit_into_memory_makes_several_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = kit.postponed(tmp_path / "t", **TWO)
    for start in range(0, 20_000, 5000):
        kit.write(
            table.location,
            [("a", n % 2000, f"{n}" * 9) for n in range(start, start + 5000)],
            identifier=start,
        )
    monkeypatch.setattr(rewrite, "_WAITING_BYTES", 100_000)
    table.compact()
    assert len(kit.files(table.location)) > 4
    assert kit.found(table.location) == sorted(
        ("a", n % 2000, f"{n}" * 9) for n in range(18_000, 20_000)
    )
    assert not problems(table)


def test_rows_that_waited_get_todays_schema_without_its_defaults(tmp_path: Path) -> None:
    table = kit.postponed(tmp_path / "t")
    kit.write(table.location, [("a", 1, None), ("a", 2, "x")])
    folder = Path(table.location) / "schema"
    text = (
        (folder / "schema-0")
        .read_text()
        .replace('"id" : 0,\n  "fields"', '"id" : 1,\n  "fields"', 1)
    )
    (folder / "schema-1").write_text(
        text.replace('"type" : "STRING"\n', '"type" : "STRING", "defaultValue" : "d"\n')
    )
    table = PaimonTable.load(table.location)
    assert table.schema.fields[2].default_value == "d"
    table.compact()
    assert kit.files(table.location)[0].file.schema_id == 1
    assert [row[2] for row in sorted(kit.found(table.location), key=lambda row: row[1])] == [
        None,
        "x",
    ]


# -- beside others
# ------------------------------------------------------------------------------------


def test_rows_that_come_meanwhile_wait_on(tmp_path: Path) -> None:
    table = made(tmp_path)
    more = lambda: kit.write(table.location, [("a", 0, "newer")], identifier=7)  # noqa: E731
    report = run(table, Acting(table, more, "open_output", "dt="))
    assert report.conflicts == 0
    assert [one.file.row_count for one in kit.waiting(table.location)] == [1]
    assert kit.found(table.location) == SEEN
    table.compact()
    assert kit.found(table.location)[0] == ("a", 0, "newer")
    assert not problems(table)


@pytest.mark.parametrize("verb", ["open_output", "put_if_absent"])
def test_of_two_compactions_one_finds_its_rows_taken(tmp_path: Path, verb: str) -> None:
    table = made(tmp_path)
    path = "dt=" if verb == "open_output" else "snapshot/"
    report = run(table, Acting(table, table.compact, verb, path))
    assert report.conflicts == 2
    assert report.snapshot_id is None
    assert kit.found(table.location) == SEEN
    assert [s.commit_kind.value for s in table.snapshots()].count("COMPACT") == 1
    assert nothing_left(table) and not problems(table)


def test_rows_that_were_overwritten_meanwhile_do_not_come_back(tmp_path: Path) -> None:
    table = made(tmp_path)
    rows = pa.table({"dt": ["a"], "id": pa.array([7], pa.int32()), "v": ["only"]})
    report = run(table, Acting(table, lambda: table.overwrite(rows), "put_if_absent", "snapshot/"))
    assert report.conflicts == 1
    assert kit.found(table.location) == [("a", 7, "only"), *(row for row in SEEN if row[0] == "b")]
    assert nothing_left(table) and not problems(table)


@pytest.mark.parametrize("buckets", [2, 3])
def test_rows_that_others_have_put_into_buckets_meanwhile_are_older(
    tmp_path: Path, buckets: int
) -> None:
    """Java's batch writers may write buckets. What was written here got numbers that the others
    have used, too.
    """
    table = made(tmp_path)

    def into_buckets() -> None:
        now = load_table(LocalStorage(table.location))
        options = Options(now.options, {"bucket": str(buckets)})
        spec = WriteSpec(storage=now.storage, schema=now.schema, options=options)
        rows = [batch_of(now.schema, [("a", 1, "theirs"), ("a", 9, "theirs")])]
        TableCommit(now, "java").commit(
            1, write_keyed_task(spec, rows, first_sequence=100).messages
        )

    report = run(table, Acting(table, into_buckets, "put_if_absent", "snapshot/"))
    assert report.conflicts == 1
    found = kit.found(table.location)
    assert ("a", 1, "late") in found and ("a", 9, "theirs") in found
    assert {
        one.total_buckets for one in kit.files(table.location) if b"a" in one.partition[-8:]
    } == {buckets}
    assert nothing_left(table) and not problems(table)


def test_rows_that_waited_do_not_replace_what_was_written_after_the_table_got_buckets(
    tmp_path: Path,
) -> None:
    """An ALTER has set a number of buckets. Rows of partition a have come to them since, none of
    b.
    """
    table = made(tmp_path)
    schemas = Path(table.location) / "schema"
    text = (
        (schemas / "schema-0")
        .read_text()
        .replace('"id" : 0,\n  "fields"', '"id" : 1,\n  "fields"', 1)
    )
    (schemas / "schema-1").write_text(text.replace('"-2"', '"2"'))
    kit.write(table.location, [("a", 1, "newest")], identifier=9)
    table = PaimonTable.load(table.location)
    assert {(one.code, one.cure) for one in problems(table)} == {
        ("bucket-counts-differ", "Compact the table.")
    }
    with pytest.raises(
        UnsupportedFeature, match=r"dt=a/bucket-postpone was not compacted.*may be older"
    ):
        table.compact()
    assert kit.found(table.location) == [
        ("a", 1, "newest"),
        *(row for row in SEEN if row[0] == "b"),
    ]
    (schemas / "schema-2").write_text(
        text.replace('"id" : 1,\n  "fields"', '"id" : 2,\n  "fields"', 1)
    )
    PaimonTable.load(table.location).compact()
    assert kit.found(table.location) == SEEN, "the rows that waited are taken for newer ones"


def test_a_damaged_file_keeps_no_other_partition_waiting(tmp_path: Path) -> None:
    table = made(tmp_path)
    (broken, *_) = [one for one in kit.waiting(table.location) if b"a" in one.partition[-8:]]
    (path,) = Path(table.location).rglob(broken.file.file_name)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(FormatError, match=broken.file.file_name):
        table.compact()
    assert kit.found(table.location) == [row for row in SEEN if row[0] == "b"]
    path.unlink()
    with pytest.raises(NotFound, match=broken.file.file_name):
        table.compact()


def test_what_waits_is_shown_kept_and_taken_back(tmp_path: Path) -> None:
    table = made(tmp_path)
    assert {one.bucket for one in table.files()} == {-2}
    before = data_files(table)
    table.compact()
    table.rollback_to(4)
    assert kit.found(table.location) == [] and len(kit.waiting(table.location)) == 7
    table.compact()
    assert kit.found(table.location) == SEEN
    expire_snapshots(load_table(LocalStorage(table.location)), 1, 1, protect_streams=False)
    assert not before & data_files(table) and live(table) <= data_files(table)
    assert not problems(table)


# -- where it fails
# -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("moment", "stop"),
    few(product(Moment, [False, True]), lambda moment, stop: stop == (moment is Moment.AFTER)),
)
def test_wherever_it_fails_rows_wait_or_are_there(
    tmp_path: Path, moment: Moment, stop: bool
) -> None:
    table = made(tmp_path)
    for at, failed, before, raised in failed_runs(table, moment, stop=stop, step=examples(3, 1)):
        newest = table.latest_snapshot()
        assert newest is not None
        assert kit.found(table.location) == (SEEN if newest.id > 4 else []), at
        is_known = failed.verb != "delete" and not (
            moment is Moment.AFTER and "output" in failed.verb
        )
        if is_known and not stop and not isinstance(raised, CommitUnknown):
            assert not data_files(table) - before - live(table), (at, failed)
        if newest.id > 4:
            table.rollback_to(4)
    assert kit.found(table.location) == SEEN
    assert not problems(table)


def test_an_unknown_outcome_deletes_nothing(tmp_path: Path) -> None:
    table: Any = made(tmp_path)
    lost = Fault(at=1, verb="put_if_absent", path="snapshot/", moment=Moment.AFTER, stop=True)
    with pytest.raises((CommitUnknown, Killed)):
        run(table, FaultyStorage(LocalStorage(table.location), [lost]))
    assert kit.found(table.location) == SEEN
    assert not problems(table)
