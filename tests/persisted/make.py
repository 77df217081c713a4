"""Makes the folder of a release in `tests/persisted`, with the code as it is.

    python -m tests.persisted.make own       the bytes of our own files
    python -m tests.persisted.make streams   the killed streams, with the Spark of this Python

Run it once before a release, with each supported Spark, and never again for that release: users
have these bytes on their disks. `kill -9` leaves what is on disk at that moment. So a copy is taken
at each point of a batch while the stream waits there; then the stream goes on.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from paimon_stream import PaimonSink
from paimon_stream._version import __version__
from paimon_stream.commit.report import Phase
from paimon_stream.storage.memory import MemoryStorage
from tests.persisted import archive, values
from tests.persisted.queries import start
from tests.persisted.streams import STREAMS, Stream

BATCHES = (0, 1)
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def make_own(release: Path) -> None:
    """The bytes of everything in `values`."""
    storage = MemoryStorage()
    values.persist(storage)
    for path, data in archive.own_files(storage).items():
        target = release / "own" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    text = json.dumps(values.properties(), indent=1, sort_keys=True, ensure_ascii=False)
    (release / "own" / "properties.json").write_text(text + "\n")


@dataclass
class Copies:
    """Copies the folder of a stream at each point of its batches, the first time that the point is
    reached.

    Points are the observer's phases, and `linked`: the snapshot is public, and the storage has not
    answered.
    """

    root: Path
    kills: Path
    batch: int = -1
    copying: bool = False
    taken: list[str] = field(default_factory=list)

    def reached(self, phase: Phase, identifier: int) -> None:
        self.batch = identifier
        self.copy(phase.value)

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Python's own audit events."""
        name = str(arguments[0]) if arguments else ""
        if (
            event == "os.remove"
            and name.startswith(str(self.root))
            and "/snapshot/.snapshot-" in name
        ):
            self.copy("linked")

    def copy(self, where: str) -> None:
        name = f"{self.batch}-{where}"
        if self.copying or self.batch not in BATCHES or name in self.taken:
            return
        self.copying = True
        shutil.copytree(self.root, self.kills / name)
        self.taken.append(name)
        self.copying = False


def kill(spark: SparkSession, stream: Stream, target: Path) -> None:
    """Runs the stream to its end, and packs what a kill at each point would have left."""
    with tempfile.TemporaryDirectory(prefix="paimon-stream-") as folder:
        root = Path(folder) / "root"
        kills = Path(folder) / "kills"
        stream.create(root)
        copies = Copies(root, kills)
        sys.addaudithook(copies.audit)
        sink = PaimonSink(str(root / "table"), mode=stream.mode, observer=copies)
        assert start(spark, stream, root, sink).awaitTermination(300), "the query hangs"
        archive.pack(kills, root, target)
        print(target, target.stat().st_size, " ".join(copies.taken))


def make_streams(release: Path) -> None:
    """All streams, with the Spark of this Python."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    folder = release / f"spark-{'.'.join(pyspark.__version__.split('.')[:2])}"
    for stream in STREAMS.values():
        kill(spark, stream, folder / f"{stream.name}.tar.xz")
    spark.stop()


if __name__ == "__main__":
    {"own": make_own, "streams": make_streams}[sys.argv[1]](archive.HERE / __version__)
