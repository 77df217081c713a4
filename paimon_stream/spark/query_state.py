"""Whether a streaming query keeps state: then its state stores must see every batch, and each batch once."""

from __future__ import annotations

import logging
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

from paimon_stream.spark.identity import NOT_AS_KNOWN, QueryFacts, execution_of, is_connect

__all__ = ["keeps_state"]

_LOG = logging.getLogger(__name__)

_STATEFUL: Final = (
    "org.apache.spark.sql.execution.streaming.StatefulOperator",
    "org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperator",
)
"""What every physical operator with state is, in Spark 3.5 and 4.0, and in later versions."""

_HOLDERS: Final = {"AdaptiveSparkPlan": "inputPlan", "ReusedExchange": "child", "QueryStage": "plan"}
"""Operators that hold others which they do not count among their children, by the end of their name; and
where."""


def keeps_state(frame: DataFrame, facts: QueryFacts) -> bool | None:
    """Whether the query has state stores, which must then see every batch; None where nothing says so.

    It has some if its plan has an operator with state, or its checkpoint a folder of states. Asked once in a
    run, and when a batch is skipped: to walk a plan takes a call for each of its operators.
    """
    planned = _plans_state(frame, facts)
    kept = None if facts.checkpoint is None else facts.checkpoint.has_state()
    if planned or kept:
        return True
    return kept if planned is None else False


def _plans_state(frame: DataFrame, facts: QueryFacts) -> bool | None:
    """Whether an operator of the batch's plan keeps state; None where the plan cannot be read."""
    if facts.query_id is None or is_connect(frame):
        return None
    try:
        execution = execution_of(frame, facts.query_id)
        last = None if execution is None else execution.lastExecution()
        return None if last is None else _has_state(frame, last.executedPlan())
    except NOT_AS_KNOWN:
        _LOG.debug("The plan of the running query cannot be read.", exc_info=True)
        return None


def _has_state(frame: DataFrame, plan: Any) -> bool:
    """Whether the plan or one below it is an operator with state. Its text would not do: Spark cuts it."""
    session: Any = frame.sparkSession
    loader = session._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    stateful = _loaded(session, loader)
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        if stateful.isInstance(node):
            return True
        children = node.children()
        count = children.size()
        waiting += [children.apply(place) for place in range(count)]
        if not count:
            name = str(node.nodeName())
            waiting += [getattr(node, way)() for end, way in _HOLDERS.items() if name.endswith(end)]
    return False


def _loaded(session: Any, loader: Any) -> Any:
    """Spark's class of operators with state. Raises one of `NOT_AS_KNOWN` where this Spark has none of the
    known names."""
    *others, last = _STATEFUL
    for name in others:
        try:
            return session._jvm.java.lang.Class.forName(name, False, loader)
        except Py4JError:
            continue
    return session._jvm.java.lang.Class.forName(last, False, loader)
