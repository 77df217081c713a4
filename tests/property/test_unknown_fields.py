"""Fields of newer writers, wherever they are and whatever their types, come back from every codec
of metadata, and through what is done to a table.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paimon_stream import PaimonTable
from paimon_stream.errors import UnsupportedFeature
from paimon_stream.format.avro_file import compressor
from paimon_stream.format.entries import (
    DeletionRange,
    GlobalIndexMeta,
    IndexFileMeta,
    IndexManifestEntry,
    ManifestEntry,
    ManifestFileMeta,
)
from paimon_stream.format.index_manifest import decode_index_manifest, encode_index_manifest
from paimon_stream.format.manifest_avro import (
    decode_manifest,
    decode_manifest_list,
    divided,
    encode_entries,
    encode_manifest_list,
    manifest_of_blocks,
)
from paimon_stream.storage.local import LocalStorage
from paimon_stream.table.schema_change import SchemaChange
from paimon_stream.table.table import alter_table
from tests.kits import newer_fields
from tests.kits.manifests import encode_manifest
from tests.kits.seeds import examples, seeds
from tests.property.test_manifest_codec import BYTES, ENTRIES, INT, LONG, METAS, NAMES, TEXT

pytestmark = pytest.mark.lowest

QUICK = settings(
    deadline=None, max_examples=examples(10, 2000), suppress_health_check=[HealthCheck.too_slow]
)
SEEDS = st.integers(0, 2**32)
NEW = "_NEW"
RANGES = st.builds(
    DeletionRange, data_file=TEXT, offset=INT, length=INT, cardinality=st.none() | LONG
)
GLOBAL = st.builds(
    GlobalIndexMeta,
    row_range_start=LONG,
    row_range_end=LONG,
    index_field_id=INT,
    extra_field_ids=st.none() | st.lists(INT, max_size=3).map(tuple),
    index_meta=st.none() | BYTES,
    source_meta=st.none() | BYTES,
)
INDEX_ENTRIES = st.builds(
    IndexManifestEntry,
    partition=BYTES,
    bucket=INT,
    file=st.builds(
        IndexFileMeta,
        index_type=TEXT,
        file_name=NAMES,
        file_size=LONG,
        row_count=LONG,
        deletions=st.none() | st.lists(RANGES, max_size=3).map(tuple),
        external_path=st.none() | TEXT,
        global_index=st.none() | GLOBAL,
    ),
)


@QUICK
@given(st.lists(ENTRIES, min_size=1, max_size=4), SEEDS)
def test_a_manifest_keeps_them(entries: list[ManifestEntry], seed: int) -> None:
    plain = encode_manifest(entries, compression="null", level=1)
    data = newer_fields.add_fields(plain, random.Random(seed), NEW)
    decoded = decode_manifest(data, "x")
    codec = compressor("zstd", 1)
    ((part, types),) = divided(decoded)
    again = manifest_of_blocks(encode_entries(part, codec, types), codec, types)
    assert newer_fields.fields_with_values(again, NEW) == newer_fields.fields_with_values(data, NEW)
    assert decode_manifest(again, "x") == decoded
    bare = [newer_fields.without_unknown(entry) for entry in decoded]
    assert bare == entries


@QUICK
@given(st.lists(METAS, max_size=3, unique_by=lambda meta: meta.file_name), SEEDS)
def test_a_manifest_list_keeps_them(metas: list[ManifestFileMeta], seed: int) -> None:
    _check_kept(metas, seed, encode_manifest_list, decode_manifest_list)


@QUICK
@given(st.lists(INDEX_ENTRIES, max_size=3), SEEDS)
def test_an_index_manifest_keeps_them(entries: list[IndexManifestEntry], seed: int) -> None:
    plain = encode_index_manifest(entries, compression="null", level=1)
    assert list(decode_index_manifest(plain, "x")) == entries
    _check_kept(entries, seed, encode_index_manifest, decode_index_manifest)


def _check_kept(
    records: Sequence[Any], seed: int, encode: Callable[..., bytes], decode: Callable[..., Any]
) -> None:
    """Decodes a file with new fields, and encodes it again: it has all of them, with their values."""
    plain = encode(records, compression="null", level=1)
    data = newer_fields.add_fields(plain, random.Random(seed), NEW)
    decoded = decode(data, "x")
    again = encode(decoded, compression="zstd", level=1)
    assert newer_fields.fields_with_values(again, NEW) == newer_fields.fields_with_values(data, NEW)
    assert decode(again, "x") == decoded


@QUICK
@given(st.lists(ENTRIES, min_size=1, max_size=6), SEEDS)
def test_entries_of_several_writers_are_divided_only_where_types_differ(
    entries: list[ManifestEntry], seed: int
) -> None:
    dice = random.Random(seed)
    decoded = []
    for entry in entries:
        data = encode_manifest([entry], compression="null", level=1)
        if dice.random() < 0.7:
            data = newer_fields.add_fields(data, dice, NEW + dice.choice("ab"))
        decoded += decode_manifest(data, "x")
    parts = list(divided(decoded))
    assert [entry for part, _ in parts for entry in part] == decoded
    codec = compressor("null", 1)
    for part, types in parts:
        again = manifest_of_blocks(encode_entries(part, codec, types), codec, types)
        assert decode_manifest(again, "x") == list(part)


COLUMNS = [("p", "INT"), ("k", "INT"), ("r", "ROW<x INT, y STRING>")]
OPTIONS = {
    "deletion-vectors.enabled": "true",
    "manifest.merge-min-count": "3",
    "manifest.compression": "deflate",
    "compaction.min.file-num": "2",
    "snapshot.num-retained.min": "1",
}


class NewerTable:
    """A table into whose files a newer writer has put fields, and what these say.

    Attributes:
        table: the table.
        snapshots: the added keys by the name of the snapshot's delta list.
        schema: the added keys of schema 0.
        files: the added fields of the entries of each data file, index file and manifest.
    """

    def __init__(self, location: Path, dice: random.Random, *, of_paimon: bool = False) -> None:
        self.location = location
        self.table = PaimonTable.create(
            str(location), COLUMNS, partition_keys=["p"], options=OPTIONS
        )
        for number in range(3):
            self.append(number)
        self.table.delete(pc.field("k") == 1)
        self.snapshots: dict[str, dict[newer_fields.Place, Any]] = {}
        self.files: dict[str, list[dict[newer_fields.Place, Any]]] = {}
        folder = location / "manifest"
        add = partial(newer_fields.add_fields, of_paimon=of_paimon)
        for path in sorted(folder.iterdir(), key=lambda path: "-list-" in path.name):
            name = f"_NEW{len(self.files)}c"
            if path.name.startswith("manifest-list-"):
                path.write_bytes(newer_fields.with_sizes(path.read_bytes(), folder))
            elif path.name.startswith("manifest-"):
                name = dice.choice(["_NEWa", "_NEWb"])
            self._change(path, add, dice, name)
            for file, fields in entries_in(path):
                self.files.setdefault(file, []).append(fields)
        for path in sorted((location / "snapshot").glob("snapshot-*")):
            path.write_bytes(newer_fields.with_sizes(path.read_bytes(), folder))
            self._change(path, newer_fields.add_members, dice, "newSnapshot")
            self.snapshots |= snapshots_in(path)
        path = location / "schema/schema-0"
        self._change(path, newer_fields.add_members, dice, "newSchema")
        self.schema = newer_fields.members_with_values(json.loads(path.read_bytes()), "newSchema")
        self.table = PaimonTable.load(str(location))
        self.table.create_tag("old", 2)

    def _change(self, path: Path, add: Any, dice: random.Random, name: str) -> None:
        path.write_bytes(add(path.read_bytes(), dice, name))

    def append(self, number: int) -> None:
        rows = [{"p": p, "k": 10 * number + p, "r": {"x": number, "y": "y"}} for p in range(3)]
        self.table.append(pa.Table.from_pylist(rows, self.table.to_arrow().schema))

    def check(self) -> None:
        """Every copy of a snapshot or of the schema, and every entry of a file, has the fields."""
        for folder in ("snapshot", "tag", "branch"):
            for path in (self.location / folder).rglob("*"):
                if path.name.startswith(("snapshot-", "tag-")):
                    ((nonce, members),) = snapshots_in(path).items()
                    assert members == self.snapshots.get(nonce, {}), path
        for path in self.location.rglob("schema-*"):
            node = json.loads(path.read_bytes())
            assert newer_fields.members_with_values(node, "newSchema") == self.schema, path
        for path in (self.location / "manifest").iterdir():
            for name, fields in entries_in(path):
                assert fields in self.files.get(name, [{}]), path


def snapshots_in(path: Path) -> dict[str, dict[newer_fields.Place, Any]]:
    node = json.loads(path.read_bytes())
    return {node["deltaManifestList"]: newer_fields.members_with_values(node, "newSnapshot")}


def entries_in(path: Path) -> Iterator[tuple[str, dict[newer_fields.Place, Any]]]:
    """The name and the added fields of each file in a manifest, a manifest list or an index
    manifest.
    """
    data = path.read_bytes()
    added = newer_fields.fields_with_values(data, "_NEW")
    for record, fields in zip(newer_fields.read(data)[1], added, strict=True):
        yield record.get("_FILE", record)["_FILE_NAME"], fields


def compact(newer: NewerTable) -> None:
    report = newer.table.compact(full=True)
    for bucket in report.buckets:
        assert bucket.skipped is None or "_NEW" in bucket.skipped


def expire(newer: NewerTable) -> None:
    newer.table.expire_snapshots(retain_max=2, retain_min=1, older_than=2**40 * 1000)


def rollback(newer: NewerTable) -> None:
    newer.table.rollback_to("old")
    newer.append(7)


def alter(newer: NewerTable) -> None:
    change = SchemaChange.set_option("snapshot.num-retained.max", "99")
    alter_table(LocalStorage(str(newer.location)), [change])


def branch(newer: NewerTable) -> None:
    newer.table.create_branch("b", "old")


ACTIONS: dict[str, Callable[[NewerTable], object]] = {
    "merge": lambda newer: newer.table.compact_manifests(),
    "append": lambda newer: newer.append(5),
    "tag": lambda newer: newer.table.create_tag("new"),
    "compact": compact,
    "overwrite": lambda newer: newer.table.drop_partitions([{"p": 1}]),
    "expire": expire,
    "rollback": rollback,
    "branch": branch,
    "alter": alter,
}


@pytest.mark.parametrize("seed", seeds(4, 60))
def test_a_table_keeps_them_whatever_is_done_to_it(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    newer = NewerTable(tmp_path / "t", dice)
    rows = newer.table.to_arrow().sort_by("k")
    newer.table.compact_manifests()
    newer.check()
    assert newer.table.to_arrow().sort_by("k").equals(rows)
    for action in dice.sample(sorted(ACTIONS), len(ACTIONS)):
        try:
            ACTIONS[action](newer)
        except UnsupportedFeature as refusal:
            if "_NEW" not in refusal.message:
                raise
        newer.check()
