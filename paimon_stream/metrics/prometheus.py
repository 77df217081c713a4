"""The metrics of sinks for Prometheus, which are read when it asks (docs/monitoring.md,
"Prometheus").
"""

import threading
from collections.abc import Iterable
from typing import Any, Final, TypeVar

from paimon_stream.errors import InvalidOption
from paimon_stream.extras import require
from paimon_stream.metrics.commits import COUNTERS, METRICS, snake_case

_CLIENT: Final = "prometheus_client"
_Sink = TypeVar("_Sink", bound=Any)  # it has `location`, `name` and `metrics`, as a `PaimonSink`


class PrometheusCollector:
    """Exports `PaimonSink.metrics()` of each sink that `add` was given. The names are
    `paimon_stream_` and the metric's in snake case, such as `paimon_stream_last_commit_duration`;
    what follows a dot is the label `part`. Each has the labels `table` and `name`, those of the
    sink, so there are as many series as there are sinks. Durations are milliseconds. With a
    `registry` of prometheus_client, which is by default its own, the collector registers itself.
    Raises `MissingExtra`, and what a registry raises that has such a collector.

    >>> collector = PrometheusCollector()  # doctest: +SKIP
    >>> sink = collector.add(PaimonSink("/data/shop.db/orders"))  # doctest: +SKIP
    """

    def __init__(self, registry: Any = None) -> None:
        client = require(_CLIENT, "prometheus", "PrometheusCollector")
        self._metrics, self._lock = client.metrics_core, threading.Lock()
        self._sinks: dict[tuple[str, str], Any] = {}
        self._registry = client.REGISTRY if registry is None else registry
        self._registry.register(self)

    def serve(
        self,
        port: int,
        address: str = "0.0.0.0",
    ) -> Any:
        """Answers Prometheus at this port, in a thread. Returns the server. Raises `InvalidOption`
        if it cannot.
        """
        try:
            return require(_CLIENT, "prometheus", "serve").start_http_server(
                port, address, self._registry
            )[0]
        except (OSError, OverflowError, TypeError, UnicodeError) as why:
            text = f"Prometheus cannot be answered at {address}:{port}: {getattr(why, 'strerror', None) or why}."
            cure = "Give another port, of 1024 to 65535, or address, or end the program that has this one."
            raise InvalidOption(f"{text} {cure}", option="port", value=port) from None

    def add(self, sink: _Sink) -> _Sink:
        """Exports this sink from now on, in place of an earlier one of the same table and name.
        Returns the sink.
        """
        with self._lock:
            self._sinks[sink.location, sink.name or ""] = sink
        return sink

    def describe(self) -> Iterable[Any]:
        """The metrics without values. By these a registry refuses a second collector, which would
        double them.
        """
        return self._families().values()

    def collect(self) -> Iterable[Any]:
        """The metrics now. prometheus_client calls this."""
        with self._lock:
            sinks = list(self._sinks.items())
        found = self._families()
        for labels, sink in sinks:
            for key, value in sink.metrics().items():
                metric, _, part = key.partition(".")
                found[metric].add_metric([*labels, *([part] if part else [])], value)
        return found.values()

    def _families(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for metric, _, part in (key.partition(".") for key in METRICS):
            kind = "CounterMetricFamily" if metric in COUNTERS else "GaugeMetricFamily"
            labels = ["table", "name", *(["part"] if part else [])]
            found[metric] = getattr(self._metrics, kind)(
                f"paimon_stream_{snake_case(metric)}", metric, labels=labels
            )
        return found
