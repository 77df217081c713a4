"""Tables with primary keys that Java and we write alternately: both read the rows of a dict."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from paimon_stream.api.table import PaimonTable
from tests.kits.keyed import (
    COLUMNS,
    ENGINES,
    Change,
    Model,
    commit_changes,
    some_changes,
    write_changes,
)
from tests.kits.reading import assert_rows
from tests.kits.seeds import examples

HERE = Path(__file__).parent.parent / "golden"
GOLDEN = ("evolved_pk", "overwritten_pk", "pk_partitioned", "pk_updates")
ALONE = {"bucket": "2", "write-only": "true"}
Golden = Callable[[str], tuple[Path, dict[str, Any]]]


def assert_both_read(
    java: Any, path: Path, rows: Iterable[Any], snapshot_id: int | None = None
) -> None:
    """Java and we read those rows."""
    import java_paimon

    table = PaimonTable.load(str(path))
    schema = [(one.name, str(one.type)) for one in table.schema.fields]
    wire = java_paimon.encode_rows(schema, rows)
    assert_rows(table.to_arrow(snapshot_id), table.schema.fields, wire)
    assert java_paimon.canonical(schema, java.read(path, snapshot_id)) == java_paimon.canonical(
        schema, rows
    )


# -- the golden tables ----------------------------------------------------------------------------


def named(schema: Any, step: dict[str, Any]) -> list[Change]:
    """The changes of a step of a case."""
    rows = [dict(zip([name for name, _ in schema], row, strict=True)) for row in step["rows"]]
    return list(zip(step.get("kinds") or ["+I"] * len(rows), rows, strict=True))


@pytest.mark.parametrize("name", GOLDEN)
def test_java_and_we_go_on_with_a_table_of_java(name: str, golden: Golden, java: Any) -> None:
    """Our changes, Java's, a compaction, ours, an expiry, ours. Each time Java and we read the
    rows.
    """
    import casekit

    path, expected = golden(name)
    case, _ = casekit.load(HERE / name)
    schema = [tuple(column) for column in expected["schema"]]
    model, random = Model(keys=case.primary_keys), Random(name)
    model.take([("+I", row) for row in casekit.decode_rows(schema, expected["rows"])])
    assert_both_read(java, path, model.found())
    pool = [row for *_, rows in casekit.model(case) for row in rows if len(row) == len(schema)]

    def some() -> list[Change]:
        changes = [
            (random.choice(["+I", "+U", "+U", "-D"]), random.choice(pool)) for _ in range(15)
        ]
        changes = [
            (kind, {**row, **changed(random, schema, case.primary_keys)}) for kind, row in changes
        ]
        model.take(changes)
        return changes

    def ours(identifier: int) -> None:
        commit_changes(PaimonTable.load(str(path)), some(), identifier)
        assert_both_read(java, path, model.found())

    ours(1)
    latest = java.snapshots(path)[-1]
    assert (latest["commitUser"], latest["commitIdentifier"], latest["commitKind"]) == (
        "ours",
        1,
        "APPEND",
    )
    changes = some()
    java.write(path, [row for _, row in changes], "java", 1, [kind for kind, _ in changes])
    ours(2)
    java.compact(path, True, "java", 2)
    assert {file["level"] for file in java.files(path)} == {5}
    assert_both_read(java, path, model.found())
    ours(3)
    java.expire_snapshots(path, retain_max=1)
    ours(4)
    assert java.remove_orphans(path, dry_run=True) == []


def changed(random: Random, schema: Any, keys: list[str]) -> dict[str, Any]:
    """New values for columns of a few types that are no keys."""
    values = {"INT": random.randrange(100), "STRING": f"new {random.randrange(100)}"}
    return {name: values[type_] for name, type_ in schema if name not in keys and type_ in values}


TOLD = (
    "commitUser",
    "commitIdentifier",
    "commitKind",
    "totalRecordCount",
    "deltaRecordCount",
    "schemaId",
)
OF_ONE_RUN = {"fileName", "fileSize", "creationTime", "minSequenceNumber", "maxSequenceNumber"}


@pytest.mark.parametrize("name", GOLDEN)
def test_the_steps_of_a_case_taken_by_our_writer_make_the_same_table(
    name: str, tmp_path: Path, java: Any
) -> None:
    import casekit

    case, expected = casekit.load(HERE / name)
    path, schema = tmp_path / "db.db" / "t", case.schema
    PaimonTable.create(
        str(path),
        schema,
        partition_keys=case.partition_keys,
        primary_keys=case.primary_keys,
        options=case.options,
    )
    for step, after, _ in casekit.model(case):
        table = PaimonTable.load(str(path))
        match step["op"]:
            case "write":
                commit_changes(table, named(schema, step), step["identifier"], casekit.COMMIT_USER)
            case "overwrite":
                messages = write_changes(table._table, named(schema, step)).messages
                commit = table.new_commit(casekit.COMMIT_USER)
                commit.overwrite(None, messages, step["identifier"], dynamic=True)
            case "compact":
                java.compact(path, True, casekit.COMMIT_USER, step["identifier"])
            case "alter":
                java.alter_table(path, *map(tuple, step["changes"]))
        schema = after
    assert_both_read(java, path, casekit.decode_rows(expected["schema"], expected["rows"]))
    both = (java.files(path), expected["files"])
    made, wanted = (_facts(files) for files in both)
    assert (list(made - wanted), list(wanted - made)) == ([], [])
    ours, theirs = (
        [{key: one.get(key) for key in TOLD} for one in snapshots]
        for snapshots in (java.snapshots(path), expected["snapshots"])
    )
    assert ours == theirs


def _facts(files: list[dict[str, Any]]) -> Counter[str]:
    """What Java says of files, without what differs from run to run: numbers, too, for it numbers
    the rows of each bucket and we those of a task.
    """
    import casekit

    kept = [{key: value for key, value in file.items() if key not in OF_ONE_RUN} for file in files]
    return Counter(json.dumps(casekit._plain(one), sort_keys=True) for one in kept)


# -- in turns -------------------------------------------------------------------------------------


TURNS = {"by two": 20, "descending": 20, "sums in groups": 20}
"""Where not 50, with many seeds."""

PARTS, GROUPS = {"p": "ab"}, {"g": range(3)}
LAYOUTS: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "deduplicate": ({"bucket-key": "g", "data-file.thin-mode": "true"}, PARTS | GROUPS),
    "by sequence": ({"file.format": "orc"}, {}),
    "by two": ({"file.format": "avro", "data-file.thin-mode": "true"}, PARTS),
    "descending": ({}, GROUPS),
    "aggregation": ({"file.format": "avro"}, {}),
    "partial-update": ({"file.format": "orc", "data-file.thin-mode": "true"}, GROUPS),
    "sums in groups": ({}, PARTS),
}
"""Options, and columns of the key besides `k`, of which `p` is the partition."""


@pytest.mark.parametrize("engine", ENGINES)
def test_java_and_we_write_in_turns(engine: str, tmp_path: Path, java: Any) -> None:
    chosen, random, path = ENGINES[engine], Random(engine), tmp_path / "db.db" / "t"
    options, more = LAYOUTS[engine]
    keys = [*more, "k"]
    columns = [
        (name, "STRING NOT NULL" if name == "p" else "INT NOT NULL") for name in more
    ] + COLUMNS
    partitions = [name for name in more if name == "p"]
    java.create_table(path, columns, partitions, keys, ALONE | options | chosen.options)
    model = chosen.model(keys=keys)
    turns, most = examples(12, TURNS.get(engine, 50)), 12 // (1 + len(more))
    users: set[str] = set()
    for identifier in range(1, turns + 1):
        changes = some_changes(random, chosen, model, random.randint(1, 6), keys=most, more=more)
        ours = random.random() < 0.5
        if chosen.once and not ours:
            changes = list(
                {tuple(row[name] for name in keys): (kind, row) for kind, row in changes}.values()
            )
        model.take(changes)
        users.add("ours" if ours else "java")
        if ours:
            commit_changes(PaimonTable.load(str(path)), changes, identifier)
        else:
            java.write(
                path, [row for _, row in changes], "java", identifier, [kind for kind, _ in changes]
            )
        if identifier % (turns // 4) == 0:
            assert_both_read(java, path, model.found())
        if identifier in (turns // 3, turns * 2 // 3):
            java.compact(path, True, "java", 100 + identifier)
            model.compacted()
        if identifier == turns * 2 // 3:
            java.expire_snapshots(path, retain_max=1)
    snapshots = java.snapshots(path)
    assert snapshots[0]["id"] > 1 and snapshots[-1]["id"] >= turns
    assert users == {"ours", "java"}
