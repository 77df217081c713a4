"""The official sink for Spark (its jar), streaming JSON files into a Paimon table.

    python official_child.py <jar> <source> <warehouse> <checkpoint>

Prints the number of rows of the table and their sum of ids.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession


def main(jar: str, source: str, warehouse: str, checkpoint: str) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jar)
        .config("spark.sql.catalog.paimon", "org.apache.paimon.spark.SparkCatalog")
        .config("spark.sql.catalog.paimon.warehouse", warehouse)
        .config(
            "spark.sql.extensions",
            "org.apache.paimon.spark.extensions.PaimonSparkSessionExtensions",
        )
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark.sql("CREATE DATABASE IF NOT EXISTS paimon.db")
    spark.sql("CREATE TABLE IF NOT EXISTS paimon.db.t (id BIGINT, day STRING)")
    stream = (
        spark.readStream.schema("id bigint, day string")
        .option("maxFilesPerTrigger", 1)
        .json(source)
    )
    query = (
        stream.writeStream.format("paimon")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start(f"{warehouse}/db.db/t")
    )
    query.awaitTermination()
    count, total = spark.sql("SELECT count(*), sum(id) FROM paimon.db.t").first()
    print(f"rows={count} sum={total}")


if __name__ == "__main__":
    main(*sys.argv[1:])
