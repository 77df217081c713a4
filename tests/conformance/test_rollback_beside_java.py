"""Our rollback and expiry beside Java's maintenance: Java honours the pin of a rollback, and we
notice what Java changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from paimon_stream.api.table import PaimonTable
from paimon_stream.commit.table_commit import TableCommit
from paimon_stream.errors import CommitContended, NotFound
from paimon_stream.maintenance.expire import expire_snapshots
from paimon_stream.maintenance.pins import read_pins
from paimon_stream.maintenance.rollback import rollback_to
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.table import Table, load_table
from tests.kits.faults import Fault, FaultyStorage, Killed, Moment
from tests.kits.params import few
from tests.kits.races import Meanwhile

Golden = Callable[[str], tuple[Path, dict[str, Any]]]


class Place:
    """A table of Java's with several snapshots, and the rows of one in the middle."""

    def __init__(self, java: Any, golden: Golden) -> None:
        self.java = java
        self.path, _ = golden("pk_updates")
        self.ids = [one.id for one in self.ours().snapshots()]
        self.target = self.ids[len(self.ids) // 2]
        java.create_tag(self.path, "aim", self.target)
        self.rows = self.read("aim")

    def ours(self) -> PaimonTable:
        return PaimonTable.load(str(self.path))

    def table(self) -> Table:
        return load_table(LocalStorage(str(self.path)))

    def read(self, tag: str | None = None) -> list[str]:
        given = {"scan.tag-name": tag} if tag else {}
        return sorted(map(str, self.java.read(self.path, options=given)))

    def killed(self, target: int | str) -> None:
        """Begins a rollback, which is killed before it deletes a snapshot."""
        inner = self.table()
        last = f"snapshot/snapshot-{self.ids[-1]}"
        fault = Fault(at=1, verb="delete", path=last, moment=Moment.BEFORE, stop=True)
        with pytest.raises(Killed):
            rollback_to(replace(inner, storage=FaultyStorage(inner.storage, [fault])), target)

    def is_rolled_back(self) -> None:
        """Java and we find the target as the newest snapshot, with its rows, and all of it is
        there.
        """
        assert [one["id"] for one in self.java.snapshots(self.path)][-1] == self.target
        assert self.read() == self.rows
        assert [one for one in self.ours().verify().findings if one.severity == "error"] == []
        assert read_pins(self.table().storage) == []


@pytest.fixture
def place(java: Any, golden: Golden) -> Place:
    return Place(java, golden)


def test_java_s_expiry_keeps_the_files_of_a_pin(place: Place) -> None:
    place.java.delete_tag(place.path, "aim")
    place.killed(place.target)
    assert place.java.expire_snapshots(place.path, retain_max=1) > 0
    rollback_to(place.table(), place.target)
    place.is_rolled_back()


def test_a_tag_that_java_deletes_is_still_kept_by_the_pin(place: Place) -> None:
    place.java.expire_snapshots(place.path, retain_max=1)
    place.killed("aim")
    place.java.delete_tag(place.path, "aim")
    rollback_to(place.table(), place.target)
    place.is_rolled_back()


@pytest.mark.parametrize("at", few([3, 14, 20], lambda at: at == 14))
def test_a_rollback_stops_where_java_rolls_back_further(place: Place, at: int) -> None:
    inner, lower = place.table(), place.ids[0]
    met = Meanwhile(inner.storage, at, lambda: place.java.rollback_to(place.path, lower))
    stopped = r"another one has taken over|meanwhile|has no snapshot"
    with pytest.raises((CommitContended, NotFound), match=stopped):
        rollback_to(replace(inner, storage=met), place.target)  # type: ignore[arg-type]
    assert [one["id"] for one in place.java.snapshots(place.path)][-1] == lower
    assert [one.id for one in place.ours().snapshots()][-1] == lower


@pytest.mark.parametrize("at", few(range(4, 100, 12), lambda at: at in (16, 40, 64)))
def test_an_expiry_notices_that_java_has_rolled_back(place: Place, at: int) -> None:
    place.java.delete_tag(place.path, "aim")
    inner = place.table()
    met = Meanwhile(inner.storage, at, lambda: place.java.rollback_to(place.path, place.ids[-2]))
    place.target = place.ids[-2]
    place.java.create_tag(place.path, "aim", place.target)
    place.rows = place.read("aim")
    expire_snapshots(replace(inner, storage=met), 2, 2, timedelta(0))  # type: ignore[arg-type]
    if met.happened:
        place.is_rolled_back()


def test_java_reads_the_tag_below_that_of_a_replaced_snapshot_after_our_expiry(
    place: Place,
) -> None:
    """The replaced snapshot had removed all rows. The one in its place removes them later."""
    replaced = place.ids[-1] + 1
    rows = place.java.read(place.path)
    TableCommit(place.table(), "replaced").overwrite({})
    place.java.create_tag(place.path, "replaced", replaced)
    (place.path / "snapshot" / f"snapshot-{replaced}").unlink()
    (place.path / "snapshot" / "LATEST").write_text(str(replaced - 1))
    place.java.write(place.path, rows[:1], "java", 1)
    for _ in range(2):
        TableCommit(place.table(), "clears").overwrite({})
    assert expire_snapshots(place.table(), 1, 1, timedelta(0)).snapshots
    assert place.read("replaced") == []
    assert place.rows
    assert place.read("aim") == place.rows
