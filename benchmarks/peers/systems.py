"""The systems: how each makes a table, writes a stream into it and reads it. Runs in their
processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .loads import Load

__all__ = ["System", "data_files", "make_system"]


class System:
    """Spark's noop, and what all other systems have in common. `folder` is the warehouse of its
    tables.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.conf: dict[str, str] = {}

    def location(self, table: str) -> Path:
        """The folder of a table's files."""
        return self.folder / "db.db" / table

    def create(self, spark: Any, table: str, load: Load) -> None:
        """Makes an empty table. The time for this is not measured."""

    def start(self, stream: Any, table: str, load: Load, checkpoint: str) -> Any:
        """Starts the query, which reads all existing files."""
        writer = stream.writeStream.foreachBatch(_to_noop)
        return writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()

    def read(self, spark: Any, table: str) -> Any:
        """The table as a DataFrame; None if there is no table or Spark does not read it."""
        return None


def _to_noop(df: Any, batch: int) -> None:
    df.write.format("noop").mode("overwrite").save()


class Drop(System):
    """Python workers that read the rows as Arrow and drop them, one job a batch: what any sink
    costs that writes in Python. Arrow batches have the size of our own.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.conf = {
            "spark.sql.execution.arrow.maxRecordsPerBatch": "8192",
            "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
        }

    def start(self, stream: Any, table: str, load: Load, checkpoint: str) -> Any:
        writer = stream.writeStream.foreachBatch(_to_workers)
        return writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()


def _to_workers(df: Any, batch: int) -> None:
    df.mapInArrow(_counted, "rows bigint").collect()


def _counted(batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa

    yield pa.record_batch({"rows": pa.array([sum(batch.num_rows for batch in batches)])})


class SparkParquet(System):
    """Spark's own file sink."""

    def start(self, stream: Any, table: str, load: Load, checkpoint: str) -> Any:
        writer = stream.writeStream.format("parquet").option("path", str(self.location(table)))
        if load.partitioned:
            writer = writer.partitionBy("region")
        return writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()

    def read(self, spark: Any, table: str) -> Any:
        return spark.read.parquet(str(self.location(table)))


class Ours(System):
    """`PaimonSink` with these `options`."""

    def __init__(self, folder: Path, options: dict[str, str]) -> None:
        super().__init__(folder)
        self.options = options

    def create(self, spark: Any, table: str, load: Load) -> None:
        _create_paimon(spark, self.location(table), load)

    def start(self, stream: Any, table: str, load: Load, checkpoint: str) -> Any:
        from paimon_stream import PaimonSink

        sink = PaimonSink(str(self.location(table)), options=self.options)
        return sink.start(stream, checkpoint=checkpoint, trigger={"availableNow": True})


class OursByFormat(Ours):
    """The data source of this package, with these `options`. Nothing gathers rows or small files
    before it.
    """

    def start(self, stream: Any, table: str, load: Load, checkpoint: str) -> Any:
        from paimon_stream import register

        register(stream.sparkSession)
        writer = stream.writeStream.format("paimon_stream").options(**self.options)
        writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        return writer.start(str(self.location(table)))


class Pypaimon(System):
    """Collects batches as Arrow on the driver, where pypaimon writes them."""

    def create(self, spark: Any, table: str, load: Load) -> None:
        _create_paimon(spark, self.location(table), load)

    def start(self, stream: Any, table: str, load: Load, checkpoint: str) -> Any:
        import pyarrow as pa
        from pypaimon import CatalogFactory

        opened = CatalogFactory.create({"warehouse": str(self.folder)}).get_table(f"db.{table}")
        builder = opened.new_stream_write_builder()

        def write(df: Any, batch: int) -> None:
            rows = (
                df.toArrow()
                if hasattr(df, "toArrow")
                else pa.Table.from_batches(df._collect_as_arrow())
            )
            writer, commit = builder.new_write(), builder.new_commit()
            writer.write_arrow(rows.cast(writer.table_pyarrow_schema))
            commit.commit(writer.prepare_commit(batch), batch)
            writer.close()
            commit.close()

        trigger = stream.writeStream.foreachBatch(write).trigger(availableNow=True)
        return trigger.option("checkpointLocation", checkpoint).start()


def _create_paimon(spark: Any, location: Path, load: Load) -> None:
    from paimon_stream import PaimonTable

    options = {"file.format": "parquet", "file.compression.zstd-level": "1"}
    if load.buckets:
        options["bucket"] = str(load.buckets)
    if load.keyed:
        options["write-only"] = str(not load.compacted).lower()
    elif load.buckets:
        options["bucket-key"] = "id"
    PaimonTable.create(
        str(location),
        schema=spark.createDataFrame([], load.ddl).schema,
        partition_keys=["region"] if load.partitioned else [],
        primary_keys=["id"] if load.keyed else [],
        options=options,
    )


class PaimonJar(System):
    """Paimon's own sink for Spark. Like ours, it compacts beside the stream only if the load asks
    for that.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.conf = {
            "spark.sql.catalog.paimon": "org.apache.paimon.spark.SparkCatalog",
            "spark.sql.catalog.paimon.warehouse": str(folder),
            "spark.sql.extensions": "org.apache.paimon.spark.extensions.PaimonSparkSessionExtensions",
        }

    def create(self, spark: Any, table: str, load: Load) -> None:
        properties = {
            "file.format": "parquet",
            "file.compression": "zstd",
            "file.compression.zstd-level": "1",
            "write-only": str(not load.compacted).lower(),
            "bucket": str(load.buckets or -1),
        }
        if load.keyed:
            properties["primary-key"] = "id"
        elif load.buckets:
            properties["bucket-key"] = "id"
        text = ", ".join(f"'{name}'='{value}'" for name, value in properties.items())
        partitioned = "PARTITIONED BY (region)" if load.partitioned else ""
        spark.sql("CREATE DATABASE IF NOT EXISTS paimon.db")
        spark.sql(
            f"CREATE TABLE paimon.db.{table} ({load.ddl}) {partitioned} TBLPROPERTIES ({text})"
        )

    def start(self, stream: Any, table: str, load: Load, checkpoint: str) -> Any:
        writer = stream.writeStream.format("paimon").option("checkpointLocation", checkpoint)
        return writer.trigger(availableNow=True).start(str(self.location(table)))

    def read(self, spark: Any, table: str) -> Any:
        return spark.table(f"paimon.db.{table}")


class Iceberg(System):
    """Iceberg's sink. Each task writes all its partitions. Upserts use MERGE and are merged when
    read.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.conf = {
            "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.ice.type": "hadoop",
            "spark.sql.catalog.ice.warehouse": str(folder),
            "spark.sql.catalog.ice.cache-enabled": "false",
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        }

    def location(self, table: str) -> Path:
        return self.folder / "db" / table

    def create(self, spark: Any, table: str, load: Load) -> None:
        by = "region" if load.partitioned else f"bucket({load.buckets}, id)" if load.buckets else ""
        properties = {
            "format-version": "2",
            "write.parquet.compression-codec": "zstd",
            "write.parquet.compression-level": "1",
            "write.distribution-mode": "none",
            "write.merge.mode": "merge-on-read",
        }
        text = ", ".join(f"'{name}'='{value}'" for name, value in properties.items())
        partitioned = f"PARTITIONED BY ({by})" if by else ""
        spark.sql(
            f"CREATE TABLE ice.db.{table} ({load.ddl}) USING iceberg {partitioned} TBLPROPERTIES ({text})"
        )

    def start(self, stream: Any, table: str, load: Load, checkpoint: str) -> Any:
        writer = stream.writeStream.option("checkpointLocation", checkpoint).trigger(
            availableNow=True
        )
        if load.keyed:
            return writer.foreachBatch(_merge_into(f"ice.db.{table}")).start()
        return writer.format("iceberg").option("fanout-enabled", "true").toTable(f"ice.db.{table}")

    def read(self, spark: Any, table: str) -> Any:
        return spark.table(f"ice.db.{table}")


class Delta(System):
    """Delta's sink. Upserts use MERGE."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.conf = {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            # Delta's default, 50, is meant for clusters.
            "spark.databricks.delta.snapshotPartitions": "2",
        }

    def create(self, spark: Any, table: str, load: Load) -> None:
        partitioned = "PARTITIONED BY (region)" if load.partitioned else ""
        spark.sql(
            f"CREATE TABLE delta.`{self.location(table)}` ({load.ddl}) USING delta {partitioned}"
        )

    def start(self, stream: Any, table: str, load: Load, checkpoint: str) -> Any:
        writer = stream.writeStream.option("checkpointLocation", checkpoint).trigger(
            availableNow=True
        )
        if load.keyed:
            return writer.foreachBatch(_merge_into(f"delta.`{self.location(table)}`")).start()
        return writer.format("delta").start(str(self.location(table)))

    def read(self, spark: Any, table: str) -> Any:
        return spark.read.format("delta").load(str(self.location(table)))


def _merge_into(table: str) -> Callable[[Any, int], None]:
    def merge(df: Any, batch: int) -> None:
        df.createOrReplaceTempView("batch")
        df.sparkSession.sql(
            f"MERGE INTO {table} t USING batch s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )

    return merge


_MADE_OF_A_FOLDER: dict[str, Callable[[Path], System]] = {
    "noop": System,
    "drop": Drop,
    "parquet": SparkParquet,
    "pypaimon": Pypaimon,
    "jar": PaimonJar,
    "iceberg": Iceberg,
    "delta": Delta,
}


def make_system(name: str, folder: Path) -> System:
    """The system with that name. `ours` and `format` may be followed by `+option=value` and by
    `@checkout`.
    """
    plain, *options = name.partition("@")[0].split("+")
    if plain in ("ours", "format"):
        made = Ours if plain == "ours" else OursByFormat
        return made(folder, dict(option.split("=", 1) for option in options))
    return _MADE_OF_A_FOLDER[plain](folder)


def data_files(location: Path) -> Iterator[Path]:
    """The data files in the folder of a table, for every system."""
    for path in location.rglob("*.parquet"):
        if not {"_delta_log", "metadata", "manifest"} & set(path.relative_to(location).parts):
            yield path
