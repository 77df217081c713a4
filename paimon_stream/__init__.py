"""Exactly-once streaming from PySpark to Apache Paimon tables, in pure Python."""

from paimon_stream import errors
from paimon_stream._version import __version__

__all__ = ["__version__", "errors"]
