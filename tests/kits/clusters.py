"""Clusters of Spark whose executors share no folder with the driver, and what is to be found in a
table after one of them has died.

A job is a process of its own (`tests/cluster/job.py`). Where it shall be stopped it visits the
test, which is a server for that (`Visits`), and waits until the test lets it go. So nothing is
timed.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
import venv
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit
from zipfile import ZipFile

import pyspark

import paimon_stream
from paimon_stream import PaimonTable
from paimon_stream.maintenance.orphans import OrphanReport, remove_orphan_files
from paimon_stream.runtime import SimulatedClock, simulated
from paimon_stream.table.table import load_table
from tests.kits.stores import StoreServer, opened
from tests.servers._process import Server, die_with_parent, free_port

SPARK: Final = Path(pyspark.__file__).parent
PACKAGE: Final = Path(paimon_stream.__file__).parent
JOB: Final = Path(__file__).parents[1] / "cluster" / "job.py"
HOSTS: Final = ("127.0.0.1", "127.0.0.2")
"""The workers' hosts. Spark copies a slow task only to another host."""
SECONDS: Final = 900


# -- Pythons
# ------------------------------------------------------------------------------------------------


def make_python(folder: Path, *, installed: bool) -> Path:
    """A Python with all that the package needs, and with a copy of the package only if `installed`.

    Lines of a `.pth` file in a folder that a `.pth` file adds are not read. So an editable
    installation of the package in this process's environment does not count there.
    """
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    beside = [path for path in sys.path if path.endswith("site-packages")]
    (site / "dependencies.pth").write_text("\n".join(beside))
    if installed:
        shutil.copytree(PACKAGE, site / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder / "bin" / "python"


def zip_package(path: Path) -> Path:
    """The package as a zip file, as `--py-files` takes it."""
    with ZipFile(path, "w") as archive:
        for file in sorted(PACKAGE.rglob("*.py")):
            archive.write(file, file.relative_to(PACKAGE.parent))
    return path


def pack_python(path: Path, folder: Path) -> Path:
    """A Python environment as an archive, as `--archives` takes it."""
    with tarfile.open(path, "w:gz") as archive:
        archive.add(folder, ".")
    return path


@dataclass(frozen=True)
class Shipping:
    """A way by which the package comes to a cluster: the driver's Python, the executors', and
    arguments of `spark-submit`.
    """

    driver: Path
    executors: str
    submit: tuple[str, ...] = ()


# -- visits
# -------------------------------------------------------------------------------------------------


@dataclass
class Visit:
    """Somebody who waits. `facts` are what he said."""

    place: str
    facts: dict[str, str]
    _go: threading.Event = field(default_factory=threading.Event)

    def let_go(self) -> None:
        self._go.set()

    def wait(self) -> None:
        self._go.wait(SECONDS)


class Visits:
    """A server on loopback. Whoever visits it waits until the test lets him go, if `held` says
    so.
    """

    def __init__(self, held: Callable[[Visit], bool] = lambda visit: False) -> None:
        self._come: list[Visit] = []
        self._change = threading.Condition()
        self._held = held
        visits = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                url = urlsplit(self.path)
                visit = Visit(url.path.strip("/"), dict(parse_qsl(url.query)))
                visits._arrive(visit)
                if visits._held(visit):
                    visit.wait()
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def _arrive(self, visit: Visit) -> None:
        with self._change:
            self._come.append(visit)
            self._change.notify_all()

    def until(self, place: str, count: int = 1, **facts: object) -> list[Visit]:
        """The visitors of a place who say these things, as soon as there are that many."""
        wanted = {(name, str(value)) for name, value in facts.items()}

        def found() -> list[Visit]:
            return [
                one for one in self._come if one.place == place and wanted <= set(one.facts.items())
            ]

        with self._change:
            assert self._change.wait_for(lambda: len(found()) >= count, SECONDS), (
                place,
                facts,
                self._come,
            )
            return found()

    def stop(self) -> None:
        for one in self._come:
            one.let_go()
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Visits:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def wait_until(met: Callable[[], object], what: str) -> None:
    """Waits until the condition holds. It is looked at again and again."""
    end = time.monotonic() + SECONDS
    while not met():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def kill_executor(pid: int) -> None:
    """SIGKILL for the JVM of an executor."""
    assert b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes(), pid
    os.kill(pid, signal.SIGKILL)


# -- clusters
# -----------------------------------------------------------------------------------------------


def environment(**more: str) -> dict[str, str]:
    """The environment of a machine of the cluster. It has no PYTHONPATH and no keys."""
    kept = {
        name: os.environ[name]
        for name in ("PATH", "HOME", "JAVA_HOME", "JDK_JAVA_OPTIONS")
        if name in os.environ
    }
    return {**kept, "SPARK_HOME": str(SPARK), **more}


class Standalone:
    """Spark's own master and two workers, each a process in a folder of its own, with one core
    each.
    """

    def __init__(self, folder: Path) -> None:
        self._servers: list[Server] = []
        self.folder = folder
        master = self._start("deploy.master.Master", "master", HOSTS[0], [])
        self.url = f"spark://{HOSTS[0]}:{master.port}"
        for number, host in enumerate(HOSTS):
            more = [
                "--cores",
                "1",
                "--memory",
                "1g",
                "--work-dir",
                str(folder / f"worker-{number}"),
                self.url,
            ]
            self._start("deploy.worker.Worker", f"worker-{number}", host, more)

    def _start(self, name: str, folder: str, host: str, more: Sequence[str]) -> Server:
        home, port = self.folder / folder, free_port()
        home.mkdir(parents=True)
        command = [str(SPARK / "bin" / "spark-class"), f"org.apache.spark.{name}", "--host", host]
        command += ["--port", str(port), "--webui-port", "0", *more]
        env = environment(
            SPARK_LOCAL_IP=host,
            SPARK_LOCAL_DIRS=str(home / "local"),
            SPARK_MASTER_OPTS="-Dspark.master.rest.enabled=false",
            SPARK_DAEMON_MEMORY="256m",
        )
        server = Server(command, port, home / "log", env=env, host=host, folder=home)
        self._servers.append(server)
        return server

    def conf(self) -> dict[str, str]:
        return {"spark.cores.max": str(len(HOSTS))}

    def stop(self) -> None:
        for server in reversed(self._servers):
            server.stop()


class LocalCluster:
    """Workers in the driver's JVM, whose executors are processes of their own, in folders of their
    own.
    """

    url = "local-cluster[2,1,1024]"

    def __init__(self, folder: Path) -> None:
        # Workers keep their folders in Spark's home.
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        for part in ("bin", "jars", "python"):
            (self.home / part).symlink_to(SPARK / part)

    def conf(self) -> dict[str, str]:
        return {}

    def stop(self) -> None:
        return None


# -- jobs
# ---------------------------------------------------------------------------------------------------


class Job:
    """A streaming job that runs on a cluster. Its driver has a folder of its own.

    Each batch has `ROWS` rows in two partitions, made by executors from the batch's number, so that
    a batch that is run again has the same rows.
    """

    ROWS: Final = 400
    KEYS: Final = 40

    def __init__(
        self,
        cluster: Standalone | LocalCluster,
        store: StoreServer,
        folder: Path,
        *,
        shipping: Shipping,
        batches: int,
        keyed: bool = False,
        endpoint: str | None = None,
        visits: str = "",
        visited: Sequence[int] = (),
        compacts: bool = False,
        conf: Mapping[str, str] | None = None,
    ) -> None:
        self.cluster, self.store, self.folder, self.batches, self.keyed = (
            cluster,
            store,
            folder,
            batches,
            keyed,
        )
        self.shipping = shipping
        folder.mkdir(parents=True)
        self.location, self.options = store.place()
        how: dict[str, Any] = {}
        columns = [("id", "BIGINT NOT NULL"), ("day", "STRING NOT NULL"), ("n", "BIGINT")]
        if keyed:
            sums = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
            how = {
                "primary_keys": ["day", "id"],
                "options": {"bucket": "2", "write-only": "true", **sums},
            }
        PaimonTable.create(
            self.location, columns, partition_keys=["day"], storage_options=self.options, **how
        )
        self.task = {
            "table": self.location,
            "storage_options": {**self.options, **({"s3.endpoint": endpoint} if endpoint else {})},
            "checkpoint": str(folder / "checkpoint"),
            "batches": batches,
            "rows": self.ROWS,
            "keys": self.KEYS if keyed else None,
            "visits": visits,
            "visited": list(visited),
            "compacts": compacts,
        }
        self.conf = {
            "spark.ui.enabled": "false",
            "spark.driver.host": HOSTS[0],
            "spark.driver.bindAddress": HOSTS[0],
            "spark.driver.memory": "512m",
            "spark.executor.memory": "600m",
            "spark.executor.cores": "1",
            "spark.sql.shuffle.partitions": "4",
            "spark.sql.session.timeZone": "UTC",
            # The first batch must find both executors.
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": (folder / "events").as_uri(),
            **cluster.conf(),
            **(conf or {}),
        }

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def start(self) -> subprocess.Popen[bytes]:
        (self.folder / "events").mkdir(exist_ok=True)
        home = getattr(self.cluster, "home", SPARK)
        settings = [
            part for name, value in self.conf.items() for part in ("--conf", f"{name}={value}")
        ]
        command = [str(home / "bin" / "spark-submit"), "--master", self.cluster.url, *settings]
        env = environment(
            SPARK_HOME=str(home),
            SPARK_LOCAL_IP=HOSTS[0],
            SPARK_LOCAL_DIRS=str(self.folder / "local"),
            PYSPARK_DRIVER_PYTHON=str(self.shipping.driver),
            PYSPARK_PYTHON=self.shipping.executors,
        )
        with open(self.log, "ab") as log:
            return subprocess.Popen(
                [*command, *self.shipping.submit, str(JOB), json.dumps(self.task)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=env,
                cwd=self.folder,
                preexec_fn=die_with_parent,
                start_new_session=True,
            )

    @contextmanager
    def running(self, *, fails: bool = False) -> Iterator[subprocess.Popen[bytes]]:
        """Starts the job. It must have ended well when the test is done with it, unless it `fails`
        or was killed.
        """
        child = self.start()
        try:
            yield child
            code = child.wait(SECONDS)
        finally:
            self.kill(child)
        assert (code not in (0, -signal.SIGKILL)) == fails, f"{code}\n{self.said()}"

    def run(self, *, fails: bool = False) -> None:
        with self.running(fails=fails):
            pass

    def kill(self, child: subprocess.Popen[bytes]) -> None:
        """SIGKILL for the driver and its JVM, which share a process group."""
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()

    def said(self) -> str:
        return self.log.read_text(errors="replace")[-20000:]

    # -- afterwards

    def events(self, kind: str) -> list[dict[str, Any]]:
        """Spark's own record of this kind of event, in all runs."""
        logs = sorted((self.folder / "events").iterdir())
        lines = (
            line for log in logs for line in log.read_text().splitlines() if line.endswith("}")
        )
        return [
            event for event in map(json.loads, lines) if event["Event"] == f"SparkListener{kind}"
        ]

    def tasks(self, reason: str) -> list[dict[str, Any]]:
        """The tasks that ended for this reason."""
        return [
            event
            for event in self.events("TaskEnd")
            if event["Task End Reason"]["Reason"] == reason
        ]

    def expected(self) -> Counter[Any]:
        """How often each row, or by how much each key, is to be in the table."""
        values = range(self.batches * self.ROWS)
        return Counter(value % self.KEYS for value in values) if self.keyed else Counter(values)

    def counted(self, rows: Iterable[Mapping[str, Any]]) -> Counter[Any]:
        """The same for rows that somebody has read."""
        found: Counter[Any] = Counter()
        for row in rows:
            assert row["day"] == f"d{row['id'] % 2}"
            found[row["id"]] += row["n"] if self.keyed else 1
        return found

    @functools.cached_property
    def table(self) -> PaimonTable:
        return PaimonTable.load(self.location, storage_options=self.options)

    def check(self, java: Any) -> set[str]:
        """Each row is in the table once, for us and for Java. What nobody refers to is found by the
        search for orphans alone, and can be removed. Returns those data files.
        """
        self.check_rows(java)
        identifiers = [snapshot.commit_identifier for snapshot in self.table.snapshots()]
        assert identifiers == list(range(self.batches)), "one snapshot for each batch"
        assert len({snapshot.commit_user for snapshot in self.table.snapshots()}) == 1
        live = {file.path.split("/bucket/", 1)[1] for file in self.table.files()}
        stored = self.stored()
        left = {name for name in stored if "/data-" in name} - live
        found = self.orphans()
        root = self.root
        assert not found.paths_cut
        assert {f"{root}/{path}" for path in found.paths if "/data-" in path} == left
        client = self._client()
        client.delete([f"{root}/{path}" for path in found.paths])
        assert self.table.verify().healthy
        self.check_rows(java)
        assert self.orphans().count == 0
        assert {name for name in self.stored() if "/data-" in name} == live
        return left

    def check_rows(self, java: Any) -> None:
        expected = self.expected()
        assert self.counted(self.table.to_arrow().to_pylist()) == expected
        assert self.counted(java.read(self.location)) == expected

    def orphans(self) -> OrphanReport:
        """What a search finds, two hours from now: younger files are left alone."""
        storage = opened(self.store.settings(prefix=self.root, location=self.location))
        later = simulated(1, SimulatedClock(int(time.time() * 1000) + 2 * 3_600_000))
        return remove_orphan_files(load_table(storage), "1 h", runtime=later)

    @property
    def root(self) -> str:
        return self.location.split("/bucket/", 1)[1]

    def stored(self) -> set[str]:
        """The names of all objects of the table."""
        return {one["path"] for page in self._client().list(self.root) for one in page}

    def _client(self) -> Any:
        from obstore.store import S3Store

        config: Any = {**self.store.settings().config}
        return S3Store("bucket", config=config, client_options={"allow_http": True})
