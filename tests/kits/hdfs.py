"""A real HDFS on loopback: name nodes and data nodes in one JVM.

    with MiniHdfs() as hdfs:
        PaimonTable.create(f"{hdfs.url}/wh/db.db/t", ...)
        hdfs.tell("kill-name-node 0")

`tests/servers/MiniHdfs.java` lists the orders. The JVM dies with this process. It needs Java 17, Maven
(its local repository is used first) and pyspark, which has the logging jars.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import xml.sax.saxutils
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from paimon_stream.storage.base import Storage
from paimon_stream.storage.uri import open_folder
from tests.servers._process import die_with_parent, line_of
from tests.servers.maven import JarsUnavailable, fetched, of_spark

HADOOP: Final = "3.4.2"
NAME_SERVICE: Final = "minidfs-ns"
"""The name of a pair of name nodes. The mini cluster of Hadoop calls it so."""
_ROOTS: Final = itertools.count(1)
_JAVA: Final = Path(__file__).parents[1] / "servers" / "MiniHdfs.java"
_NEEDED: Final = tuple(
    f"org.apache.hadoop:hadoop-client-{part}:{HADOOP}" for part in ("api", "runtime", "minicluster")
)
_OF_SPARK: Final = ("slf4j-api-", "jcl-over-slf4j-", "log4j-")
_OPENED: Final = ("java.lang", "java.nio", "java.util", "sun.nio.ch")
_PROXY: Final = "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"


class HdfsUnavailable(RuntimeError):
    """Java, Maven or a jar is missing here. The message says which."""


def jars() -> list[str]:
    """The class path of the servers. Raises `HdfsUnavailable`."""
    try:
        return [*fetched(_NEEDED), *of_spark(*_OF_SPARK)]
    except JarsUnavailable as why:
        raise HdfsUnavailable(str(why)) from None


def start(_folder: Path) -> MiniHdfs:
    """An HDFS of one name node and one data node."""
    return MiniHdfs()


class MiniHdfs:
    """A cluster that runs while its context is open. `set_up` adds to the configuration of Hadoop's
    mini cluster.

    Attributes:
        url: where its files are, without a slash at the end.
        conf: a folder with the configuration of clients, for `HADOOP_CONF_DIR`.
        name_nodes: the host and port of each name node.
    """

    def __init__(
        self,
        set_up: Mapping[str, str] | None = None,
        *,
        name_nodes: int = 1,
        data_nodes: int = 1,
        heap: str = "256m",
        java_options: tuple[str, ...] = (),
    ) -> None:
        self.folder: Final = Path(tempfile.mkdtemp(prefix="hdfs-"))
        self.child: subprocess.Popen[str] | None = None
        try:
            self._start(dict(set_up or {}), name_nodes, data_nodes, heap, java_options)
        except BaseException:
            self.stop()
            raise
        self.url = f"hdfs://{NAME_SERVICE if name_nodes > 1 else self.name_nodes[0]}"
        self.conf = self.folder / "conf"
        self.configure({})

    def _start(
        self,
        set_up: dict[str, str],
        name_nodes: int,
        data_nodes: int,
        heap: str,
        java_options: tuple[str, ...],
    ) -> None:
        opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
        command = [
            "java",
            f"-Xmx{heap}",
            *opened,
            *java_options,
            "-cp",
            ":".join(jars()),
            str(_JAVA),
            str(self.folder / "data"),
            str(name_nodes),
            str(data_nodes),
            *(f"{key}={value}" for key, value in set_up.items()),
        ]
        log = self.folder / "log"
        with open(log, "wb") as said:
            self.child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                cwd=self.folder,
                text=True,
                bufsize=1,
                preexec_fn=die_with_parent,
            )
        words = self._answer("READY").split()
        self.web = f"http://127.0.0.1:{words[0]}"
        self.name_nodes = [f"127.0.0.1:{port}" for port in words[1:]]

    def _answer(self, wanted: str) -> str:
        """What follows the word that an answer should begin with."""
        assert self.child is not None
        while line := line_of(self.child, self.folder / "log"):
            if line.startswith((wanted, "FAILED")):
                break
        else:
            raise HdfsUnavailable(f"HDFS has ended: {(self.folder / 'log').read_text()[-800:]}")
        if not line.startswith(wanted):
            raise AssertionError(line)
        return line[len(wanted) :].strip()

    def tell(self, order: str) -> str:
        """Gives one of the orders of MiniHdfs.java. Returns what it answers."""
        assert self.child is not None and self.child.stdin is not None
        self.child.stdin.write(f"{order}\n")
        return self._answer("DONE")

    def calls(self) -> Counter[str]:
        """How many calls of clients the active name node has answered, by kind of call."""
        counts = (word.split("=") for word in self.tell("calls").split())
        return +Counter({name: int(count) for name, count in counts if name not in _OF_SERVERS})

    def configure(self, more: Mapping[str, str]) -> None:
        """Writes the configuration of clients, with more entries."""
        site = {"fs.defaultFS": self.url}
        if len(self.name_nodes) > 1:
            names = [f"nn{n}" for n in range(len(self.name_nodes))]
            service = NAME_SERVICE
            site |= {
                "dfs.nameservices": service,
                f"dfs.ha.namenodes.{service}": ",".join(names),
                f"dfs.client.failover.proxy.provider.{service}": _PROXY,
            }
            site |= {
                f"dfs.namenode.rpc-address.{service}.{name}": address
                for name, address in zip(names, self.name_nodes, strict=True)
            }
        self.conf.mkdir(exist_ok=True)
        for file in ("core-site.xml", "hdfs-site.xml"):
            (self.conf / file).write_text(_xml({**site, **more}))

    def place(self) -> tuple[str, dict[str, str]]:
        """A new location as a user writes it, and its storage options, as for other stores."""
        return f"{self.url}/wh/db.db/t{os.getpid()}_{next(_ROOTS)}", self.options()

    def options(self) -> dict[str, str]:
        """Storage options."""
        return {}

    def storage(self) -> Storage:
        """A storage on a folder that is not there yet."""
        location, options = self.place()
        return open_folder(location, options)

    def __enter__(self) -> MiniHdfs:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends all nodes, and removes what they stored."""
        if self.child is not None:
            self.child.kill()
            self.child.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


_OF_SERVERS: Final = {
    "GetDatanodeReport",
    "VersionRequest",
    "RegisterDatanode",
    "SendHeartbeat",
    "SendLifeline",
    "BlockReport",
    "BlockReceivedAndDeleted",
    "CacheReport",
}


def _xml(entries: Mapping[str, str]) -> str:
    lines = [
        f"  <property><name>{key}</name><value>{xml.sax.saxutils.escape(value)}</value></property>"
        for key, value in entries.items()
    ]
    return "\n".join(["<configuration>", *lines, "</configuration>", ""])


if __name__ == "__main__":
    with MiniHdfs() as running:
        print(running.url, flush=True)
        for line in sys.stdin:
            print(running.tell(line.strip()), flush=True)
