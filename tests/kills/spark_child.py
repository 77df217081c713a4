"""A Spark query that writes by a `PaimonSink` or by `format("paimon_stream")`, to the end of its
source. It prints a line when it has begun.

    python -m tests.kills.spark_child '{"door": …, "source": …, "location": …, "checkpoint": …, …}'
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from paimon_stream import PaimonSink, register
from tests.kills.deaths import Diary

BEGUN = "begun"


def main(task: dict[str, Any]) -> None:
    """Runs the query."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    source = spark.readStream.schema("id bigint, day string, n bigint, rows bigint")
    rows = source.option("maxFilesPerTrigger", 1).json(task["source"])
    writer = rows.writeStream.option("checkpointLocation", task["checkpoint"])
    writer = writer.trigger(availableNow=True)
    diary = Diary(Path(task["diary"]))
    options, storage_options = task["options"], task["storage_options"]
    if task["door"] == "foreachBatch":
        sink = PaimonSink(
            task["location"], options=options, storage_options=storage_options, observer=diary
        )
        query = writer.foreachBatch(sink).start()
    else:
        register(spark)
        diary.write("in a query of the data source")
        every = {**options, **storage_options}
        query = writer.format("paimon_stream").options(**every).start(task["location"])
    print(BEGUN, flush=True)
    query.awaitTermination()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
