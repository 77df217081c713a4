"""The data source `format("paimon_stream")` of Spark, with its readers and writers.
docs/spark-format.md says how it is used. It needs Spark 4.0.

`PaimonSink` is a function that Spark calls in the driver. A data source runs elsewhere: in Python
processes that Spark starts on the driver and beside executors. These processes outlive batches and
queries. Spark replaces a process in which an error was raised.

    planning process (driver)     tasks                          commit process (driver)
    writer made, plan, pickle ──▶ query, run and batch id from
      newest schema, columns      Spark's local properties
      first sequence number         │ batch N is in the plan? ─▶ skipped: no file
      newest batch of each stream   ▼ else write files ────────▶ one_batch: judge, publish, settle
                                                                 not journalled: remove the files
"""

import json
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from paimon_stream.errors import InvalidOption, UnsupportedFeature
from paimon_stream.extras import require
from paimon_stream.spark.active_session import catalogs_in
from paimon_stream.spark.reused_worker import prepare_worker

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
CATALOG: Final = "catalog"
_OF_TABLES: Final = {"path", "warehouse", CATALOG, "columns"}
"""The options by which a user says which table and columns are meant."""


def register(spark: SparkSession) -> None:
    """Makes `format("paimon_stream")` known to the session, classic or Connect. After that, the
    option `catalog` can name the catalogs that the session has now (docs/catalogs.md).

    A classic session also becomes the active session of the calling thread. Spark looks for the
    data source of a stream in the active session, and a thread that Python starts has no active
    session.
    """
    catalogs = catalogs_in(spark)
    if catalogs:
        # The processes in which Spark makes a data source have no session to ask.
        enter(spark, type("PaimonSource", (PaimonDataSource,), {"catalogs": catalogs}))
    else:
        enter(spark, PaimonDataSource)


class PaimonDataSource(ds.DataSource):  # type: ignore[misc]
    """Writes and reads Paimon tables by `format("paimon_stream")`, after `register(spark)`. Spark
    creates its instances.

    Attributes:
        word: the name that users pass to `format()`.
        catalogs: the options of catalogs, with secrets, by the names of the catalogs. If there are
            any, Spark pickles the class, and does not show it anywhere.
        of_name: the options that belong to the word itself, if the word stands for one table.
    """

    word: ClassVar[str] = NAME
    catalogs: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    of_name: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def name(cls) -> str:
        """The name that users pass to `format()`."""
        return cls.word

    def schema(self) -> StructType:
        """The columns of the table, for a reader. Raises `UnsupportedFeature` for CREATE TABLE."""
        if "provider" in self.options:  # Spark adds it to the options of CREATE TABLE only
            raise UnsupportedFeature(
                f"CREATE TABLE … USING {self.word} is refused: Spark does not tell the readers and "
                "writers of such a table where it is. Call paimon_stream.register_views(spark, "
                "warehouse), which gives all tables of a warehouse their names, or use CREATE "
                "TEMPORARY VIEW … USING paimon_stream OPTIONS (path '…')."
            )
        return _module("read").schema_of(self._all_options())

    def reader(self, schema: StructType) -> ds.DataSourceReader:
        """Makes the reader of a snapshot of the table."""
        return _module("read").reader_of(self._all_options(), schema)

    def streamReader(self, schema: StructType) -> ds.DataSourceStreamReader:
        """Makes the reader of a stream: of the rows that the table has, and then of the changes of
        each new snapshot.
        """
        return _module("stream").StreamReader(self._all_options(), schema)

    def writer(
        self,
        schema: StructType,
        overwrite: bool,
    ) -> ds.DataSourceWriter:
        """Makes the writer that appends rows to the table, or replaces the table by them."""
        return _module("write").TableWriter(self._all_options(), schema, overwrite)

    def streamWriter(
        self,
        schema: StructType,
        overwrite: bool,
    ) -> ds.DataSourceStreamWriter:
        """Makes the writer of a stream. It appends each batch, or replaces the table by it."""
        return _module("write").StreamTableWriter(self._all_options(), schema, overwrite)

    def _all_options(self) -> dict[str, str]:
        """The options of the user, and the options of the table that the word for `format()` means.
        A catalog's name is replaced by the options of the catalog. Raises `InvalidOption`.
        """
        options = dict(self.options)
        if self.of_name:
            shown = self.of_name["path"].replace("`", "")
            for key in _OF_TABLES & options.keys():
                raise InvalidOption(
                    f"{shown} is the name of a table, and takes no option {key!r}. SELECT names "
                    f'columns. For another table use format("{NAME}").',
                    option=key,
                )
            return options | dict(self.of_name)
        if self.word != NAME:
            shown = ".".join(self.word.split(".")[1:3])
            raise InvalidOption(
                f"{shown} is a table of a warehouse that this session has not registered. Call "
                "paimon_stream.register_views(spark, warehouse) with that warehouse. Or run DROP "
                f"TABLE {shown}, which leaves its files alone, and register the warehouse that is "
                "meant.",
                option="path",
            )
        name = options.get(CATALOG)
        if name is not None:
            if name not in self.catalogs:
                raise InvalidOption(
                    "The option 'catalog' is no catalog that the session had at "
                    "paimon_stream.register(spark). Set spark.sql.catalog.<name>.warehouse, call "
                    "register(spark) again, and give that name. Or leave 'catalog' out, and give "
                    "the catalog's options themselves: .options(**options).",
                    option=CATALOG,
                )
            options[CATALOG] = json.dumps(dict(self.catalogs[name]))
        return options


def enter(
    spark: SparkSession,
    source: type[PaimonDataSource],
) -> None:
    """Makes a data source known to the session. A classic session also becomes the active session
    of the thread. py4j does not log the source, because it may hold secrets.
    """
    from paimon_stream.spark.hadoop_options import unlogged

    if hasattr(spark, "_jsparkSession"):
        # The active session is set first, because Spark refuses a word that the active session
        # knows and this one does not.
        jvm = spark._jvm
        jvm.org.apache.spark.sql.SparkSession.setActiveSession(spark._jsparkSession)
    with unlogged():
        spark.dataSource.register(source)


def _module(kind: str) -> Any:
    """The module of a kind of read or write, for a call of Spark that begins. It is loaded only
    when it is needed, because a worker that reads needs no code that writes.
    """
    prepare_worker()
    return require(f"paimon_stream.spark.datasource_{kind}", "spark", f'format("{NAME}")')
