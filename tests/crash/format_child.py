"""A streaming job that writes by `format("paimon_stream")` or by `PaimonSink`, to its end. It reads
JSON or a table.

python format_child.py <source> <table> <checkpoint> <door>

With `HOOK` as sitecustomize of all its Python processes, it dies where the file that KILL_AT ends
is linked.
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

from paimon_stream import PaimonSink, register

HOOK = """
import os, signal, sys
at = os.environ.get("KILL_AT", "")
def hook(event, args):
    if event == "os.link" and str(args[1]).endswith(at):
        os.killpg(int(os.environ["KILL_GROUP"]), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
if at:
    sys.addaudithook(hook)
"""
"""For a folder of PYTHONPATH, as sitecustomize.py. The commit of a data source is in a worker of
its own.
"""


def main(source: str, table: str, checkpoint: str, door: str) -> None:
    os.environ["KILL_GROUP"] = str(os.getpgid(0))  # for the workers, which have groups of their own
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    register(spark)
    if os.path.isdir(f"{source}/schema"):
        options = {"scan.mode": "from-snapshot", "scan.snapshot-id": "1", "consumer-id": "copy"}
        options["read.stream.max-snapshots-per-trigger"] = "1"
        rows = spark.readStream.format("paimon_stream").options(**options).load(source)
    else:
        rows = (
            spark.readStream.schema("id bigint, n bigint")
            .option("maxFilesPerTrigger", 1)
            .json(source)
        )
    writer = (
        rows.repartition(2)
        .writeStream.option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
    )
    if door == "format":
        query = writer.format("paimon_stream").start(table)
    else:
        query = writer.foreachBatch(PaimonSink(table)).start()
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
