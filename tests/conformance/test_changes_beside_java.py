"""Batch reads of what has changed (streaming-reads.md §7): Java and we read the same tables with the
same options.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from py4j.protocol import Py4JJavaError

from paimon_stream.api.table import PaimonTable
from paimon_stream.errors import (
    BadRowKind,
    InvalidData,
    InvalidOption,
    NotFound,
    NumericOverflow,
    PaimonStreamError,
    UnsupportedFeature,
)
from tests.conformance.test_random_merging_beside_java import (
    JavaRefused,
    asked,
    counted,
    is_accepted,
    written_by_either,
)
from tests.kits.params import few, one_in
from tests.kits.random_tables import Definition, batches, definition
from tests.kits.reading import sql, wire_rows
from tests.kits.seeds import seeds

BETWEEN = "incremental-between"
TIMES = "incremental-between-timestamp"
MODE = "incremental-between-scan-mode"
AUTO_TAG = "incremental-to-auto-tag"
BY_ID = "incremental-between-tag-to-snapshot"
COLUMNS = [("k", "INT NOT NULL"), ("v", "INT"), ("s", "INT")]
MODES = ("auto", "delta", "changelog", "diff")


class Place:
    """A table of Java's in a folder, to which both engines write."""

    def __init__(
        self,
        java: Any,
        root: Path,
        options: dict[str, str] | None = None,
        keys: tuple[str, ...] = ("k",),
        columns: list[tuple[str, str]] = COLUMNS,
        branch: str = "main",
    ) -> None:
        self.java = java
        self.path = root / "db.db" / "t"
        self.branch = branch
        self.commits = 0
        defaults = {"write-only": "true", "bucket": "1" if keys else "-1"}
        java.create_table(self.path, columns, (), keys, {**defaults, **(options or {})})
        if branch != "main":
            PaimonTable.load(str(self.path)).create_branch(branch)

    @property
    def ours(self) -> PaimonTable:
        return PaimonTable.load(str(self.path), branch=self.branch)

    def write(self, rows: list[tuple[Any, ...]], kinds: str = "", **more: Any) -> None:
        self.commits += 1
        how = {"options": {"branch": self.branch}} if self.branch != "main" else {}
        self.java.write(
            self.path, rows, "java", self.commits, kinds=kinds.split() or None, **how, **more
        )

    def compact(self) -> None:
        self.commits += 1
        self.java.compact(self.path, True, "java", self.commits)

    def java_answer(self, options: dict[str, str]) -> Counter[tuple[Any, ...]] | str:
        """The rows, each with its kind before it, or the first line of the error."""
        branch = {"branch": self.branch} if self.branch != "main" else {}
        try:
            rows = self.java.read(self.path, with_kinds=True, options={**branch, **options})
        except Py4JJavaError as refused:
            return str(refused.java_exception).splitlines()[0]
        return Counter((kind, *map(repr, row.values())) for kind, row in rows)

    def our_answer(self, options: dict[str, str]) -> Counter[tuple[Any, ...]]:
        table = self.ours.to_arrow(options={**options, "read.changelog": "true"})
        rows = table.to_pylist(maps_as_pydicts="strict")
        return Counter((row.pop("rowkind"), *map(repr, row.values())) for row in rows)

    def same(self, options: dict[str, str]) -> int:
        """Both read the same rows. Returns how many."""
        rows = self.our_answer(options)
        assert rows == self.java_answer(options), options
        return rows.total()


# -- every mode, on every kind of table -----------------------------------------------------------

LOOKUP = {"changelog-producer": "lookup"}
FIRST = {"merge-engine": "first-row"}
VECTORS = {"deletion-vectors.enabled": "true"}
SUM = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}
HIDDEN_CHANGES = {"delta", "auto", "changelog"}
TABLES: dict[str, tuple[tuple[str, ...], dict[str, str], set[str]]] = {
    # The keys, the options, and the modes that we refuse because Java reads no row at all.
    "append": ((), {}, {"changelog"}),
    "append in buckets": ((), {"bucket": "2", "bucket-key": "k"}, {"changelog"}),
    "append with vectors": ((), VECTORS, {"changelog"}),
    "keys": (("k",), {}, {"changelog"}),
    "input": (("k",), {"changelog-producer": "input"}, set()),
    "lookup": (("k",), LOOKUP, set()),
    "full": (("k",), {"changelog-producer": "full-compaction"}, set()),
    "vectors": (("k",), VECTORS, HIDDEN_CHANGES),
    "vectors and lookup": (("k",), VECTORS | LOOKUP, {"delta"}),
    "vectors and input": (("k",), VECTORS | {"changelog-producer": "input"}, HIDDEN_CHANGES),
    "sums": (("k",), SUM, {"changelog"}),
    "sequence": (("k",), {"sequence.field": "s"}, {"changelog"}),
    "first": (("k",), FIRST, HIDDEN_CHANGES),
    "first and lookup": (("k",), FIRST | LOOKUP, {"delta"}),
}
RANGES = ((0, 1), (1, 3), (1, 4), (5, 6), (0, 8), (6, 8))
CHOSEN = ("append", "vectors and lookup", "sequence")


def history(place: Place, keys: tuple[str, ...], options: dict[str, str]) -> None:
    """Eight snapshots: appends, two compactions, and an overwrite as snapshot 6."""
    deletes = keys and "merge-engine" not in options
    place.write([(1, 10, 5), (2, 20, 5), (3, 30, 5)])
    place.write([(1, 11, 6), (4, 40, 6)])
    place.write([(2, 21, 4), (3, 30, 7)], "+U -D" if deletes else "")
    if keys or "deletion-vectors.enabled" not in options:
        place.compact()
    else:
        place.ours.delete(pc.field("v") == 11)
    place.write([(4, 41, 7), (5, 50, 7)], "+U +I" if deletes else "")
    place.write([(1, 12, 8), (6, 60, 8)], overwrite={})
    place.write([(1, 13, 9), (7, 70, 9)])
    place.compact()


@pytest.mark.parametrize("name", few(TABLES, lambda name: name in CHOSEN))
def test_each_mode_reads_the_rows_that_java_reads(name: str, tmp_path: Path, java: Any) -> None:
    keys, options, refused = TABLES[name]
    place = Place(java, tmp_path, options, keys)
    history(place, keys, options)
    for mode in MODES:
        rows = 0
        for first, last in RANGES:
            wanted = {BETWEEN: f"{first},{last}", MODE: mode}
            if mode in refused:
                assert place.java_answer(wanted) == Counter()
                with pytest.raises(InvalidOption, match="reads nothing"):
                    place.our_answer(wanted)
            elif mode == "diff" and first == 0:
                assert "does not exist" in place.java_answer(wanted)
                with pytest.raises(NotFound, match="has no snapshot 0"):
                    place.our_answer(wanted)
            else:
                rows += place.same(wanted)
        assert rows or mode in refused


def test_rows_that_remove_are_left_out_without_the_column_of_kinds(
    tmp_path: Path, java: Any
) -> None:
    place = Place(java, tmp_path, LOOKUP)
    history(place, ("k",), LOOKUP)
    wanted = {BETWEEN: "1,3", MODE: "delta"}
    assert place.java_answer(wanted).total() == 4
    rows = place.ours.to_arrow(options=wanted, columns=["v"])
    assert sorted(rows["v"].to_pylist()) == [11, 21, 40]
    kinds = place.ours.to_arrow(
        options={**wanted, "read.changelog": "true"},
        columns=["k", "rowkind"],
        filter=pc.field("v") == 30,
    )
    assert kinds.to_pylist() == [{"k": 3, "rowkind": "-D"}]
    only_kinds = place.ours.to_arrow(
        options={**wanted, "read.changelog": "true"}, columns=["rowkind"]
    )
    assert sorted(only_kinds["rowkind"].to_pylist()) == ["+I", "+I", "+U", "-D"]


def test_a_branch_has_changes_of_its_own(tmp_path: Path, java: Any) -> None:
    place = Place(java, tmp_path)
    place.write([(9, 9, 9)])
    place.ours.create_tag("start", 1)
    place.ours.create_branch("b", tag="start")
    place.branch = "b"
    for number in (1, 2):
        place.ours.append(
            pa.table({name: pa.array([number], pa.int32()) for name in ("k", "v", "s")})
        )
    for wanted in ({BETWEEN: "1,3"}, {BETWEEN: "2,3", MODE: "diff"}):
        assert place.same(wanted)


# -- differences ----------------------------------------------------------------------------------


def test_of_two_rows_the_newer_one_counts(tmp_path: Path, java: Any) -> None:
    place = Place(java, tmp_path / "numbers")
    place.write([(1, 10, 0)])
    place.write([(1, 11, 0)])
    place.write([(1, 12, 0)], overwrite={})  # Java's overwrites begin at sequence number 0
    assert place.same({BETWEEN: "1,2", MODE: "diff"}) == 1
    assert place.same({BETWEEN: "2,3", MODE: "diff"}) == 0
    place = Place(java, tmp_path / "fields", {"sequence.field": "s"})
    place.write([(1, 10, 5)])
    place.write([(1, 12, 6)], overwrite={})
    place.write([(1, 13, 4), (2, 2, 2)], overwrite={})
    assert place.same({BETWEEN: "1,2", MODE: "diff"}) == 1
    assert place.same({BETWEEN: "2,3", MODE: "diff"}) == 1


@pytest.mark.parametrize("group", few(range(4), lambda group: group == 0))
def test_of_rows_that_are_as_new_the_one_counts_that_counts_to_java(
    group: int, tmp_path: Path, java: Any
) -> None:
    for seed in (number + 1000 * group for number in seeds(4, 20)):
        random = Random(seed)
        place = Place(java, tmp_path / str(seed))
        for commit in range(2):
            keys = sorted(random.sample(range(30), 20))
            for place_of_swap in random.sample(range(19), random.choice([0, 2, 6])):
                keys[place_of_swap], keys[-1] = keys[-1], keys[place_of_swap]
            place.write(
                [(key, commit * random.choice([0, 1]), 0) for key in keys],
                **({"overwrite": {}} if commit else {}),
            )
        place.same({BETWEEN: "1,2", MODE: "diff"})


VALUES: dict[str, list[Any]] = {
    "DOUBLE": [0.0, -0.0, float("nan"), None, 1.5],
    "ARRAY<INT>": [[1], [None], [], None, [1, 2]],
    "MAP<INT, STRING>": [{1: "a"}, {1: None}, {}, None, {2: "b"}],
    "ROW<a INT, b DOUBLE>": [
        {"a": 1, "b": 0.0},
        {"a": 1, "b": -0.0},
        {"a": None, "b": float("nan")},
        None,
        {"a": 2, "b": 1.0},
    ],
}


@pytest.mark.parametrize("type_", few(VALUES, lambda type_: type_ == "DOUBLE"))
def test_values_are_equal_where_java_says_so(type_: str, tmp_path: Path, java: Any) -> None:
    place = Place(java, tmp_path, columns=[("k", "INT NOT NULL"), ("v", type_)])
    values = VALUES[type_]
    pairs = [(old, new) for old in values for new in values]
    for side in (0, 1):
        place.write([(key, pair[side]) for key, pair in enumerate(pairs)])
        place.compact()
    assert 0 < place.same({BETWEEN: "2,4", MODE: "diff"}) < len(pairs)


def test_the_columns_are_those_of_the_newest_schema(tmp_path: Path, java: Any) -> None:
    place = Place(java, tmp_path)
    place.write([(1, 10, 5)])
    java.alter_table(place.path, ("add", "x", "BIGINT"))
    place.write([(1, 10, 5, 7)])
    place.compact()
    for wanted in ({BETWEEN: "0,1"}, {BETWEEN: "1,2"}, {BETWEEN: "1,3", MODE: "diff"}):
        assert place.same(wanted) == 1


def test_no_difference_is_read_over_a_change_of_the_buckets(tmp_path: Path, java: Any) -> None:
    place = Place(java, tmp_path)
    place.write([(1, 10, 5)])
    java.alter_table(place.path, ("set", "bucket", "2"))
    place.write([(1, 11, 5)], overwrite={})
    wanted = {BETWEEN: "1,2", MODE: "diff"}
    assert "bucket number of two snapshots are different" in place.java_answer(wanted)
    with pytest.raises(UnsupportedFeature, match="number of buckets"):
        place.our_answer(wanted)


# -- how a range is said --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def said(java: Any, tmp_path_factory: Any) -> Place:
    """Four snapshots with tags, and five milliseconds at least between two of them."""
    place = Place(java, tmp_path_factory.mktemp("said"))
    for number in range(1, 5):
        place.write([(number, number, number), (0, number, number)])
    for name, snapshot in (("a", 1), ("b", 3), ("also b", 3), ("2026-11-01", 1), ("2026-11-03", 3)):
        java.create_tag(place.path, name, snapshot)
    return place


DAILY = {"tag.automatic-creation": "process-time"}
SAID: list[tuple[dict[str, str], type[PaimonStreamError] | None]] = [
    # The options, with t0 to t3 for the times of the snapshots; the error if both refuse.
    ({BETWEEN: "1,3"}, None),
    ({BETWEEN: "2,2"}, None),
    ({BETWEEN: "9,9"}, None),
    ({BETWEEN: "3,1"}, InvalidOption),
    ({BETWEEN: "1,99"}, NotFound),
    ({BETWEEN: "1"}, InvalidOption),
    ({BETWEEN: "1,2,3"}, InvalidOption),
    ({BETWEEN: ",3"}, InvalidOption),
    ({BETWEEN: "1,3", MODE: "other"}, InvalidOption),
    ({BETWEEN: "1,3", MODE: "DIFF"}, None),
    ({BETWEEN: "a,b"}, None),
    ({BETWEEN: "a,b", MODE: "diff"}, None),
    ({BETWEEN: "b,also b"}, None),
    ({BETWEEN: "a,a"}, None),
    ({BETWEEN: "b,a"}, InvalidOption),
    ({BETWEEN: "a,3"}, InvalidOption),
    ({BETWEEN: "1,b"}, InvalidOption),
    ({BETWEEN: "a,no"}, NotFound),
    ({BETWEEN: "a,b", BY_ID: "true"}, None),
    ({BETWEEN: "a,b", BY_ID: "true", MODE: "delta"}, None),
    ({BETWEEN: "1,3", TIMES: "1,2"}, InvalidOption),
    ({BETWEEN: "1,3", AUTO_TAG: "2026-11-03"}, InvalidOption),
    ({AUTO_TAG: "2026-11-03"}, None),
    ({AUTO_TAG: "2026-11-01"}, None),
    ({AUTO_TAG: "2026-11-09"}, None),
    ({AUTO_TAG: "a"}, InvalidOption),
    ({TIMES: "t0,t2"}, None),
    ({TIMES: "t0,t2", MODE: "diff"}, None),
    ({TIMES: "t0-1,t2-1"}, None),
    ({TIMES: "t0+1,t2+1"}, None),
    ({TIMES: "0,t0-1"}, None),
    ({TIMES: "0,t3+9"}, None),
    ({TIMES: "t3+1,t3+9"}, None),
    ({TIMES: "t3,t3+9", MODE: "diff"}, None),
    ({TIMES: "t2,t2"}, None),
    ({TIMES: "t2,t0"}, InvalidOption),
    ({TIMES: "2020-01-01 00:00:00,2200-01-01 00:00:00"}, None),
    ({TIMES: "2020-01-01,2200-01-01"}, None),
    ({TIMES: "x,y"}, InvalidOption),
    ({TIMES: "1"}, InvalidOption),
]


def with_times(options: dict[str, str], table: PaimonTable) -> dict[str, str]:
    """The options with the times of the snapshots in place of t0 to t3."""
    if "t" not in options.get(TIMES, ""):
        return options
    times = {f"t{place}": snapshot.time_millis for place, snapshot in enumerate(table.snapshots())}
    ends = []
    for end in options[TIMES].split(","):
        for name, millis in times.items():
            end = end.replace(name, str(millis))
        sign = "-" if "-" in end else "+"
        first, _, more = end.partition(sign)
        ends.append(str(int(first) + int(f"{sign}{more or 0}")))
    return {**options, TIMES: ",".join(ends)}


@pytest.mark.parametrize(("options", "refusal"), one_in(3, SAID))
def test_a_range_means_what_it_means_to_java(
    options: dict[str, str], refusal: type[PaimonStreamError] | None, said: Place
) -> None:
    wanted = with_times(options, said.ours)
    if refusal is None:
        said.same(wanted)
        return
    assert isinstance(said.java_answer(wanted), str)
    with pytest.raises(refusal):
        said.our_answer(wanted)


@pytest.mark.parametrize(
    ("options", "refusal", "message"),
    [
        ({BETWEEN: "a,b", MODE: "delta"}, InvalidOption, "difference between two tags"),
        ({AUTO_TAG: "2026-11-03", MODE: "changelog"}, InvalidOption, "difference between two tags"),
        ({TIMES: "t0-1,t2", MODE: "diff"}, NotFound, "has no snapshot of .* or before"),
        ({MODE: "delta"}, InvalidOption, "has no effect without"),
    ],
    ids=str,
)
def test_what_java_passes_over_is_refused(
    options: dict[str, str], refusal: type[PaimonStreamError], message: str, said: Place
) -> None:
    wanted = with_times(options, said.ours)
    assert isinstance(said.java_answer(wanted), Counter)
    with pytest.raises(refusal, match=message):
        said.our_answer(wanted)


def test_changes_of_expired_snapshots_are_refused_and_tags_keep_theirs(
    tmp_path: Path, java: Any
) -> None:
    place = Place(java, tmp_path)
    for number in range(1, 5):
        place.write([(number, number, number)])
    for name, snapshot in (("a", 1), ("b", 3)):
        java.create_tag(place.path, name, snapshot)
    first_time = place.ours.snapshots()[0].time_millis
    java.expire_snapshots(place.path, retain_max=2)
    place.same({BETWEEN: "a,b"})
    place.same({BETWEEN: "3,4"})
    for wanted in (
        {BETWEEN: "1,4"},
        {BETWEEN: "1,4", MODE: "diff"},
        {BETWEEN: "a,b", BY_ID: "true"},
    ):
        assert isinstance(place.java_answer(wanted), str)
        with pytest.raises(NotFound, match="expired"):
            place.our_answer(wanted)
    # Java reads what is left, without a word.
    since_then = {TIMES: f"{first_time},{2**60}"}
    assert isinstance(place.java_answer(since_then), Counter)
    with pytest.raises(NotFound, match="the oldest one left"):
        place.our_answer(since_then)


def test_a_table_without_snapshots_has_no_changes(tmp_path: Path, java: Any) -> None:
    place = Place(java, tmp_path)
    for wanted in ({BETWEEN: "0,1"}, {BETWEEN: "1,3", MODE: "diff"}, {TIMES: "1,2"}):
        assert place.same(wanted) == 0
    assert place.ours.to_arrow(options={BETWEEN: "0,1"}).column_names == ["k", "v", "s"]


@pytest.mark.parametrize(
    "stored",
    [
        {"scan.snapshot-id": "1"},
        {"scan.tag-name": "a"},
        {"scan.timestamp-millis": "99999999999999"},
        {"scan.mode": "latest"},
        {"consumer-id": "x"},
        {BETWEEN: "1,2"},
    ],
    ids=str,
)
def test_options_in_the_schema_choose_the_rows_as_in_java(
    stored: dict[str, str], tmp_path: Path, java: Any
) -> None:
    place = Place(java, tmp_path)
    for number in (1, 2, 3):
        place.write([(number, number, number)])
    java.create_tag(place.path, "a", 1)
    java.alter_table(place.path, *[("set", key, value) for key, value in stored.items()])
    assert Counter(
        ("+I", *map(repr, row.values())) for row in place.ours.to_arrow().to_pylist()
    ) == place.java_answer({})
    # What the call names comes first.
    assert place.ours.to_arrow(snapshot_id=2).num_rows == 2
    assert place.our_answer({BETWEEN: "0,2"}).total() == 2


# -- random tables --------------------------------------------------------------------------------


def with_kinds(place: tuple[Any, PaimonTable, Definition], options: dict[str, str]) -> Any:
    """What Java and we read, each row as its kind and its text; `refused` if it is an error."""
    java, table, drawn = place
    schema = [(field.name, sql(field.type)) for field in table.schema.fields]
    try:
        read = asked(java.read, table.location, with_kinds=True, options=options)
    except JavaRefused:
        theirs: Any = "refused"
    else:
        rows = java_paimon_rows(schema, [row for _, row in read])
        theirs = Counter(
            (kind, next(iter(counted(drawn, [row]))))
            for (kind, _), row in zip(read, rows, strict=True)
        )
    try:
        changes = table.to_arrow(options={**options, "read.changelog": "true"})
        rows = wire_rows(changes, table.schema.fields)
    except (BadRowKind, InvalidData, NumericOverflow):
        return theirs, "refused"
    texts = [next(iter(counted(drawn, [row]))) for row in rows]
    return theirs, Counter(zip(changes["rowkind"].to_pylist(), texts, strict=True))


def java_paimon_rows(schema: list[tuple[str, str]], rows: list[Any]) -> list[list[Any]]:
    import java_paimon

    encoded: list[list[Any]] = java_paimon.encode_rows(schema, rows)
    return encoded


def changes_of_a_random_table(java: Any, root: Path, seed: int) -> str:
    """Java and we write to a table, and compact it now and then. Returns what became of it."""
    random = Random(seed)
    drawn, path = definition(random), root / "db.db" / "t"
    has_maps = any(type_.startswith("MAP") for _, type_ in drawn.columns)
    if drawn.unordered or (has_maps and drawn.options.get("file.format") == "avro"):
        return "not compared"  # Java's lists and its maps of Avro files have an order of their own
    if not is_accepted(java, path, drawn):
        return "refused"
    try:
        for identifier, batch in enumerate(batches(random, drawn), 1):
            written_by_either(java, path, batch, identifier, random)
            if random.random() < 0.4:
                asked(java.compact, path, random.random() < 0.7, "java", 1000 + identifier)
    except (JavaRefused, BadRowKind, InvalidData, NumericOverflow, pa.ArrowInvalid):
        return "refused"
    table = PaimonTable.load(str(path))
    newest = table.latest_snapshot()
    seen = 0
    for _ in range(6):
        first, last = sorted(random.choices(range(1, newest.id + 1 if newest else 1), k=2))
        options = {BETWEEN: f"{first},{last}", MODE: random.choice(["delta", "diff"])}
        try:
            theirs, ours = with_kinds((java, table, drawn), options)
        except InvalidOption:
            assert options[MODE] == "delta"
            continue
        except pa.ArrowInvalid:  # a sum of decimals that is too large
            return "refused"
        assert ours == theirs, (seed, options, drawn)
        seen += len(ours)
    return "changes" if seen else "no changes"


@pytest.mark.parametrize("group", few(range(3), lambda group: group == 0))
def test_the_changes_of_random_tables_are_those_that_java_reads(
    group: int, tmp_path: Path, java: Any
) -> None:
    tried = [number + 1000 * group for number in seeds(4, 100)]
    if not group:
        tried.append(171)  # merged rows that are as new as the older ones
    ends = Counter(changes_of_a_random_table(java, tmp_path / str(seed), seed) for seed in tried)
    assert ends["changes"], ends
