"""Exactly-once streaming from PySpark to Apache Paimon tables, in pure Python."""

from paimon_stream import errors
from paimon_stream._version import __version__
from paimon_stream.api.table import PaimonTable
from paimon_stream.commit.message import CommitMessage
from paimon_stream.commit.report import CommitReport
from paimon_stream.spark.sink import PaimonSink

__all__ = ["CommitMessage", "CommitReport", "PaimonSink", "PaimonTable", "__version__", "errors"]
