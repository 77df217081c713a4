"""Java Paimon and we work on the same tables on S3, in turns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from paimon_stream import CommitMessage, PaimonTable
from tests.kits.stores import StoreServer

COLUMNS = [("id", "BIGINT NOT NULL"), ("name", "STRING"), ("dt", "STRING NOT NULL")]
KEYED: dict[str, Any] = {"primary_keys": ["dt", "id"], "options": {"bucket": "2"}}
APPEND: dict[str, Any] = {}


def row(n: int, name: str) -> dict[str, Any]:
    return {"id": n, "name": name, "dt": f"2024-01-0{1 + n % 2}"}


def ours(*rows: dict[str, Any]) -> pa.Table:
    schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("dt", pa.string())])
    return pa.Table.from_pylist(list(rows), schema)


def by_id(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda one: one["id"])


@pytest.mark.parametrize("how", [APPEND, KEYED], ids=["append", "keyed"])
def test_each_reads_and_continues_what_the_other_wrote(
    java_on_s3: Any, s3_server: StoreServer, how: dict[str, Any]
) -> None:
    for first in ("ours", "java"):
        location, options = s3_server.place()
        if first == "ours":
            PaimonTable.create(location, COLUMNS, partition_keys=["dt"], storage_options=options, **how)
        else:
            java_on_s3.create_table(
                location, COLUMNS, ["dt"], how.get("primary_keys", []), how.get("options", {"bucket": "-1"})
            )
        table = PaimonTable.load(location, storage_options=options)
        expected = []
        for turn in range(3):
            expected += [row(4 * turn + n, f"{turn}.{n}") for n in range(4)]
            table.append(ours(*expected[-4:-2]))
            java_on_s3.write(location, expected[-2:], commit_identifier=turn + 1)
        assert by_id(java_on_s3.read(location)) == expected
        assert by_id(table.to_arrow().to_pylist()) == expected
        assert [one["id"] for one in java_on_s3.snapshots(location)] == [1, 2, 3, 4, 5, 6]
        table.expire_snapshots(retain_max=2, retain_min=1, older_than=0)
        assert by_id(java_on_s3.read(location)) == expected
        java_on_s3.expire_snapshots(location, retain_max=1)
        assert by_id(table.to_arrow().to_pylist()) == expected
        assert table.verify().healthy


def test_we_commit_files_that_java_wrote(java_on_s3: Any, s3_server: StoreServer) -> None:
    location, options = s3_server.place()
    table = PaimonTable.create(location, COLUMNS, storage_options=options, partition_keys=["dt"])
    prepared = java_on_s3.prepare_commit_bytes(location, [row(1, "of java")])
    table.new_commit("ours").commit(1, [CommitMessage.deserialize(one) for one in prepared.messages])
    assert table.to_arrow().to_pylist() == java_on_s3.read(location) == [row(1, "of java")]
    assert java_on_s3.last_commit_of(location, "ours") == 1
