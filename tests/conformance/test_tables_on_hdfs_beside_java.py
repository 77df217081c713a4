"""Java Paimon and we work on the same tables on HDFS, in turns."""

from __future__ import annotations

from typing import Any

import pytest

from paimon_stream import PaimonTable
from tests.conformance.test_tables_on_s3_beside_java import COLUMNS, KINDS, by_id, ours, row
from tests.kits.hdfs import MiniHdfs
from tests.kits.params import each_once

pytestmark = pytest.mark.hdfs

TURNS = 2


@pytest.mark.parametrize(("kind", "first"), each_once(list(KINDS), ["ours", "java"]))
def test_each_reads_and_continues_what_the_other_wrote(
    hdfs_server: MiniHdfs, java_on_hdfs: Any, kind: str, first: str
) -> None:
    location, options = hdfs_server.place()
    how = KINDS[kind]
    if first == "ours":
        PaimonTable.create(location, COLUMNS, partition_keys=["dt"], storage_options=options, **how)
    else:
        of_table = how.get("options", {"bucket": "-1"})
        keys = how.get("primary_keys", [])
        java_on_hdfs.create_table(location, COLUMNS, ["dt"], keys, of_table)
    table = PaimonTable.load(location, storage_options=options)
    expected = []
    for turn in range(TURNS):
        expected += [row(4 * turn + n, f"{turn}.{n}") for n in range(4)]
        table.append(ours(*expected[-4:-2]))
        java_on_hdfs.write(location, expected[-2:], commit_identifier=turn + 1)
    assert by_id(java_on_hdfs.read(location)) == expected
    assert by_id(table.to_arrow().to_pylist()) == expected
    table.compact(full=True)
    assert by_id(java_on_hdfs.read(location)) == expected
    table.expire_snapshots(retain_max=2, retain_min=1, older_than=0)
    java_on_hdfs.expire_snapshots(location, retain_max=1)
    assert by_id(table.to_arrow().to_pylist()) == expected
    assert table.verify().healthy


def test_java_reads_branches_and_external_paths_on_hdfs(
    hdfs_server: MiniHdfs, java_on_hdfs: Any
) -> None:
    location, options = hdfs_server.place()
    outside, _ = hdfs_server.place()
    external = {
        "data-file.external-paths": outside,
        "data-file.external-paths.strategy": "round-robin",
    }
    table = PaimonTable.create(location, COLUMNS, options=external, storage_options=options)
    table.append(ours(row(1, "a")))
    assert hdfs_server.tell(f"count {outside.removeprefix(hdfs_server.url)}") == "1"
    assert java_on_hdfs.read(location) == table.to_arrow().to_pylist() == [row(1, "a")]
    table.create_tag("t")
    table.create_branch("b", "t")
    branch = PaimonTable.load(location, branch="b", storage_options=options)
    branch.append(ours(row(2, "b")))
    java_on_hdfs.write(location, [row(3, "c")], options={"branch": "b"})
    assert by_id(branch.to_arrow().to_pylist()) == [row(1, "a"), row(2, "b"), row(3, "c")]
    assert table.to_arrow().to_pylist() == [row(1, "a")]
    assert branch.verify().healthy and table.verify().healthy
