"""Sections of overlapping files, and merging them piece by piece."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pytest

from paimon_stream import PaimonTable
from paimon_stream.errors import FormatError, InvalidOption, UnsupportedFeature
from paimon_stream.format.binary_row import serialize
from paimon_stream.format.entries import DataFileMeta, FileKind, ManifestEntry
from paimon_stream.format.schema_json import TableSchema
from paimon_stream.format.types import DataField, parse_type
from paimon_stream.merge.rows import merge_rows
from paimon_stream.merge.spec import MergeSpec
from paimon_stream.options import Options
from paimon_stream.read import merged
from paimon_stream.read.merged import merged_batches, sections, whole_keys, with_older
from tests.kits.params import one_in

INT, STRING = parse_type("INT NOT NULL"), parse_type("STRING NOT NULL")
COLUMNS = [
    ("a", "INT NOT NULL"),
    ("b", "STRING NOT NULL"),
    ("v", "BIGINT"),
    ("s", "STRING"),
    ("l", "ARRAY<INT>"),
]


def spec_of(options: dict[str, str] | None = None) -> MergeSpec:
    fields = tuple(
        DataField(id=i, name=name, type=parse_type(text)) for i, (name, text) in enumerate(COLUMNS)
    )
    schema = TableSchema(
        id=0,
        fields=fields,
        highest_field_id=9,
        primary_keys=("b", "a"),
        options=MappingProxyType(options or {}),
    )
    return MergeSpec.of(schema, Options(schema.options, location="memory://t"), table="memory://t")


def entry_of(
    name: str, first: tuple[str, int], last: tuple[str, int], level: int = 0
) -> ManifestEntry:
    file = DataFileMeta(
        file_name=name,
        file_size=1,
        row_count=1,
        min_sequence_number=0,
        max_sequence_number=0,
        schema_id=0,
        creation_time=0,
        level=level,
        min_key=serialize([STRING, INT], first),
        max_key=serialize([STRING, INT], last),
    )
    return ManifestEntry(kind=FileKind.ADD, partition=b"", bucket=0, total_buckets=1, file=file)


def names_of(files: list[ManifestEntry]) -> list[list[list[str]]]:
    return [
        [[one.file.file_name for one in run] for run in section.runs]
        for section in sections(files, [STRING, INT])
    ]


def test_files_that_share_no_key_are_sections_of_their_own_in_key_order() -> None:
    files = [
        entry_of("z", ("z", 0), ("z", 9)),
        entry_of("b", ("a", 5), ("a", 9)),
        entry_of("a", ("a", -1), ("a", 4)),
    ]
    assert names_of(files) == [[["a"]], [["b"]], [["z"]]]


def test_files_that_follow_on_one_another_are_one_run() -> None:
    wide = entry_of("wide", ("a", 0), ("z", 0), level=5)
    narrow = [entry_of(name, (name, 0), (name, 9)) for name in "cbd"]
    beside = entry_of("beside", ("c", 5), ("d", 1))
    (section,) = names_of([wide, *narrow, beside])
    assert sorted(section) == [["b", "c", "d"], ["beside"], ["wide"]]


def test_keys_are_compared_as_java_compares_them() -> None:
    text = [("", "Z"), ("a", "é"), ("\uffff", "\uffff"), ("\U0001f600", "\U0001f601")]
    files = [entry_of(first, (first, 0), (last, 0)) for first, last in text]
    assert [section[0][0] for section in names_of(files[::-1])] == [first for first, _ in text]


ENGINES = [
    {},
    {"sequence.field": "v"},
    {
        "merge-engine": "aggregation",
        "fields.v.aggregate-function": "sum",
        "fields.l.aggregate-function": "collect",
    },
    {"merge-engine": "partial-update"},
    {
        "merge-engine": "aggregation",
        "fields.v.aggregate-function": "sum",
        "changelog-producer": "lookup",
    },
]


@pytest.mark.parametrize("options", ENGINES, ids=repr)
@pytest.mark.parametrize("seed", one_in(4, range(4)))
def test_piece_by_piece_gives_what_all_rows_at_once_give(
    options: dict[str, str], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random, spec = Random(seed), spec_of(options)
    keeps_deletes = "merge-engine" not in options
    files: dict[str, pa.Table] = {}
    entries, number = [], 0
    for level, name in enumerate("ijklmnopqrstuv", 1):
        keys = sorted(
            {(random.choice("xyz"), random.randint(0, 40)) for _ in range(random.randint(1, 40))}
        )
        start = random.randrange(len(keys))
        keys = keys[start : start + random.randint(1, 30)]
        number += random.choice([0, len(keys)])
        files[name] = pa.table(
            {
                "a": pa.array([key[1] for key in keys], pa.int32()),
                "b": [key[0] for key in keys],
                "v": pa.array([random.choice([None, 1, 2, 3]) for _ in keys], pa.int64()),
                "s": pa.array(
                    [random.choice([None, name + "1", name + "2"]) for _ in keys], pa.string()
                ),
                "l": pa.array(
                    [random.choice([None, [], [1, 2]]) for _ in keys], pa.list_(pa.int32())
                ),
                "_SEQUENCE_NUMBER": pa.array(
                    [number + i * (seed % 2) for i in range(len(keys))], pa.int64()
                ),
                "_VALUE_KIND": pa.array(
                    [random.choice([0, 2, 3 * keeps_deletes]) for _ in keys], pa.int8()
                ),
            }
        )
        entries.append(entry_of(name, keys[0], keys[-1], random.choice([0, 0, level])))
    entries.sort(key=lambda one: -one.file.level)
    tables = [files[one.file.file_name] for one in entries]
    levels = np.repeat([one.file.level for one in entries], [one.num_rows for one in tables])
    whole = merge_rows(spec, pa.concat_tables(tables), keep_deletes=False, levels=levels)
    held = 0

    def read(entry: ManifestEntry, rows: int) -> Iterator[pa.RecordBatch]:
        nonlocal held
        held = max(held, rows)
        yield from files[entry.file.file_name].to_batches(max_chunksize=rows)

    monkeypatch.setattr(merged, "_FEWEST_ROWS", 1)
    for pieces, runs, spilled in (
        ((1, 1, 1), 64, 1),
        ((2, 3, 9), 64, 1),
        ((2, 3, 9), 2, 1),
        ((1000, 1000, 1000), 64, 1),
        ((1000, 1000, 1000), 3, 1),
        ((1000, 1000, 1000), 2, 2**20),
    ):
        monkeypatch.setattr(merged, "_SPILLED_BYTES", spilled)
        monkeypatch.setattr(merged, "PIECE_ROWS", pieces)
        monkeypatch.setattr(merged, "MOST_RUNS", runs)
        parts = [
            part
            for section in sections(entries, [STRING, INT])
            for part in merged_batches(spec, section, read)
        ]
        assert pa.Table.from_batches(parts).to_pylist() == whole.to_pylist()
        assert held <= max(pieces)


def test_a_file_that_is_not_sorted_is_reported_and_not_merged_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(merged, "PIECE_ROWS", (2, 2, 2))
    rows = pa.table(
        {
            "a": pa.array([1, 2, 3, 4], pa.int32()),
            "b": ["a", "b", "a", "b"],
            "v": pa.array([1, 2, 3, 4]),
            "s": ["", "", "", ""],
            "l": pa.nulls(4, pa.list_(pa.int32())),
            "_SEQUENCE_NUMBER": pa.array(range(4)),
            "_VALUE_KIND": pa.array([0] * 4, pa.int8()),
        }
    )
    files = [entry_of("one", ("a", 0), ("b", 9)), entry_of("two", ("a", 0), ("b", 9))]
    (section,) = sections(files, [STRING, INT])
    with pytest.raises(FormatError, match="not sorted"):
        list(
            merged_batches(
                spec_of(), section, lambda _, rows_: rows.to_batches(max_chunksize=rows_)
            )
        )


def test_of_equal_sequence_numbers_the_row_of_the_older_file_wins() -> None:
    row = {"a": 1, "b": "x", "v": 1, "l": None, "_SEQUENCE_NUMBER": 7, "_VALUE_KIND": 0}
    table = pa.Table.from_pylist([{**row, "s": "older"}, {**row, "s": "newer"}])
    table = table.set_column(
        table.column_names.index("_VALUE_KIND"), "_VALUE_KIND", pa.array([0, 0], pa.int8())
    )
    assert merge_rows(spec_of(), table, keep_deletes=False)["s"].to_pylist() == ["older"]


LOOKUP_SUMS = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}
IGNORING = {"merge-engine": "deduplicate", "ignore-delete": "true"}


@pytest.mark.parametrize(
    ("options", "levels", "kinds", "expected"),
    [
        ({}, [5, 4, 0], [0, 0, 0], [111]),
        ({"changelog-producer": "lookup"}, [5, 4, 0], [0, 0, 0], [110]),
        ({"deletion-vectors.enabled": "true"}, [0, 5, 4], [0, 0, 0], [101]),
        ({"force-lookup": "true"}, [0, 0, 0], [0, 0, 0], [111]),
        ({"force-lookup": "true"}, [5, 4, 3], [0, 0, 0], [100]),
        (
            {"force-lookup": "true"},
            [5, 4, 3],
            [0, 0, 3],
            [-100],
        ),  # the engine is asked about this one row
        ({"force-lookup": "true", "merge-engine": "deduplicate"}, [5, 4, 3], [0, 0, 3], []),
        ({"force-lookup": "true"} | IGNORING, [5, 4, 3], [0, 0, 3], []),
        (IGNORING, [5, 4, 3], [0, 0, 3], [10]),
        ({"merge-engine": "first-row", "changelog-producer": "lookup"}, [5, 4, 3], [0, 0, 0], [1]),
    ],
)
def test_with_lookup_a_row_takes_the_place_of_those_on_levels_below_it(
    options: dict[str, str], levels: list[int], kinds: list[int], expected: list[int]
) -> None:
    rows = pa.table(
        {
            "a": pa.array([1, 1, 1], pa.int32()),
            "b": ["x", "x", "x"],
            "v": [1, 10, 100],
            "_SEQUENCE_NUMBER": [0, 1, 2],
            "_VALUE_KIND": pa.array(kinds, pa.int8()),
        }
    )
    merged = merge_rows(
        spec_of(LOOKUP_SUMS | options), rows, keep_deletes=False, levels=np.array(levels)
    )
    assert merged["v"].to_pylist() == expected


@pytest.mark.parametrize("column", ["v", "s"])
def test_no_rows_are_merged_to_no_rows(column: str) -> None:
    types = [
        pa.int32(),
        pa.string(),
        pa.int64(),
        pa.string(),
        pa.list_(pa.int32()),
        pa.int64(),
        pa.int8(),
    ]
    names = ["a", "b", "v", "s", "l", "_SEQUENCE_NUMBER", "_VALUE_KIND"]
    schema = pa.schema(list(zip(names, types, strict=True)))
    spec = spec_of({"sequence.field": column})
    assert merge_rows(spec, schema.empty_table(), keep_deletes=True).num_rows == 0


def test_sums_of_floats_are_java_s_to_the_last_bit_however_many_rows_a_key_has() -> None:
    fields = (
        DataField(id=0, name="a", type=INT),
        DataField(id=1, name="x", type=parse_type("DOUBLE")),
    )
    options = {"merge-engine": "aggregation", "fields.x.aggregate-function": "sum"}
    schema = TableSchema(
        id=0, fields=fields, highest_field_id=9, primary_keys=("a",), options=options
    )
    random = np.random.default_rng(3)
    keys = np.repeat(np.arange(4, dtype=np.int32), [1, 5, 32, 3000])
    values = random.normal(size=len(keys)) * 10.0 ** random.integers(-8, 8, len(keys))
    numbers, kinds = np.arange(len(keys)), np.zeros(len(keys), np.int8)
    rows = pa.table({"a": keys, "x": values, "_SEQUENCE_NUMBER": numbers, "_VALUE_KIND": kinds})
    merged = merge_rows(MergeSpec.of(schema, Options(options)), rows, keep_deletes=True)
    expected = []
    for key in range(4):
        total, *rest = values[keys == key].tolist()
        for value in rest:
            total += value
        expected.append(total)
    assert merged["x"].to_pylist() == expected


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"fields.v.aggregate-function": "theta_sketch"}, UnsupportedFeature, "theta_sketch"),
        ({"fields.v.aggregate-function": "sums"}, UnsupportedFeature, "sums"),
        ({"fields.s.aggregate-function": "sum"}, InvalidOption, "sum"),
        ({"fields.l.aggregate-function": "max"}, InvalidOption, "max"),
        ({"fields.v.aggregate-function": "listagg"}, InvalidOption, "listagg"),
        (
            {
                "fields.s.aggregate-function": "listagg",
                "fields.s.distinct": "true",
                "fields.s.list-agg-delimiter": "",
            },
            InvalidOption,
            "separate parts",
        ),
        ({"sequence.field": "w"}, InvalidOption, "not a column"),
        ({"sequence.field": "l"}, InvalidOption, "ordered"),
        ({"sequence.field": "v,v"}, InvalidOption, "twice"),
        ({"sequence.field": "v", "fields.v.aggregate-function": "sum"}, InvalidOption, "same time"),
        ({"merge-engine": "first-row", "sequence.field": "v"}, InvalidOption, "first-row"),
        ({"merge-engine": "newest"}, InvalidOption, "newest"),
        (
            {"aggregation.remove-record-on-delete": "true", "fields.v.ignore-retract": "true"},
            InvalidOption,
            "remove-record-on-delete",
        ),
        (
            {"merge-engine": "partial-update", "fields.s.aggregate-function": "listagg"},
            InvalidOption,
            "sequence group",
        ),
        (
            {"merge-engine": "partial-update", "fields.v.sequence-group": "a"},
            InvalidOption,
            "primary key",
        ),
        (
            {"merge-engine": "partial-update", "fields.v.sequence-group": "s,w"},
            InvalidOption,
            "not a column",
        ),
        (
            {
                "merge-engine": "partial-update",
                "fields.v.sequence-group": "s",
                "fields.l.sequence-group": "",
            },
            InvalidOption,
            "ordered",
        ),
        (
            {
                "merge-engine": "partial-update",
                "fields.v.sequence-group": "s",
                "partial-update.remove-record-on-delete": "true",
            },
            InvalidOption,
            "sequence group",
        ),
        (
            {
                "merge-engine": "partial-update",
                "ignore-delete": "true",
                "partial-update.remove-record-on-delete": "true",
            },
            InvalidOption,
            "ignore-delete",
        ),
        (
            {
                "merge-engine": "partial-update",
                "partial-update.remove-record-on-sequence-group": "v",
            },
            InvalidOption,
            "orders no sequence group",
        ),
    ],
    ids=repr,
)
def test_options_that_cannot_be_merged_by_are_refused_by_name(
    options: dict[str, str], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says) as raised:
        spec_of({"merge-engine": "aggregation", **options})
    assert "memory://t" in str(raised.value)


def test_what_is_needed_to_merge_a_column_is_read_with_it() -> None:
    assert spec_of({"sequence.field": "v"}).needed(["s"]) == ("s", "b", "a", "v")
    groups = {"merge-engine": "partial-update", "fields.v.sequence-group": "l"}
    assert spec_of(groups).needed(["s"]) == ("s", "b", "a")
    assert spec_of(groups).needed(["l"]) == ("l", "b", "a", "v")
    deleting = groups | {"partial-update.remove-record-on-sequence-group": "v"}
    assert spec_of(deleting).needed(["s"]) == ("s", "b", "a", "v")


def rows_of(keys: range, number: int = 0) -> pa.Table:
    count = len(keys)
    return pa.table(
        {
            "a": pa.array(keys, pa.int32()),
            "b": ["a"] * count,
            "_SEQUENCE_NUMBER": pa.array(range(number, number + count), pa.int64()),
            "_VALUE_KIND": pa.array([0] * count, pa.int8()),
        }
    )


def test_files_in_which_keys_are_looked_up_are_read_in_pieces_and_not_beyond_the_last_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = {
        "new": rows_of(range(400, 500, 20)),
        "old": rows_of(range(10_000)),
        "far": rows_of(range(20_000, 30_000)),
    }
    new = entry_of("new", ("a", 400), ("a", 480))
    old, far = (
        entry_of("old", ("a", 0), ("a", 9_999), 5),
        entry_of("far", ("a", 20_000), ("a", 29_999), 5),
    )
    pieces = []

    def read(entry: ManifestEntry, rows: int) -> Iterator[pa.RecordBatch]:
        for batch in files[entry.file.file_name].to_batches(max_chunksize=rows):
            pieces.append(entry.file.file_name)
            yield batch

    (section,) = with_older(sections([new], [STRING, INT]), [far, old], [STRING, INT])
    assert section.single is new
    monkeypatch.setattr(merged, "PIECE_ROWS", (100, 100, 100))
    rows_read = Counter[str]()
    for pieces_of_keys in whole_keys(spec_of(), section, read):
        for entry, batch in pieces_of_keys:
            rows_read[entry.file.file_name] += batch.num_rows
    assert rows_read.keys() == {"new", "old"}
    assert rows_read["new"] == 5
    assert rows_read["old"] <= 200
    assert pieces.count("old") <= 6
    assert "far" not in pieces


def test_a_merge_imports_no_pandas(tmp_path: Path) -> None:
    """Each worker of Spark would import it anew, in a quarter of a CPU second."""
    columns = [("id", "INT NOT NULL"), ("k", "STRING NOT NULL"), ("n", "INT"), ("d", "DOUBLE")]
    options = {"bucket": "1", "sequence.field": "n,d", "write-only": "true"}
    table = PaimonTable.create(
        str(tmp_path / "t"), columns, primary_keys=["id", "k"], options=options
    )
    rows = pa.table(
        {
            "id": pa.array([1, 2, 3], pa.int32()),
            "k": ["a", "b", "c"],
            "n": pa.array([1, None, 2], pa.int32()),
            "d": [0.5, None, float("nan")],
        }
    )
    for _ in range(2):
        table.append(rows)
    code = (
        "import sys, paimon_stream\n"
        "batches = paimon_stream.PaimonTable.load(sys.argv[1]).to_batches()\n"
        "print(sum(batch.num_rows for batch in batches), 'pandas' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, table.location], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["3", "False"]
