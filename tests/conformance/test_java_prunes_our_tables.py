"""Java Paimon skips files, manifests and buckets of our tables exactly where it skips those of its
own.

Every table is written twice, by us and by Java, commit by commit. A scan of Java's must then read
the same files of both, and find the rows that a predicate evaluated in Python finds.
"""

from __future__ import annotations

import datetime as dt
import math
import operator
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.kits.seeds import MANY
from tests.kits.tables import append

pytestmark = pytest.mark.full

Rows = list[dict[str, Any]]
UTC = dt.timezone.utc
COMPARE = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Twins:
    """A table of ours and one of Java's with the same rows in the same commits."""

    def __init__(
        self,
        java: Any,
        root: Path,
        schema: list[tuple[str, str]],
        partition_keys: Sequence[str] = (),
        options: dict[str, str] | None = None,
    ) -> None:
        self.java, self.schema = java, schema
        self.ours, self.theirs = root / "db.db" / "ours", root / "db.db" / "theirs"
        self.rows: Rows = []
        self._commits = 0
        self._seen: dict[Path, dict[tuple[str, str], tuple[int, str, int]]] = {
            self.ours: {},
            self.theirs: {},
        }
        for path in (self.ours, self.theirs):
            java.create_table(
                path, schema, partition_keys, (), {"write-only": "true", **(options or {})}
            )

    def write(self, rows: Rows) -> None:
        self._commits += 1
        append(self.ours, rows, self._commits)
        self.java.write(self.theirs, rows, commit_identifier=self._commits)
        self.rows += rows
        for path, seen in self._seen.items():
            for file in self.java.files(path):
                key = (file["path"], file["fileName"])
                seen.setdefault(key, (self._commits, file["path"], file["rowCount"]))

    def files(self, path: Path) -> list[tuple[int, str, int]]:
        """All files as (commit, folder, rows), which both tables have in common."""
        return sorted(self._seen[path].values())

    def check(self, predicate: tuple[Any, ...]) -> int:
        """Checks files and rows of a scan with the predicate. Returns the number of files that it
        skipped.
        """
        ours, theirs = (
            sorted(self._seen[path][key] for key in self.java.scan_files(path, predicate))
            for path in (self.ours, self.theirs)
        )
        assert ours == theirs, predicate
        expected = [row for row in self.rows if holds(predicate, row)]
        assert self.canonical(self.java.read_where(self.ours, predicate)) == self.canonical(
            expected
        ), predicate
        return len(self.files(self.ours)) - len(ours)

    def canonical(self, rows: Rows) -> list[str]:
        import java_paimon

        return java_paimon.canonical(self.schema, rows)  # type: ignore[no-any-return]


def holds(predicate: tuple[Any, ...], row: dict[str, Any]) -> bool:
    """The predicate in Python. A comparison with NULL is never true."""
    op, *rest = predicate
    if op in ("and", "or"):
        return (all if op == "and" else any)(holds(part, row) for part in rest)
    value, literals = row.get(rest[0]), [sortable(literal) for literal in rest[1:]]
    if op in ("is null", "is not null"):
        return (value is None) == (op == "is null")
    if value is None:
        return False
    if op == "starts with":
        return bool(value.startswith(rest[1]))
    if op == "in":
        return sortable(value) in literals
    return bool(COMPARE[op](sortable(value), literals[0]))


def sortable(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def moments(*texts: str) -> list[dt.datetime]:
    return [dt.datetime.fromisoformat(text) for text in texts]


def decimals(scale: int, *unscaled: int) -> list[Decimal]:
    return [Decimal(n).scaleb(-scale) for n in unscaled]


# For each type: values in ascending order, three for each of three files.
VALUES: dict[str, list[Any]] = {
    "BOOLEAN": [False, False, False, False, True, True, True, True, True],
    "TINYINT": [-128, -100, -1, 0, 1, 2, 50, 100, 127],
    "SMALLINT": [-(2**15), -300, -1, 0, 1, 2, 300, 400, 2**15 - 1],
    "INT": [-(2**31), -300, -1, 0, 1, 2, 300, 400, 2**31 - 1],
    "BIGINT": [-(2**63), -300, -1, 0, 1, 2, 300, 400, 2**63 - 1],
    "FLOAT": [-math.inf, -1.5, -0.5, 0.25, 0.5, 1.0, 1.5, 3e38, math.inf],
    "DOUBLE": [-math.inf, -1e300, -0.5, 0.25, 0.5, 1.0, 1.5, 1e300, math.inf],
    "DECIMAL(9, 2)": decimals(2, -999999999, -100, -1, 0, 1, 2, 100, 200, 999999999),
    "DECIMAL(18, 4)": decimals(4, -(10**18) + 1, -100, -1, 0, 1, 2, 100, 200, 10**18 - 1),
    "DECIMAL(38, 10)": decimals(10, -(10**30), -100, -1, 0, 1, 2, 100, 200, 10**30),
    "STRING": [
        "",
        "a",
        "a" * 16,
        "a" * 16 + "b",
        "a" * 15 + "b" * 5,
        "é" * 20,
        "\ue000" * 17,
        "\uffff" * 17,
        "😀" * 17,
    ],
    "DATE": [
        dt.date.fromisoformat(text)
        for text in (
            "0001-01-01",
            "1969-12-31",
            "1970-01-01",
            "1970-01-02",
            "2000-02-29",
            "2001-01-01",
            "2024-02-29",
            "2024-03-01",
            "9999-12-31",
        )
    ],
    "TIMESTAMP(6)": moments(
        "0001-01-01T00:00:00",
        "1969-12-31T23:59:59.999999",
        "1970-01-01T00:00:00",
        "1970-01-01T00:00:00.000001",
        "2000-01-01T00:00:00",
        "2000-01-01T00:00:00.000999",
        "2000-01-01T00:00:00.001000",
        "2024-02-29T12:34:56.789123",
        "9999-12-31T23:59:59.999999",
    ),
}
VALUES["TIMESTAMP(6) WITH LOCAL TIME ZONE"] = [
    one.replace(tzinfo=UTC) for one in VALUES["TIMESTAMP(6)"]
]
# Below 0x80: of the bytes above, Java's own comparison of rows takes the sign.
NO_BOUNDS: dict[str, list[Any]] = {
    "BYTES": [b"", b"\0", b"\x01", b"a", b"ab", b"b", b"c", b"d" * 20, b"\x7f\x7f"]
}
ALL = {**VALUES, **NO_BOUNDS}
COLUMNS = {text: f"c{number}" for number, text in enumerate(ALL)}


@pytest.fixture(scope="module")
def every_type(java: Any, tmp_path_factory: pytest.TempPathFactory) -> Twins:
    """Five files: low, middle and high values, values among NULLs, nothing but NULLs."""
    schema = [("id", "INT"), *((COLUMNS[text], text) for text in ALL)]
    twins = Twins(java, tmp_path_factory.mktemp("pruning"), schema)
    for start in (0, 3, 6):
        twins.write([row_of(n) for n in range(start, start + 3)])
    twins.write([row_of(4), {"id": 100}, row_of(5)])
    twins.write([{"id": 101}, {"id": 102}])
    return twins


def row_of(n: int) -> dict[str, Any]:
    return {"id": n, **{COLUMNS[text]: values[n] for text, values in ALL.items()}}


@pytest.mark.parametrize("text", ALL)
def test_every_predicate_on_every_type_reads_the_right_rows_from_the_right_files(
    every_type: Twins, text: str
) -> None:
    column, values = COLUMNS[text], ALL[text]
    tried = values[:: 2 if MANY else 4]
    left_out = 0
    for op in COMPARE:
        for value in tried:
            left_out += every_type.check((op, column, value))
    left_out += every_type.check(("in", column, values[0], values[8]))
    null, not_null = (
        every_type.check(("is null", column)),
        every_type.check(("is not null", column)),
    )
    # Java does not trust a count of NULLs without bounds beside it.
    assert (null, not_null) == (3 if text in VALUES else 0, 1)
    if text in VALUES:
        assert left_out > 20
    else:
        # Of such a column only NULLs are counted: the file of NULLs alone is left out.
        assert left_out == len(COMPARE) * len(tried) + 1


@pytest.mark.parametrize(
    "prefix", ["a", "a" * 16, "a" * 17, "é", "é" * 17, "\uffff" * 17, "😀" * 17, "z", ""]
)
def test_prefixes_longer_and_shorter_than_bounds_read_the_right_rows(
    every_type: Twins, prefix: str
) -> None:
    every_type.check(("starts with", COLUMNS["STRING"], prefix))


def test_predicates_on_several_columns_leave_out_what_either_may(every_type: Twins) -> None:
    low, high = ("<", COLUMNS["INT"], 0), (">", COLUMNS["STRING"], "b")
    assert every_type.check(("and", low, high)) == 5
    assert every_type.check(("or", low, high)) >= 1


@pytest.mark.parametrize("mode", ["none", "counts", "truncate(1)", "full"])
@pytest.mark.parametrize("dense", ["true", "false"])
def test_statistics_of_every_mode_prune_as_those_of_java(
    java: Any, tmp_path: Path, mode: str, dense: str
) -> None:
    options = {
        "metadata.stats-mode": mode,
        "metadata.stats-dense-store": dense,
        "fields.k.stats-mode": "full",
    }
    twins = Twins(java, tmp_path, [("k", "INT"), ("s", "STRING"), ("n", "BIGINT")], options=options)
    for start in (0, 10, 20):
        twins.write(
            [{"k": start + i, "s": f"{start + i:03}", "n": start + i or None} for i in range(10)]
        )
    assert twins.check(("=", "k", 5)) == 2
    for predicate in (
        (">", "s", "010"),
        ("=", "n", 15),
        ("is null", "n"),
        ("starts with", "s", "02"),
    ):
        left_out = twins.check(predicate)
        assert left_out == 0 if mode == "none" else left_out >= 0


# -- partitions and buckets -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def partitioned(java: Any, tmp_path_factory: pytest.TempPathFactory) -> Twins:
    schema = [("id", "BIGINT"), ("day", "DATE"), ("region", "STRING"), ("v", "INT")]
    options = {"bucket": "4", "bucket-key": "id"}
    twins = Twins(java, tmp_path_factory.mktemp("partitions"), schema, ["day", "region"], options)
    regions = ["eu", "us", None, "", "ü/\\%"]
    for n in range(5):
        day = dt.date(2024, 2, 27) + dt.timedelta(days=n) if n < 4 else None
        twins.write(
            [
                {"id": i * 31, "day": day, "region": regions[(n + i // 10) % 5], "v": n * 100 + i}
                for i in range(20)
            ]
        )
    # One manifest with a single bucket and a single partition.
    twins.write([{"id": 7, "day": dt.date(2024, 2, 28), "region": "eu", "v": 1}])
    return twins


PARTITIONS: list[tuple[Any, ...]] = [
    ("=", "day", dt.date(2024, 2, 28)),
    ("<", "day", dt.date(2024, 2, 28)),
    ("is null", "day"),
    ("is not null", "day"),
    ("=", "region", "eu"),
    ("=", "region", ""),
    ("is null", "region"),
    ("in", "region", "us", "ü/\\%"),
    ("and", ("=", "day", dt.date(2024, 3, 1)), ("=", "region", "us")),
    ("or", ("is null", "day"), ("=", "region", "us")),
    (">", "region", "zzz"),
]


@pytest.mark.parametrize("predicate", PARTITIONS, ids=str)
def test_partitions_are_pruned_and_read_right(
    partitioned: Twins, predicate: tuple[Any, ...]
) -> None:
    assert partitioned.check(predicate) > 0


@pytest.mark.parametrize("predicate", PARTITIONS, ids=str)
def test_manifests_are_opened_for_partitions_as_those_of_java(
    partitioned: Twins, predicate: tuple[Any, ...]
) -> None:
    assert opened(partitioned, partition=predicate) == opened(
        partitioned, partition=predicate, ours=False
    )


def test_some_manifests_are_left_out_for_a_partition(partitioned: Twins) -> None:
    assert opened(partitioned, partition=("=", "day", dt.date(2024, 2, 28))) == [1, 5]
    assert opened(partitioned, partition=("is null", "day")) == [4]


@pytest.mark.parametrize("bucket", range(4))
def test_manifests_are_opened_for_a_bucket_as_those_of_java(
    partitioned: Twins, bucket: int
) -> None:
    found = opened(partitioned, bucket=bucket)
    assert found == opened(partitioned, bucket=bucket, ours=False)
    (single,) = {file[1] for file in partitioned.files(partitioned.ours) if file[0] == 6}
    assert (5 in found) == single.endswith(f"bucket-{bucket}")


@pytest.mark.parametrize(("level", "all_of_them"), [(0, True), (1, False)])
def test_manifests_are_opened_for_level_0_only(
    partitioned: Twins, level: int, all_of_them: bool
) -> None:
    found = opened(partitioned, level=level)
    assert found == opened(partitioned, level=level, ours=False)
    assert (len(found) == 6) is all_of_them


def opened(twins: Twins, *, ours: bool = True, **scan: Any) -> list[int]:
    """The positions of the manifests that a scan opens."""
    path = twins.ours if ours else twins.theirs
    everything = twins.java.scan_manifests(path)
    return sorted(everything.index(name) for name in twins.java.scan_manifests(path, **scan))


@pytest.mark.parametrize("key", [0, 31, 155, 589, 7, 8])
def test_a_bucket_key_is_looked_for_in_its_bucket_only(partitioned: Twins, key: int) -> None:
    left_out = partitioned.check(("=", "id", key))
    assert left_out >= len(partitioned.files(partitioned.ours)) // 2


def test_ranges_in_manifest_lists_are_those_of_java(partitioned: Twins) -> None:
    ours, theirs = (
        partitioned.java.manifests(path) for path in (partitioned.ours, partitioned.theirs)
    )
    for mine, other in zip(ours, theirs, strict=True):
        for one in (mine, other):
            del one["fileName"], one["fileSize"]
        assert mine == other


@pytest.mark.parametrize(
    ("text", "values"), [(text, values) for text, values in VALUES.items() if text != "BOOLEAN"]
)
def test_partitions_of_every_type_are_pruned_as_those_of_java(
    java: Any, tmp_path: Path, text: str, values: list[Any]
) -> None:
    twins = Twins(java, tmp_path, [("id", "INT"), ("p", text)], ["p"])
    for n, part in enumerate((values[0:3], values[3:6], [*values[6:9], None])):
        twins.write([{"id": 10 * n + i, "p": value} for i, value in enumerate(part)])
    for predicate in (
        ("=", "p", values[4]),
        ("<", "p", values[4]),
        (">", "p", values[7]),
        ("is null", "p"),
    ):
        assert twins.check(predicate) > 0
        assert opened(twins, partition=predicate) == opened(twins, partition=predicate, ours=False)
    assert opened(twins, partition=("=", "p", values[4])) == [1]
    assert opened(twins, partition=("is null", "p")) == [2]


def test_timestamps_beside_nanoseconds_can_be_filtered_by(java: Any, tmp_path: Path) -> None:
    schema = [("k", "INT"), ("t", "TIMESTAMP(6)"), ("s", "TIMESTAMP(3)"), ("n", "TIMESTAMP(9)")]
    twins = Twins(java, tmp_path, schema)
    for day in (1, 11, 21):
        stamps = moments(*(f"2024-01-{day + i:02}T00:00:00" for i in range(5)))
        twins.write(
            [
                {"k": i, "t": one, "s": one, "n": f"{one.isoformat()}.000000001"}
                for i, one in enumerate(stamps)
            ]
        )
    first, last = moments("2024-01-03T00:00:00", "2024-01-22T00:00:00")
    for column in ("t", "s"):
        assert twins.check(("<", column, first)) == 2
        assert twins.check((">=", column, last)) == 2
        assert twins.check(("=", column, moments("2024-01-12T00:00:00")[0])) == 2
        assert twins.check(("is null", column)) == 3
