"""Fields that a newer writer may add to metadata files, at random, put in with fastavro and the
standard library alone.
"""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import fastavro

from paimon_stream.format.entries import ManifestEntry
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.live import snapshot_files
from paimon_stream.table.snapshots import SnapshotStore
from paimon_stream.table.table import load_table
from tests.kits.avro_files import read_file

Node = dict[str, Any]
Place = tuple[str | int, ...]

_LEAVES: Final = ("boolean", "int", "long", "float", "double", "string", "bytes")


def random_type(dice: random.Random, name: str, of_paimon: bool, depth: int = 0) -> Any:
    """An Avro type. `name` is that of named types in it."""
    kind = dice.randrange((6 if of_paimon else 7) if depth < 2 else 3)
    inner = partial(random_type, dice, of_paimon=of_paimon, depth=depth + 1)
    match kind:
        case 0 | 1 | 2:
            return dice.choice(_LEAVES)
        case 3:
            return {"type": "array", "items": inner(f"{name}i")}
        case 4:
            return {"type": "map", "values": inner(f"{name}v")}
        case 5:
            fields = [
                {"name": f"f{number}", "type": inner(f"{name}{number}")}
                for number in range(dice.randrange(1, 4))
            ]
            if not of_paimon and dice.random() < 0.5:
                fields.append({"name": "again", "type": {"type": "array", "items": f"{name}E"}})
                fields.insert(0, {"name": "first", "type": _named(dice, f"{name}E")})
            return {"type": "record", "name": name, "fields": fields}
    return _named(dice, name)


def _named(dice: random.Random, name: str) -> Node:
    if dice.random() < 0.5:
        return {"type": "enum", "name": name, "symbols": ["A", "B"]}
    return {"type": "fixed", "name": name, "size": 3}


def random_field(dice: random.Random, name: str, of_paimon: bool) -> Node:
    """A field whose type is a union with null, in any order, or not."""
    type_ = random_type(dice, f"Type_{name}", of_paimon)
    shapes = ["plain", "nullable"] if of_paimon else ["plain", "nullable", "nullable last"]
    shape = dice.choice(shapes)
    if shape != "plain":
        type_ = ["null", type_] if shape == "nullable" else [type_, "null"]
    return {"name": name, "type": type_}


def random_value(dice: random.Random, type_: Any, named: dict[str, Any]) -> Any:
    """A value of the type. `named` has the named types that came before."""
    if isinstance(type_, list):
        return random_value(dice, dice.choice(type_), named)
    if isinstance(type_, str) and type_ in named:
        return random_value(dice, named[type_], named)
    if isinstance(type_, str):
        return _leaf(dice, type_)
    named[type_.get("name", "")] = type_
    match type_["type"]:
        case "array":
            return [random_value(dice, type_["items"], named) for _ in range(dice.randrange(4))]
        case "map":
            return {
                key: random_value(dice, type_["values"], named)
                for key in dice.sample("abc", dice.randrange(3))
            }
        case "enum":
            return dice.choice(type_["symbols"])
        case "fixed":
            return dice.randbytes(type_["size"])
        case "record":
            return {
                field["name"]: random_value(dice, field["type"], named) for field in type_["fields"]
            }
    return _leaf(dice, type_["type"])


def _leaf(dice: random.Random, kind: str) -> Any:
    match kind:
        case "null":
            return None
        case "boolean":
            return dice.random() < 0.5
        case "int" | "long":
            return dice.choice([0, 1, -1, 63, 64, 2**31 - 1, -(2**31)])
        case "float" | "double":
            return dice.choice([0.0, -1.5, 1024.25])
        case "string":
            return dice.choice(["", "ä", "x" * 300])
    return dice.choice([b"", b"\0\xff", bytes(300)])


def with_sizes(data: bytes, folder: Path) -> bytes:
    """A manifest list or a snapshot that records the sizes that the manifests or the lists in a
    folder have.
    """
    if data.startswith(b"{"):
        node = json.loads(data)
        for key in ("baseManifestList", "deltaManifestList"):
            node[f"{key}Size"] = (folder / node[key]).stat().st_size
        return json.dumps(node, indent=2).encode()
    schema, records = read(data)
    for record in records:
        record["_FILE_SIZE"] = (folder / record["_FILE_NAME"]).stat().st_size
    return written(schema, records)


def written(schema: Node, records: list[Any]) -> bytes:
    """An Avro file, from what `read` returns."""
    out = io.BytesIO()
    fastavro.writer(out, schema, records, codec="null")
    return out.getvalue()


def add_sequences(data: bytes) -> bytes:
    """A manifest in which each entry has the field that Paimon 2 has added, with a value."""
    schema, records = read(data)
    sequences = {"type": "array", "items": "long"}
    fields = _record_at(schema, ("_FILE",))["fields"]
    fields.append({"name": "_WRITE_COLS_SEQUENCES", "type": ["null", sequences], "default": None})
    for record in records:
        record["_FILE"]["_WRITE_COLS_SEQUENCES"] = [7, 8]
    return written(schema, records)


def add_sequences_everywhere(location: Path) -> None:
    """Adds that field to all entries of the manifests of a local table."""
    for path in (location / "manifest").glob("manifest-*"):
        if not path.name.startswith("manifest-list"):
            path.write_bytes(add_sequences(path.read_bytes()))


def add_names(data: bytes, place: tuple[str, ...], name: str, files: Sequence[str]) -> bytes:
    """An Avro file of metadata in which each record at a place names some files, in a field of this
    name, as Paimon 2 names the sidecar files of manifests in manifest lists (`_EXTRA_FILES`).
    """
    schema, records = read(data)
    type_ = ["null", {"type": "array", "items": "string"}]
    _record_at(schema, place)["fields"].append({"name": name, "type": type_, "default": None})
    for record in records:
        for inner in _inner(record, place):
            inner[name] = list(files)
    return written(schema, records)


def add_fields(data: bytes, dice: random.Random, name: str, *, of_paimon: bool = False) -> bytes:
    """An Avro file of metadata, with fields called `name<n>` anywhere in its records. `of_paimon`
    adds only what Java's writers can write, to the ends of records, because Java's readers can skip
    no other types.
    """
    schema, records = read(data)
    for number, place in enumerate(dice.choices(list(_records(schema, ())), k=3)):
        added = random_field(dice, f"{name}{number}", of_paimon)
        fields = _record_at(schema, place)["fields"]
        position = len(fields)
        if not of_paimon and dice.random() < 0.5:
            position = dice.randrange(1, len(fields))
        fields.insert(position, added)
        for record in records:
            for inner in _inner(record, place):
                inner[added["name"]] = random_value(dice, added["type"], {})
    return written(schema, records)


def read(data: bytes) -> tuple[Node, list[Any]]:
    """The schema of an Avro file, and its records, with values as they are stored."""
    file = read_file(data, "x")
    schema: Node = json.loads(file.schema)
    parsed = fastavro.parse_schema(_stored(schema))
    records = []
    for block in file.blocks:
        source = io.BytesIO(block.data)
        records += [fastavro.schemaless_reader(source, parsed, None) for _ in range(block.records)]
        assert not source.read()
    return schema, records


def _stored(node: Any) -> Any:
    """The schema without logical types."""
    if isinstance(node, dict):
        return {key: _stored(value) for key, value in node.items() if key != "logicalType"}
    return [_stored(item) for item in node] if isinstance(node, list) else node


def _value_type(type_: Any) -> Any:
    if isinstance(type_, list):
        return next(branch for branch in type_ if branch != "null")
    return type_


def _records(node: Any, place: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Where records are in a schema."""
    node = _value_type(node)
    if isinstance(node, dict) and node["type"] == "array":
        yield from _records(node["items"], place)
    if isinstance(node, dict) and node["type"] == "record":
        yield place
        for field in node["fields"]:
            yield from _records(field["type"], (*place, field["name"]))


def _record_at(node: Any, place: tuple[str, ...]) -> Node:
    node = _value_type(node)
    if node["type"] == "array":
        return _record_at(node["items"], place)
    if not place:
        record: Node = node
        return record
    inner = next(field["type"] for field in node["fields"] if field["name"] == place[0])
    return _record_at(inner, place[1:])


def _inner(value: Any, place: tuple[str, ...]) -> Iterator[Node]:
    """The records at a place of a record."""
    if value is None:
        return
    if isinstance(value, list):
        for item in value:
            yield from _inner(item, place)
    elif place:
        yield from _inner(value[place[0]], place[1:])
    else:
        yield value


def fields_with_values(data: bytes, name: str) -> list[dict[Place, Any]]:
    """The added fields that are not null, of each record of an Avro file."""
    return [dict(_added(record, (), name)) for record in read(data)[1]]


def _added(value: Any, path: Place, name: str) -> Iterator[tuple[Place, Any]]:
    if isinstance(value, list):
        for position, item in enumerate(value):
            yield from _added(item, (*path, position), name)
    if isinstance(value, dict):
        for key, item in value.items():
            if not key.startswith(name):
                yield from _added(item, (*path, key), name)
            elif item is not None:
                yield (*path, key), item


def add_members(data: bytes, dice: random.Random, name: str) -> bytes:
    """A JSON file of metadata, with keys called `name<n>` in any of its objects but `options` and
    `properties`.
    """
    node = json.loads(data)
    objects = list(_objects(node))
    for number, target in enumerate(dice.choices(objects, k=3)):
        target[f"{name}{number}"] = dice.choice(
            [None, True, 0, -(2**63), 1.5, "", "ä", [], {}, [1, {"a": [None]}], {"b": {"c": "d"}}]
        )
    return json.dumps(node, indent=2).encode()


def _objects(node: Any) -> Iterator[Node]:
    if isinstance(node, dict):
        yield node
        for key, value in node.items():
            if key not in ("options", "properties"):
                yield from _objects(value)
    if isinstance(node, list):
        for item in node:
            yield from _objects(item)


def members_with_values(node: Any, name: str, path: Place = ()) -> dict[Place, Any]:
    """The added keys of a JSON value that are not null."""
    found: dict[Place, Any] = {}
    items = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in items:
        if isinstance(key, str) and key.startswith(name):
            if value is not None:
                found[(*path, key)] = value
        elif isinstance(value, dict | list):
            found |= members_with_values(value, name, (*path, key))
    return found


def live_entries(location: Path) -> list[ManifestEntry]:
    """The entries of the live files of a local table."""
    table = load_table(LocalStorage(str(location)))
    return snapshot_files(table, SnapshotStore(table.storage).latest())


def without_unknown(entry: ManifestEntry) -> ManifestEntry:
    """The entry as a release reads it that knows none of these fields."""
    return replace(entry, file=replace(entry.file, unknown=()))
