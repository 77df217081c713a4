"""Metrics and traces of sinks for OpenTelemetry (docs/monitoring.md, "OpenTelemetry")."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

from paimon_stream.commit.report import CommitReport
from paimon_stream.extras import require
from paimon_stream.metrics.commits import COUNTERS, METRICS, snake_case
from paimon_stream.runtime import Runtime, system

_SCOPE: Final = "paimon_stream"
_TRACE: Final = "opentelemetry.trace"


def observe_metrics(
    *sinks: Any,
    meter: Any = None,
) -> None:
    """Exports `PaimonSink.metrics()` of these sinks as observable instruments
    `paimon_stream.<metric in snake case>`, with the attributes `table` and `name`. By default, the
    meter comes from the global provider. Raises `MissingExtra`.
    """
    metrics = require("opentelemetry.metrics", "opentelemetry", "observe_metrics")
    meter = metrics.get_meter(_SCOPE) if meter is None else meter
    readings: list[tuple[Mapping[str, float], dict[str, str]]] = []

    def observed(metric: str, options: Any) -> Iterable[Any]:
        # A collection asks for the first metric first. At that moment, the values of all metrics
        # are read, so that the collection shows a single moment.
        if metric == METRICS[0]:
            readings[:] = [
                (sink.metrics(), {"table": sink.location, "name": sink.name or ""})
                for sink in sinks
            ]
        return [metrics.Observation(values[metric], attributes) for values, attributes in readings]

    for metric in METRICS:
        create = (
            meter.create_observable_counter if metric in COUNTERS else meter.create_observable_gauge
        )
        unit = "ms" if "Duration" in metric and not metric.endswith(".count") else "1"
        create(f"{_SCOPE}.{snake_case(metric)}", [partial(observed, metric)], unit=unit)


class BatchSpans:
    """Makes a span for each batch, with its phases as child spans, one after the other. Pass it to
    a sink as `on_commit`. The span of a batch ends when the report is made. By default, the tracer
    comes from the global provider. Raises `MissingExtra`.

    >>> sink = PaimonSink("/data/shop.db/orders", on_commit=BatchSpans())  # doctest: +SKIP
    """

    def __init__(
        self,
        tracer: Any = None,
        runtime: Runtime | None = None,
    ) -> None:
        require(_TRACE, "opentelemetry", "BatchSpans")
        self._tracer = tracer
        self._clock = (runtime or system()).clock

    def __call__(self, report: CommitReport) -> None:
        """Makes the spans of one batch."""
        trace = require(_TRACE, "opentelemetry", "BatchSpans")
        tracer = trace.get_tracer(_SCOPE) if self._tracer is None else self._tracer
        end = self._clock.now_millis()
        start = end - report.millis
        batch = tracer.start_span(
            f"{_SCOPE} batch", start_time=_nanos(start), attributes=_attributes(report)
        )
        beneath = trace.set_span_in_context(batch)
        for phase, millis in report.phases.items():
            span = tracer.start_span(phase, context=beneath, start_time=_nanos(start))
            start += millis
            span.end(end_time=_nanos(start))
        batch.end(end_time=_nanos(end))


def _attributes(report: CommitReport) -> dict[str, Any]:
    """The attributes of the span of a batch."""
    facts = {
        "table": report.location,
        "user": report.user,
        "batch": report.identifier,
        "outcome": report.outcome,
        "attempts": report.attempts,
        "rows": report.rows,
        "files": report.files,
        "bytes": report.bytes,
        "rows_updated": report.rows_updated,
        "rows_deleted": report.rows_deleted,
        "rows_inserted": report.rows_inserted,
    }
    if report.snapshot_id is not None:
        facts["snapshot"] = report.snapshot_id
    return {f"{_SCOPE}.{name}": value for name, value in facts.items()}


def _nanos(millis: float) -> int:
    return int(millis * 1e6)
