"""The streams whose processes are killed: their tables, the rows of each batch, and what a table
holds after them. Each batch has rows that no other has, so one that is lost, or there twice, shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from paimon_stream import PaimonTable
from tests.kits.keyed import Change, Model, Row

ROWS_PER_BATCH = 6
HOT_KEYS = 5
"""Keys that each batch writes again. They are negative."""


def tokens(batch: int) -> range:
    """The numbers that only this batch has."""
    return range(batch * ROWS_PER_BATCH, (batch + 1) * ROWS_PER_BATCH)


def appended(batch: int) -> list[Change]:
    """New rows, in two partitions."""
    return [
        ("+I", {"id": token, "day": f"d{token % 2}", "n": batch, "rows": 1})
        for token in tokens(batch)
    ]


def upserted(batch: int) -> list[Change]:
    """New keys, keys that each batch writes, and a key of an earlier batch that goes."""
    new: list[Change] = [
        ("+I", {"id": token, "day": "d", "n": batch, "rows": 1}) for token in tokens(batch)
    ]
    hot: list[Change] = [
        ("+U", {"id": -key, "day": "d", "n": batch, "rows": 1}) for key in range(1, HOT_KEYS)
    ]
    gone = [(batch - 2) * ROWS_PER_BATCH] if batch > 1 else []
    return [*new, *hot, *(("-D", {"id": key, "day": "d", "n": 0, "rows": 1}) for key in gone)]


def added(batch: int) -> list[Change]:
    """What is added to sums: to those of new keys, and to those of keys that each batch writes."""
    keys = [*tokens(batch)[:3], *range(-HOT_KEYS, 0)]
    return [("+I", {"id": key, "day": "d", "n": 7 * batch + 1, "rows": 1}) for key in keys]


class Rows(Model):
    """The model of a table without keys: all rows stay."""

    def change(self, key: tuple[Any, ...], kind: str, row: dict[str, Any]) -> None:
        self.rows[(len(self.rows),)] = row


class Totals(Model):
    """The model of a table that adds up `n`, and counts its rows by `rows`."""

    def change(self, key: tuple[Any, ...], kind: str, row: dict[str, Any]) -> None:
        held = self.rows.setdefault(key, {**row, "n": 0, "rows": 0})
        held["n"] += row["n"]
        held["rows"] += row["rows"]


_SUMS = {
    "merge-engine": "aggregation",
    "fields.n.aggregate-function": "sum",
    "fields.rows.aggregate-function": "sum",
}
_DYNAMIC = {**_SUMS, "bucket": "-1", "dynamic-bucket.target-row-num": "7"}
_BY_OTHERS = {"write-only": "true"}
_TWO_RUNS = {"num-sorted-run.compaction-trigger": "2"}
_TWO_FILES = {"bucket": "2", "bucket-key": "id", "compaction.min.file-num": "2"}


@dataclass(frozen=True)
class Kind:
    """A kind of table, and what a stream writes to it. `sink_options` are those of its sink."""

    name: str
    changes: Callable[[int], list[Change]]
    model: type[Model]
    options: Mapping[str, str]
    partition_keys: Sequence[str] = ()
    primary_keys: Sequence[str] = ()
    sink_options: Mapping[str, str] = field(default_factory=dict)

    def create(
        self, location: str, storage_options: Mapping[str, str], more: Mapping[str, str]
    ) -> PaimonTable:
        """A new table, with `more` options."""
        key = "BIGINT NOT NULL" if self.primary_keys else "BIGINT"
        return PaimonTable.create(
            location,
            schema=[("id", key), ("day", "STRING"), ("n", "BIGINT"), ("rows", "BIGINT")],
            partition_keys=self.partition_keys,
            primary_keys=self.primary_keys,
            options={**self.options, **more},
            storage_options=storage_options,
        )

    def expected(self, batches: int) -> list[dict[str, Any]]:
        """The rows of the table after so many batches, in the order of `ordered`."""
        model = self.model(keys=("id",))
        for batch in range(batches):
            model.take(self.changes(batch))
        return ordered(model.found())


def ordered(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """The rows by id and number."""
    return sorted(map(dict, rows), key=lambda row: (row["id"], row["n"]))


_BY_ID = ("id",)
KINDS = {
    kind.name: kind
    for kind in (
        Kind("append", appended, Rows, {"bucket": "-1"}, partition_keys=("day",)),
        Kind("keyed", upserted, Model, {"bucket": "2", **_BY_OTHERS}, primary_keys=_BY_ID),
        Kind("sums", added, Totals, {"bucket": "2", **_SUMS, **_BY_OTHERS}, primary_keys=_BY_ID),
        Kind("dynamic buckets", added, Totals, {**_DYNAMIC, **_BY_OTHERS}, primary_keys=_BY_ID),
        Kind(
            "append, compacting",
            appended,
            Rows,
            _TWO_FILES,
            sink_options={"paimon-stream.compact": "minor"},
        ),
        Kind("keyed, compacting", upserted, Model, {"bucket": "2", **_TWO_RUNS}, (), _BY_ID),
        Kind("sums, compacting", added, Totals, {"bucket": "2", **_SUMS, **_TWO_RUNS}, (), _BY_ID),
        Kind("dynamic buckets, compacting", added, Totals, {**_DYNAMIC, **_TWO_RUNS}, (), _BY_ID),
    )
}
DOORS = ("foreachBatch", "data source")
"""The ways in which a Spark query writes."""
PLACES = ("disk", "S3")
KILLS_PER_STREAM = 5
SPARK_EVERY = 20
"""One stream of so many is a Spark query. Each is killed as often, so this is its share of kills."""


@dataclass(frozen=True)
class Stream:
    """Stream number `number`. Its number alone says what it is; the rest is drawn from it.
    `door` is None for a stream without Spark. With `expires`, only two snapshots are kept.
    """

    number: int
    kind: Kind
    place: str
    door: str | None
    expires: bool
    by_driver: bool

    @classmethod
    def of(cls, number: int) -> Stream:
        """The stream with a number, from 1 on."""
        dice, names = Random(number), list(KINDS)
        rank, is_plain = divmod(number, SPARK_EVERY)
        expires, by_driver = dice.random() < 1 / 3, dice.random() < 1 / 2
        if not is_plain:
            door, place = DOORS[rank % 2], PLACES[rank // 2 % 2]
            kind = KINDS[dice.choice(["append", "sums", "sums, compacting"])]
            return cls(number, kind, place, door, expires, by_driver)
        plain = number - rank - 1
        kind, place = KINDS[names[plain % len(names)]], PLACES[plain // len(names) % 2]
        return cls(number, kind, place, None, expires, by_driver)

    @property
    def name(self) -> str:
        """Its row in the table of the page."""
        return self.kind.name if self.door is None else f"Spark, {self.door}"

    def create(self, location: str, storage_options: Mapping[str, str]) -> PaimonTable:
        """Its table."""
        few = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "2"}
        return self.kind.create(location, storage_options, few if self.expires else {})
