"""A real Flink on loopback: one JVM with a mini cluster, which takes SQL.

    with Flink(folder) as flink:
        flink.sql("INSERT INTO db.t VALUES (1, 'a')")     # in batch mode, to its end
        flink.rows("SELECT * FROM db.t")                  # a list of tuples
        job = flink.start("INSERT INTO db.t SELECT …")    # in streaming mode; the job goes on

The warehouse is `folder/warehouse`, its catalog is the current one. `tests/servers/FlinkSql.java` lists what the JVM answers. It
dies with this process. Needed are Java 17, pip and Maven for the jars (`jars`), and pyspark, which has Hadoop's client.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.servers._process import die_with_parent, line_of
from tests.servers.maven import JarsUnavailable, fetched, of_spark

FLINK: Final = "2.0.2"
PAIMON: Final = "1.4.2"
_ROOT: Final = Path(__file__).parents[2]
_JAVA: Final = Path(__file__).parents[1] / "servers" / "FlinkSql.java"
_PACKAGES: Final = (
    "java.lang java.lang.invoke java.lang.reflect java.io java.net java.nio java.text java.time "
    "java.util java.util.concurrent java.util.concurrent.atomic java.util.concurrent.locks sun.nio.ch"
)
_STREAMING: Final = {
    "execution.runtime-mode": "streaming",
    "execution.checkpointing.interval": "1 s",
    "execution.checkpointing.min-pause": "200 ms",
    "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
}
_BATCH: Final = {"execution.runtime-mode": "batch", "table.dml-sync": "true"}


class FlinkUnavailable(RuntimeError):
    """Java, pip, Maven or a jar is missing here. The message says which."""


class FlinkError(RuntimeError):
    """What Flink answered: the innermost cause of its error."""


def jars() -> list[str]:
    """The class path: Flink's own jars, Paimon's connector, and Hadoop's client. Raises
    `FlinkUnavailable`.
    """
    try:
        connector = fetched([f"org.apache.paimon:paimon-flink-2.0:{PAIMON}"])
        hadoop = of_spark("hadoop-client-api-", "hadoop-client-runtime-")
    except JarsUnavailable as why:
        raise FlinkUnavailable(str(why)) from None
    return [*map(str, _jars_of_flink()), *connector, *hadoop]


def _jars_of_flink() -> list[Path]:
    """The jars of Flink in `build/flink`, or in the folder that FLINK_JARS names. If there are none,
    pip fetches them: the Python package that ships them has no build of its own. Two processes of
    tests do not fetch them at once.
    """
    folder = Path(os.environ.get("FLINK_JARS", _ROOT / "build" / "flink"))
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / f"flink-dist-{FLINK}.jar").exists():
            _fetch(folder)
    return sorted(folder.glob("*.jar"))


def _fetch(folder: Path) -> None:
    """Takes the jars out of the package. The jar that `_jars_of_flink` looks for comes last."""
    with tempfile.TemporaryDirectory(dir=folder) as fresh:
        wanted = f"apache-flink-libraries=={FLINK}"
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", fresh, wanted]
        said = subprocess.run(command, capture_output=True, text=True, timeout=900).stderr
        package = next(Path(fresh).glob("*.tar.gz"), None)
        if package is None:
            raise FlinkUnavailable(f"{wanted} could not be had from pip: {said[-200:]}")
        with tarfile.open(package) as archive:
            for member in archive:
                if "/deps/lib/" in member.name and member.name.endswith(".jar"):
                    member.name = Path(member.name).name
                    archive.extract(member, fresh)
        for jar in sorted(Path(fresh).glob("*.jar"), key=lambda path: "-dist-" in path.name):
            os.replace(jar, folder / jar.name)


@dataclass(frozen=True, slots=True)
class Job:
    """A job that goes on.

    Attributes:
        flink: where it runs.
        number: its number there.
    """

    flink: Flink
    number: int

    def status(self) -> str:
        """RUNNING, FINISHED and so on; what failed it stands behind FAILED."""
        return str(self.flink.ask(op="status", job=self.number))

    def cancel(self) -> None:
        self.flink.ask(op="cancel", job=self.number)

    def stop(self) -> str:
        """Stops the job behind a savepoint. Returns the savepoint."""
        folder = self.flink.folder / "savepoints"
        return str(self.flink.ask(op="stop", job=self.number, folder=folder.as_uri()))


class Flink:
    """A Flink that runs while its context is open. Its catalog is the folder `warehouse` of its
    folder.
    """

    def __init__(self, folder: Path, heap: str = "1g") -> None:
        self.folder = folder
        self.warehouse = folder / "warehouse"
        self.log = folder / "flink.log"
        self._heap = heap
        self._catalogs: set[str] = set()
        self.child: subprocess.Popen[str] | None = None
        self.start_jvm()

    def start_jvm(self) -> None:
        """Starts the JVM, also again after `kill`."""
        java = shutil.which("java")
        if java is None:
            raise FlinkUnavailable("there is no java here")
        self._catalogs.clear()
        command = [
            java,
            f"-Xmx{self._heap}",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-Duser.timezone=UTC",
            "-Dlog4j2.level=OFF",
            *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _PACKAGES.split()),
            "-cp",
            ":".join(jars()),
            str(_JAVA),
        ]
        with open(self.log, "ab") as log:
            self.child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                bufsize=1,
                preexec_fn=die_with_parent,
            )
        if self._line() != "READY":
            raise FlinkUnavailable(f"Flink has ended: {self.log.read_text()[-800:]}")

    def _line(self) -> str:
        assert self.child is not None
        return line_of(self.child, self.log).rstrip()

    def ask(self, **request: Any) -> Any:
        """The answer of the JVM. Raises `FlinkError`."""
        assert self.child is not None and self.child.stdin is not None
        self.child.stdin.write(f"{json.dumps(request)}\n")
        line = self._line()
        if not line:
            raise FlinkError(f"Flink has ended: {self.log.read_text()[-800:]}")
        answer = json.loads(line)
        if "error" in answer:
            raise FlinkError(answer["error"])
        return answer["ok"]

    def sql(self, sql: str, **settings: str) -> list[list[Any]]:
        """Runs a statement in batch mode to its end, also an INSERT or a CALL. Returns its rows,
        with their kinds. With settings, it runs in an environment that has them, too.
        """
        name = " ".join(["batch", *(f"{key}={value}" for key, value in settings.items())])
        rows: list[list[Any]] = self._in(name, {**_BATCH, **settings}, op="sql", sql=sql)
        return rows

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a query in batch mode."""
        return [tuple(values) for _, *values in self.sql(sql)]

    def define(self, sql: str) -> None:
        """Creates a temporary table for the jobs that are not restored."""
        self._in("streaming", self._streaming(), op="sql", sql=sql)

    def start(self, sql: str, restored_from: str | None = None) -> Job:
        """Starts a job in streaming mode, from a checkpoint or savepoint if one is named. An
        environment never forgets from what it has restored, so such a job has its own.
        """
        if restored_from is None:
            return Job(self, self._in("streaming", self._streaming(), op="start", sql=sql))
        settings = {**self._streaming(), "execution.state-recovery.path": restored_from}
        return Job(self, self._in(f"from {restored_from}", settings, op="start", sql=sql))

    def newest_checkpoint(self) -> str:
        """The newest checkpoint that is complete, of any job."""
        complete = self.folder.glob("checkpoints/*/chk-*/_metadata")
        return max(complete, key=lambda path: path.stat().st_mtime).parent.as_uri()

    def _streaming(self) -> dict[str, str]:
        return {
            **_STREAMING,
            "execution.checkpointing.dir": (self.folder / "checkpoints").as_uri(),
        }

    def _in(self, environment: str, settings: dict[str, str], **request: str) -> Any:
        """Asks in an environment, which is made at its first request and then uses the warehouse."""
        every = {"parallelism.default": "2", "table.local-time-zone": "UTC", **settings}
        where = {"environment": environment, "settings": every}
        if environment not in self._catalogs:
            warehouse = (
                f"'type' = 'paimon', 'warehouse' = '{self.warehouse}', 'cache-enabled' = 'false'"
            )
            for statement in (f"CREATE CATALOG paimon WITH ({warehouse})", "USE CATALOG paimon"):
                self.ask(op="sql", sql=statement, **where)
            self._catalogs.add(environment)
        return self.ask(**request, **where)

    def kill(self) -> None:
        """kill -9, with all of its jobs."""
        assert self.child is not None
        self.child.kill()
        self.child.wait()

    def __enter__(self) -> Flink:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
