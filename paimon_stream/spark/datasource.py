"""The data source of Spark, `format("paimon_stream")`: which tables its options name, and its
readers and writers. docs/spark-format.md says how it is used. Needs Spark 4.0.

`PaimonSink` is a function that Spark calls in the driver. A data source runs elsewhere: in Python
processes that Spark starts on the driver and beside executors. These processes outlive batches and
queries. Spark replaces a process in which an error was raised.

    planning process (driver)     tasks                          commit process (driver)
    writer made, plan, pickle ──▶ query, run and batch id from
      newest schema, columns      Spark's local properties
      first sequence number         │ batch N is in the plan? ─▶ skipped: no file
      newest batch of each stream   ▼ else write files ────────▶ one_batch: judge, publish, settle
                                                                 not published: remove the files
"""

from typing import Any, Final

from paimon_stream.errors import UnsupportedFeature
from paimon_stream.extras import require

require("pyspark.sql", "spark", "PaimonDataSource")
try:
    from pyspark.sql import SparkSession
    from pyspark.sql import datasource as ds
    from pyspark.sql.types import StructType
except ImportError:
    raise UnsupportedFeature(
        'format("paimon_stream") needs pyspark 4.0 or later: earlier versions have no data sources '
        "in Python. Use PaimonSink with foreachBatch for streams, and PaimonTable.append and "
        "overwrite for other DataFrames."
    ) from None

NAME: Final = "paimon_stream"


def register(spark: SparkSession) -> None:
    """Makes `format("paimon_stream")` known to the session, classic or Connect.

    A classic session also becomes the active session of the calling thread. Spark looks for the
    data source of a stream in the active session, and a thread that Python starts has none.
    """
    spark.dataSource.register(PaimonDataSource)
    if hasattr(spark, "_jsparkSession"):
        jvm = spark._jvm
        jvm.org.apache.spark.sql.SparkSession.setActiveSession(spark._jsparkSession)


class PaimonDataSource(ds.DataSource):  # type: ignore[misc]
    """Writes and reads Paimon tables by `format("paimon_stream")`, after `register(spark)`. Spark
    creates its instances.
    """

    @classmethod
    def name(cls) -> str:
        """The word for `format()`."""
        return NAME

    def schema(self) -> StructType:
        """The columns of the table, for a reader."""
        return _module("read").schema_of(dict(self.options))

    def reader(self, schema: StructType) -> ds.DataSourceReader:
        """Reads a snapshot of the table."""
        return _module("read").reader_of(dict(self.options), schema)

    def streamReader(self, schema: StructType) -> ds.DataSourceStreamReader:
        """Reads the rows that the table has, and then the changes of each new snapshot."""
        return _module("stream").StreamReader(dict(self.options), schema)

    def writer(
        self,
        schema: StructType,
        overwrite: bool,
    ) -> ds.DataSourceWriter:
        """Appends the rows to the table, or replaces it."""
        return _module("write").TableWriter(dict(self.options), schema, overwrite)

    def streamWriter(
        self,
        schema: StructType,
        overwrite: bool,
    ) -> ds.DataSourceStreamWriter:
        """Appends each batch, or replaces the table by it."""
        return _module("write").StreamTableWriter(dict(self.options), schema, overwrite)


def _module(kind: str) -> Any:
    """The module of a kind of read or write. It is loaded only when it is needed, because a worker
    that reads needs no code that writes.
    """
    return require(f"paimon_stream.spark.datasource_{kind}", "spark", f'format("{NAME}")')
