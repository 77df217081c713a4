"""A real Hive Metastore on loopback, Java Paimon's Hive catalog on it, and a door that can be shut.

    with HiveMetastore() as hive:
        catalog(hive.options).create_database("shop")

The metastore is the one in pyspark's jars, 2.3.10, with its database in memory. It needs Java 17.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from tests.kits.hdfs import HADOOP
from tests.servers._process import Server, free_port
from tests.servers.maven import JarsUnavailable, fetched, of_spark, with_dependencies

CONNECTOR: Final = "org.apache.paimon:paimon-hive-connector-3.1:1.2.0"
"""The newest of Java Paimon's Hive catalogs that Maven has in one jar."""
S3_OF_JAVA: Final = "org.apache.paimon:paimon-s3:1.2.0"
"""Its file system of S3."""
FOLDERS_FOR_S3: Final = "fs.s3.impl=HiveMetastore$FoldersForS3"
"""The setting of a metastore that has no file system of S3: it makes the folders of databases and tables
on the disk, by their paths without the bucket.
"""
_JAVA: Final = Path(__file__).parents[1] / "servers" / "HiveMetastore.java"
_BRIDGE: Final = _JAVA.with_name("HiveBridge.java")
_NEWER: Final = _JAVA.with_name("NewerHiveMetastore.java")
NEWER: Final = {
    "3.1.3": "org.apache.hive:hive-standalone-metastore:3.1.3",
    "4.0.1": "org.apache.hive:hive-standalone-metastore-server:4.0.1",
}
"""Newer metastores, by their versions."""
_BESIDE_NEWER: Final = (
    *(f"org.apache.hadoop:hadoop-client-{part}:{HADOOP}" for part in ("api", "runtime")),
    f"org.apache.hadoop:hadoop-client-minicluster:{HADOOP}",
    "commons-collections:commons-collections:3.2.2",
)
"""What they need besides what Maven says that they depend on. The old Hadoop there wants a jar of an
old JDK.
"""
_OPENED: Final = (
    *("java.base/java.lang", "java.base/java.net", "java.base/java.nio", "java.base/java.util"),
    *("java.base/java.util.concurrent", "java.base/sun.nio.ch"),
    "java.security.jgss/sun.security.krb5",
)


class HiveUnavailable(RuntimeError):
    """Java or pyspark is missing here. The message says which."""


def start(_folder: Path) -> HiveMetastore:
    """A metastore."""
    return HiveMetastore()


class HiveMetastore(Server):
    """A metastore that runs while its context is open.

    Attributes:
        folder: a folder of its own; `warehouse` is in it.
        version: the version of a newer metastore; empty for that of pyspark.
    """

    def __init__(
        self,
        *conf: str,
        version: str = "",
        java_options: Sequence[str] = (),
    ) -> None:
        """Starts a metastore with these settings: that of pyspark, or one of the `NEWER`."""
        self.version: Final = version
        self.folder: Final = Path(tempfile.mkdtemp(prefix="hive-"))
        self.warehouse: Final = self.folder / "warehouse"
        self.warehouse.mkdir()
        if not shutil.which("java"):
            raise HiveUnavailable("Java is not on the path")
        try:
            jars = of_newer(version) if version else of_spark("")
        except JarsUnavailable as why:
            raise HiveUnavailable(str(why)) from None
        port = free_port()
        opened = [f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED]
        command = [
            *("java", "-Xmx384m", f"-Dderby.stream.error.file={self.folder}/derby.log", *opened),
            *(
                *java_options,
                "-Dlog4j2.level=WARN",
                "-cp",
                ":".join(jars),
                str(_NEWER if version else _JAVA),
            ),
            *(str(port), str(self.warehouse), *conf),
        ]
        super().__init__(command, port, self.folder / "log", seconds=240, folder=self.folder)

    @property
    def uri(self) -> str:
        return f"thrift://127.0.0.1:{self.port}"

    @property
    def options(self) -> dict[str, str]:
        """Those of a catalog, as users write them."""
        return {"metastore": "hive", "uri": self.uri, "warehouse": str(self.warehouse)}

    def stop(self) -> None:
        super().stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def of_newer(version: str) -> list[str]:
    """The jars of a newer metastore. Maven fetches what is not there."""
    own = with_dependencies(NEWER[version], without=("jdk.tools:jdk.tools", "org.apache.hadoop:*"))
    return [*own, *fetched(_BESIDE_NEWER), *of_spark("slf4j-api-", "jcl-over-slf4j-")]


class Door:
    """A way to a server, which can be shut: then connections break, or get no answer.

    Attributes:
        port: the port on loopback that leads to the server.
        state: `open`, `shut`, or `silent`.
        lost: a method whose next answer is lost.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._held = list[socket.socket]()
        self.port = int(self._listener.getsockname()[1])
        self.state = "open"
        self.lost = ""
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self.state == "open":
                    server = socket.create_connection(("127.0.0.1", self._target))
                    for pump, one, other in (
                        (_pump, client, server),
                        (self._pump_answers, server, client),
                    ):
                        threading.Thread(target=pump, args=(one, other), daemon=True).start()
                elif self.state == "shut":
                    client.close()
                else:
                    self._held.append(client)

    def _pump_answers(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                method = len(self.lost).to_bytes(4, "big") + self.lost.encode()
                if self.lost and method in data:
                    self.lost = ""
                    break
                client.sendall(data)
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Nothing listens any more."""
        self._listener.close()
        for client in self._held:
            client.close()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def java_of_hive(*jars: str) -> Iterator[Any]:
    """Java Paimon in a JVM of its own, of the version whose Hive catalog Maven has. It makes
    catalogs and their tables; `written` writes rows. `jars` are artifacts that are on its class
    path, too.
    """
    import java_paimon

    class JavaOfHive(java_paimon.JavaPaimon):  # type: ignore[misc]
        def _load_bridge(self) -> Any:
            return self.compiled(_BRIDGE.read_text(), "HiveBridge")

        def written(self, table: Any, number: int, name: str) -> None:
            """Commits one row of a BIGINT and a STRING."""
            self._bridge.write(table, number, name)

        def tagged(self, table: Any, name: str) -> None:
            """Tags the newest snapshot."""
            self._bridge.createTag(table, name)

        def untagged(self, table: Any, name: str) -> None:
            """Deletes a tag."""
            self._bridge.deleteTag(table, name)

    [connector] = fetched([CONNECTOR])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PAIMON_BUNDLE_JAR", connector)
        java = JavaOfHive(max_heap="512m", jars=[Path(jar) for jar in fetched(jars)])
    try:
        yield java
    finally:
        java.close()
