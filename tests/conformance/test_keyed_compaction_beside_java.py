"""Our compaction of tables with a primary key beside Java's: on tables that Java wrote, and in
turns.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paimon_stream import PaimonTable
from paimon_stream.api.inspection import TableFile
from paimon_stream.errors import BadRowKind, InvalidData
from paimon_stream.format.binary_row import deserialize
from paimon_stream.format.entries import FileSource
from tests.conformance.test_random_merging_beside_java import (
    JavaRefused,
    asked,
    counted,
    is_accepted,
    written_by_either,
)
from tests.kits.compaction import WAYS, changelog_files
from tests.kits.params import few, one_in
from tests.kits.random_tables import Definition, batches, definition
from tests.kits.reading import assert_rows, java_rows, wire_rows
from tests.kits.seeds import seeds

VECTORS = "deletion-vectors.enabled"
GOLDEN = Path(__file__).parent.parent / "golden" / "compaction"
CASES = (
    *("aggregation", "deletion_vectors*", "first_row", "full_*", "level_formats", "lookup_*"),
    *("partial_update*", "pk_*", "sequence_field"),
)
TAKES_ALL = [("aggregation", "minor"), ("partial_update_deletes", "minor")]
"""Where Java merges a part of the runs, and ours must not: a merged delete could be lost
(RC5.6).
"""
CALLS = [
    (folder.name, name.removeprefix("call "))
    for pattern in CASES
    for folder in sorted(GOLDEN.glob(pattern))
    for name in json.loads((folder / "expected.json").read_text())
    if name.startswith("call ")
]


def copied(case: str, tmp_path: Path) -> PaimonTable:
    path = tmp_path / "db.db" / "t"
    shutil.copytree(GOLDEN / case / "db.db" / "t", path)
    return PaimonTable.load(str(path))


def expected(case: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((GOLDEN / case / "expected.json").read_text())
    return found


def digest(file: TableFile) -> str | None:
    """Of the rows of a Parquet file as they are stored, in their order."""
    if not file.path.endswith(".parquet"):
        return None
    columns = [column.to_pylist() for column in pq.read_table(file.path, partitioning=None).columns]
    lines = (json.dumps(list(row), ensure_ascii=False) for row in zip(*columns, strict=True))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def described(
    table: PaimonTable, known: set[str], files: Sequence[TableFile] | None = None
) -> list[dict[str, Any]]:
    """The files as the golden cases tell them; those of the table, if none are given."""
    names = table.schema.trimmed_primary_keys
    types = [table.schema.field(name).type for name in names]
    return [
        {
            "name": file.meta.file_name if file.meta.file_name in known else None,
            "partition": dict(file.partition),
            "bucket": file.bucket,
            "level": file.meta.level,
            "rowCount": file.meta.row_count,
            "deleteRowCount": file.meta.delete_row_count,
            "minKey": dict(zip(names, deserialize(types, file.meta.min_key), strict=True)),
            "maxKey": dict(zip(names, deserialize(types, file.meta.max_key), strict=True)),
            "minSequenceNumber": file.meta.min_sequence_number,
            "maxSequenceNumber": file.meta.max_sequence_number,
            "fileSource": FileSource(file.meta.file_source or 0).name,
            "schemaId": file.meta.schema_id,
            "extension": file.path.rsplit(".", 1)[-1],
            "digest": digest(file),
        }
        for file in (table.files() if files is None else files)
    ]


def in_order(files: Sequence[dict[str, Any]]) -> list[str]:
    told = ({key: value for key, value in one.items() if key != "content"} for one in files)
    return sorted(json.dumps({"digest": None, **one}, sort_keys=True) for one in told)


def as_a_whole(files: Sequence[dict[str, Any]]) -> list[Any]:
    """The files without where their rows are cut."""
    return [
        sum(one["rowCount"] for one in files),
        {(one["level"], one["fileSource"]) for one in files},
    ]


@pytest.mark.parametrize(("case", "name"), one_in(3, CALLS))
def test_the_files_are_those_that_java_made_of_the_same_table(
    case: str, name: str, tmp_path: Path, java: Any, kinds: Any
) -> None:
    call, loose = expected(case)[f"call {name}"], expected(case)["loose"]
    asked = {key: value for key, value in call["call"].items() if value is not None}
    if (case, name) in TAKES_ALL:
        call = expected(case)["call full"]
    table = copied(case, tmp_path)
    known = {file.meta.file_name for file in table.files()}
    before, since = table.to_arrow(), table.latest_snapshot().id
    report = table.compact(**asked)

    form = as_a_whole if "rolling" in loose else in_order
    assert form(described(table, known)) == form(call["files"])
    assert [
        [one.commit_kind.value, one.delta_record_count, one.total_record_count]
        for one in table.snapshots()
        if one.id > since
    ] == [
        [one["commitKind"], one["deltaRecordCount"], one["totalRecordCount"]]
        for one in call["snapshots"]
    ]
    assert report.snapshot_id == (since + 1 if call["snapshots"] else None)
    log = changelog_files(table, since)
    assert in_order(described(table, known, log)) == in_order(call.get("changelogFiles") or [])
    assert (
        report.changelog_rows
        == len(call.get("changelog") or ())
        == sum(one.row_count for one in log)
    )
    if log:
        read = java.read_changes(table.location, since + 1)
        assert [[kind, *row.values()] for kind, row in read] == call["changelog"]
    keys = [(name, "ascending") for name in table.schema.primary_keys]
    options = table.schema.options
    if (
        options.get("merge-engine") != "first-row" and VECTORS not in options
    ):  # else rows of level 0 come in
        assert table.to_arrow().sort_by(keys) == before.sort_by(keys)
    assert_rows(table.to_arrow(), table.schema.fields, java_rows(java, table))
    if isinstance(call.get("rows"), list):
        assert_rows(table.to_arrow(), table.schema.fields, call["rows"])
    if VECTORS in options:
        marked = {
            name: found
            for one in kinds.index(table.location)
            for name, found in one["deleted"].items()
        }
        levels = {file.meta.file_name: file.meta.level for file in table.files()}
        deleted = {one["of"]["level"]: one["positions"] for one in call["deleted"]}
        assert {levels[name]: found for name, found in marked.items()} == deleted
    upgraded = sum(file.meta.file_name in known and file.meta.level > 0 for file in table.files())
    assert report.files_upgraded <= upgraded
    assert not table.verify(sample=100).findings


EXPIRES = {"record-level.expire-time": "1 d", "record-level.time-field": "t"}


def test_old_rows_go_as_in_the_golden_table(tmp_path: Path) -> None:
    table = copied("record_expiry", tmp_path)
    known = {file.meta.file_name for file in table.files()}
    table.compact(full=True)
    call = expected("record_expiry")["call full"]
    assert in_order(described(table, known)) == in_order(call["files"])
    assert_rows(table.to_arrow(), table.schema.fields, call["rows"])
    assert table.compact(full=True).snapshot_id is None


TIMES: dict[str, tuple[str, object, object]] = {
    "INT": ("INT", 1_000_000_000, 2_000_000_000),
    "BIGINT of seconds": ("BIGINT", 1_000_000_000, 4_102_444_800),
    "BIGINT of milliseconds": ("BIGINT", 1_000_000_000_000, 4_102_444_800_000),
    "BIGINT of either": ("BIGINT", -5, 999_999_999_999),
    **{
        type_: (type_, "2001-09-09T01:46:40", "2100-01-01T00:00:00")
        for type_ in (
            "TIMESTAMP(0)",
            "TIMESTAMP(3)",
            "TIMESTAMP(6)",
            "TIMESTAMP(9)",
            "TIMESTAMP_LTZ(3)",
            "TIMESTAMP_LTZ(6)",
        )
    },
}
OFTEN_DROPPED = {("merged", "INT"), ("fresh", "TIMESTAMP(3)"), ("old", "BIGINT of milliseconds")}
"""Types of time fields, each with an old and a fresh time."""


@pytest.mark.parametrize(
    ("stats", "later", "files", "time"),
    few(
        product(["full", "none"], [False, True], ["merged", "fresh", "old"], TIMES),
        lambda stats, later, files, time: (
            (stats, later) == ("full", False) and (files, time) in OFTEN_DROPPED
        ),
    ),
)
def test_java_drops_the_same_old_rows(
    time: str, files: str, later: bool, stats: str, tmp_path: Path, java: Any
) -> None:
    """Files of level 0 that are merged, one that only changes its level if none of its rows is old,
    and, `later`, files that are on the highest level already when the option comes.
    """
    type_, old, fresh = TIMES[time]
    columns = [("k", "INT NOT NULL"), ("t", type_)]
    writes = [
        [(1, fresh), (2, old), (3, None)],
        [(1, old), (4, fresh), (5, old)],
        [(1, old), (2, fresh)],
        [(10, fresh), (11, None)],
    ]
    batches_ = {"merged": writes, "fresh": writes[3:], "old": writes[:1]}[files]
    ours, theirs = (tmp_path / who / "db.db" / "t" for who in ("we", "java"))
    options = {"bucket": "1", "write-only": "true", "metadata.stats-mode": stats}
    java.create_table(ours, columns, (), ("k",), options | ({} if later else EXPIRES))
    for identifier, rows in enumerate(batches_, 1):
        java.write(ours, [list(row) for row in rows], "java", identifier)
    if later:  # its rows expire when they are on the highest level
        java.compact(ours)
        java.alter_table(ours, *(("set", *pair) for pair in EXPIRES.items()))
    shutil.copytree(ours, theirs)
    java.compact(theirs)
    PaimonTable.load(str(ours)).compact(full=True)
    mine, other = (PaimonTable.load(str(path)) for path in (ours, theirs))
    assert mine.to_arrow() == other.to_arrow()
    assert summary(mine) == summary(other)
    assert_rows(mine.to_arrow(), mine.schema.fields, java_rows(java, mine))


def summary(table: PaimonTable) -> list[tuple[int, int, str]]:
    files = (file.meta for file in table.files())
    return sorted(
        (one.level, one.row_count, FileSource(one.file_source or 0).name) for one in files
    )


def compacted_in_turns(java: Any, root: Path, seed: int) -> str:
    """Java and we write to a table and compact it in turns. Returns what became of the table of
    this seed.
    """
    random = Random(seed)
    made, path, compactions = definition(random), root / "db.db" / "t", Counter[str]()
    if made.options["merge-engine"] == "first-row":
        return "refused"
    made.options.update(random.choice(WAYS))
    if not is_accepted(java, path, made):
        return "refused"
    try:
        for identifier, batch in enumerate(
            (one for _ in range(3) for one in batches(random, made)), 1
        ):
            written_by_either(java, path, batch, identifier, random)
            before, theirs = read_by_both(java, path, made)
            assert before == theirs, (seed, identifier, before - theirs, theirs - before)
            full, who = random.random() < 0.2, random.choice(["we", "we", "java", "nobody"])
            if who == "java":
                asked(java.compact, path, full, "java", 1000 + identifier)
            elif who == "we":
                compactions["we"] += (
                    PaimonTable.load(str(path)).compact(full).snapshot_id is not None
                )
            after, theirs = read_by_both(java, path, made)
            assert after == theirs, (seed, identifier, who, after - theirs, theirs - after)
            assert who != "we" or after == before, (
                seed,
                identifier,
                before - after,
                after - before,
            )
    except (JavaRefused, BadRowKind, InvalidData, pa.ArrowInvalid) as why:
        return type(why).__name__
    assert not [
        one for one in PaimonTable.load(str(path)).verify().findings if one.severity == "error"
    ]
    return "compacted" if compactions["we"] else "nothing to do"


def compacted_as_java_does(java: Any, root: Path, seed: int) -> str:
    """Java and we write to a table with deletion vectors and compact it in turns. What we compact,
    Java compacts in a copy. Returns what became of the table of this seed.
    """
    random = Random(seed)
    made, path, compactions = definition(random), root / "db.db" / "t", 0
    made.options.update(random.choice(WAYS) | {VECTORS: "true"})
    made.options["changelog-producer"] = random.choice(["none", "lookup"])
    if not is_accepted(java, path, made):
        return "refused"
    try:
        for identifier, batch in enumerate(
            (one for _ in range(3) for one in batches(random, made)), 1
        ):
            written_by_either(java, path, batch, identifier, random)
            if random.random() < 0.5:
                continue
            full, copy = random.random() < 0.2, root / f"{identifier}" / "t"
            shutil.copytree(path, copy)
            asked(java.compact, copy, full)
            compactions += PaimonTable.load(str(path)).compact(full).snapshot_id is not None
            ours, theirs = read_by_both(java, path, made)
            copied, _ = read_by_both(java, copy, made)
            assert ours == theirs == copied, (seed, identifier, ours - copied, copied - ours)
            logs = [changed_keys(java, one, made) for one in (path, copy)]
            assert logs[0] == logs[1], (seed, identifier)
            if random.random() < 0.3:
                shutil.rmtree(path)
                shutil.copytree(copy, path)
    except (JavaRefused, BadRowKind, InvalidData, pa.ArrowInvalid) as why:
        return type(why).__name__
    assert not [
        one for one in PaimonTable.load(str(path)).verify().findings if one.severity == "error"
    ]
    return "compacted" if compactions else "nothing to do"


def changed_keys(java: Any, path: Path, made: Definition) -> list[str]:
    """What the changelog of the newest snapshot says has happened to each key."""
    newest = PaimonTable.load(str(path)).latest_snapshot().id
    return sorted(
        str((kind, [row[key] for key in made.keys]))
        for kind, row in asked(java.read_changes, path, newest)
    )


def read_by_both(java: Any, path: Path, made: Definition) -> tuple[Counter[str], Counter[str]]:
    table = PaimonTable.load(str(path))
    ours = counted(made, without_sums(made, wire_rows(table.to_arrow(), table.schema.fields)))
    return ours, counted(made, without_sums(made, asked(java_rows, java, table)))


def without_sums(made: Definition, rows: list[list[Any]]) -> list[list[Any]]:
    """The rows without values that depend on the order of adding, also in Java."""
    floats = {
        at
        for at, (name, type_) in enumerate(made.columns)
        if name[0] == "v" and type_ in ("FLOAT", "DOUBLE")
    }
    return [[None if at in floats else value for at, value in enumerate(row)] for row in rows]


@pytest.mark.parametrize("group", few(range(2), lambda group: group == 0))
def test_we_compact_what_java_wrote_and_java_goes_on(group: int, tmp_path: Path, java: Any) -> None:
    tried = [one + 1000 * group for one in seeds(12, 100)]
    ends = Counter(compacted_in_turns(java, tmp_path / str(seed), seed) for seed in tried)
    assert ends["compacted"] >= 2, ends


def test_with_vectors_we_compact_any_table_as_java_does(tmp_path: Path, java: Any) -> None:
    ends = Counter(
        compacted_as_java_does(java, tmp_path / str(seed), seed) for seed in seeds(4, 200)
    )
    assert ends["compacted"] >= 2, ends
