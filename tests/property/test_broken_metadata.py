"""Damaged schemas and snapshots: for any damage to their bytes, our errors name the file."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paimon_stream.errors import FormatError, UnsupportedFeature
from paimon_stream.runtime import simulated
from paimon_stream.storage.memory import MemoryStorage
from paimon_stream.table.schema import SchemaStore
from paimon_stream.table.snapshots import SnapshotStore
from tests.kits.params import few

TABLE = Path(__file__).parent.parent / "golden" / "all_types" / "db.db" / "t"
SCHEMA = (TABLE / "schema" / "schema-0").read_bytes()
SNAPSHOT = (TABLE / "snapshot" / "snapshot-1").read_bytes()
QUICK = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


def read_all(schema: bytes, snapshot: bytes) -> None:
    storage = MemoryStorage()
    storage.write("schema/schema-0", schema)
    storage.write("snapshot/snapshot-1", snapshot)
    for path, ask in (
        ("schema/schema-0", SchemaStore(storage).latest),
        ("snapshot/snapshot-1", SnapshotStore(storage, simulated(1)).latest),
    ):
        try:
            ask()
        except (FormatError, UnsupportedFeature) as error:
            assert f"{storage.location}/{path}" in str(error)  # noqa: PT017
            assert error.context["path"] == f"{storage.location}/{path}"  # noqa: PT017


@QUICK
@given(st.data())
def test_damaged_bytes_raise_our_errors_with_the_path(data: Any) -> None:
    broken = []
    for content in (SCHEMA, SNAPSHOT):
        damaged = bytearray(content)
        for _ in range(data.draw(st.integers(1, 3))):
            at = data.draw(st.integers(0, len(damaged)))
            damaged[at : at + data.draw(st.integers(0, 20))] = data.draw(st.binary(max_size=10))
        broken.append(bytes(damaged))
    read_all(*broken)


@QUICK
@given(st.data())
def test_values_of_another_kind_raise_our_errors_with_the_path(data: Any) -> None:
    broken = []
    for content in (SCHEMA, SNAPSHOT):
        node = json.loads(content)
        inner = data.draw(st.sampled_from([node, *node.get("fields", [])]))
        inner[data.draw(st.sampled_from(sorted(inner)))] = data.draw(JUNK)
        broken.append(json.dumps(node).encode())
    read_all(*broken)


DEEP = "[" * 100_000


TRAPS = [
    "NaN",
    "-Infinity",
    "1e999",
    "[]",
    '""',
    "{}",
    "-1",
    "9" * 5000,
    "9" * 30,
    DEEP,
    "[" * 900 + "]" * 900,
    r'"\ud800"',
    "[" + "[]," * 400_000 + "[]]",
]
KEYS = ["id", "version", "highestFieldId", "timeMillis", "fields", "options"]


@pytest.mark.parametrize(
    ("key", "junk"),
    few(
        product(KEYS, TRAPS),
        lambda key, junk: junk == "1e999" or (key == "id" and junk != TRAPS[-1]),
    ),
)
def test_known_traps_raise_our_errors_with_the_path(key: str, junk: str) -> None:
    node = {**json.loads(SCHEMA), key: "JUNK"}
    snapshot = {**json.loads(SNAPSHOT), key: "JUNK"}
    read_all(*(json.dumps(one).replace('"JUNK"', junk).encode() for one in (node, snapshot)))
