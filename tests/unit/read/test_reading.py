"""Reading append tables: columns, partitions, time travel, streaming, and the errors."""

from __future__ import annotations

import datetime as dt
import gc
import io
import random
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from paimon_stream.api.table import PaimonTable
from paimon_stream.errors import (
    FormatError,
    IncompatibleSchema,
    InvalidData,
    InvalidOption,
    NotFound,
    PaimonStreamError,
    Unavailable,
    UnsupportedFeature,
)
from paimon_stream.format.schema_json import decode_schema, encode_schema
from paimon_stream.read.rows import read_batches
from paimon_stream.read.scan import plan_scan
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.schema_change import SchemaChange
from paimon_stream.table.table import alter_table, load_table
from paimon_stream.write import cast_scalar
from paimon_stream.write.task import WriteSpec, write_task
from tests.kits.faults import Fault, FaultyStorage
from tests.kits.reading import append, batch_of

SCHEMA = [("id", "BIGINT"), ("dt", "STRING"), ("hr", "INT"), ("note", "STRING")]
FORMATS = ["parquet", "orc", "avro"]


def created(
    path: Path, options: dict[str, str] | None = None, keys: tuple[str, ...] = ("dt", "hr")
) -> PaimonTable:
    return PaimonTable.create(
        str(path / "db.db" / "t"), SCHEMA, partition_keys=keys, options=options
    )


def filled(path: Path, options: dict[str, str] | None = None) -> PaimonTable:
    table = created(path, options)
    for batch in range(3):
        rows = [(batch * 10 + i, "ab"[i % 2], i % 3 or None, f"n{i}") for i in range(10)]
        append(table, rows, "me", batch)
    return table


def ids(table: pa.Table) -> list[int]:
    return sorted(table.column("id").to_pylist())


def test_a_table_without_snapshots_has_its_columns_and_no_rows(tmp_path: Path) -> None:
    table = created(tmp_path)
    assert table.to_arrow().num_rows == 0
    assert table.to_arrow(columns=["hr", "id"]).schema == pa.schema(
        [("hr", pa.int32()), ("id", pa.int64())]
    )
    assert list(table.to_batches()) == []


def test_values_that_may_not_fit_the_columns_that_a_read_began_with_are_never_cut(
    tmp_path: Path,
) -> None:
    columns = [("n", "INT"), ("nested", "ROW<x INT>"), ("text", "VARCHAR(3)")]
    old = PaimonTable.create(str(tmp_path / "t"), columns)
    loaded = load_table(LocalStorage(old.location))  # as a read sees it that another one overtakes
    alter_table(
        LocalStorage(old.location),
        [
            SchemaChange.update_column_type("n", "BIGINT"),
            SchemaChange.update_column_type("text", "STRING"),
        ],
    )
    table = PaimonTable.load(old.location)
    table.append(pa.table({"n": [2**40], "nested": [{"x": 1}], "text": ["abcdef"]}))
    for column in ("n", "text"):
        with pytest.raises(
            IncompatibleSchema, match=f"Column '{column}' is .* Load the table again"
        ):
            list(read_batches(plan_scan(loaded, columns=[column])))
    assert sum(batch.num_rows for batch in read_batches(plan_scan(loaded, columns=["nested"]))) == 1
    assert old.to_arrow().to_pylist() == table.to_arrow().to_pylist()
    assert table.to_arrow(columns=["n", "text"]).to_pylist() == [{"n": 2**40, "text": "abcdef"}]


@pytest.mark.parametrize("file_format", FORMATS)
def test_columns_and_partitions_are_chosen(tmp_path: Path, file_format: str) -> None:
    table = filled(tmp_path, {"file.format": file_format})
    assert ids(table.to_arrow()) == list(range(30))
    assert ids(table.to_arrow(columns=["id"], partition={"dt": "a"})) == list(range(0, 30, 2))
    exact = table.to_arrow(partition={"dt": "b", "hr": 1})
    assert set(exact.column("dt").to_pylist()) == {"b"} and set(exact.column("hr").to_pylist()) == {
        1
    }
    assert ids(exact) == [1, 7, 11, 17, 21, 27]
    assert ids(table.to_arrow(partition="dt=b/hr=1")) == ids(exact)
    assert ids(table.to_arrow(partition={"hr": None})) == sorted(
        b * 10 + i for b in range(3) for i in (0, 3, 6, 9)
    )
    only_partition_columns = table.to_arrow(columns=["hr", "dt"])
    assert only_partition_columns.num_rows == 30
    assert table.to_arrow(partition={"dt": "c"}).num_rows == 0


def test_snapshots_and_tags_are_read_as_they_were(tmp_path: Path) -> None:
    table = filled(tmp_path)
    assert [table.to_arrow(i).num_rows for i in (1, 2, 3)] == [10, 20, 30]
    root = Path(table.location)
    (root / "tag").mkdir()
    (root / "tag" / "tag-first").write_bytes((root / "snapshot" / "snapshot-1").read_bytes())
    (root / "snapshot" / "snapshot-1").unlink()
    assert table.to_arrow(tag="first").num_rows == 10
    assert list(table.tags()) == ["first"]
    with pytest.raises(NotFound, match=r"no snapshot 1.*There are 2 to 3"):
        table.to_arrow(1)
    with pytest.raises(NotFound, match="no snapshot 99"):
        table.to_batches(99)
    with pytest.raises(NotFound, match="no tag 'second'"):
        table.to_arrow(tag="second")
    with pytest.raises(InvalidOption, match="snapshot_id and tag are both given"):
        table.to_arrow(2, tag="first")


@pytest.mark.parametrize(
    ("engine", "option"),
    [("deduplicate", "sequence.field"), ("partial-update", "fields.c.sequence-group")],
)
def test_an_older_state_is_read_though_options_name_columns_that_came_later(
    tmp_path: Path, engine: str, option: str
) -> None:
    options = {"bucket": "1", "merge-engine": engine}
    columns = [("k", "INT NOT NULL"), ("v", "INT")]
    table = PaimonTable.create(str(tmp_path / "t"), columns, primary_keys=["k"], options=options)
    rows = [
        pa.table({"k": pa.array([1], pa.int32()), "v": pa.array([v], pa.int32())}) for v in (5, 6)
    ]
    table.append(rows[0])
    table.append(rows[1])
    table.create_tag("before")
    changes = [
        SchemaChange.add_column("c", "INT"),
        SchemaChange.set_option(option, "v" if "group" in option else "c"),
    ]
    alter_table(LocalStorage(table.location), changes)
    table = PaimonTable.load(table.location)
    assert table.schema.field_names == ("k", "v", "c")
    assert table.to_arrow(tag="before").to_pylist() == [{"k": 1, "v": 6}]
    assert table.to_arrow(snapshot_id=1).to_pylist() == [{"k": 1, "v": 5}]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["idd"], "no column 'idd'.*Did you mean 'id'"),
        (["zzz"], "Its columns: id, dt, hr, note"),
        ([], "at least one"),
        ("id", "Give a list"),
        (["id", "id"], "named twice"),
    ],
)
def test_columns_that_are_none_are_refused_at_once(
    tmp_path: Path, columns: Any, message: str
) -> None:
    table = created(tmp_path)
    with pytest.raises(IncompatibleSchema, match=message):
        table.to_batches(columns=columns)


def test_a_read_of_some_partitions_opens_only_the_manifests_that_can_have_them(
    tmp_path: Path,
) -> None:
    table = created(tmp_path)
    for batch, name in enumerate("abc"):
        append(table, [(batch, name, hour, "") for hour in (1, 2)], "me", batch)
    storage = FaultyStorage(LocalStorage(table.location))
    scan = plan_scan(load_table(storage), partition={"dt": "b"})
    opened = [one.path for one in storage.operations if one.path.startswith("manifest/manifest-")]
    assert len(scan.files) == 2
    assert len([path for path in opened if "list" not in path]) == 1


def test_partitions_that_are_none_are_refused_at_once(tmp_path: Path) -> None:
    table = created(tmp_path)
    with pytest.raises(IncompatibleSchema, match="'id' is not a partition column"):
        table.to_batches(partition={"id": 1})
    with pytest.raises(InvalidData, match="'hr' is INT, and 'x' is not a value"):
        table.to_batches(partition={"dt": "a", "hr": "x"})


@pytest.mark.parametrize("file_format", FORMATS)
def test_batches_are_small_and_come_file_by_file(tmp_path: Path, file_format: str) -> None:
    table = created(tmp_path, {"file.format": file_format}, keys=())
    for batch in range(2):
        append(table, [(batch * 1000 + i, "x", 1, "y") for i in range(1000)], "me", batch)
    batches = table.to_batches(columns=["id"], batch_rows=64)
    assert isinstance(batches, Iterator)
    first = next(batches)
    assert first.num_rows <= 64
    for file in table.files()[1:]:
        Path(file.path).unlink()
    with pytest.raises(NotFound, match=r"Data file .* of snapshot 2 is missing"):
        list(batches)


def test_rows_of_fixed_buckets_come_in_the_order_of_their_sequence_numbers(tmp_path: Path) -> None:
    table = PaimonTable.create(
        str(tmp_path / "t"),
        SCHEMA,
        options={"bucket": "1", "bucket-key": "id", "manifest.merge-min-count": "2"},
    )
    for batch in range(6):
        append(table, [(batch, "x", 1, "y")], "me", batch)
    assert table.to_arrow(columns=["id"]).column(0).to_pylist() == list(range(6))


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_missing_file_is_named(tmp_path: Path, file_format: str) -> None:
    table = filled(tmp_path, {"file.format": file_format})
    gone = Path(table.files()[0].path)
    gone.unlink()
    with pytest.raises(NotFound) as missing:
        table.to_arrow()
    assert missing.value.context["path"] == str(gone)
    assert missing.value.__cause__ is None


def test_an_orc_file_cut_off_anywhere_is_an_error_that_names_it(tmp_path: Path) -> None:
    """Cut off only: some releases of Arrow end the process over other damage in an ORC file."""
    table = created(tmp_path, {"file.format": "orc"}, keys=())
    append(table, [(i, f"dt{i}", i, "text" * i) for i in range(200)], "me", 1)
    path = Path(table.files()[0].path)
    whole = path.read_bytes()
    for length in range(0, len(whole), len(whole) // 40):
        path.write_bytes(whole[:length])
        refused = refusal(table)
        assert isinstance(refused, FormatError), length
        assert str(path) in str(refused)


@pytest.mark.parametrize("file_format", ["parquet", "avro"])
def test_a_broken_file_gives_an_error_that_names_it_or_rows(
    tmp_path: Path, file_format: str
) -> None:
    """If any byte is damaged, or the file is cut off anywhere, a read gives rows or an error of
    ours, and never another error.
    """
    table = created(tmp_path, {"file.format": file_format}, keys=())
    append(table, [(i, f"dt{i}", i, "text" * i) for i in range(200)], "me", 1)
    (file,) = table.files()
    path = Path(file.path)
    whole = path.read_bytes()
    chance = random.Random(7)
    failed = 0
    for trial in range(150):
        broken = bytearray(whole)
        if trial % 3 == 0:
            del broken[chance.randrange(len(whole)) :]
        else:
            for _ in range(1 + trial % 4):
                broken[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        path.write_bytes(broken)
        refused = refusal(table)
        if refused is not None:
            failed += 1
            assert isinstance(refused, FormatError | UnsupportedFeature), refused
            assert str(path) in str(refused)
            assert refused.__cause__ is None
            assert refused.__context__ is None or refused.__suppress_context__
    assert failed > 50
    path.write_bytes(whole)
    assert table.to_arrow().num_rows == 200


def refusal(table: PaimonTable) -> PaimonStreamError | None:
    try:
        table.to_arrow()
    except PaimonStreamError as refused:
        return refused
    return None


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
@pytest.mark.parametrize(
    ("sql", "column"),
    [
        ("STRING", "s"),
        ("CHAR(2)", "s"),
        ("ARRAY<STRING>", "s.element"),
        ("MAP<STRING, INT>", "s.key"),
    ],
)
def test_text_that_is_not_utf8_is_named_by_readers_and_verify_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_format: str, sql: str, column: str
) -> None:
    """Java writes such text (tests/conformance/test_java_reads_our_files.py)."""
    monkeypatch.setattr(cast_scalar, "_check_text", lambda *_: None)
    schema = [("i", "INT"), ("s", sql)]
    table = PaimonTable.create(str(tmp_path / "t"), schema, options={"file.format": file_format})
    texts = pa.array([b"ok", b"\xff\xfe"], pa.binary()).view(pa.string())
    value: pa.Array = texts
    if "ARRAY" in sql:
        value = pa.ListArray.from_arrays([0, 1, 2], texts)
    elif "MAP" in sql:
        value = pa.MapArray.from_arrays([0, 1, 2], texts, pa.array([1, 2], pa.int32()))
    table.append(pa.table({"i": pa.array([1, 2], pa.int32()), "s": value}))
    (file,) = table.files()
    with pytest.raises(InvalidData, match="at least 1 place") as refused:
        table.to_arrow()
    assert refused.value.context == {"path": file.path, "column": column, "count": 1}
    assert str(refused.value).startswith(
        f"{file.path}: column {column!r} holds text that is not UTF-8"
    )
    assert table.to_arrow(columns=["i"]).column("i").to_pylist() == [1, 2]
    (finding,) = table.verify().findings
    assert (finding.severity, finding.code) == ("error", "row-values")
    assert f"column {column!r} holds text that is not UTF-8" in finding.message


def test_a_key_that_is_not_utf8_is_named_with_its_table_and_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cast_scalar, "_check_text", lambda *_: None)
    table = PaimonTable.create(
        str(tmp_path / "t"), [("s", "STRING")], primary_keys=["s"], options={"bucket": "1"}
    )
    table.append(pa.table({"s": pa.array([b"ok", b"\xff\xfe"], pa.binary()).view(pa.string())}))
    with pytest.raises(FormatError, match="holds text that is not UTF-8") as refused:
        table.to_arrow()
    assert refused.value.context == {"table": table.location, "bucket": 0}
    (finding,) = table.verify().findings
    assert finding.code == "row-values"


def test_a_file_with_other_rows_than_its_manifest_says_is_refused(tmp_path: Path) -> None:
    table = created(tmp_path, keys=())
    append(table, [(1, "a", 1, "x"), (2, "a", 1, "x")], "me", 1)
    (file,) = table.files()
    pq.write_table(pq.read_table(file.path).slice(1), file.path)
    with pytest.raises(FormatError, match="holds 1 rows; its manifest says 2"):
        table.to_arrow()


def test_a_storage_that_fails_is_no_broken_file(tmp_path: Path) -> None:
    table = filled(tmp_path)
    inner = table._table.storage
    faulty = FaultyStorage(inner, [Fault(at=1, verb="open_input")])
    with pytest.raises(Unavailable):
        PaimonTable(load_table(faulty)).to_arrow()


def test_the_name_of_a_file_decides_its_format(tmp_path: Path) -> None:
    table = created(tmp_path, keys=())
    inner = table._table
    spec = WriteSpec(storage=inner.storage, schema=inner.schema, options=inner.options)
    (message,) = write_task(spec, [batch_of(inner.schema, [(1, "a", 1, "x")])]).messages
    (file,) = message.new_files
    other = replace(file, file_name=f"{file.file_name}.lance")
    folder = Path(table.location, "bucket-0")
    (folder / file.file_name).rename(folder / other.file_name)
    table.new_commit("me").commit(1, [replace(message, new_files=(other,))])
    with pytest.raises(UnsupportedFeature, match="'lance' file"):
        table.to_arrow()


@pytest.mark.parametrize(
    ("option", "value"),
    [("type", "format-table"), ("branch", "dev"), ("data-evolution.enabled", "true")],
)
def test_tables_that_need_more_than_this_are_refused(
    tmp_path: Path, option: str, value: str
) -> None:
    table = filled(tmp_path)
    file = Path(table.location, "schema", "schema-0")
    schema = decode_schema(file.read_bytes(), "schema-0")
    options = {**schema.options, option: value}
    object.__setattr__(schema, "options", options)
    file.write_bytes(encode_schema(schema))
    with pytest.raises(UnsupportedFeature, match=option):
        PaimonTable.load(table.location).to_arrow()


def test_a_column_the_file_lacks_is_null(tmp_path: Path) -> None:
    table = created(tmp_path, keys=())
    append(table, [(1, "a", 1, "x"), (2, "a", 1, "x")], "me", 1)
    (file,) = table.files()
    pq.write_table(pq.read_table(file.path).drop_columns(["note"]), file.path)
    assert table.to_arrow().column("note").to_pylist() == [None, None]
    assert table.to_arrow(columns=["note"]).num_rows == 2


def test_a_snapshot_id_is_a_number(tmp_path: Path) -> None:
    table = PaimonTable.create(str(tmp_path / "t"), schema=[("id", "INT")])
    for wrong in ("1", True):
        with pytest.raises(InvalidOption, match="whole number"):
            table.to_arrow(wrong)  # type: ignore[arg-type]


# -- INT96 ----------------------------------------------------------------------------------------

MOMENTS = [
    dt.datetime(1, 1, 1),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999_999),
    None,
    dt.datetime(1970, 1, 1),
    dt.datetime(2300, 7, 1, 12, 0, 0, 7),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999_999),
]


def arrow_writes_int96_right() -> bool:
    """Whether this Arrow writes moments before 1970 as the day and the time of the day: the older
    ones leave a negative time.
    """
    made = io.BytesIO()
    column = pa.array([-1], pa.timestamp("us"))
    plain = {"use_dictionary": False, "compression": "none", "write_statistics": False}
    pq.write_table(pa.table({"t": column}), made, use_deprecated_int96_timestamps=True, **plain)
    return struct.pack("<qi", 86_399_999_999_000, 2_440_587) in made.getvalue()


def int96_table(path: Path) -> PaimonTable:
    """A table whose file has INT96 for every timestamp, as some engines write them."""
    if not arrow_writes_int96_right():
        pytest.skip(
            f"pyarrow {pa.__version__} spoils INT96 before 1970, so it cannot make the file"
        )
    schema = [
        ("k", "INT"),
        ("six", "TIMESTAMP(6)"),
        ("three", "TIMESTAMP(3)"),
        ("ltz", "TIMESTAMP_LTZ(6)"),
        ("nested", "ARRAY<ROW<at TIMESTAMP(6)>>"),
        ("nine", "TIMESTAMP(9)"),
    ]
    table = PaimonTable.create(str(path / "t"), schema)
    rows = [
        (
            i,
            one,
            one and one.replace(microsecond=one.microsecond // 1000 * 1000),
            one and one.replace(tzinfo=dt.timezone.utc),
            [{"at": one}, None],
            i * 10**18 - 1,
        )
        for i, one in enumerate(MOMENTS)
    ]
    append(table, rows, "me", 1)
    (file,) = table.files()
    pq.write_table(table.to_arrow(), file.path, use_deprecated_int96_timestamps=True)
    written = pq.ParquetFile(file.path).schema
    assert {written.column(i).physical_type for i in range(1, 6)} == {"INT96"}
    return table


def test_int96_holds_any_date_where_microseconds_are_wanted(tmp_path: Path) -> None:
    read = int96_table(tmp_path).to_arrow()
    assert read.column("six").to_pylist() == MOMENTS
    assert [one and one.replace(tzinfo=None) for one in read.column("ltz").to_pylist()] == MOMENTS
    assert [one[0]["at"] for one in read.column("nested").to_pylist()] == MOMENTS
    assert [one[1] for one in read.column("nested").to_pylist()] == [None] * len(MOMENTS)
    assert read.column("three").to_pylist()[-1] == dt.datetime(9999, 12, 31, 23, 59, 59, 999_000)
    assert read.column("nine").cast(pa.int64()).to_pylist() == [
        i * 10**18 - 1 for i in range(len(MOMENTS))
    ]


def test_a_broken_file_with_int96_is_named(tmp_path: Path) -> None:
    table = int96_table(tmp_path)
    path = Path(table.files()[0].path)
    whole = path.read_bytes()
    chance = random.Random(11)
    failed = 0
    for _ in range(100):
        broken = bytearray(whole)
        broken[chance.randrange(len(whole) // 2, len(whole))] ^= 1 << chance.randrange(8)
        path.write_bytes(broken)
        refused = refusal(table)
        if refused is not None:
            failed += 1
            assert isinstance(refused, FormatError | UnsupportedFeature), refused
            assert str(path) in str(refused)
    assert failed > 20


def test_rows_pass_through_in_bounded_memory(tmp_path: Path) -> None:
    """Ten files of many row groups: what Arrow holds at a time is a part of one of them."""
    table = PaimonTable.create(
        str(tmp_path / "t"), [("k", "BIGINT"), ("s", "STRING")], options={"file.block-size": "1 mb"}
    )
    rows = [(i, f"{i:0100d}") for i in range(20_000)]
    for batch in range(10):
        append(table, rows, "me", batch)
    del rows
    gc.collect()
    before, most, count = pa.total_allocated_bytes(), 0, 0
    for one in table.to_batches(batch_rows=1000):
        count += one.num_rows
        most = max(most, pa.total_allocated_bytes() - before)
    assert count == 200_000
    assert most < 12 * 2**20  # the rows are 21 MB, one file of them 2 MB


@pytest.mark.full
def test_files_of_a_bucket_that_overlap_are_merged_in_bounded_memory(tmp_path: Path) -> None:
    """Eight files of level 0 that have the same keys: what Arrow holds at a time is some rows of
    each.
    """
    options = {"bucket": "1", "write-only": "true", "file.block-size": "1 mb"}
    columns = [("k", "BIGINT NOT NULL"), ("v", "BYTES")]
    table = PaimonTable.create(str(tmp_path / "t"), columns, primary_keys=["k"], options=options)
    chance = random.Random(3)
    for batch in range(8):
        values = [chance.randbytes(800) for _ in range(8_000)]
        table.append(pa.table({"k": range(batch % 2, 16_000, 2), "v": values}))
    newest = values[0]
    del values
    gc.collect()
    before, most, count, found = pa.total_allocated_bytes(), 0, 0, b""
    for one in table.to_batches(batch_rows=1000):
        count += one.num_rows
        if one["k"][0].as_py() <= 1 <= one["k"][-1].as_py():
            found = one.filter(pc.equal(one["k"], 1))["v"][0].as_py()
        most = max(most, pa.total_allocated_bytes() - before)
    assert count == 16_000
    assert found == newest
    assert most < 30 * 2**20  # the rows are 51 MB


@pytest.mark.parametrize("merges", [True, False])
def test_a_read_says_that_rows_wait_although_readers_should_merge_them(
    tmp_path: Path, merges: bool, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"bucket": "-2", "postpone.merge-on-read": str(merges).lower()}
    columns = [("k", "INT NOT NULL"), ("v", "INT")]
    table = PaimonTable.create(str(tmp_path / "t"), columns, primary_keys=["k"], options=options)
    rows = {"k": pa.array([1], pa.int32()), "v": pa.array([2], pa.int32())}
    table.append(pa.table(rows))
    caplog.clear()
    assert table.to_arrow().num_rows == 0
    assert ("rows of 1 files wait in bucket -2" in caplog.text) == merges
