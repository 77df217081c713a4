"""The REST catalog server of Paimon 1.4.2's own test jar (Maven `paimon-core:tests`) on loopback.

    with start(folder) as rest:
        requests.get(rest.url + "/v1/config?warehouse=wh", headers=rest.auth)
        rest.order("lose")                # the next commit succeeds, and is answered with 500

Needs Java 17, Maven (its local repository is used first) and pyspark (for Hadoop's and slf4j's
jars). The server keeps tables under `folder`; its process is the one writer of snapshot files
there.
"""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
import urllib.parse
from pathlib import Path

from tests.servers._process import line_of
from tests.servers.maven import JarsUnavailable, fetched, of_spark

HERE = Path(__file__).resolve().parent
PAIMON, OKHTTP = "1.4.2", "4.12.0"
NEEDED = (
    f"org.apache.paimon:paimon-bundle:{PAIMON}",
    f"org.apache.paimon:paimon-core:{PAIMON}:jar:tests",
    f"com.squareup.okhttp3:mockwebserver:{OKHTTP}",
    f"com.squareup.okhttp3:okhttp:{OKHTTP}",
    "com.squareup.okio:okio-jvm:3.6.0",
    "org.jetbrains.kotlin:kotlin-stdlib:1.8.21",
    "junit:junit:4.13.2",
)
FROM_SPARK = (
    "hadoop-client-api-",
    "hadoop-client-runtime-",
    "slf4j-api-",
    "commons-lang3-",
    "guava-",
    "log4j-1.2-api-",
    "log4j-api-",
)


class RestUnavailable(RuntimeError):
    """Java, Maven or a jar is missing here; the message says which."""


def jars() -> list[str]:
    """The class path. Raises `RestUnavailable`."""
    try:
        return [*fetched(NEEDED), *of_spark(*FROM_SPARK)]
    except JarsUnavailable as why:
        raise RestUnavailable(str(why)) from None


class RestServer:
    """`url` without a slash at its end; `auth` the header that is wanted; `prefix` of the paths
    below /v1.
    """

    def __init__(self, folder: Path, warehouse: str, prefix: str, token: str) -> None:
        self.warehouse, self.prefix, self.token = warehouse, prefix, token
        self.folder = Path(folder)
        (self.folder / "data").mkdir(parents=True, exist_ok=True)
        command = [
            "java",
            "-Xmx512m",
            "-cp",
            ":".join(jars()),
            str(HERE / "RestServer.java"),
            str(self.folder / "data"),
            warehouse,
            prefix,
            token,
        ]
        self.log = self.folder / "rest.log"
        with open(self.log, "wb") as log:
            self.child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                bufsize=1,
                preexec_fn=lambda: ctypes.CDLL(None).prctl(1, signal.SIGTERM),
            )
        line = line_of(self.child, self.log)
        if not line.startswith("URL "):
            raise RestUnavailable(f"the server did not start: {self.log.read_text()[-400:]}")
        # mockwebserver tells a name; 127.0.0.1 is where it listens
        self.port = urllib.parse.urlsplit(line.split()[1]).port
        self.url, self.auth = f"http://127.0.0.1:{self.port}", {"Authorization": f"Bearer {token}"}

    def order(self, line: str) -> None:
        """One of the orders of RestServer.java."""
        self.child.stdin.write(line + "\n")
        assert line_of(self.child, self.log).startswith("DONE")

    def stop(self) -> None:
        self.child.terminate()
        self.child.wait(10)

    def __enter__(self) -> RestServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def start(
    folder: Path, warehouse: str = "wh", prefix: str = "paimon", token: str = "t0ken-never-shown"
) -> RestServer:
    return RestServer(Path(folder), warehouse, prefix, token)


if __name__ == "__main__":
    with start(Path(sys.argv[1])) as running:
        print(running.url, flush=True)
        running.child.wait()
