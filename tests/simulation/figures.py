"""What a snapshot says of itself must be what its entries say: counts, sizes, schemas, marks and
statistics are reckoned again from the files, by a decoder that is not ours (`foreign.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from tests.simulation import rules
from tests.simulation.actors.java import JavaCommitter
from tests.simulation.foreign import Record, number_in, records_of, text_in
from tests.simulation.rewriting import pieces_of
from tests.simulation.state import State, Violation

if TYPE_CHECKING:
    from tests.simulation.scheduler import Process
    from tests.simulation.truth import Truth

Files = Mapping[str, bytes]
"""The content of each file of the folder `manifest`, by its name."""

ADD, DELETE = 0, 1
BATCH: Final = 2**63 - 1
"""The identifier of commits that are of no stream."""

MARK: Final = "paimon-stream."


@dataclass(frozen=True)
class Summary:
    """What a manifest has, as its list must describe it."""

    size: int
    added: int
    deleted: int
    rows: int
    """The rows of the files that it adds, less those of the files that it deletes."""
    said: Mapping[str, Any]
    """The other fields of its list's record, by their names there."""


@lru_cache(8192)
def summary_of(data: bytes) -> Summary:
    """Reckons what the entries of a manifest come to."""
    entries = records_of(data)
    files = [one["_FILE"] for one in entries]
    rows = [one["_ROW_COUNT"] for one in files]
    kinds = [one["_KIND"] for one in entries]
    firsts = [one["_FIRST_ROW_ID"] for one in files]
    ids: list[int] = []
    if None not in firsts:
        ids = [*firsts, *(first + some - 1 for first, some in zip(firsts, rows, strict=True))]
    buckets, levels = {one["_BUCKET"] for one in entries}, {one["_LEVEL"] for one in files}
    return Summary(
        size=len(data),
        added=kinds.count(ADD),
        deleted=kinds.count(DELETE),
        rows=sum(some if kind == ADD else -some for kind, some in zip(kinds, rows, strict=True)),
        said={
            "_SCHEMA_ID": max(one["_SCHEMA_ID"] for one in files),
            "_MIN_BUCKET": min(buckets),
            "_MAX_BUCKET": max(buckets),
            "_MIN_LEVEL": min(levels),
            "_MAX_LEVEL": max(levels),
            "_MIN_ROW_ID": min(ids, default=None),
            "_MAX_ROW_ID": max(ids, default=None),
            "_PARTITION_STATS": _stats([one["_PARTITION"] for one in entries]),
        },
    )


def _stats(partitions: Sequence[bytes]) -> tuple[Any, ...]:
    """The least and the greatest partition of a table with one text column or none, and the nulls
    of each column.
    """
    if not any(partitions[0]):
        return None, None, []
    texts = [text_in(one) for one in partitions]
    known = sorted(one for one in texts if one is not None)
    return (known or [None])[0], (known or [None])[-1], [texts.count(None)]


def _said_stats(record: Record) -> tuple[Any, ...]:
    stats = record["_PARTITION_STATS"]
    bounds = stats["_MIN_VALUES"], stats["_MAX_VALUES"]
    least, greatest = (text_in(one) if any(one) else None for one in bounds)
    return least, greatest, stats["_NULL_COUNTS"]


def check_list(name: str, files: Files) -> int:
    """Each record of a manifest list says what its manifest has. Returns the rows that all of them
    add.
    """
    rows = 0
    for record in records_of(files[name]):
        manifest = record["_FILE_NAME"]
        summary = summary_of(files[manifest])
        if record["_FILE_SIZE"] != summary.size:
            what = f"{name} gives {manifest} {record['_FILE_SIZE']} bytes, not {summary.size}"
            raise Violation(rules.SIZES, what)
        counts = record["_NUM_ADDED_FILES"], record["_NUM_DELETED_FILES"]
        if counts != (summary.added, summary.deleted):
            what = f"{name} says that {manifest} adds and deletes {counts} files, not "
            raise Violation(rules.COUNTS, f"{what}{summary.added} and {summary.deleted}")
        said = {key: record[key] for key in summary.said} | {
            "_PARTITION_STATS": _said_stats(record)
        }
        if said != summary.said:
            wrong = {key: said[key] for key in said if said[key] != summary.said[key]}
            raise Violation(
                rules.STATISTICS, f"{name} says {wrong} of {manifest}, and not {summary.said}"
            )
        rows += summary.rows
    return rows


def check_snapshot(content: bytes, files: Files) -> dict[str, Any]:
    """The counts and sizes in a snapshot's file are those of its lists. Returns the JSON in it."""
    node: dict[str, Any] = json.loads(content)
    rows: dict[str, int] = {}
    for which in ("base", "delta", "changelog"):
        name = node.get(f"{which}ManifestList")
        size = node.get(f"{which}ManifestListSize")
        real = None if name is None else len(files[name])
        if size != real:
            what = f"snapshot {node['id']} gives its {which} list {size} bytes, not {real}"
            raise Violation(rules.SIZES, what)
        if name is not None:
            rows[which] = check_list(name, files)
    expected = {
        "totalRecordCount": rows["base"] + rows["delta"],
        "deltaRecordCount": rows["delta"],
        "changelogRecordCount": rows.get("changelog"),
    }
    for key, real in expected.items():
        if node.get(key) != real:
            what = f"snapshot {node['id']} has {key} {node.get(key)}, not {real}"
            raise Violation(rules.COUNTS, what)
    return node


def check_index_files(node: Mapping[str, Any], files: Files, indexes: Files) -> None:
    """The entries of a snapshot's index manifest have the sizes and counts of their files."""
    name = node.get("indexManifest")
    for record in () if name is None else records_of(files[name]):
        file, ranges = record["_FILE_NAME"], record["_DELETIONS_VECTORS_RANGES"]
        size = len(indexes[file]) if file in indexes else None
        if record["_FILE_SIZE"] != size:
            what = f"{name} gives {file} {record['_FILE_SIZE']} bytes, not {size}"
            raise Violation(rules.SIZES, what)
        if record["_INDEX_TYPE"] == "HASH":
            rows = size // 4
        elif ranges is not None:
            rows = len(ranges)
        else:
            continue
        if record["_ROW_COUNT"] != rows:
            raise Violation(
                rules.COUNTS, f"{name} gives {file} {record['_ROW_COUNT']} rows, not {rows}"
            )


def check_figures(truth: Truth, process: Process, path: str, state: State) -> None:
    """Looks at a snapshot that this process has published in that file."""
    world, archive = truth.world, truth.archive
    node = check_snapshot(world.disk.read(path), archive.files)
    check_index_files(node, archive.files, archive.indexes)
    if process.drops != truth.drops or process.upsets != truth.upsets:
        return  # it may know another table, or another branch
    _check_schema(truth, process, path, node)
    _check_marks(process, node)
    if world.keyed and not world.changing:
        _check_keys(truth, state, node)


def _check_schema(truth: Truth, process: Process, path: str, node: Mapping[str, Any]) -> None:
    """A snapshot has the newest schema. One that appeared after its work had begun it may not have
    seen.
    """
    newest_then = process.schemas_then.get(path, process.newest_schema)
    if not newest_then <= node["schemaId"] <= truth.newest_schema:
        what = f"snapshot {node['id']} of {process.name} has schema {node['schemaId']}; "
        raise Violation(
            rules.NEWEST_SCHEMA,
            f"{what}when it began {newest_then} was the newest, and now {truth.newest_schema}",
        )


def _check_marks(process: Process, node: Mapping[str, Any]) -> None:
    """A snapshot of this package says whose it is, and one of another engine does not."""
    properties = node.get("properties", {})
    said = {key.removeprefix(MARK): one for key, one in properties.items() if key.startswith(MARK)}
    own = said.get("nonce") == node["deltaManifestList"]
    expected: list[tuple[str, str]] = []
    if node["commitIdentifier"] != BATCH and "recommitted" not in said:
        marks = process.marks.get(node["commitUser"])
        if marks is not None:
            expected = [*marks.items()]
            if node["commitKind"] != "COMPACT":  # that is of no batch
                expected.append(("batch-id", str(node["commitIdentifier"])))
    wrong = [key for key, one in expected if said.get(key) != one]
    if own == isinstance(process.actor, JavaCommitter) or wrong:
        what = f"snapshot {node['id']} of {process.name} says {said}"
        raise Violation(rules.MARKS, f"{what}; {', '.join(wrong) or 'nonce'} is wrong")


def _check_keys(truth: Truth, state: State, node: Mapping[str, Any]) -> None:
    """The entries of new files have the bounds of their keys, and count them."""
    files = truth.archive.files
    for record in records_of(files[node["deltaManifestList"]]):
        for entry in records_of(files[record["_FILE_NAME"]]):
            file, name = entry["_FILE"], entry["_FILE"]["_FILE_NAME"]
            if entry["_KIND"] != ADD or name not in state.live:
                continue
            pieces = pieces_of(truth.world, state.live[name])
            keys = sorted({key for piece in pieces for key in piece.values})
            bounds = number_in(file["_MIN_KEY"]), number_in(file["_MAX_KEY"])
            if (*bounds, file["_ROW_COUNT"]) != (keys[0], keys[-1], len(keys)):
                what = f"{record['_FILE_NAME']} gives {name} {file['_ROW_COUNT']} keys in {bounds}"
                raise Violation(rules.STATISTICS, f"{what}, and it has {keys}")
