"""The data source of Spark, `format("paimon_stream")`: which tables its options name, and its readers and writers.

docs/spark-format.md says how it is used, docs/architecture.md ("Doors of Spark") how Spark calls it. Needs Spark 4.0.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from paimon_stream import options as opt
from paimon_stream.errors import InvalidOption, UnsupportedFeature
from paimon_stream.extras import require
from paimon_stream.options.store_names import recommended_names
from paimon_stream.options.store_options import PREFIXES
from paimon_stream.storage.branch import with_branch
from paimon_stream.storage.location import KIND_OF, scheme_of, store_location
from paimon_stream.storage.store_sources import options_for

require("pyspark.sql", "spark", "PaimonDataSource")
try:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType
except ImportError:
    raise UnsupportedFeature(
        'format("paimon_stream") needs pyspark 4.0 or later: earlier versions have no data sources in Python. Use '
        "PaimonSink with foreachBatch for streams, and PaimonTable.append and overwrite for other DataFrames."
    ) from None

NAME: Final = "paimon_stream"

_OF_SPARK: Final = frozenset(("checkpointlocation", "queryname", "path", "paths", "owner", "provider", "location"))
"""Keys by which Spark passes on what was not said by `.option`."""

_OF_WRITERS: Final = frozenset(("branch", "commit-user", "commit-identifier", "name", "checkpoint"))


def register(spark: SparkSession) -> None:
    """Makes `format("paimon_stream")` known to the session, classic or Connect."""
    spark.dataSource.register(PaimonDataSource)


class PaimonDataSource(DataSource):  # type: ignore[misc]
    """Writes and reads Paimon tables by `format("paimon_stream")`, after `register(spark)`.

    >>> register(spark)  # doctest: +SKIP
    >>> writer = orders.writeStream.format("paimon_stream")  # doctest: +SKIP
    >>> writer.option("checkpointLocation", "/data/checkpoints/orders").start("/data/shop.db/orders")  # doctest: +SKIP
    """

    @classmethod
    def name(cls) -> str:
        """The word for `format()`."""
        return NAME

    def schema(self) -> StructType:
        """The columns of the table, for a reader."""
        return _module("read").schema_of(dict(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads a snapshot of the table."""
        return _module("read").reader_of(dict(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Appends the rows to the table, or replaces it."""
        raise NotImplementedError

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Appends each batch, or replaces the table by it."""
        raise NotImplementedError


def _module(door: str) -> Any:
    """Loaded when it is needed: a worker of Spark that reads needs nothing of writing."""
    return require(f"paimon_stream.spark.datasource_{door}", "spark", f'format("{NAME}")')


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of one read or write. `location` names the branch, too. `own` are those of the door itself, `table`
    those of the table and the sink, `storage` those of the storage. `spark` are Spark's own."""

    location: str
    own: Mapping[str, str] = field(default_factory=dict)
    table: Mapping[str, str] = field(default_factory=dict)
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    spark: Mapping[str, str] = field(default_factory=dict)


def divided(options: Mapping[str, str], own: Iterable[str]) -> SourceOptions:
    """The options by whom they concern. `own` are the keys of the door, in lower case. Spark passes all keys in lower
    case. Raises `InvalidOption` if there is not exactly one path, and for keys that are not known."""
    given = opt.lowered(options)
    path = _path(given)
    doors = {key: given.pop(key) for key in sorted({*own, "branch"}) if key in given}
    spark = {key: given.pop(key) for key in _OF_SPARK if key in given}
    storage: dict[str, str] = {}
    known = [*doors, *own]
    if (kind := KIND_OF.get(scheme_of(path))) is not None:
        theirs = options_for(store_location(path), given)
        named = (key for key in given if key in theirs or key.startswith(PREFIXES[kind]))
        storage = {key: given[key] for key in named if not key.startswith(opt.SINK_PREFIX)}
        known += recommended_names(kind)
    table = {key: value for key, value in given.items() if key not in storage}
    opt.check_sink_options(table, beside=known)
    location = str(with_branch(path, doors.pop("branch", None)))
    return SourceOptions(location=location, own=doors, table=table, storage=storage, spark=spark)


def _path(given: Mapping[str, str]) -> str:
    if "paths" in given:
        raise InvalidOption(
            f"paimon_stream was given several paths, {given['paths'][:200]}. Give the folder of one table.",
            option="path",
        )
    if not given.get("path", "").strip():
        raise InvalidOption(
            "paimon_stream was given no path. Name the table's folder: .start(location), .save(location) or "
            ".load(location). In SQL, use CREATE TEMPORARY VIEW … USING paimon_stream OPTIONS (path '…'): tables of "
            "Spark's catalog, saveAsTable and writeTo do not pass on their options.",
            option="path",
        )
    return given["path"]
