"""Automatic tags: when one is due, what it is called, which ones go, and what fails on the way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from paimon_stream import PaimonTable
from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.errors import InvalidOption, PaimonStreamError
from paimon_stream.format.snapshot_json import decode_snapshot, encode_snapshot
from paimon_stream.maintenance import automatic_tags
from paimon_stream.maintenance.automatic_tags import TagNames, create_automatic_tags
from paimon_stream.maintenance.tags import read_tags
from paimon_stream.options import Options
from paimon_stream.table.layout import snapshot_path
from paimon_stream.table.table import Table
from tests.kits.commits import Bench
from tests.kits.expiries import CountedAfterCommit
from tests.kits.faults import FAULTS, OFTEN_FAULTS, Fault, FaultyStorage, Killed
from tests.kits.params import few
from tests.kits.places import following

HOUR = 3_600_000
DAY = 24 * HOUR
START = 1_700_000_000_000 // DAY * DAY
AUTOMATIC = {"tag.automatic-creation": "process-time", "sink.process-time-zone": "UTC"}
_NUMBER = count()


def made(moments: Iterable[int], **options: str) -> PaimonTable:
    """A table with a snapshot at each of these moments, in milliseconds from `START`."""
    given = {**AUTOMATIC, "write-only": "true", **options}
    table = PaimonTable.create(
        f"memory://tags-{next(_NUMBER)}/db.db/t", [("id", "INT")], options=given
    )
    for moment in moments:
        commit(table, moment)
    return table


def commit(table: PaimonTable, moment: int) -> None:
    table.append(pa.table({"id": pa.array([1], pa.int32())}))
    storage, newest = table._table.storage, table.snapshots()[-1]
    path = snapshot_path(newest.id)
    moved = replace(
        decode_snapshot(storage.read(path), path),
        time_millis=START + moment,
        watermark=START + moment,
    )
    storage.delete(path)
    storage.write(path, encode_snapshot(moved))


def tags(table: PaimonTable) -> dict[str, int]:
    return {name: one.id for name, one in table.tags().items()}


def test_the_first_commit_after_a_period_is_tagged_with_its_name() -> None:
    table = made([0, HOUR, DAY - 1, DAY, 3 * DAY + 5])
    report = table.create_automatic_tags()
    # The first commit of all tags the day before; nobody committed on day 2, so the last one tags
    # that.
    assert (
        tags(table) == {"2023-11-13": 1, "2023-11-14": 4, "2023-11-16": 5} == dict(report.created)
    )
    assert not table.create_automatic_tags().created


def test_a_dry_run_creates_and_deletes_nothing() -> None:
    table = made([0, DAY, 2 * DAY], **{"tag.num-retained-max": "2"})
    report = table.create_automatic_tags(dry_run=True)
    assert (dict(report.created), report.deleted) == ({"2023-11-14": 2, "2023-11-15": 3}, ())
    assert not tags(table)
    table.create_automatic_tags()
    commit(table, 3 * DAY)
    report = table.create_automatic_tags(dry_run=True)
    assert (dict(report.created), report.deleted) == ({"2023-11-16": 4}, ("2023-11-14",))
    assert tags(table) == {"2023-11-14": 2, "2023-11-15": 3}


def test_the_oldest_automatic_tags_go_and_no_others() -> None:
    table = made([0, DAY], **{"tag.num-retained-max": "1"})
    table.create_tag("mine", 1)
    table.create_automatic_tags()
    table.create_tag("2023-11-12", 1)
    assert table.create_automatic_tags().deleted == ()  # none is created
    commit(table, 2 * DAY)
    assert table.create_automatic_tags().deleted == ("2023-11-12", "2023-11-14")
    assert tags(table) == {"mine": 1, "2023-11-15": 3}


def test_a_tag_waits_for_the_delay() -> None:
    table = made([0, DAY, DAY + HOUR - 1, DAY + HOUR], **{"tag.creation-delay": "1 h"})
    table.create_automatic_tags()
    assert tags(table) == {"2023-11-13": 1, "2023-11-14": 4}


def test_completion_names_each_period_in_turn() -> None:
    table = made(
        [0, 3 * DAY, 3 * DAY + 1, 3 * DAY + 2, 3 * DAY + 3], **{"tag.automatic-completion": "true"}
    )
    table.create_automatic_tags()
    assert tags(table) == {"2023-11-13": 1, "2023-11-14": 2, "2023-11-15": 3, "2023-11-16": 4}


def test_what_others_tagged_before_a_kill_counts() -> None:
    table = made([0, DAY])
    table.create_automatic_tags()
    table.create_tag("2023-11-15", 2)  # as another writer, whose clock is a day ahead, would
    commit(table, 2 * DAY)
    commit(table, 3 * DAY)
    table.create_automatic_tags()
    assert tags(table) == {"2023-11-13": 1, "2023-11-14": 2, "2023-11-15": 2, "2023-11-16": 4}


def test_watermarks_count_in_their_own_zone() -> None:
    table = made(
        [0, DAY - HOUR],
        **{"tag.automatic-creation": "watermark", "sink.watermark-time-zone": "+02:00"},
    )
    table.create_automatic_tags()
    assert tags(table) == {"2023-11-13": 1, "2023-11-14": 2}


def test_without_watermarks_there_are_no_tags() -> None:
    options = {"tag.automatic-creation": "watermark", "write-only": "true"}
    table = PaimonTable.create(
        f"memory://tags-{next(_NUMBER)}/db.db/t", [("id", "INT")], options=options
    )
    table.append(pa.table({"id": pa.array([1], pa.int32())}))
    assert not table.create_automatic_tags().created


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({}, "2023-11-13"),
        ({"tag.period-formatter": "without_dashes"}, "20231113"),
        ({"tag.period-formatter": "without_dashes_and_spaces"}, "20231113"),
        ({"tag.creation-period": "hourly"}, "2023-11-14 16"),
        (
            {"tag.creation-period": "hourly", "tag.period-formatter": "without_dashes"},
            "20231114 16",
        ),
        (
            {"tag.creation-period": "hourly", "tag.period-formatter": "without_dashes_and_spaces"},
            "2023111416",
        ),
        (
            {"tag.creation-period": "two-hours", "tag.period-formatter": "without_dashes"},
            "2023-11-14 14",
        ),
        ({"tag.creation-period-duration": "15 min"}, "202311141715"),
        (
            {"tag.creation-period": "hourly", "sink.process-time-zone": "Asia/Kolkata"},
            "2023-11-14 22",
        ),
    ],
)
def test_names(options: dict[str, str], name: str) -> None:
    table = made([17 * HOUR + HOUR // 2], **options)
    assert list(table.create_automatic_tags().created) == [name]
    assert TagNames.of(table._table.options).time_of(name) is not None


@pytest.mark.parametrize("name", ["2023-11-3", "2023-13-01", "x", "2023-11-14x", "20231114"])
def test_other_names_are_not_automatic(name: str) -> None:
    assert TagNames.of(Options(AUTOMATIC)).time_of(name) is None


def test_a_batch_is_tagged_with_its_day_and_replaces_the_tag_of_that_day() -> None:
    table = made([0, HOUR], **{"tag.automatic-creation": "batch"})
    table.create_tag("other", 1)
    table.create_tag("mine", 2)
    table.create_tag("batch-write-2023-11-14", 1)
    table.create_automatic_tags()
    assert tags(table) == {"other": 1, "mine": 2, "batch-write-2023-11-14": 2}
    assert not table.create_automatic_tags().created


def test_a_batch_counts_all_tags() -> None:
    named = {
        "tag.automatic-creation": "batch",
        "tag.num-retained-max": "1",
        "tag.batch.customized-name": "newest",
    }
    table = made([0, HOUR], **named)
    table.create_tag("other", 1)
    assert table.create_automatic_tags().deleted == ("other",)
    assert tags(table) == {"newest": 2}


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("tag.creation-delay", "1 d", "must be shorter than the period"),
        ("tag.creation-period", "weekly", "must be one of daily, hourly, two-hours"),
        ("sink.process-time-zone", "Mars/Crater", "not a time zone of Java's"),
        ("sink.process-time-zone", "+25:00", "not a time zone of Java's"),
        ("sink.process-time-zone", "EST", "not a time zone of Java's"),
        (
            "tag.creation-period-duration",
            "0 ms",
            "'tag.creation-period-duration' is '0 ms', but must be above 0",
        ),
        ("tag.creation-period-duration", "99999999999999 d", "below 100 years"),
        ("tag.batch.customized-name", "a/b", "holds no '/'"),
        ("tag.num-retained-max", "0", "must be at least 1"),
    ],
)
def test_a_wrong_option_is_refused_at_creation(key: str, value: str, said: str) -> None:
    with pytest.raises(InvalidOption, match=said):
        PaimonTable.create(
            "memory://wrong/db.db/t", [("id", "INT")], options={**AUTOMATIC, key: value}
        )


@pytest.mark.parametrize("name", few(FAULTS, lambda name: name in OFTEN_FAULTS))
def test_after_a_failure_at_any_operation_the_next_run_creates_the_same_tags(
    name: str,
) -> None:
    at, fired = 0, True
    while fired:
        at = following(at)
        table = made([0, DAY, 2 * DAY], **{"tag.num-retained-max": "2"})
        faulty = FaultyStorage(table._table.storage, [Fault(at=at, **FAULTS[name])])
        try:
            create_automatic_tags(replace(table._table, storage=faulty))
        except (Killed, PaimonStreamError):
            assert not [one for one in table.verify().findings if one.severity != "info"]
        fired = faulty.fired
        table.create_automatic_tags()
        assert tags(table) == {"2023-11-14": 2, "2023-11-15": 3}, at
    assert at > 20


@pytest.mark.parametrize(
    "zone", ["Z", "UT", "UTC+8", "+08:00:00", "+080000", "UTC+08:30:15", "+9", "Asia/Shanghai"]
)
def test_zones_of_java(zone: str) -> None:
    table = made([0], **{"sink.process-time-zone": zone})
    assert table.create_automatic_tags().created


def test_a_tag_of_the_last_day_ends_automatic_tags() -> None:
    table = made([0, DAY])
    table.create_tag("9999-12-31", 1)
    assert not table.create_automatic_tags().created


def test_the_watermark_of_a_source_that_has_ended_makes_no_tag() -> None:
    table = made([0], **{"tag.automatic-creation": "watermark"})
    storage, path = table._table.storage, snapshot_path(1)
    ended = replace(decode_snapshot(storage.read(path), path), watermark=2**63 - 1)
    storage.delete(path)
    storage.write(path, encode_snapshot(ended))
    assert not table.create_automatic_tags().created


def test_the_tag_of_an_earlier_batch_stays_if_the_newest_snapshot_cannot_be_read() -> None:
    table = made([0, HOUR], **{"tag.automatic-creation": "batch"})
    table.create_tag("batch-write-2023-11-14", 1)
    newest = table.snapshots()[-1]
    table._table.storage.delete(f"manifest/{newest.delta_manifest_list}")
    with pytest.raises(PaimonStreamError):
        table.create_automatic_tags()
    assert tags(table) == {"batch-write-2023-11-14": 1}


def test_a_period_whose_snapshot_cannot_be_tagged_is_not_passed_over() -> None:
    table = made([0, DAY, 2 * DAY])
    newest = table.snapshots()[1]
    table._table.storage.delete(f"manifest/{newest.delta_manifest_list}")
    with pytest.raises(PaimonStreamError):
        table.create_automatic_tags()
    assert tags(table) == {"2023-11-13": 1}


def test_a_snapshot_that_expires_meanwhile_gives_its_tag_to_the_next() -> None:
    table = made([0, DAY, DAY + 1, 2 * DAY])
    real, gone = automatic_tags.create_tag, []

    def create(given: Table, name: str, snapshot_id: int, **how: Any) -> object:
        if name == "2023-11-14" and not gone:
            gone.append(snapshot_id)
            given.storage.delete(snapshot_path(snapshot_id))
        return real(given, name, snapshot_id, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(automatic_tags, "create_tag", create)
        report = table.create_automatic_tags()
    assert (
        tags(table) == {"2023-11-13": 1, "2023-11-14": 3, "2023-11-15": 4} == dict(report.created)
    )


def test_each_tag_is_read_once() -> None:
    table = made([number * DAY for number in range(30)])
    watched = FaultyStorage(table._table.storage)
    create_automatic_tags(replace(table._table, storage=watched))
    assert len(tags(table)) == 30
    assert len(watched.operations) < 12 * 30


# -- after commits
# -------------------------------------------------------------------------------------


class Stream:
    """Commits of a stream, each followed by what is due."""

    def __init__(self, **options: str) -> None:
        self.bench = Bench(options={**AUTOMATIC, **options})
        self.bench.clock.millis = START
        self.watched = FaultyStorage(self.bench.storage)
        self.after = CountedAfterCommit(runtime=self.bench.runtime)
        self.number = 0

    def commit(self, later: int) -> None:
        self.bench.clock.advance(later)
        self.number += 1
        TableCommit(self.bench.table, "me", runtime=self.bench.runtime).commit(
            self.number, [self.bench.message(f"f{self.number}")]
        )
        self.after(replace(self.bench.table, storage=self.watched), self.bench.latest())
        assert self.after.failures == 0

    @property
    def tags(self) -> dict[str, int]:
        return {name: one.id for name, one in read_tags(self.bench.storage).items()}


def test_a_stream_tags_each_day_and_looks_for_tags_only_then() -> None:
    stream = Stream()
    stream.commit(HOUR)
    assert stream.tags == {"2023-11-13": 1}
    looks = len([one for one in stream.watched.operations if one.path == "tag"])
    for _ in range(22):
        stream.commit(HOUR)
    assert (
        len(
            [
                one
                for one in stream.watched.operations
                if one.path == "tag" and one.verb == "list_names"
            ]
        )
        <= looks
    )
    stream.commit(HOUR)
    assert stream.tags == {"2023-11-13": 1, "2023-11-14": 24}
    stream.after = CountedAfterCommit(runtime=stream.bench.runtime)  # after a restart
    stream.commit(3 * DAY)
    assert stream.tags == {"2023-11-13": 1, "2023-11-14": 24, "2023-11-17": 25}


def test_tagged_snapshots_stay_when_others_expire() -> None:
    stream = Stream(
        **{
            "tag.num-retained-max": "3",
            "snapshot.num-retained.min": "1",
            "snapshot.num-retained.max": "1",
        }
    )
    for _ in range(60):
        stream.commit(6 * HOUR)
    assert stream.after.expired > 40
    newest = stream.number
    assert sorted(stream.tags.values()) == [newest - 8, newest - 4, newest]
    table = PaimonTable(stream.bench.table)
    assert not [one for one in table.verify().findings if one.severity != "info"]


def test_a_table_whose_changelog_outlives_its_snapshots_is_tagged() -> None:
    stream = Stream(**{"changelog.time-retained": "9 d"})
    stream.commit(0)
    assert stream.tags == {"2023-11-13": 1}


@pytest.mark.parametrize("options", [{"write-only": "true"}, {"tag.automatic-creation": "batch"}])
def test_a_stream_makes_no_tags_if_the_options_say_so(options: dict[str, str]) -> None:
    stream = Stream(**options)
    stream.commit(0)
    assert not stream.tags


def test_no_snapshot_expires_while_its_tag_cannot_be_created() -> None:
    stream = Stream(**{"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"})
    stream.commit(0)
    broken = FaultyStorage(stream.bench.storage, [Fault(at=1, verb="put_if_absent", path="tag/")])
    stream.bench.clock.advance(2 * DAY)
    TableCommit(stream.bench.table, "me", runtime=stream.bench.runtime).commit(
        9, [stream.bench.message("f9")]
    )
    stream.after(replace(stream.bench.table, storage=broken), stream.bench.latest())
    assert (stream.after.failures, stream.after.expired) == (1, 0)
    stream.after.failures = 0
    stream.commit(HOUR)
    assert stream.tags == {"2023-11-13": 1, "2023-11-15": 2}


def test_a_batch_is_tagged_after_its_commit() -> None:
    table = PaimonTable.create(
        f"memory://tags-{next(_NUMBER)}/db.db/t",
        [("id", "INT")],
        options={"tag.automatic-creation": "batch"},
    )
    for number in (1, 2):
        table.append(pa.table({"id": pa.array([1], pa.int32())}))
        assert list(tags(table).values()) == [number]
        assert next(iter(tags(table))).startswith("batch-write-2")


def test_a_run_that_begins_with_an_empty_batch_tags_before_snapshots_expire() -> None:
    stream = Stream(**{"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"})
    stream.after = CountedAfterCommit(runtime=stream.bench.runtime)
    for number in range(3):
        stream.bench.clock.advance(DAY)
        TableCommit(stream.bench.table, "you", runtime=stream.bench.runtime).commit(
            number, [stream.bench.message(f"y{number}")]
        )
    stream.after.after_nothing(stream.bench.table)
    assert stream.after.expired == 2
    assert stream.tags == {"2023-11-14": 1, "2023-11-15": 2, "2023-11-16": 3}


def test_changed_options_are_followed_by_a_committer_at_work() -> None:
    stream = Stream()
    stream.commit(HOUR)
    hourly = Options({**stream.bench.table.options, "tag.creation-period": "hourly"})
    stream.bench.table = replace(stream.bench.table, options=hourly)
    stream.commit(HOUR)
    stream.commit(HOUR)
    assert list(stream.tags) == ["2023-11-13", "2023-11-14 00", "2023-11-14 01", "2023-11-14 02"]


def test_an_interval_that_cannot_be_read_stops_only_partitions() -> None:
    stream = Stream(**{"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"})
    given = {"partition.expiration-time": "1 d", "partition.expiration-check-interval": "often"}
    stream.bench.table = replace(
        stream.bench.table, options=Options({**stream.bench.table.options, **given})
    )
    for number in range(2):
        stream.bench.clock.advance(DAY)
        TableCommit(stream.bench.table, "me", runtime=stream.bench.runtime).commit(
            number, [stream.bench.message(f"f{number}")]
        )
        stream.after(stream.bench.table, stream.bench.latest())
    assert stream.tags == {"2023-11-14": 1, "2023-11-15": 2}
    assert stream.after.expired == 1
