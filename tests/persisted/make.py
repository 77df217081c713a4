"""Makes a folder of `tests/persisted`, with the code as it is.

    python -m tests.persisted.make own [<folder>]       the bytes of our own files
    python -m tests.persisted.make streams [<folder>]   the killed streams, with the Spark of this Python

The folder is named after the release. If a persisted form is about to change before the next
release, it is named after the last one and the month, such as `0.1.0-2026-11`. Run it once for each
folder, with each supported Spark. Users have these bytes on their disks, so an archive that exists
is never made again.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from paimon_stream._version import __version__
from paimon_stream.storage.memory import MemoryStorage
from tests.persisted import archive, rolled_back, values
from tests.persisted.copies import STOPPED, Copies
from tests.persisted.queries import sink_of, start
from tests.persisted.streams import STREAMS, Stream

SPARK = ".".join(pyspark.__version__.split(".")[:2])
HAS_FORMAT = not SPARK.startswith("3.")
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def make_own(folder: Path) -> None:
    """The bytes of everything in `values`."""
    storage = MemoryStorage()
    values.NEWEST.write(storage)
    for path, data in archive.own_files(storage).items():
        target = folder / "own" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    text = json.dumps(values.NEWEST.properties, indent=1, sort_keys=True, ensure_ascii=False)
    (folder / "own" / "properties.json").write_text(text + "\n")


def kill(spark: SparkSession, stream: Stream, target: Path) -> None:
    """Runs the stream to its end, and packs what a kill at each point would have left. Of some
    streams, also packs what rollbacks and expiries make of the table while the stream is stopped.
    """
    with tempfile.TemporaryDirectory(prefix="paimon-stream-") as folder:
        root, stopped = Path(folder) / "root", Path(folder) / "stopped"
        stream.create(root)
        copies = Copies(root)
        sinks = []
        if not stream.by_format:
            sys.addaudithook(copies.audit)
            sinks = [
                sink_of(stream, root, name, observer=copies.of_sink(name)) for name in stream.sinks
            ]
        assert start(spark, stream, root, *sinks).awaitTermination(3600), "the query hangs"
        if (copies.kills / STOPPED).exists():
            (copies.kills / STOPPED).rename(stopped)
        if stream.name in rolled_back.STREAMS:
            states = Path(folder) / "states"
            for state in rolled_back.STATES:
                shutil.copytree(stopped, states / state)
                rolled_back.bring_about(state, stream.location(states / state))
            packed(states, root, target / "rolled-back" / f"{stream.name}.tar.xz")
        packed(copies.kills, root, target / f"{stream.name}.tar.xz")


def packed(folders: Path, made_at: Path, target: Path) -> None:
    """Packs the folders, and says so."""
    archive.pack(folders, made_at, target)
    print(target, target.stat().st_size, " ".join(sorted(path.name for path in folders.iterdir())))


def make_streams(folder: Path) -> None:
    """All streams, with the Spark of this Python."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    if HAS_FORMAT:
        from tests.persisted.watched import WatchedSource

        spark.dataSource.register(WatchedSource)
    target = folder / f"spark-{SPARK}"
    for stream in STREAMS.values():
        if (HAS_FORMAT or not stream.by_format) and not (target / f"{stream.name}.tar.xz").exists():
            kill(spark, stream, target)
    spark.stop()


if __name__ == "__main__":
    what, *name = sys.argv[1:]
    {"own": make_own, "streams": make_streams}[what](
        archive.HERE / (name[0] if name else __version__)
    )
