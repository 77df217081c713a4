"""Tables that Java wrote: we read them, we append to them and Java reads the result, and our writer
makes them again.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paimon_stream.api.table import PaimonTable
from paimon_stream.errors import UnsupportedFeature
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.table import check_table_kind, load_table
from tests.kits.params import few
from tests.kits.reading import append, assert_rows, java_rows, wire_rows

HERE = Path(__file__).parent.parent / "golden"
TRUE_INSTANTS = ("orc.timestamp-ltz.legacy.type", "false")
Golden = Callable[[str], tuple[Path, dict[str, Any]]]


def cases(*, keyed: bool) -> list[str]:
    import casekit

    found = []
    for folder in sorted(HERE.iterdir()):
        if (folder / "expected.json").is_file():
            case, _ = casekit.load(folder)
            if bool(case.primary_keys) == keyed:
                found.append(folder.name)
    return found


APPEND = cases(keyed=False)
KEYED = cases(keyed=True)


@pytest.mark.parametrize("case", [*APPEND, *KEYED])
def test_the_rows_are_those_java_wrote(case: str, golden: Golden) -> None:
    path, expected = golden(case)
    table = PaimonTable.load(str(path))
    assert_rows(table.to_arrow(), table.schema.fields, expected["rows"])


@pytest.mark.parametrize("case", [*APPEND, *KEYED])
def test_every_live_snapshot_has_its_rows_under_its_own_schema(case: str, golden: Golden) -> None:
    path, expected = golden(case)
    table = PaimonTable.load(str(path))
    schemas = {one.id: one for one in table.schemas()}
    for snapshot in table.snapshots():
        rows = expected["snapshot_rows"].get(str(snapshot.id))
        read = table.to_arrow(snapshot.id)
        assert case in KEYED or read.num_rows == snapshot.total_record_count
        if rows is not None:
            assert_rows(read, schemas[snapshot.schema_id].fields, rows)


@pytest.mark.parametrize("case", [*APPEND, *KEYED])
def test_each_partition_alone_has_its_rows_and_all_together_have_all(
    case: str, golden: Golden
) -> None:
    path, expected = golden(case)
    table = PaimonTable.load(str(path))
    fields = table.schema.fields
    partitions = {tuple(file.partition.items()) for file in table.files()}
    together = []
    for partition in partitions:
        read = table.to_arrow(partition=dict(partition))
        rows = wire_rows(read, fields)
        assert rows
        together += rows
    if table.partition_keys:
        assert len(partitions) > 1
    assert sorted(map(repr, together)) == sorted(map(repr, expected["rows"]))


@pytest.mark.parametrize("case", [*APPEND, *KEYED])
def test_every_column_alone_is_what_it_is_among_all(case: str, golden: Golden) -> None:
    path, _ = golden(case)
    table = PaimonTable.load(str(path))
    whole = table.to_arrow()
    for one in table.schema.fields:
        alone = table.to_arrow(columns=[one.name])
        assert alone.schema == whole.select([one.name]).schema
        assert repr(wire_rows(alone, [one])) == repr(wire_rows(whole, [one]))
    backwards = list(reversed(table.schema.field_names))
    assert table.to_arrow(columns=backwards).column_names == backwards


@pytest.mark.parametrize("compaction", [None, "minor", "full"])
@pytest.mark.parametrize("case", ["first_row", "lookup_aggregation", "lookup_changelog"])
def test_the_rows_on_several_levels_are_those_of_java_before_and_after_its_compaction(
    case: str, compaction: str | None, golden: Golden, request: pytest.FixtureRequest
) -> None:
    path, expected = golden(f"compaction/{case}")
    if compaction is not None:
        request.getfixturevalue("java").compact(path, compaction == "full", "java", 100)
    table = PaimonTable.load(str(path))
    read = sorted(
        json.dumps(row, ensure_ascii=False)
        for row in wire_rows(table.to_arrow(), table.schema.fields)
    )
    digest = hashlib.sha256("\n".join(read).encode()).hexdigest()[:16]
    java = expected["before" if compaction is None else f"call {compaction}"]
    assert {"count": len(read), "digest": digest} == java["rows"]
    assert {file.meta.level for file in table.files()} == {file["level"] for file in java["files"]}


@pytest.mark.parametrize("case", APPEND)
def test_what_we_append_to_a_table_of_java_is_read_by_java_and_by_us(
    case: str, golden: Golden, java: Any
) -> None:
    import casekit

    path, expected = golden(case)
    if case == "all_types_orc":
        java.alter_table(path, ("set", *TRUE_INSTANTS))
    table = PaimonTable.load(str(path))
    steps = casekit.load(HERE / case)[0].steps
    rows = [step["rows"] for step in steps if step["op"] == "write"][-1]
    append(table, rows, "ours", 1)
    read = table.to_arrow()
    assert read.num_rows == len(expected["rows"]) + len(rows)
    assert_rows(read, table.schema.fields, java_rows(java, table))
    newest = table.latest_snapshot()
    assert newest is not None and newest.commit_user == "ours"
    assert_rows(table.to_arrow(newest.id - 1), table.schema.fields, expected["rows"])


def test_orc_with_local_time_zones_is_not_written_while_java_shifts_it(golden: Golden) -> None:
    path, _ = golden("all_types_orc")
    with pytest.raises(UnsupportedFeature, match=r"orc\.timestamp-ltz.legacy.type"):
        check_table_kind(load_table(LocalStorage(str(path))))


# -- the steps of a case, taken by our writer -----------------------------------------------------

REPLAYED = [case for case in APPEND if not case.startswith("overwritten")]
REPLAYED_OFTEN = [case for case in REPLAYED if case != "many_commits"][::3]
OF_ONE_RUN = {"fileName", "fileSize", "creationTime", "minValues", "maxValues"}


@pytest.mark.parametrize("case", few(REPLAYED, lambda case: case in REPLAYED_OFTEN))
def test_the_steps_of_a_case_taken_by_our_writer_make_the_same_table(
    case: str, tmp_path: Path, java: Any
) -> None:
    import casekit

    steps, expected = casekit.load(HERE / case)
    path = tmp_path / "db.db" / "t"
    options = steps.options | (dict([TRUE_INSTANTS]) if case == "all_types_orc" else {})
    PaimonTable.create(
        str(path), steps.schema, partition_keys=steps.partition_keys, options=options
    )
    for step in steps.steps:
        table = PaimonTable.load(str(path))
        match step["op"]:
            case "write":
                append(table, step["rows"], casekit.COMMIT_USER, step["identifier"])
            case "compact":
                java.compact(path, True, casekit.COMMIT_USER, step["identifier"])
            case "expire":
                java.expire_snapshots(path, retain_max=step["retain"])
            case "alter":
                java.alter_table(path, *map(tuple, step["changes"]))
    table = PaimonTable.load(str(path))
    assert_rows(table.to_arrow(), table.schema.fields, expected["rows"])
    schema = [tuple(column) for column in expected["schema"]]
    casekit.require_same(case, schema, java.read(path), expected["rows"])
    made, wanted = Counter(_files(java.files(path))), Counter(_files(expected["files"]))
    assert (list(made - wanted), list(wanted - made)) == ([], [])
    assert _snapshots(java.snapshots(path)) == _snapshots(expected["snapshots"])


def _files(files: list[dict[str, Any]]) -> list[str]:
    """What Java says of files, without what differs from run to run."""
    import casekit

    kept = [{key: value for key, value in file.items() if key not in OF_ONE_RUN} for file in files]
    for file in kept:
        for column in file["valueStats"].values():
            _without_quirks_of_orc(column)
        if file["totalBuckets"] == -1:
            # Java counts a row twice where it moves rows between buffers; nobody reads these
            # numbers.
            file["maxSequenceNumber"] -= file.pop("minSequenceNumber")
    return [json.dumps(casekit._plain(one), sort_keys=True) for one in kept]


def _without_quirks_of_orc(column: dict[str, Any]) -> None:
    """Java's ORC also pads CHAR in bounds, and has NaN for both bounds of a column with a NaN. Ours
    has the least number there, which is a correct bound for pruning.
    """
    if isinstance(column["min"], str):
        column["min"] = column["min"].rstrip(" ")
    if str(column["max"]).lower() == "nan":
        column["min"] = "NaN"


def _snapshots(snapshots: list[dict[str, Any]]) -> list[dict[str, Any]]:
    keys = (
        "id",
        "schemaId",
        "commitUser",
        "commitIdentifier",
        "commitKind",
        "totalRecordCount",
        "deltaRecordCount",
        "watermark",
        "nextRowId",
    )
    return [{key: one.get(key) for key in keys} for one in snapshots]
