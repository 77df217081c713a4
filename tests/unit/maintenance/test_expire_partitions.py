"""Expiry of partitions: which ones go, what others do meanwhile, what fails, and when it runs after
commits.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from paimon_stream import PaimonTable
from paimon_stream.commit.overwrite import OverwriteSource
from paimon_stream.commit.plan import Base, Changes
from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.errors import CommitContended, InvalidOption
from paimon_stream.format.entries import HASH
from paimon_stream.format.snapshot_json import BATCH_IDENTIFIER, CommitKind
from paimon_stream.maintenance.after_commit import AfterCommit
from paimon_stream.maintenance.expire_partitions import PartitionExpiryReport, expire_partitions
from paimon_stream.maintenance.pins import pin_path, put_pin
from paimon_stream.options import Options
from paimon_stream.storage.base import Storage
from paimon_stream.table.manifests import ManifestStore
from paimon_stream.table.partition_spec import PartitionFilter
from tests.kits.commits import Bench
from tests.kits.expiries import CountedAfterCommit
from tests.kits.faults import FAULTS, OFTEN_FAULTS, Fault, FaultyStorage, Killed
from tests.kits.params import few
from tests.kits.places import following
from tests.kits.races import Meanwhile
from tests.kits.streams import Stream
from tests.kits.trips import TripStorage

DAY = 86_400_000
HOUR = 3_600_000
NOW = "2023-11-14"
"""The day of the clock of a `Bench`, at 22:13:20."""
WEEK = {"partition.expiration-time": "7 d"}
NUMBERS = count()


def bench_of(*days: str | None, options: dict[str, str] | None = None) -> Bench:
    """A table with a file in each of these partitions. The file's name is that of the partition."""
    bench = Bench(partitioned=True, options={**WEEK, **(options or {})})
    for number, day in enumerate(days):
        bench.committer().commit(bench.request(number, [bench.message(f"f-{day}", dt=day)]))
    return bench


def expire(
    bench: Bench, storage: Storage | None = None, *, dry_run: bool = False, **options: str
) -> PartitionExpiryReport:
    table = replace(bench.table, storage=storage or bench.storage)
    given = {f"partition.{key.replace('__', '-')}": value for key, value in options.items()}
    table = replace(table, options=Options({**table.options, **given}, location=table.location))
    return expire_partitions(table, dry_run=dry_run, runtime=bench.runtime)


def days(report: PartitionExpiryReport) -> list[str | None]:
    return [one["dt"] for one in report.partitions]


def files(storage: Storage) -> dict[str, bytes]:
    return {one.path: storage.read(one.path) for page in storage.list_below("") for one in page}


# -- what goes
# ----------------------------------------------------------------------------------------


def test_old_partitions_go_in_an_overwrite_of_a_user_of_its_own() -> None:
    bench = bench_of("2023-11-01", NOW, "2023-11-07", "2023-11-08")
    before = files(bench.storage)
    expected = expire(bench, dry_run=True)
    assert files(bench.storage) == before
    report = expire(bench)
    assert days(report) == ["2023-11-01", "2023-11-07"]
    assert replace(report, snapshots=(), dry_run=True) == expected
    assert (report.snapshots, report.files, report.rows) == ((5,), 2, 20)
    latest = bench.latest()
    assert (latest.commit_kind, latest.commit_identifier) == (
        CommitKind.OVERWRITE,
        BATCH_IDENTIFIER,
    )
    assert latest.commit_user not in ("me", "")
    bench.audit([f"f-{NOW}", "f-2023-11-08"], orphans=True)
    assert expire(bench).snapshots == ()
    assert bench.latest() == latest


def test_a_partition_goes_when_it_is_older_than_the_time_and_not_before() -> None:
    bench = bench_of("2023-11-07 22:13:20", "2023-11-07 22:13:20.001")
    assert days(expire(bench)) == []
    bench.clock.advance(1)
    assert days(expire(bench)) == ["2023-11-07 22:13:20"]
    bench.clock.advance(1)
    assert days(expire(bench)) == ["2023-11-07 22:13:20.001"]


def test_at_most_so_many_go_in_the_order_of_their_values_and_in_batches() -> None:
    several = [f"2023-10-{day:02d}" for day in (5, 3, 9, 1, 7)]
    bench = bench_of(*several, options={"partition.expiration-max-num": "4"})
    report = expire(bench, expiration__batch__size="3")
    assert days(report) == ["2023-10-01", "2023-10-03", "2023-10-05", "2023-10-07"]
    assert report.snapshots == (6, 7)
    assert bench.names_of(bench.snapshots.get(6)) == ["f-2023-10-07", "f-2023-10-09"]
    bench.audit(["f-2023-10-09"], orphans=True)
    assert expire(bench, expiration__batch__size="0").snapshots == (8,)
    bench.audit([])


def test_what_names_no_time_stays_and_is_named(caplog: pytest.LogCaptureFixture) -> None:
    bench = bench_of(None, "", "soon", "__DEFAULT_PARTITION__", "2000-01-01")
    assert days(expire(bench)) == ["2000-01-01"]
    (line,) = [one.getMessage() for one in caplog.records]
    assert "3 partitions do not expire: " in line and "yyyy-M-d[ H:m:s[.S]]" in line
    assert len(bench.live()) == 4


def test_a_pattern_names_partition_columns_only() -> None:
    options = {**WEEK, "partition.timestamp-pattern": "$dt $day"}
    with pytest.raises(InvalidOption, match=r"only \$dt, \$hour names a partition column"):
        made(options)


def test_a_report_has_values_for_json() -> None:
    place, columns = f"memory://expire-{next(NUMBERS)}/db.db/t", [("id", "INT"), ("d", "DATE")]
    table = PaimonTable.create(place, columns, partition_keys=["d"], options=WEEK)
    table.append(pa.table({"id": pa.array([1], pa.int32()), "d": [dt.date(2000, 1, 1)]}))
    by_update = {
        "partition.expiration-strategy": "update-time",
        "partition.expiration-time": "0 ms",
    }
    report = table.expire_partitions(by_update, dry_run=True)
    assert json.loads(json.dumps(report.to_json()))["partitions"] == [{"d": "2000-01-01"}]


def test_partitions_of_postponed_tables_expire_with_the_rows_that_wait() -> None:
    bench = Bench(partitioned=True, keys=("dt", "id"), options={**WEEK, "bucket": "-2"})
    for number, (day, bucket) in enumerate(
        (("2000-01-01", 0), ("2000-01-01", -2), ("2000-01-02", -2), ("2999-01-01", -2))
    ):
        message = replace(bench.message(f"f{number}", dt=day, bucket=0), bucket=bucket)
        bench.committer().commit(bench.request(number, [message]))
    report = expire_partitions(bench.table, runtime=bench.runtime)
    assert [one["dt"] for one in report.partitions] == ["2000-01-01", "2000-01-02"]
    assert [one.file.file_name for one in bench.live()] == ["f3"]


def test_a_day_number_is_no_time(caplog: pytest.LogCaptureFixture) -> None:
    table = PaimonTable.create(
        f"memory://expire-{next(NUMBERS)}/db.db/t",
        [("id", "INT"), ("d", "DATE")],
        partition_keys=["d"],
        options=WEEK,
    )
    table.append(pa.table({"id": pa.array([1], pa.int32()), "d": [dt.date(2000, 1, 1)]}))
    for legacy in ("true", "false"):
        assert table.expire_partitions().partitions == (), legacy
    assert "'10957' is not a time" in caplog.text and "A DATE has no such form" in caplog.text
    by_update = {
        "partition.expiration-strategy": "update-time",
        "partition.expiration-time": "0 ms",
    }
    assert table.expire_partitions(by_update).partitions == ({"d": dt.date(2000, 1, 1)},)


def rows(*of: tuple[int, str | None, int | None]) -> pa.Table:
    kinds = pa.schema([("id", pa.int32()), ("dt", pa.string()), ("hour", pa.int32())])
    return pa.Table.from_pylist(
        [dict(zip(kinds.names, one, strict=True)) for one in of], schema=kinds
    )


def made(options: dict[str, str], **more: Any) -> PaimonTable:
    columns = [("id", "INT"), ("dt", "STRING"), ("hour", "INT")]
    location = f"memory://expire-{next(NUMBERS)}/db.db/t"
    return PaimonTable.create(
        location, columns, partition_keys=["dt", "hour"], options=options, **more
    )


def test_the_time_may_be_made_of_several_columns_and_null_in_any_keeps_the_partition() -> None:
    table = made(
        {
            **WEEK,
            "partition.timestamp-pattern": "$dt $hour",
            "partition.timestamp-formatter": "yyyyMMdd H",
        }
    )
    table.append(
        rows(
            (1, "20000101", 7),
            (2, "20000101", None),
            (3, None, 7),
            (4, "20000101", 25),
            (5, "99990101", 1),
        )
    )
    report = table.expire_partitions()
    assert report.partitions == ({"dt": "20000101", "hour": 7},)
    assert sorted(table.to_arrow()["id"].to_pylist()) == [2, 3, 4, 5]
    unused = {"partition.timestamp-pattern": "$dt", "partition.timestamp-formatter": "yyyyMMdd"}
    assert table.expire_partitions(unused).partitions == (
        {"dt": "20000101", "hour": 25},
    )  # as in Java, not hour NULL
    assert sorted(table.to_arrow()["id"].to_pylist()) == [2, 3, 5]
    first_only = {"partition.timestamp-formatter": "yyyyMMdd"}
    without = made({**WEEK, **first_only})
    without.append(rows((2, "20000101", None), (3, None, 7)))
    assert without.expire_partitions().partitions == ({"dt": "20000101", "hour": None},)
    assert without.verify().findings == ()


def test_update_time_is_that_of_the_newest_file() -> None:
    bench = bench_of(options={"partition.expiration-strategy": "update-time"})
    files_of = [("old", "a", 0), ("older", "b", -DAY), ("newer", "b", HOUR), ("null", None, 0)]
    for number, (name, day, later) in enumerate(files_of):
        message = bench.message(name, dt=day)
        (one,) = message.new_files
        made_at = replace(one, creation_time=bench.clock.local_millis() + later)
        bench.committer().commit(bench.request(number, [replace(message, new_files=(made_at,))]))
    bench.clock.advance(7 * DAY)
    assert days(expire(bench)) == []
    bench.clock.advance(1)
    assert days(expire(bench)) == [None, "a"]
    bench.clock.advance(HOUR)
    assert days(expire(bench)) == ["b"]
    bench.audit([])


def test_a_partition_with_a_file_of_unknown_age_does_not_go_by_its_update_time() -> None:
    bench = bench_of("a", "b", options={"partition.expiration-strategy": "update-time"})
    message = bench.message("of-unknown-age", dt="b")
    unknown = replace(message.new_files[0], creation_time=None)
    bench.committer().commit(bench.request(2, [replace(message, new_files=(unknown,))]))
    bench.clock.advance(365 * DAY)
    assert days(expire(bench)) == ["a"]


def test_files_that_wait_for_their_buckets_stay_and_take_nobody_s_place() -> None:
    bench = bench_of("2000-01-02", options={"partition.expiration-max-num": "1"})
    bench.committer().commit(bench.request(7, [bench.message("waits", dt="2000-01-01", bucket=-2)]))
    assert days(expire(bench)) == ["2000-01-02"]
    assert (days(expire(bench)), bench.live_names()) == ([], ["waits"])


def test_index_files_go_with_their_partitions() -> None:
    table = made({**WEEK, "bucket": "-1"}, primary_keys=["id", "dt", "hour"])
    table.append(rows((1, "2000-01-01", 1), (2, "2000-01-01", 2), (3, "9999-01-01", 1)))
    assert table.expire_partitions().files == 2
    latest = table.latest_snapshot()
    assert latest is not None and latest.index_manifest is not None
    (index,) = ManifestStore(table._storage).index_entries(latest.index_manifest)
    assert index.file.index_type == HASH
    assert table._table.layout.partition_values(index.partition) == ("9999-01-01", 1)
    table.append(rows((1, "2000-01-01", 1), (3, "9999-01-01", 1)))
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 3]
    assert table.verify().findings == ()


def test_the_index_of_a_partition_that_stays_stays() -> None:
    table = made({"bucket": "-1"}, primary_keys=["id", "dt", "hour"])._table
    PaimonTable.load(table.location).append(rows((1, "a", 1), (2, "b", 1)))
    manifests, latest = (
        ManifestStore(table.storage),
        PaimonTable.load(table.location).latest_snapshot(),
    )
    assert latest is not None
    base = Base(snapshot=latest, metas=manifests.base_and_delta(latest))
    made_at = {one.file.creation_time or 0 for meta in base.metas for one in manifests.read(meta)}
    for since, gone in ((min(made_at), 0), (max(made_at) + 1, 2)):
        source = OverwriteSource(
            table, manifests, PartitionFilter(table.partition_types), Changes(), since
        )
        changes = source.at(base)
        assert (len(changes.entries), len(changes.index), len(source.gone)) == (gone, gone, gone)


# -- what is refused
# ----------------------------------------------------------------------------------


def test_a_table_without_partitions_or_time_is_refused_and_stays_as_it_is() -> None:
    whole = PaimonTable.create(f"memory://expire-{next(NUMBERS)}/db.db/t", [("id", "INT")])
    whole.append(pa.table({"id": pa.array([1], pa.int32())}))
    for given in ({}, WEEK, {**WEEK, "partition.expiration-strategy": "update-time"}):
        with pytest.raises(InvalidOption, match="no partition columns, or no 'partition"):
            whole.expire_partitions(given)
    assert whole.to_arrow().num_rows == 1
    with pytest.raises(InvalidOption, match=r"partition\.expiration-time"):
        made({}).expire_partitions()
    assert made({}).expire_partitions(WEEK).snapshots == ()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"partition.expiration-tim": "1 d"}, "Did you mean 'partition.expiration-time'"),
        ({"bucket": "4"}, "cannot be set for one call"),
        ({"partition.expiration-check-interval": "1 d"}, "cannot be set for one call"),
        ({"partition.expiration-time": "soon"}, "not a duration"),
        ({"partition.expiration-strategy": "custom"}, "must be one of values-time, update-time"),
        ({"partition.expiration-max-num": "0"}, "must be at least 1"),
        ({"partition.timestamp-formatter": "yyyy-MMM"}, "'MMM' is not read here"),
    ],
)
def test_options_of_a_call_that_make_no_sense_are_refused(
    options: dict[str, str], text: str
) -> None:
    table = made(WEEK)
    table.append(rows((1, "2000-01-01", 1)))
    with pytest.raises(InvalidOption, match=text) as caught:
        table.expire_partitions(options)
    assert table.location in str(caught.value)
    assert table.to_arrow().num_rows == 1


def test_no_partition_expires_while_a_rollback_is_under_way() -> None:
    bench = bench_of("2000-01-01")
    put_pin(bench.storage, pin_path(bench.latest(), bench.runtime), bench.latest())
    with pytest.raises(CommitContended, match="no partition expired"):
        expire(bench)
    assert days(expire(bench, dry_run=True)) == ["2000-01-01"]
    bench.audit(["f-2000-01-01"])


# -- what fails, what others do
# -----------------------------------------------------------------------


@pytest.mark.parametrize("name", few(FAULTS, lambda name: name in OFTEN_FAULTS))
def test_an_expiry_that_failed_anywhere_is_done_or_not_and_can_be_repeated(
    name: str,
) -> None:
    several = ("2000-01-01", "2000-01-02", "2000-01-03")
    states = [{f"f-{day}" for day in several[gone:]} | {f"f-{NOW}"} for gone in (0, 2, 3)]
    at, fired = 0, True
    while fired:
        at = following(at)
        bench = bench_of(*several, NOW)
        storage = FaultyStorage(bench.storage, [Fault(at=at, **FAULTS[name])])
        failed: BaseException | None = None
        try:
            expire(bench, storage, expiration__batch__size="2")
        except (Exception, Killed) as why:  # noqa: BLE001
            failed = why
        fired = storage.fired
        left = set(bench.live_names())
        assert left in states and (failed is not None or left == states[-1])
        expire(bench)
        bench.audit([f"f-{NOW}"])
    assert at > 20


def test_rows_that_come_to_an_old_partition_meanwhile_go_with_it_or_at_the_next_expiry() -> None:
    at, met, seen = 0, True, set()
    while met:
        at = following(at)
        bench = bench_of("2000-01-01", NOW)

        def append(bench: Bench = bench) -> None:
            late = [bench.message("late", dt="2000-01-01"), bench.message("other", dt=NOW)]
            bench.committer().commit(bench.request(7, late, user="you"))

        storage = Meanwhile(bench.storage, at, append)
        report = expire(bench, storage)  # type: ignore[arg-type]
        met = storage.happened
        left = set(bench.live_names()) - {f"f-{NOW}", "other"}
        assert left <= {"late"} and (met or not left)
        seen.add((report.files, *left))
        bench.audit([f"f-{NOW}", *(["other"] if met else []), *left])
        assert expire(bench).files == len(left)
        bench.audit([f"f-{NOW}", *(["other"] if met else [])])
    assert seen == {(2,), (1, "late"), (1,)}


def test_a_partition_to_which_others_write_meanwhile_stays_if_its_age_is_that_of_its_files() -> (
    None
):
    at, met, reports = 0, True, []
    while met:
        at = following(at)
        bench = bench_of("a", "b", options={"partition.expiration-strategy": "update-time"})
        bench.clock.advance(8 * DAY)

        def append(bench: Bench = bench) -> None:
            message = bench.message("late", dt="a")
            (one,) = message.new_files
            fresh = replace(one, creation_time=bench.clock.local_millis())
            bench.committer().commit(
                bench.request(7, [replace(message, new_files=(fresh,))], user="you")
            )

        storage = Meanwhile(bench.storage, at, append)
        report = expire(bench, storage)  # type: ignore[arg-type]
        met = storage.happened
        assert met <= ("late" in bench.live_names())
        bench.audit([*(["f-a"] if days(report) == ["b"] else []), *(["late"] if met else [])])
        reports.append(tuple(days(report)))
    assert set(reports) == {("a", "b"), ("b",)}


def test_two_expiries_at_once_drop_each_partition_once() -> None:
    at, met = 0, True
    while met:
        at = following(at)
        bench = bench_of("2000-01-01", "2000-01-02", NOW)
        other: list[PartitionExpiryReport] = []
        storage = Meanwhile(
            bench.storage, at, lambda bench=bench, other=other: other.append(expire(bench))
        )
        mine = expire(bench, storage)  # type: ignore[arg-type]
        met = storage.happened
        assert mine.files + sum(one.files for one in other) == 2
        assert len(mine.snapshots) + sum(len(one.snapshots) for one in other) == 1
        bench.audit([f"f-{NOW}"])


# -- after commits
# ------------------------------------------------------------------------------------


def commits(bench: Bench, after: AfterCommit, identifiers: Iterable[int], **options: str) -> None:
    """Commits a file to today's partition under each identifier."""
    given = {key.replace("__", "-").replace("_", "."): value for key, value in options.items()}
    table = replace(
        bench.table,
        options=Options({**bench.table.options, **given}, location=bench.table.location),
    )
    commit = TableCommit(table, "me", runtime=bench.runtime, after_commit=after)
    for number in identifiers:
        commit.commit(number, [bench.message(f"c{number}", dt=NOW)])


def overwrites(bench: Bench) -> list[int]:
    return [
        one
        for one in bench.snapshots.ids()
        if bench.snapshots.get(one).commit_kind is CommitKind.OVERWRITE
    ]


EACH = {"partition.expiration-check-interval": "0 ms"}


def test_a_stream_expires_partitions_batch_after_batch_and_goes_on() -> None:
    bench = bench_of("2000-01-01", options=EACH)
    stream, after = Stream(bench, user="you"), CountedAfterCommit(runtime=bench.runtime)
    for day in ("2000-01-02", NOW, "2000-01-03", NOW):
        stream.batch(dt=day)
        assert stream.writer is not None
        newest = stream.writer.standing.newest
        assert newest is not None
        after(stream.writer.table, newest)
    assert after.failures == 0
    assert {bench.table.layout.partition_values(one.partition)[0] for one in bench.live()} == {NOW}
    assert len(bench.live()) == 2
    assert len(overwrites(bench)) == 2
    stream.start()
    stream.batch(dt=NOW)
    assert len(bench.live()) == 3


@pytest.mark.parametrize("at_end", ["true", "false"])
def test_a_batch_write_expires_partitions_if_an_option_says_so(at_end: str) -> None:
    options = {"partition.expiration-time": "7 d", "end-input.check-partition-expire": at_end}
    place = f"memory://at-end-{at_end}/db.db/t"
    table = PaimonTable.create(
        place, [("id", "INT"), ("dt", "STRING")], partition_keys=["dt"], options=options
    )
    today = dt.datetime.now(tz=dt.timezone.utc).strftime("%Y-%m-%d")
    table.append(pa.table({"id": pa.array([1, 2], pa.int32()), "dt": ["2000-01-01", today]}))
    assert table.to_arrow()["id"].to_pylist() == ([2] if at_end == "true" else [1, 2])


def test_the_first_check_comes_within_the_interval_and_the_next_after_another() -> None:
    waited = []
    for seed in range(8):
        bench = bench_of("2000-01-01", options={"snapshot.num-retained.min": "1000"})
        bench.runtime = replace(bench.runtime, rng=_Rng(seed * HOUR // 8))
        after = CountedAfterCommit(runtime=bench.runtime)
        commits(bench, after, [100])
        minutes = 0
        while not overwrites(bench):
            bench.clock.advance(60_000)
            minutes += 1
            commits(bench, after, [100 + minutes])
            assert minutes <= 61
        waited.append(minutes)
        (first,) = overwrites(bench)
        bench.committer().commit(
            bench.request(0, [bench.message("late", dt="2000-01-01")], user="you")
        )
        for _ in range(60):
            bench.clock.advance(60_000)
            minutes += 1
            commits(bench, after, [100 + minutes])
        assert overwrites(bench) == [first]
        bench.clock.advance(1)
        commits(bench, after, [1000])
        assert len(overwrites(bench)) == 2
    assert waited == [61, 53, 46, 38, 31, 23, 16, 8]


class _Rng:
    """Draws one number, again and again."""

    def __init__(self, drawn: int) -> None:
        self.drawn = drawn

    def below(self, bound: int) -> int:
        assert self.drawn < bound
        return self.drawn


@pytest.mark.parametrize(
    ("options", "expires"),
    [
        ({}, True),
        ({"write-only": "true"}, False),
        ({"commit.strict-mode.last-safe-snapshot": "-1"}, False),
        ({"changelog.time-retained": "2 h"}, True),
        ({"snapshot.expire.execution-mode": "async"}, True),
        ({"partition.expiration-check-interval": "1 h"}, False),
    ],
)
def test_which_commits_expire_partitions(options: dict[str, str], expires: bool) -> None:
    bench = bench_of("2000-01-01", options={**EACH, **options})
    bench.runtime = replace(bench.runtime, rng=_Rng(0))
    after = CountedAfterCommit(runtime=bench.runtime)
    commits(bench, after, [100])
    assert after._worker is None or after._worker.join(900) is None
    assert (after.failures, bool(overwrites(bench))) == (0, expires)


def test_partitions_expire_before_snapshots_do() -> None:
    keep = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"}
    bench = bench_of("2000-01-01", options={**EACH, **keep})
    after = CountedAfterCommit(runtime=bench.runtime)
    commits(bench, after, [100])
    assert (bench.snapshots.ids(), overwrites(bench)) == (
        [2, 3],
        [3],
    )  # 2 is the stream's last one, and is kept
    bench.audit(["c100"], orphans=True)
    commits(bench, after, [101])
    assert not bench.storage.exists("dt=2000-01-01/bucket-0/f-2000-01-01")


def test_in_an_object_store_no_commit_waits_for_it() -> None:
    bench = bench_of("2000-01-01", options=EACH)
    storage, after = TripStorage(bench.storage), CountedAfterCommit(runtime=bench.runtime)
    bench.table = replace(bench.table, storage=storage)
    commits(bench, after, [100])
    assert after._worker is not None
    after._worker.join(900)
    assert (len(overwrites(bench)), after.failures) == (1, 0)
    bench.audit(["c100"])


def test_a_rollback_delays_it_to_the_next_commit(caplog: pytest.LogCaptureFixture) -> None:
    bench = bench_of("2000-01-01", options={"partition.expiration-check-interval": "1 h"})
    bench.runtime = replace(bench.runtime, rng=_Rng(0))
    after, path = CountedAfterCommit(runtime=bench.runtime), pin_path(bench.latest(), bench.runtime)
    commits(bench, after, [100])
    bench.clock.advance(HOUR + 1)
    put_pin(bench.storage, path, bench.latest())
    commits(bench, after, [101, 102])
    assert overwrites(bench) == []
    assert (
        len([one for one in caplog.records if "nothing expires after commits" in one.getMessage()])
        == 1
    )
    bench.storage.delete(path)
    commits(bench, after, [103])
    assert (len(overwrites(bench)), after.failures) == (1, 0)


def test_an_expiry_that_fails_at_any_operation_fails_no_commit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL)
    at, fired = 0, True
    while fired:
        at = following(at)
        bench = bench_of("2000-01-01", NOW, options=EACH)
        after = CountedAfterCommit(runtime=bench.runtime)
        storage = FaultyStorage(bench.storage, [Fault(at=at)])
        after(replace(bench.table, storage=storage), bench.latest())
        fired = storage.fired
        assert after.failures == 1 or overwrites(bench) or not fired
        after(bench.table, bench.latest())
        bench.audit([f"f-{NOW}"])
    assert at > 20


def test_a_batch_without_rows_expires_partitions_as_well() -> None:
    bench = bench_of("2000-01-01", options=EACH)
    after = CountedAfterCommit(runtime=bench.runtime)
    after.after_nothing(bench.table)
    assert (len(overwrites(bench)), after.failures) == (1, 0)


def test_a_formatter_that_is_not_read_fails_no_commit_and_snapshots_expire(
    caplog: pytest.LogCaptureFixture,
) -> None:
    keep = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"}
    bench = bench_of("2000-01-01", options={**EACH, **keep})
    after = CountedAfterCommit(runtime=bench.runtime)
    commits(bench, after, [100], partition_timestamp__formatter="yyyy-MMM-dd")
    assert (after.failures, bench.snapshots.ids(), overwrites(bench)) == (1, [2], [])
    assert "'MMM' is not read here" in caplog.text
