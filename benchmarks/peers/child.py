"""The process of one system: a Spark session that runs streams on request.

    python -m peers.child <system> <folder> <memory> [<jar>…]

Reads one JSON object per line, and answers each with another. All other output goes to standard
error.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from .loads import Load, load_from
from .processes import Start, cpu_seconds
from .systems import System, data_files, make_system

_CORES = 2


def session_of(system: System, folder: Path, memory: str, jars: list[str]) -> Any:
    """A Spark session with the same settings for all systems, and those that the system's jar
    needs.
    """
    conf = {
        "spark.driver.memory": memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "spark"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(_CORES),
        "spark.default.parallelism": str(_CORES),
        "spark.sql.streaming.numRecentProgressUpdates": "100000",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.hadoop.parquet.compression.codec.zstd.level": "1",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        **system.conf,
    }
    if jars:
        conf["spark.driver.extraClassPath"] = ":".join(jars)
    builder = SparkSession.builder.master(f"local[{_CORES}]").appName("bench")
    for name, value in conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def run(spark: Any, system: System, load: Load, order: dict[str, Any]) -> dict[str, Any]:
    """Runs one stream from a fresh checkpoint to its end. Returns the measurements."""
    table = order["table"]
    system.create(spark, table, load)
    stream = (
        spark.readStream.schema(load.ddl)
        .option("maxFilesPerTrigger", load.files_per_batch)
        .parquet(order["source"])
    )
    spark._jvm.System.gc()
    time.sleep(0.3)
    session = os.getsid(0)
    warm = Path(order["checkpoint"], "commits", str(load.warm_up - 1))

    def sizes_of_files() -> list[int]:
        while True:
            try:
                return [path.stat().st_size for path in data_files(system.location(table))]
            except FileNotFoundError:
                continue  # a batch that is still running has removed a file

    began = time.time()
    with Start(session, warm if load.warm_up else None, sizes_of_files) as start:
        query = system.start(stream, table, load, order["checkpoint"])
        query.awaitTermination()
    wall, cpu = time.perf_counter() - start.wall, cpu_seconds(session) - start.cpu
    batches = [
        one for one in map(_progress, query.recentProgress) if "addBatch" in one["durationMs"]
    ]
    sizes = sizes_of_files()
    first, measured = batches[0], batches[load.warm_up :]
    return {
        "cpu": cpu,
        "wall": wall,
        "rows": sum(one["numInputRows"] for one in batches),
        "batches": len(batches),
        "batch_ms": [one["durationMs"]["triggerExecution"] for one in measured],
        "add_ms": [one["durationMs"]["addBatch"] for one in measured],
        "first_s": _epoch(first["timestamp"])
        + first["durationMs"]["triggerExecution"] / 1000
        - began,
        "files": len(sizes) - len(start.sizes),
        "bytes": sum(sizes) - sum(start.sizes),
    }


def _progress(progress: Any) -> dict[str, Any]:
    found: dict[str, Any] = progress if isinstance(progress, dict) else json.loads(progress.json)
    return found


def _epoch(text: str) -> float:
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def check(spark: Any, system: System, order: dict[str, Any]) -> dict[str, Any]:
    """The rows and sums of the table, as Spark reads it."""
    table = system.read(spark, order["table"])
    if table is None:
        return {}
    sums = table.agg(
        F.count("*"), F.sum("id"), F.sum("quantity"), (F.sum("amount") * 100).cast("bigint")
    ).first()
    return {"sums": dict(zip(("rows", "id", "quantity", "cents"), sums, strict=True))}


def main(name: str, folder: str, memory: str, *jars: str) -> None:
    """Answers requests until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(**fields: Any) -> None:
        answers.write(json.dumps(fields) + "\n")
        answers.flush()

    began = time.perf_counter()
    system = make_system(name, Path(folder) / "warehouse")
    try:
        spark = session_of(system, Path(folder), memory, list(jars))
        spark.range(1).count()
        versions = {"pyspark": spark.version, "python": platform.python_version(), **_versions()}
        answer(session_s=time.perf_counter() - began, versions=versions)
        for line in sys.stdin:
            order = json.loads(line)
            if order["do"] == "run":
                answer(**run(spark, system, load_from(order["load"]), order))
            else:
                answer(**check(spark, system, order))
    except Exception as error:
        answer(error=f"{type(error).__name__}: {str(error).strip()[:2000]}")
        raise


def _versions() -> dict[str, str]:
    from importlib import metadata

    found = {}
    for package in ("pyarrow", "numpy", "pandas", "pypaimon"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
