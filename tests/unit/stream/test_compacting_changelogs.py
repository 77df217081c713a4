"""Streams to tables whose rows or changelog are to be seen only after a compaction: each batch is
seen, once.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from paimon_stream import PaimonTable
from paimon_stream.errors import UnsupportedFeature
from paimon_stream.storage.local import LocalStorage
from tests.kits.compacted_stream import CompactedStream
from tests.kits.compaction import problems
from tests.kits.faults import Fault, FaultyStorage, Killed, Moment
from tests.kits.keyed import Change
from tests.kits.seeds import examples
from tests.unit.compact.test_changelogs import FIRST, FULL, LOOKUP, SUM, applied, in_table

pytestmark = pytest.mark.lowest

VECTORS = {"deletion-vectors.enabled": "true"}
KINDS = [LOOKUP, FULL, FIRST, SUM, {"merge-engine": "first-row"}, VECTORS, LOOKUP | VECTORS]


def made(tmp_path: Path, options: dict[str, str]) -> PaimonTable:
    columns = [("k", "INT NOT NULL"), ("v", "INT")]
    place = str(tmp_path / "db.db" / "t")
    return PaimonTable.create(
        place, columns, primary_keys=["k"], options={"bucket": "2", **options}
    )


def changes(number: int, options: dict[str, str]) -> list[Change]:
    random = Random(number)
    kinds = ["+I"] if options.get("merge-engine") == "first-row" else ["+I", "+I", "-D"]
    keys = random.sample(range(30), 12)
    return [(random.choice(kinds), {"k": key, "v": number}) for key in keys]


def check(table: PaimonTable, options: dict[str, str]) -> None:
    if "changelog-producer" in options:
        assert applied(table) == in_table(table)
    assert not [one for one in table.files() if not one.meta.level]


@pytest.mark.parametrize("options", KINDS, ids=repr)
def test_each_batch_is_seen_when_it_ends(tmp_path: Path, options: dict[str, str]) -> None:
    table = made(tmp_path, options)
    stream = CompactedStream(table)
    for number in range(12):
        stream.batch(changes(number, options))
        check(table, options)
        newest = table.latest_snapshot()
        assert (newest.commit_kind.value, newest.commit_identifier) == ("COMPACT", number)
    assert in_table(table)
    assert not problems(table)


@pytest.mark.parametrize("options", KINDS, ids=repr)
def test_what_a_killed_run_has_not_compacted_is_seen_after_the_restart(
    tmp_path: Path, options: dict[str, str]
) -> None:
    table, at = made(tmp_path, options), 0
    stream = CompactedStream(table)
    stream.batch(changes(0, options))
    ends = set()
    while at < 400:
        at += examples(25, 5)
        storage = FaultyStorage(
            LocalStorage(table.location), [Fault(at=at, moment=Moment.AFTER, stop=True)]
        )
        stream.start(storage=storage)
        try:
            stream.batch(changes(stream.next_batch, options))
        except Killed:
            ends.add("killed")
        stream.start()
        stream.batch(changes(stream.next_batch, options))
        ends.add(stream.reports[-1].outcome)
        check(table, options)
        if not storage.fired:
            break
    assert "killed" in ends
    assert not problems(table)


def test_the_batch_waits_for_its_compaction_although_it_may_cost_no_time(tmp_path: Path) -> None:
    table = made(tmp_path, LOOKUP)
    stream = CompactedStream(table, options={"paimon-stream.compact.max-share": "0"})
    stream.compaction = None
    stream.batch(changes(0, LOOKUP))
    check(table, LOOKUP)


@pytest.mark.parametrize("options", [LOOKUP, FULL, FIRST, VECTORS], ids=repr)
def test_a_stream_that_does_not_compact_is_refused_with_its_cure(
    tmp_path: Path, options: dict[str, str]
) -> None:
    table = made(tmp_path, options)
    stream = CompactedStream(table, options={"paimon-stream.compact": "off"})
    with pytest.raises(
        UnsupportedFeature,
        match=r"Set paimon-stream\.compact to auto, or set 'write-only' to 'true'",
    ):
        stream.batch(changes(0, options))
    assert not table.snapshots()


def test_with_delta_commits_the_changelog_comes_with_each_of_these_batches(tmp_path: Path) -> None:
    table = made(tmp_path, {**FULL, "full-compaction.delta-commits": "3"})
    stream = CompactedStream(table)
    for number in range(6):
        stream.batch(changes(number, FULL))
        if number % 3 == 2:
            check(table, FULL)
    assert [one.commit_identifier for one in table.snapshots() if one.changelog_record_count] == [
        2,
        5,
    ]
