"""The streams that were killed: what they read, their tables, and the expected results."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paimon_stream import PaimonTable

FILES = 3
ROWS_PER_FILE = 6
SOURCE = "id bigint, day string, n bigint"


@dataclass(frozen=True)
class Stream:
    """One stream. `mode` is the output mode of its query and of its sink."""

    name: str
    columns: tuple[tuple[str, str], ...]
    partition_keys: tuple[str, ...] = ()
    primary_keys: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    mode: str = "append"

    def create(self, root: Path) -> None:
        """The table, and the source with all its files."""
        PaimonTable.create(
            str(root / "table"),
            schema=list(self.columns),
            partition_keys=self.partition_keys,
            primary_keys=self.primary_keys,
            options=dict(self.options),
        )
        (root / "source").mkdir()
        for number in range(FILES):
            path = root / "source" / f"{number:04d}.json"
            path.write_text("".join(json.dumps(row) + "\n" for row in source_rows(number)))
            os.utime(
                path, (1_700_000_000 + number, 1_700_000_000 + number)
            )  # Spark reads the oldest first

    def batch(self, number: int) -> list[dict[str, Any]]:
        """The rows that the sink is given with that batch."""
        if self.mode == "complete":
            return totals(number + 1)
        names = [name for name, _ in self.columns]
        return [{name: row[name] for name in names} for row in source_rows(number)]

    def expected(self, batches: int) -> list[dict[str, Any]]:
        """The rows of the table after this number of batches, in the order of `ordered`."""
        if self.primary_keys:
            return totals(batches)
        return ordered(row for number in range(batches) for row in self.batch(number))


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


_KEYED = (("id", "BIGINT NOT NULL"), ("n", "BIGINT"))
STREAMS = {
    one.name: one
    for one in (
        Stream(
            "append",
            (("id", "BIGINT"), ("day", "STRING"), ("n", "BIGINT")),
            partition_keys=("day",),
            options={"bucket": "2", "bucket-key": "id"},
        ),
        Stream("unaware", (("id", "BIGINT"), ("day", "STRING"), ("n", "BIGINT"))),
        Stream(
            "keyed",
            _KEYED,
            primary_keys=("id",),
            options={
                "bucket": "2",
                "merge-engine": "aggregation",
                "fields.n.aggregate-function": "sum",
                "write-only": "true",
            },
        ),
        Stream("complete", _KEYED, primary_keys=("id",), options={"bucket": "1"}, mode="complete"),
    )
}
