"""Exactly-once streaming from PySpark to Apache Paimon tables, in pure Python."""

import importlib as _importlib
import typing as _typing

from paimon_stream import errors
from paimon_stream._version import __version__

if _typing.TYPE_CHECKING:
    from paimon_stream.api.catalog import PaimonCatalog, catalog
    from paimon_stream.api.table import PaimonTable
    from paimon_stream.change.merge import Merge
    from paimon_stream.commit.report import CommitReport
    from paimon_stream.format.commit_message import CommitMessage
    from paimon_stream.spark.datasource import PaimonDataSource, register
    from paimon_stream.spark.sink import PaimonSink
    from paimon_stream.spark.views import register_views
    from paimon_stream.table.schema_change import SchemaChange
    from paimon_stream.write.routing import assign_buckets

__all__ = [
    "CommitMessage",
    "CommitReport",
    "Merge",
    "PaimonCatalog",
    "PaimonDataSource",
    "PaimonSink",
    "PaimonTable",
    "SchemaChange",
    "__version__",
    "assign_buckets",
    "catalog",
    "errors",
    "register",
    "register_views",
]

# These names are loaded when they are first used, because every Python worker imports parts of this
# package, but needs neither the committer nor Avro.
_HOMES = {
    "CommitMessage": "paimon_stream.format.commit_message",
    "CommitReport": "paimon_stream.commit.report",
    "Merge": "paimon_stream.change.merge",
    "PaimonCatalog": "paimon_stream.api.catalog",
    "PaimonDataSource": "paimon_stream.spark.datasource",
    "PaimonSink": "paimon_stream.spark.sink",
    "PaimonTable": "paimon_stream.api.table",
    "SchemaChange": "paimon_stream.table.schema_change",
    "assign_buckets": "paimon_stream.write.routing",
    "catalog": "paimon_stream.api.catalog",
    "register": "paimon_stream.spark.datasource",
    "register_views": "paimon_stream.spark.views",
}


def __getattr__(name: str) -> _typing.Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(_importlib.import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
