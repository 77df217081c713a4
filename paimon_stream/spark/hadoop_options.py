"""Reads from Spark's configuration where its object stores and HDFS are, and which credentials open
them. In the driver, the Hadoop configuration is read, with which Spark itself reads and writes. It
has `spark.hadoop.fs.s3a.*` and the settings of the session. Hadoop's defaults are left out. On
Spark Connect, where no JVM can be reached, the settings of the session are read.
"""

import json
import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from paimon_stream.options.hdfs_names import HADOOP_NAMES, HADOOP_PREFIXES

_LOG = logging.getLogger(__name__)

_STORES: Final = (
    "fs.s3a.",
    "fs.s3.",
    "fs.s3n.",
    "fs.azure.",
    "fs.gs.",
    "fs.oss.",
    "google.cloud.auth.",
    *HADOOP_NAMES,
    *HADOOP_PREFIXES,
)
_SPARK: Final = "spark.hadoop."
_DEFAULTS: Final = "core-default.xml"
_PY4J: Final = ("py4j", "py4j.java_gateway", "py4j.clientserver")


def hadoop_options(session: Any) -> Mapping[str, str]:
    """The session's options of object stores under Hadoop's names, with secrets; empty if the
    session cannot be asked.
    """
    try:
        with unlogged():
            if hasattr(session, "_jsparkSession"):
                return _of_jvm(session)
            settings = getattr(session.conf, "getAll", {})  # a property; not in all versions
            options = {name.removeprefix(_SPARK): value for name, value in settings.items()}
            return {name: value for name, value in options.items() if name.startswith(_STORES)}
    except (Py4JError, PySparkException, AttributeError, TypeError, ValueError) as failed:
        _LOG.info(
            "Spark's configuration of object stores cannot be read: %s.", type(failed).__name__
        )
        return {}


def _of_jvm(session: Any) -> Mapping[str, str]:
    configuration = session._jsparkSession.sessionState().newHadoopConf()
    jvm = session._jvm
    writer = jvm.java.io.StringWriter()
    # This call lists the names of all settings, and where they come from. It hides secrets, so the
    # value of each name is asked for separately.
    jvm.org.apache.hadoop.conf.Configuration.dumpConfiguration(configuration, writer)
    properties = json.loads(str(writer.toString()))["properties"]
    names = [
        entry["key"]
        for entry in properties
        if entry["key"].startswith(_STORES) and not str(entry.get("resource")).endswith(_DEFAULTS)
    ]
    values = {name: configuration.get(name) for name in names}
    return {name: str(value) for name, value in values.items() if value is not None}


@contextmanager
def unlogged() -> Iterator[None]:
    """A context in which the log records of py4j in this thread are dropped. Answers and pickled
    tasks contain credentials of Spark and of the storage.
    """
    here = threading.get_ident()

    def is_of_another_thread(record: logging.LogRecord) -> bool:
        return record.thread != here

    loggers = [logging.getLogger(name) for name in _PY4J]
    for logger in loggers:
        logger.addFilter(is_of_another_thread)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_of_another_thread)
