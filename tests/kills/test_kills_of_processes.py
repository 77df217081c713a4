"""Real processes of streams are killed, and the audit sees what a driver does wrong.

`make torture-kills` kills a thousand.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paimon_stream.stream.identity import WriterIdentity
from tests.kills import page
from tests.kills.crowds import Crowded
from tests.kills.deaths import (
    AFTER_AN_OPERATION,
    AT_A_POINT,
    IN_A_WRITE,
    SYSTEM_CALL,
    Death,
    Diary,
)
from tests.kills.driver import Driver
from tests.kills.machine import Ground, Machine, Outcome
from tests.kills.portions import Portion, read
from tests.kills.queries import Query
from tests.kills.streams import KILLS_PER_STREAM, KINDS, PLACES, SPARK_EVERY, Stream
from tests.kits.stores import StoreServer

PUBLISHED = Death(AFTER_AN_OPERATION, 1, "put_if_absent", "snapshot/snapshot-1")
"""The first snapshot is there, and its driver does not know it."""


class Forgetful(Driver):
    """A driver that does not know who it was: it finds neither its journal nor its claims."""

    def identity(self) -> WriterIdentity:
        name = f"somebody-{self.life.run}"
        return replace(super().identity(), user=name, query_id=name, checkpoint=name)


class Hasty(Driver):
    """A driver that notes a batch as done before it is."""

    def batch(self, batch_id: int) -> None:
        self.acknowledge(batch_id)
        super().batch(batch_id)


class Killed(Machine):
    """A stream that dies as the test says."""

    def __init__(self, *of_machine: Any, deaths: list[Death]) -> None:
        super().__init__(*of_machine)
        self.deaths = deaths

    def lives(self, kills: int) -> None:
        for death in self.deaths:
            self.killed(death)
            self.look()
        self.last_run()


@pytest.fixture
def disk(tmp_path: Path, java: Any) -> Ground:
    return Ground(tmp_path, None, {"disk": java})


def numbered(name: str, place: str) -> Stream:
    """The first stream of a kind in a place."""
    numbers = range(1, 20 * SPARK_EVERY)
    return next(
        stream for stream in map(Stream.of, numbers) if (stream.name, stream.place) == (name, place)
    )


def test_a_stream_that_dies_in_four_ways_has_each_row_once(disk: Ground) -> None:
    deaths = [
        Death(IN_A_WRITE, 3, "output.write", cut=1),
        PUBLISHED,
        Death(AT_A_POINT, 8),
        Death(SYSTEM_CALL, 120),
    ]
    outcome = Killed(disk, numbered("sums", "disk"), deaths=deaths).run()
    assert outcome.wrong is None
    assert outcome.kills == Counter(death.how for death in deaths)
    assert outcome.batches >= 2 and outcome.rows
    assert not disk.root(outcome.stream).exists()


@pytest.mark.parametrize(
    ("driver", "deaths", "shown"),
    [
        (Forgetful, [PUBLISHED], "too many"),
        (Hasty, [Death(AT_A_POINT, 3)], "missing"),
    ],
    ids=["it forgets who it was", "it acknowledges too early"],
)
def test_a_driver_that_does_wrong_is_noticed(
    driver: type[Driver], deaths: list[Death], shown: str, disk: Ground
) -> None:
    stream = numbered("append", "disk")
    outcome = Killed(disk, stream, driver, deaths=deaths).run()
    assert outcome.wrong is not None
    assert f"{shown} [{{'id': 0" in outcome.wrong, outcome.wrong
    assert (disk.keep(stream) / "db.db" / "t" / "schema").exists()


@pytest.mark.full
def test_a_driver_that_fails_says_why(disk: Ground) -> None:
    class Failing(Machine):
        def lives(self, kills: int) -> None:
            (self.root / "db.db" / "t" / "schema" / "schema-0").write_text("{")
            self.last_run()

    outcome = Failing(disk, numbered("append", "disk")).run()
    assert outcome.wrong is not None
    assert "the last run ended 1" in outcome.wrong and "CorruptMetadata" in outcome.wrong


@pytest.mark.full
@pytest.mark.parametrize("name", KINDS)
def test_streams_to_s3_are_killed(
    name: str, java_on_s3: Any, s3_server: StoreServer, tmp_path: Path
) -> None:
    ground = Ground(tmp_path, s3_server.server, {"S3": java_on_s3})
    outcome = Machine(ground, numbered(name, "S3")).run()
    assert outcome.wrong is None
    assert outcome.kills.total() == KILLS_PER_STREAM


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.parametrize("door", ["foreachBatch", "data source"])
def test_a_spark_query_is_killed(door: str, disk: Ground) -> None:
    if door == "data source":
        pytest.importorskip("pyspark.sql.datasource", reason="data sources need pyspark 4.0")
    outcome = Query(disk, numbered(f"Spark, {door}", "disk")).run(kills=2)
    assert outcome.wrong is None
    assert outcome.kills.total() == 2


def test_one_kill_of_twenty_is_that_of_a_spark_query() -> None:
    streams = [Stream.of(number) for number in range(1, 201)]
    by_spark = [stream for stream in streams if stream.door is not None]
    assert len(by_spark) * SPARK_EVERY == len(streams) == 1000 // KILLS_PER_STREAM
    plain = Counter((stream.name, stream.place) for stream in streams if stream.door is None)
    assert len(plain) == len(KINDS) * len(PLACES)
    assert min(plain.values()) >= 11
    assert len({(stream.door, stream.place) for stream in by_spark}) == 4


def test_a_diary_says_what_was_written_last(tmp_path: Path) -> None:
    diary = Diary(tmp_path / "diary")
    assert Diary.last_words(tmp_path / "diary") == "before the first batch"
    diary.write("after base-read")
    diary.write("after judged")
    assert Diary.last_words(tmp_path / "diary") == "after judged"


def test_portions_are_read_as_they_were_written(tmp_path: Path) -> None:
    stream, portions = numbered("keyed", "S3"), []
    for number in (1, 2):
        portion = Portion("0.1", "abc", "2026-11-29", number, number)
        kills = Counter({"after a while": 3})
        portion.add(Outcome(stream, kills, Counter({"after judged": 3}), 7, 40))
        portion.add(Outcome(stream, wrong="a row is lost"))
        portion.write(tmp_path / "portions")
        portions.append(portion)
    portions.append(Portion("0.1", "abc", "2026-11-29", 3, 2, 99.0))
    portions[-1].crowds.append(Crowded("64 processes", 3200, 9000, 0, 250))
    portions[-1].write(tmp_path / "portions")
    assert read(tmp_path / "portions") == portions
    assert portions[0].kills == 3 and portions[0].last == stream.number
    text = page.render(portions)
    assert "6 kills in 2 portions, 2 failures" in text
    assert "| keyed | S3 | 4 | 6 | 14 | 80 |" in text
    assert "| after judged | 6 |" in text
    assert "| 64 processes | 3,200 | 9,000 | 0 | 250 |" in text


def test_the_page_has_the_portions() -> None:
    written = page.PAGE.read_text()
    assert page.render(read()) in written, "run: python -m tests.kills.page"
