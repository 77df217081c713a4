"""The data source of Spark, `format("paimon_stream")`: which tables its options name, and its
readers and writers. docs/spark-format.md says how it is used. Needs Spark 4.0.

`PaimonSink` is a function that Spark calls in the driver. A data source has no place there: Spark
asks Python processes of its own, on the driver and beside executors. These processes outlive
batches and queries. Spark replaces a process in which anything was raised.

    planning process (driver)     tasks                          commit process (driver)
    writer made, plan, pickle ──▶ query, run and batch id from
      newest schema, columns      Spark's local properties
      first sequence number         │ batch N is in the plan? ─▶ skipped: no file
      newest batch of each stream   ▼ else write files ────────▶ one_batch: judge, publish, settle
                                                                 not published: remove the files
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from paimon_stream import options as opt
from paimon_stream.catalogs.filesystem import OF_DATABASE
from paimon_stream.catalogs.rest import OF_SERVER
from paimon_stream.errors import InvalidOption, UnsupportedFeature
from paimon_stream.extras import require
from paimon_stream.options.store_names import recommended_names
from paimon_stream.options.store_options import PREFIXES
from paimon_stream.spark.active_session import in_catalog
from paimon_stream.storage.branch import with_branch
from paimon_stream.storage.location import KIND_OF, scheme_of, store_location
from paimon_stream.storage.store_sources import options_for

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

_OF_SPARK: Final = frozenset(
    ("checkpointlocation", "queryname", "path", "paths", "owner", "provider", "location")
)
"""Keys by which Spark passes on what was not said by `.option`."""


def register(spark: SparkSession) -> None:
    """Makes `format("paimon_stream")` known to the session, classic or Connect.

    A classic session also becomes the active one of the calling thread. Spark looks for the data
    source of a stream in the active session, and a thread that Python starts has none.
    """
    spark.dataSource.register(PaimonDataSource)
    if hasattr(spark, "_jsparkSession"):
        jvm = spark._jvm
        jvm.org.apache.spark.sql.SparkSession.setActiveSession(spark._jsparkSession)


class PaimonDataSource(ds.DataSource):  # type: ignore[misc]
    """Writes and reads Paimon tables by `format("paimon_stream")`, after `register(spark)`. Spark
    makes it.
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
        """Reads the rows that the table has, and then those that come."""
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


def _module(door: str) -> Any:
    """The module of a kind of read or write. It is loaded when it is needed, because a worker of
    Spark that reads needs nothing of writing.
    """
    return require(f"paimon_stream.spark.datasource_{door}", "spark", f'format("{NAME}")')


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of one read or write by whom they concern.

    Attributes:
        location: the table's folder, with the branch.
        own: options of the read or write itself, and those that Spark adds.
        table: options of the table and the sink.
        storage: options of the storage, with secrets.
    """

    location: str
    own: Mapping[str, str]
    table: Mapping[str, str]
    storage: Mapping[str, str] = field(repr=False)


def divided(
    options: Mapping[str, str],
    door: Iterable[str],
) -> SourceOptions:
    """The options by whom they concern.

    Args:
        options: all options, with keys in lower case, as Spark passes them.
        door: the keys of this kind of read or write.

    Raises:
        InvalidOption: there is not exactly one path, or a key is not known.
    """
    rest = opt.lowered(options)
    known = [*door, "branch", "warehouse"]
    path = _path_in(rest)
    own = {key: rest.pop(key) for key in (*known, *_OF_SPARK) if key in rest}
    storage: dict[str, str] = {}
    if "warehouse" in own and "/" not in path:
        catalog = {"warehouse": own["warehouse"]}
        if "metastore" in rest:
            keys = [key for key in rest if OF_DATABASE.fullmatch(key) or OF_SERVER.fullmatch(key)]
            catalog |= {key: rest.pop(key) for key in keys}
        path, of_catalog = in_catalog(path, catalog)
        storage |= of_catalog
    kind = KIND_OF.get(scheme_of(path))
    if kind is not None:
        store_keys = options_for(store_location(path), rest)
        storage |= {
            key: value
            for key, value in rest.items()
            if key in store_keys or key.startswith(PREFIXES[kind])
        }
        known += recommended_names(kind)
    table = {
        key: value
        for key, value in rest.items()
        if key not in storage or key.startswith(opt.SINK_PREFIX)
    }
    opt.check_sink_options(table, additional=known)
    return SourceOptions(
        location=str(with_branch(path, own.get("branch"))), own=own, table=table, storage=storage
    )


def _path_in(options: Mapping[str, str]) -> str:
    """The path of the table. Raises `InvalidOption` if there is not exactly one."""
    path = options.get("path", "")
    if not path.strip() or "paths" in options:
        raise InvalidOption(
            f"paimon_stream was given {options.get('paths', 'no path')}. Name the folder of one "
            "table: .start(location), .save(location) or .load(location). In SQL, use CREATE "
            "TEMPORARY VIEW … USING paimon_stream OPTIONS (path '…'): tables of Spark's catalog, "
            "saveAsTable and writeTo do not pass on their options.",
            option="path",
        )
    return path
