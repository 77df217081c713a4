"""Finds the streaming query of a batch. The query determines the commit user of the batch, and
shows whether Spark keeps state for it (exactly-once.md §1; semantics.md R1.1). Spark passes only
the rows and the batch id to a `foreachBatch` function. So the query is found by other means: local
properties of the thread, Spark's table of running queries, and the checkpoint's `metadata`. A value
that cannot be found is None, and is never guessed.
"""

import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from paimon_stream.errors import IdentityUnknown, InvalidOption
from paimon_stream.runtime import system
from paimon_stream.spark.checkpoint import Checkpoint, open_checkpoint

_LOG = logging.getLogger(__name__)

NOT_AS_KNOWN: Final = (Py4JError, PySparkException, AttributeError, TypeError)
"""Errors that calls to Spark's internals may raise. The internals are not public, and versions
differ.
"""

_QUERY_ID: Final = "sql.streaming.queryId"
_JOB_GROUP: Final = "spark.jobGroup.id"
_STATEFUL: Final = (
    "org.apache.spark.sql.execution.streaming.StatefulOperator",
    "org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperator",
)
"""The class of all physical operators with state: first its name in Spark 3.5 and 4.0, then its
name in later versions.
"""

_HOLDERS: Final = {
    "AdaptiveSparkPlan": "inputPlan",
    "ReusedExchange": "child",
    "QueryStage": "plan",
}
"""Operators that hold another operator which is not a child: the ends of their names, each with the
method that returns the operator that is held.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedQuery:
    """What is known of a query. A value that is not known is None.

    Attributes:
        query_id: Spark's id of the query, the same after each restart.
        run_id: Spark's id of this run of the query.
        name: the query's name, if it has one.
        output_mode: `append`, `update` or `complete`.
        checkpoint: the query's checkpoint.
    """

    query_id: str | None = None
    run_id: str | None = None
    name: str | None = None
    output_mode: str | None = None
    checkpoint: Checkpoint | None = None


def is_connect(frame: DataFrame) -> bool:
    """Whether the DataFrame is from Spark Connect, where no JVM can be reached."""
    return not hasattr(frame, "_jdf")


def observe_query(
    frame: DataFrame,
    checkpoint: str | None,
    last: ObservedQuery | None = None,
    *,
    opened: Callable[[str], Checkpoint] = open_checkpoint,
) -> ObservedQuery:
    """The query of this batch.

    Args:
        frame: the rows of the batch.
        checkpoint: the location that the user gives for the query's checkpoint.
        last: the result for an earlier batch with the same `checkpoint`. That result stays true
            during a run. If it is used again, a dozen calls to Spark are saved.
        opened: opens the checkpoint at a location.

    Raises:
        InvalidOption: the checkpoint provably belongs to another query.
    """
    if last is not None and _is_of_run(frame, last):
        return last
    of_user = None if checkpoint is None else opened(checkpoint)
    if is_connect(frame):
        query = _observed_on_connect(frame, of_user)
    else:
        query = _observed_on_classic(frame, of_user, opened)
    check_checkpoint(of_user, query.query_id)
    return query


def check_checkpoint(checkpoint: Checkpoint | None, query_id: str | None) -> None:
    """Raises `InvalidOption` if the checkpoint provably belongs to another query."""
    if checkpoint is None:
        return
    id_in_checkpoint = checkpoint.query_id()
    if id_in_checkpoint is None or query_id is None or id_in_checkpoint == query_id:
        return
    raise InvalidOption(
        f"The sink was given checkpoint {checkpoint.root}, which is of query {id_in_checkpoint}, "
        f"but it is used in query {query_id}. Give the checkpointLocation of the query itself, or "
        "no checkpoint.",
        option="checkpoint",
        query=query_id,
    )


def _is_of_run(frame: DataFrame, query: ObservedQuery) -> bool:
    """Whether the batch is known to be of the same run as an earlier one, which `query` describes.
    False, too, if the run is not known, because a job group of the user hides the run id.
    """
    if is_connect(frame) or query.output_mode is None:
        return False
    context = frame.sparkSession.sparkContext
    ids = (context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_JOB_GROUP))
    return None not in ids and ids == (query.query_id, query.run_id)


def _observed_on_connect(frame: DataFrame, checkpoint: Checkpoint | None) -> ObservedQuery:
    """The query, from the checkpoint's metadata or from the only running query. From Spark 4.3 on,
    the running query is not found, because the batch's session is a clone without queries. On
    Connect, each run of a query calls its batch function in a process of its own.
    """
    query_id = None if checkpoint is None else checkpoint.query_id()
    try:
        active = [
            query
            for query in frame.sparkSession.streams.active
            if query_id in (None, str(query.id))
        ]
    except PySparkException:
        active = []
    query = ObservedQuery(query_id=query_id, run_id=_run_of_this_process(), checkpoint=checkpoint)
    if len(active) != 1:
        return query
    only = active[0]
    return replace(query, query_id=str(only.id), run_id=str(only.runId), name=only.name)


@functools.cache
def _run_of_this_process() -> str:
    """One run id for all sinks of this process, because two sinks in one batch function must know
    that they share a run.
    """
    return f"process-{system().ids.uuid()}"


def _observed_on_classic(
    frame: DataFrame, checkpoint: Checkpoint | None, opened: Callable[[str], Checkpoint]
) -> ObservedQuery:
    """The query, from the thread's local properties or from the checkpoint's metadata."""
    context = frame.sparkSession.sparkContext
    query_id = context.getLocalProperty(_QUERY_ID)
    run_id = context.getLocalProperty(_JOB_GROUP) if query_id else None
    if query_id is None and checkpoint is not None:
        query_id = checkpoint.query_id()
    query = ObservedQuery(query_id=query_id, run_id=run_id, checkpoint=checkpoint)
    if query_id is None:
        return query
    try:
        execution = execution_of(frame, query_id)
        if execution is None:
            return query
        return replace(
            query,
            run_id=str(execution.runId().toString()),
            output_mode=str(execution.outputMode().toString()).lower(),
            name=execution.name() or None,
            checkpoint=opened(str(execution.resolvedCheckpointRoot())),
        )
    except NOT_AS_KNOWN:
        _LOG.debug("The running query cannot be looked up.", exc_info=True)
        return query


def execution_of(frame: DataFrame, query_id: str) -> Any:
    """Spark's own object for the running query, from the table that all sessions share. The session
    of a batch is a clone that does not list queries.
    """
    session: Any = frame.sparkSession
    key = session.sparkContext._jvm.java.util.UUID.fromString(query_id)
    return session._jsparkSession.sharedState().activeStreamingQueries().get(key)


def commit_user(
    query: ObservedQuery, sink_user: str | None, name: str | None, prefix: str | None
) -> str:
    """The commit user of a stream.

    Args:
        query: what is known of the query.
        sink_user: the commit user given to the sink; None to name the user after the query.
        name: the sink's name, which tells the sinks of a query apart.
        prefix: what the commit user begins with; None for `paimon-stream`.

    Raises:
        IdentityUnknown: neither a commit user nor the query is known.
    """
    if sink_user is not None:
        return sink_user
    if query.query_id is None:
        raise IdentityUnknown(
            "The streaming query of this batch is not known, so a replay could not be recognised. "
            "Call the sink from foreachBatch itself; from a thread of your own, start that as "
            "pyspark.InheritableThread; in a ThreadPoolExecutor, submit "
            "pyspark.inheritable_thread_target(spark)(function); on Spark Connect and for plain "
            "DataFrames give PaimonSink the query's checkpoint= or a commit_user=, or write by "
            'format("paimon_stream"). Nothing was written.'
        )
    user = f"{prefix or 'paimon-stream'}_{query.query_id}"
    return f"{user}_{name}" if name else user


def keeps_state(frame: DataFrame, query: ObservedQuery) -> bool | None:
    """Whether the query has state stores, which must then see every batch exactly once; None if
    that is not known. It has state stores if its plan has an operator with state, or its checkpoint
    has a folder of states. Callers ask this only once in a run, and when a batch is drained,
    because walking a plan takes calls to Spark for each operator.
    """
    in_plan = _plans_state(frame, query)
    in_checkpoint = None if query.checkpoint is None else query.checkpoint.has_state()
    if in_plan or in_checkpoint:
        return True
    return in_checkpoint if in_plan is None else in_plan


def _plans_state(frame: DataFrame, query: ObservedQuery) -> bool | None:
    """Whether the plan of the batch has an operator that keeps state; None if the plan cannot be
    read.
    """
    if query.query_id is None or is_connect(frame):
        return None
    try:
        execution = execution_of(frame, query.query_id)
        last = None if execution is None else execution.lastExecution()
        return None if last is None else _has_state(frame, last.executedPlan())
    except NOT_AS_KNOWN:
        _LOG.debug("The plan of the running query cannot be read.", exc_info=True)
        return None


def _has_state(frame: DataFrame, plan: Any) -> bool:
    """Whether the plan has an operator with state at any depth. The plan's text would not tell,
    because Spark truncates it.
    """
    session: Any = frame.sparkSession
    loader = session._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    stateful = _stateful_operator(session, loader)
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
            waiting += [
                getattr(node, method)() for end, method in _HOLDERS.items() if name.endswith(end)
            ]
    return False


def _stateful_operator(session: Any, loader: Any) -> Any:
    """The Java class of Spark's operators with state. Raises one of `NOT_AS_KNOWN` if the class has
    neither of the two known names.
    """
    earlier, later = _STATEFUL
    try:
        return session._jvm.java.lang.Class.forName(earlier, False, loader)
    except Py4JError:
        return session._jvm.java.lang.Class.forName(later, False, loader)
