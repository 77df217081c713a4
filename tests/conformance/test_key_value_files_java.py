"""Files of tables with primary keys: Java reads ours, and they are like those that Java writes."""

from __future__ import annotations

import datetime as dt
import itertools
import random
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from paimon_stream.api.table import PaimonTable
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.merge.spec import KIND
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.table import load_table
from paimon_stream.write.key_task import write_keyed_task
from paimon_stream.write.task import WriteSpec
from tests.kits.seeds import MANY
from tests.kits.tables import batch_of

KINDS = {"+I": 0, "-U": 1, "+U": 2, "-D": 3}
Row = Mapping[str, Any]
COMPARED = (
    "bucket",
    "level",
    "rowCount",
    "minKey",
    "maxKey",
    "keyStats",
    "valueStats",
    "deleteRowCount",
    "schemaId",
    "fileSource",
    "valueStatsCols",
)
NUMBERS = ("minSequenceNumber", "maxSequenceNumber")


def write_ours(
    path: Path,
    rows: Sequence[Row],
    kinds: Sequence[str],
    first_sequence: int,
    *,
    is_sorted: bool = False,
) -> tuple[CommitMessage, ...]:
    table = load_table(LocalStorage(str(path)))
    batch = batch_of(table.schema, rows)
    batch = batch.append_column(KIND, pa.array(np.array([KINDS[one] for one in kinds], np.int8)))
    spec = WriteSpec(storage=table.storage, schema=table.schema, options=table.options)
    half = len(rows) // 2
    parts = [batch.slice(0, half), batch.slice(half)]
    return write_keyed_task(
        spec, parts, first_sequence=first_sequence, is_sorted=is_sorted
    ).messages


class Twins:
    """A table that we write and one that Java writes, with the same changes."""

    def __init__(
        self, java: Any, root: Path, schema: Any, keys: Sequence[str], **more: Any
    ) -> None:
        self.java, self.schema = java, schema
        self.ours, self.theirs = root / "ours", root / "theirs"
        options = {"bucket": "1", "write-only": "true", **more.pop("options", {})}
        # Java numbers the rows of each bucket, we those of all that a task writes.
        single = options["bucket"] == "1" and not more.get("partition_keys")
        self._compared = COMPARED + (NUMBERS if single else ())
        for path in (self.ours, self.theirs):
            java.create_table(path, schema, more.get("partition_keys", ()), keys, options)
        self._commits = 0
        self._next = 0

    def change(self, rows: Sequence[Row], kinds: Sequence[str] | None = None) -> None:
        kinds = kinds or ["+I"] * len(rows)
        self._commits += 1
        self.java.write(self.theirs, rows, commit_identifier=self._commits, kinds=kinds)
        messages = write_ours(self.ours, rows, kinds, self._next)
        PaimonTable.load(str(self.ours)).new_commit("ours").commit(self._commits, messages)
        self._next += len(rows)

    def check(self, *, files: bool = True) -> None:
        import java_paimon

        both = (self.ours, self.theirs)
        found = [java_paimon.canonical(self.schema, self.java.read(path)) for path in both]
        assert found[0] == found[1]
        if files:
            ours, theirs = ([self._facts(file) for file in self.java.files(path)] for path in both)
            assert sorted(ours, key=repr) == sorted(theirs, key=repr)

    def _facts(self, file: Mapping[str, Any]) -> dict[str, Any]:
        return {name: file[name] for name in self._compared if name in file}


VALUES: dict[str, list[Any]] = {
    "BOOLEAN": [False, True],
    "TINYINT": [-128, -1, 0, 127],
    "INT": [-(2**31), -1, 0, 7, 2**31 - 1],
    "BIGINT": [-(2**63), -1, 0, 7, 2**63 - 1],
    "DECIMAL(9, 2)": [Decimal("-1.50"), Decimal("0.00"), Decimal("7.25")],
    "DECIMAL(38, 10)": [Decimal("-1.5"), Decimal("0"), Decimal("12345678901234567890.0000000001")],
    "STRING": ["", "a", "ab", "é", "漢", "😀", "\uffff", "x" * 200],
    "VARBINARY(20)": [b"", b"\x00", b"\x7f", b"\x80", b"\xff\x00"],
    "DATE": [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2024, 2, 29)],
    "TIME(3)": [dt.time(0), dt.time(23, 59, 59, 999000)],
    "TIMESTAMP(3)": [dt.datetime(1969, 12, 31, 23, 59), dt.datetime(2024, 2, 29, 1, 2, 3, 4000)],
    "TIMESTAMP(6)": [dt.datetime(1969, 12, 31, 23, 59), dt.datetime(2024, 2, 29, 1, 2, 3, 4)],
}


@pytest.mark.parametrize("format_", ["parquet", "orc", "avro"])
def test_files_are_those_of_java_for_every_type_of_key(
    java: Any, tmp_path: Path, format_: str
) -> None:
    chance = random.Random(4)
    # The order of keys and the rows of bounds do not depend on the format.
    every = 1 if MANY or format_ == "parquet" else 3
    for number, (type_, values) in list(enumerate(VALUES.items()))[::every]:
        schema = [("v", "STRING"), ("k", f"{type_} NOT NULL"), ("n", "INT"), ("k2", "INT NOT NULL")]
        twins = Twins(
            java,
            tmp_path / str(number),
            schema,
            ["k2", "k"],
            options={"file.format": format_, "bucket": "2"},
        )
        for _ in range(2):
            rows = [
                {
                    "v": chance.choice([None, "v", "w" * 40]),
                    "k": chance.choice(values),
                    "n": n,
                    "k2": n % 3,
                }
                for n in range(12)
            ]
            twins.change(rows, [chance.choice(["+I", "+U", "-D", "-U"]) for _ in rows])
        twins.check(files=number < 3 or format_ == "parquet")


@pytest.mark.parametrize("format_", ["parquet", "avro"])
def test_thin_files_leave_the_keys_out(java: Any, tmp_path: Path, format_: str) -> None:
    schema = [("k", "STRING NOT NULL"), ("n", "INT")]
    options = {"data-file.thin-mode": "true", "file.format": format_}
    twins = Twins(java, tmp_path, schema, ["k"], options=options)
    twins.change([{"k": "k" * 150, "n": 1}, {"k": "a", "n": 2}, {"k": "a", "n": 3}])
    twins.change([{"k": "a", "n": 3}], ["-D"])
    twins.check()


def test_changelog_files_hold_every_change(java: Any, tmp_path: Path) -> None:
    schema = [("k", "INT NOT NULL"), ("n", "INT")]
    twins = Twins(java, tmp_path, schema, ["k"], options={"changelog-producer": "input"})
    rows = [
        {"k": 2, "n": 1},
        {"k": 1, "n": 2},
        {"k": 2, "n": 1},
        {"k": 2, "n": 5},
        {"k": 1, "n": 2},
    ]
    twins.change(rows, ["+I", "+I", "-U", "+U", "-D"])
    twins.check()
    ours, theirs = (java.snapshots(path)[-1] for path in (twins.ours, twins.theirs))
    assert ours["changelogRecordCount"] == theirs["changelogRecordCount"] == 5
    for read in (java.read_delta, java.read_changes):
        found = [read(path, 1) for path in (twins.ours, twins.theirs)]
        assert found[0] == found[1]
    assert [kind for kind, _ in found[0]] == ["+I", "-D", "+I", "-U", "+U"]


@pytest.mark.parametrize(
    "options",
    [
        {"file.format.per.level": "0:avro,5:parquet"},
        {"metadata.stats-mode.per.level": "0:none"},
        {"file.compression.per.level": "0:snappy"},
        {"metadata.stats-keep-first-n-columns": "1"},
        {"metadata.stats-mode": "counts"},
        {"metadata.stats-dense-store": "false", "fields.n.stats-mode": "none"},
        {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"},
        {"merge-engine": "partial-update"},
        {"sequence.field": "s"},
        {"merge-engine": "deduplicate", "ignore-delete": "true"},
    ],
    ids=lambda one: next(iter(one.items()))[0] + "=" + next(iter(one.values())),
)
def test_options_mean_what_they_mean_to_java(
    java: Any, tmp_path: Path, options: dict[str, str]
) -> None:
    schema = [("k", "STRING NOT NULL"), ("n", "INT"), ("s", "INT"), ("dt", "STRING NOT NULL")]
    twins = Twins(java, tmp_path, schema, ["dt", "k"], options=options, partition_keys=["dt"])
    chance = random.Random(9)
    deletes = "deduplicate" in options.get("merge-engine", "deduplicate")
    for _ in range(3):
        rows = [
            {
                "k": chance.choice("abcde"),
                "n": chance.choice([None, n]),
                "s": chance.randrange(4),
                "dt": f"d{n % 2}",
            }
            for n in range(20)
        ]
        twins.change(rows, [chance.choice(["+I", "+U", "-D"]) if deletes else "+I" for _ in rows])
    twins.check(files="per.level" not in next(iter(options)) or "stats" in next(iter(options)))


def test_rows_that_come_sorted_become_one_run_of_files(java: Any, tmp_path: Path) -> None:
    options = {"bucket": "1", "write-only": "true", "target-file-size": "12 kb"}
    java.create_table(
        tmp_path / "t", [("k", "BIGINT NOT NULL"), ("v", "STRING")], (), ["k"], options
    )
    chance = random.Random(2)
    rows = [{"k": k, "v": f"{chance.random()}"} for k in range(4000) for _ in range(1 + k % 3)]
    table = load_table(LocalStorage(str(tmp_path / "t")))
    spec = WriteSpec(
        storage=table.storage, schema=table.schema, options=table.options, buffer_bytes=20_000
    )
    batch = batch_of(table.schema, rows)
    parts = [batch.slice(start, 500) for start in range(0, len(rows), 500)]
    messages = write_keyed_task(spec, parts, first_sequence=10, is_sorted=True).messages
    PaimonTable.load(str(tmp_path / "t")).new_commit("ours").commit(1, messages)
    files = sorted(messages[0].new_files, key=lambda file: file.min_sequence_number)
    assert len(files) > 2 and sum(file.row_count for file in files) == 4000
    assert all(one.max_key != two.min_key for one, two in itertools.pairwise(files))
    expected = {row["k"]: row["v"] for row in rows}
    assert {row["k"]: row["v"] for row in java.read(tmp_path / "t")} == expected
