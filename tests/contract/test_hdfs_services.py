"""A name service of two name nodes, of which one takes over in the middle of a stream, and a mount table
of viewfs above it.
"""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from paimon_stream import PaimonTable
from tests.kits.hdfs import NAME_SERVICE, MiniHdfs
from tests.kits.stores import started

pytestmark = [pytest.mark.hdfs, pytest.mark.full]


class Appends(threading.Thread):
    """Appends rows, one in each commit, until it is told to stop."""

    def __init__(self, table: PaimonTable) -> None:
        super().__init__(daemon=True)
        self.table, self.count, self.ending = table, 0, threading.Event()

    def run(self) -> None:
        while not self.ending.is_set():
            self.table.append(pa.table({"id": pa.array([self.count], pa.int64())}))
            self.count += 1

    def until(self, count: int) -> None:
        """Waits until this number of commits is done."""
        while self.count < count:
            assert self.is_alive()
            self.join(0.05)


def test_a_stream_goes_on_when_another_name_node_takes_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """First the nodes change places, then the active one is killed."""
    with started(lambda _: MiniHdfs(name_nodes=2), "hdfs_native") as hdfs:
        monkeypatch.setenv("HADOOP_CONF_DIR", str(hdfs.conf))
        location, options = hdfs.place()
        table = PaimonTable.create(location, [("id", "BIGINT")], storage_options=options)
        appends = Appends(table)
        appends.start()
        appends.until(2)
        hdfs.tell("active 1")
        appends.until(appends.count + 2)
        hdfs.tell("kill-name-node 1")
        hdfs.tell("active 0")
        appends.until(appends.count + 2)
        appends.ending.set()
        appends.join(60)
        expected = list(range(appends.count))
        assert sorted(table.to_arrow()["id"].to_pylist()) == expected
        assert table.verify().healthy

        mounted = {
            "fs.viewfs.mounttable.cluster.link./data": f"{hdfs.url}/wh",
            "fs.defaultFS": "viewfs://cluster",
        }
        hdfs.configure(mounted)
        seen = PaimonTable.load(f"viewfs://cluster/data{location.removeprefix(f'{hdfs.url}/wh')}")
        seen.append(pa.table({"id": pa.array([appends.count], pa.int64())}))
        assert sorted(table.to_arrow()["id"].to_pylist()) == [*expected, appends.count]


def test_only_the_active_name_node_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """An observer may know an older state, and would be read by this provider."""
    with started(lambda _: MiniHdfs(name_nodes=2), "hdfs_native") as hdfs:
        provider = "org.apache.hadoop.hdfs.server.namenode.ha.ObserverReadProxyProvider"
        hdfs.configure({f"dfs.client.failover.proxy.provider.{NAME_SERVICE}": provider})
        monkeypatch.setenv("HADOOP_CONF_DIR", str(hdfs.conf))
        hdfs.tell("observer 1")
        storage = hdfs.storage()
        storage.write("a", b"content")
        before = hdfs.calls()
        assert storage.read("a") == b"content"
        assert [one.path for one in storage.list_files("")] == ["a"]
        assert storage.exists("a")
        for _ in range(1000):  # a name node counts a call a little after its answer
            asked = hdfs.calls() - before
            if len(asked) == 3:
                break
        assert set(asked) == {"GetBlockLocations", "GetListing", "GetFileInfo"}
