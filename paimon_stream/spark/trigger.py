"""The trigger of a query that a sink starts. Spark checks the trigger's name and its interval. Each
of Spark's errors becomes the same error of this package, which lists the triggers that exist.
"""

from collections.abc import Mapping
from typing import Any, Final

from pyspark.errors import IllegalArgumentException, PySparkException
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from paimon_stream.errors import InvalidOption

_WITHOUT_FOREACH_BATCH: Final = ("continuous", "realTime")
"""Triggers with which Spark does not call `foreachBatch`."""


def start_with(
    writer: DataStreamWriter, trigger: Mapping[str, Any], location: str
) -> StreamingQuery:
    """Starts the query. `trigger` has the arguments of `DataStreamWriter.trigger`. If it is empty,
    the query has Spark's default trigger. Raises `InvalidOption` if the arguments are no trigger of
    a query with `foreachBatch`.
    """
    if not trigger:
        return writer.start()
    refused = InvalidOption(
        f"trigger is {dict(trigger)!r}, and Spark has no such trigger for foreachBatch. No query was "
        "started. Give {'availableNow': True}, {'once': True}, or {'processingTime': '10 seconds'} "
        "with an interval of days, hours, minutes, seconds or milliseconds.",
        option="trigger",
    ).of_table(location)
    if any(trigger.get(name) is not None for name in _WITHOUT_FOREACH_BATCH):
        raise refused
    try:
        triggered = writer.trigger(**trigger)
    except (TypeError, PySparkException):
        raise refused from None
    try:
        return triggered.start()
    except IllegalArgumentException as failed:
        # On Spark Connect, the server reads the interval only when the query starts.
        if "interval" in str(failed):
            raise refused from None
        raise
