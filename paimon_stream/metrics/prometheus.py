"""The metrics of sinks for Prometheus, which are read when Prometheus asks (docs/monitoring.md,
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
    """Exports `PaimonSink.metrics()` of each sink that was passed to `add`.

    A name is `paimon_stream_` followed by the metric's name in snake case, such as
    `paimon_stream_last_commit_duration`. The part of a name after a dot becomes the label `part`.
    Each metric has the labels `table` and `name` of its sink, so there is a series for each sink.
    Durations are milliseconds. The collector registers itself with a `registry` of
    prometheus_client, by default with the global registry. Raises `MissingExtra`, and what the
    registry raises if it already has such a collector.

    >>> collector = PrometheusCollector()  # doctest: +SKIP
    >>> sink = collector.add(PaimonSink("/data/shop.db/orders"))  # doctest: +SKIP
    """

    def __init__(self, registry: Any = None) -> None:
        client = require(_CLIENT, "prometheus", "PrometheusCollector")
        self._metrics = client.metrics_core
        self._lock = threading.Lock()
        self._sinks: dict[tuple[str, str], Any] = {}
        self._registry = client.REGISTRY if registry is None else registry
        self._registry.register(self)

    def serve(
        self,
        port: int,
        address: str = "0.0.0.0",
    ) -> Any:
        """Answers Prometheus at this port, in a thread. Returns the server. Raises `InvalidOption`
        if the port or the address cannot be used.
        """
        try:
            client = require(_CLIENT, "prometheus", "serve")
            server, _ = client.start_http_server(port, address, self._registry)
        except (OSError, OverflowError, TypeError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InvalidOption(
                f"Prometheus cannot be answered at {address}:{port}: {reason}. "
                "Give another port, of 1024 to 65535, or address, or end the program that has this one.",
                option="port",
                value=port,
            ) from None
        return server

    def add(self, sink: _Sink) -> _Sink:
        """Exports this sink from now on. It replaces an earlier sink with the same table and name.
        Returns the sink.
        """
        with self._lock:
            self._sinks[sink.location, sink.name or ""] = sink
        return sink

    def describe(self) -> Iterable[Any]:
        """The metrics without values. They show a registry that a second collector would export the
        same metrics, so the registry refuses that collector.
        """
        return self._families().values()

    def collect(self) -> Iterable[Any]:
        """The present metrics. prometheus_client calls this method."""
        with self._lock:
            sinks = list(self._sinks.items())
        families = self._families()
        for labels, sink in sinks:
            for metric, value in sink.metrics().items():
                name, _, part = metric.partition(".")
                values = [*labels, part] if part else [*labels]
                families[name].add_metric(values, value)
        return families.values()

    def _families(self) -> dict[str, Any]:
        """The metrics without values. A metric is found by the part of its name before the dot."""
        families: dict[str, Any] = {}
        for metric in METRICS:
            name, _, part = metric.partition(".")
            kind = self._metrics.GaugeMetricFamily
            if name in COUNTERS:
                kind = self._metrics.CounterMetricFamily
            labels = ["table", "name", "part"] if part else ["table", "name"]
            families[name] = kind(f"paimon_stream_{snake_case(name)}", name, labels=labels)
        return families
