"""The streams that were killed: what they read, their tables, and the expected results."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from paimon_stream import PaimonTable

FILES = 3
ROWS_PER_FILE = 6
SOURCE = "id bigint, day string, n bigint"
TAG = "before"
EARLIER = [{"id": -1, "day": "d0", "n": 7}, {"id": -2, "day": "d1", "n": 8}]
"""The rows that the table of a branch has before the branch is made."""


@dataclass(frozen=True)
class Stream:
    """One stream. `mode` is the output mode of its query and of its sinks.

    `sinks` are the names of the sinks of its query, in their order; the only one has none. `branch`
    is the branch that they write to. With `by_format`, the stream reads a table and writes another
    one by `format("paimon_stream")`.
    """

    name: str
    columns: tuple[tuple[str, str], ...]
    partition_keys: tuple[str, ...] = ()
    primary_keys: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    mode: str = "append"
    sinks: tuple[str | None, ...] = (None,)
    branch: str | None = None
    by_format: bool = False

    def location(self, root: Path) -> str:
        """What the sinks of the stream in this folder are given."""
        return str(root / "table") + ("" if self.branch is None else f"$branch_{self.branch}")

    def create(self, root: Path) -> None:
        """The table, its branch, and the source with all its rows."""
        table = PaimonTable.create(
            str(root / "table"),
            schema=list(self.columns),
            partition_keys=self.partition_keys,
            primary_keys=self.primary_keys,
            options=dict(self.options),
        )
        if self.branch is not None:
            table.append(pa.Table.from_pylist(EARLIER))
            table.create_tag(TAG)
            table.create_branch(self.branch, tag=TAG)
        if self.by_format:
            source = PaimonTable.create(str(root / "source"), schema=list(self.columns))
            for number in range(FILES):
                source.append(pa.Table.from_pylist(source_rows(number)))
            return
        (root / "source").mkdir()
        for number in range(FILES):
            path = root / "source" / f"{number:04d}.json"
            path.write_text("".join(json.dumps(row) + "\n" for row in source_rows(number)))
            os.utime(
                path, (1_700_000_000 + number, 1_700_000_000 + number)
            )  # Spark reads the oldest first

    def batch(self, number: int, sink: str | None = None) -> list[dict[str, Any]]:
        """The rows that a sink is given with that batch. Those of the second sink have a negative
        `n`.
        """
        if self.mode == "complete":
            return totals(number + 1)
        names = [name for name, _ in self.columns]
        sign = -1 if sink in self.sinks[1:] else 1
        return [
            {name: {**row, "n": sign * row["n"]}[name] for name in names}
            for row in source_rows(number)
        ]

    def expected(self, batches: int) -> list[dict[str, Any]]:
        """The rows of the table after this number of batches, in the order of `ordered`."""
        if self.primary_keys:
            return totals(batches)
        earlier = [] if self.branch is None else EARLIER
        given = [
            row
            for number in range(batches)
            for sink in self.sinks
            for row in self.batch(number, sink)
        ]
        return ordered([*earlier, *given])


def source_rows(number: int) -> list[dict[str, Any]]:
    """The rows of one source file: the ids 0 to 5 again and again, each file with an `n` of its
    own.
    """
    return [{"id": i, "day": f"d{i % 2}", "n": 10**number + i} for i in range(ROWS_PER_FILE)]


def totals(files: int) -> list[dict[str, Any]]:
    """The sum of `n` for each id over the first files. A row that is written twice shows."""
    return [
        {"id": i, "n": sum(10**number + i for number in range(files))} for i in range(ROWS_PER_FILE)
    ]


def ordered(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows by id and number."""
    return sorted(map(dict, rows), key=lambda row: (row["id"], row["n"]))


_ROWS = (("id", "BIGINT"), ("day", "STRING"), ("n", "BIGINT"))
_KEYED = (("id", "BIGINT NOT NULL"), ("n", "BIGINT"))
_SUMS = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum", "write-only": "true"}
STREAMS = {
    one.name: one
    for one in (
        Stream(
            "append", _ROWS, partition_keys=("day",), options={"bucket": "2", "bucket-key": "id"}
        ),
        Stream("unaware", _ROWS),
        Stream("keyed", _KEYED, primary_keys=("id",), options={"bucket": "2", **_SUMS}),
        Stream("complete", _KEYED, primary_keys=("id",), options={"bucket": "1"}, mode="complete"),
        Stream("branch", _ROWS, branch="dev"),
        Stream(
            "dynamic",
            _KEYED,
            primary_keys=("id",),
            options={"dynamic-bucket.target-row-num": "2", **_SUMS},
        ),
        Stream("named", _ROWS, sinks=("first", "second")),
        Stream("format", _ROWS, by_format=True),
    )
}
