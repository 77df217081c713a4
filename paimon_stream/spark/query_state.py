"""Whether a streaming query keeps state. If it does, its state stores must see each batch exactly once."""

import logging
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

from paimon_stream.spark.identity import NOT_AS_KNOWN, QueryFacts, execution_of, is_connect

_LOG = logging.getLogger(__name__)

_STATEFUL: Final = (
    "org.apache.spark.sql.execution.streaming.StatefulOperator",
    "org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperator",
)
"""The class of all physical operators with state: in Spark 3.5 and 4.0, and in later versions."""

_HOLDERS: Final = {"AdaptiveSparkPlan": "inputPlan", "ReusedExchange": "child", "QueryStage": "plan"}
"""Operators that hold another operator which is not among their children: the end of the operator's name, and
the method that returns the inner operator."""


def keeps_state(frame: DataFrame, facts: QueryFacts) -> bool | None:
    """Whether the query has state stores, which must then see every batch; None if that is not known.

    It has state stores if its plan has an operator with state, or its checkpoint has a folder of states. This is asked
    once in a run, and when a batch is skipped, because walking a plan takes calls to Spark for each operator.
    """
    planned = _plans_state(frame, facts)
    kept = None if facts.checkpoint is None else facts.checkpoint.has_state()
    if planned or kept:
        return True
    return kept if planned is None else False


def _plans_state(frame: DataFrame, facts: QueryFacts) -> bool | None:
    """Whether an operator of the batch's plan keeps state; None if the plan cannot be read."""
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
    """Whether the plan has an operator with state at any depth. Its text is not reliable, because Spark
    truncates it."""
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
    """Spark's class of operators with state. Raises one of `NOT_AS_KNOWN` if this Spark does not have any of
    the known names."""
    earlier, later = _STATEFUL
    try:
        return session._jvm.java.lang.Class.forName(earlier, False, loader)
    except Py4JError:
        return session._jvm.java.lang.Class.forName(later, False, loader)
