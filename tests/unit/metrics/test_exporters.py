"""What Prometheus and OpenTelemetry are given: the sink's metrics, and a span for each batch."""

import json
import pickle
import re
import socket
import subprocess
import sys
import threading
import urllib.request
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from paimon_stream.commit.report import CommitReport
from paimon_stream.errors import CommitConflict, InvalidOption, MissingExtra
from paimon_stream.metrics.commits import (
    COUNTERS,
    METRICS,
    CommitMetrics,
    report_to_all,
    snake_case,
)
from paimon_stream.runtime import system

LOWEST_FREE = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
LOW_PORTS_ARE_KEPT = LOWEST_FREE.exists() and int(LOWEST_FREE.read_text()) > 81
EXAMPLES = Path(__file__).parents[3] / "examples/monitoring"
PHASES = {"judge": 1.0, "write": 20.0, "stage": 4.0, "publish": 5.0}
REPORT = CommitReport(
    location="/data/shop.db/orders",
    user="u",
    identifier=7,
    outcome="committed",
    snapshot_id=3,
    attempts=2,
    rows=10,
    files=1,
    bytes=100,
    rows_updated=4,
    rows_deleted=2,
    rows_inserted=6,
    phases=PHASES,
)


@dataclass
class Sink:
    """Has metrics as a sink has them."""

    location: str = "/data/shop.db/orders"
    name: str | None = None
    counted: CommitMetrics = field(default_factory=CommitMetrics)

    def metrics(self):
        return self.counted.values()


@pytest.fixture
def prometheus():
    client = pytest.importorskip("prometheus_client")
    from paimon_stream.metrics.prometheus import PrometheusCollector

    registry = client.CollectorRegistry()
    return (
        PrometheusCollector(registry),
        registry,
        lambda: client.generate_latest(registry).decode(),
    )


def test_prometheus_gets_every_metric(prometheus):
    collector, registry, _ = prometheus
    sink = collector.add(Sink())
    sink.counted.report(REPORT)
    sink.counted.failed(CommitConflict("x"))
    labels = {"table": sink.location, "name": ""}
    assert registry.get_sample_value("paimon_stream_last_commit_duration", labels) == 9
    assert registry.get_sample_value("paimon_stream_lost_races_total", labels) == 1
    totals = [
        registry.get_sample_value(f"paimon_stream_committed_{one}_total", labels)
        for one in ("rows", "files", "bytes")
    ]
    assert totals == [10, 1, 100]
    assert registry.get_sample_value("paimon_stream_conflicts_total", labels) == 1
    assert (
        registry.get_sample_value("paimon_stream_commit_duration", {**labels, "part": "p95"}) == 9
    )
    samples = [sample for metric in registry.collect() for sample in metric.samples]
    assert len(samples) == len(METRICS)


def test_prometheus_text_tells_sinks_apart(prometheus):
    collector, _, text = prometheus
    collector.add(Sink())
    collector.add(Sink(name="late"))
    found = text()
    assert (
        'paimon_stream_skipped_batches_total{name="late",table="/data/shop.db/orders"} 0.0' in found
    )
    assert found.count("# TYPE paimon_stream_skipped_batches_total counter") == 1


def test_a_registry_refuses_a_second_collector_which_would_double_every_metric(prometheus):
    collector, registry, _ = prometheus
    with pytest.raises(ValueError, match="Duplicated"):
        type(collector)(registry)


def test_spans_can_be_pickled_with_their_sink():
    pytest.importorskip("opentelemetry.trace")
    from paimon_stream.metrics.opentelemetry import BatchSpans

    pickle.loads(pickle.dumps(BatchSpans()))(REPORT)


def test_a_sink_of_the_same_table_and_name_replaces_the_earlier_one(prometheus):
    collector, registry, _ = prometheus
    collector.add(Sink()).counted.report(REPORT)
    for _ in range(100):
        collector.add(Sink())
    assert len([sample for metric in registry.collect() for sample in metric.samples]) == len(
        METRICS
    )
    labels = {"table": "/data/shop.db/orders", "name": ""}
    assert registry.get_sample_value("paimon_stream_last_commit_duration", labels) == 0


def test_metrics_are_pushed_after_a_batch_and_a_gateway_that_is_away_changes_nothing(
    prometheus, caplog
):
    client = pytest.importorskip("prometheus_client")
    collector, registry, _ = prometheus
    sink, pushed = collector.add(Sink()), []

    class Gateway(BaseHTTPRequestHandler):
        def do_PUT(self):
            pushed.append(
                (self.path, self.rfile.read(int(self.headers["Content-Length"])).decode())
            )
            self.send_response(200)
            self.end_headers()

        def log_message(self, *given):
            pass

    gateway = HTTPServer(("127.0.0.1", 0), Gateway)
    thread = threading.Thread(target=gateway.handle_request)
    thread.start()

    def push(report):
        client.push_to_gateway(
            f"127.0.0.1:{gateway.server_port}", job="nightly", registry=registry, timeout=10
        )

    failing: set[int] = set()
    report_to_all([sink.counted.report, push], REPORT, failing)
    thread.join()
    gateway.server_close()
    [(path, text)] = pushed
    assert path == "/metrics/job/nightly"
    assert 'paimon_stream_lost_races_total{name="",table="/data/shop.db/orders"} 1.0' in text
    for _ in range(3):
        report_to_all([push], REPORT, failing)  # nobody listens now
    assert caplog.text.count("the commit is not affected") == 1


# -- the port -----------------------------------------------------------------------------------


def closed(server):
    server.shutdown()
    server.server_close()


def test_prometheus_is_answered_at_a_port(prometheus):
    collector, _, _ = prometheus
    collector.add(Sink(name="served"))
    server = collector.serve(0, "127.0.0.1")
    try:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{server.server_port}/metrics", timeout=10
        ) as answer:
            assert b'paimon_stream_lost_races_total{name="served"' in answer.read()
    finally:
        closed(server)


def test_a_port_that_is_taken_is_one_clear_error(prometheus):
    collector, _, _ = prometheus
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(InvalidOption) as caught:
            collector.serve(port, "127.0.0.1")
    assert f"127.0.0.1:{port}: Address already in use. Give another port" in str(caught.value)
    assert caught.value.context["option"] == "port"
    assert caught.value.__cause__ is None and caught.value.__suppress_context__
    closed(collector.serve(port, "127.0.0.1"))  # it is free now


@pytest.mark.parametrize(
    ("port", "address"),
    [(70_000, "127.0.0.1"), (0, "192.0.2.1"), (0, "no such host"), (0, "a" * 70), ("81", "")],
)
def test_a_place_that_cannot_be_had_is_named(prometheus, port, address):
    with pytest.raises(InvalidOption, match=f"{address}:{port}: .*1024 to 65535"):
        prometheus[0].serve(port, address)


@pytest.mark.skipif(not LOW_PORTS_ARE_KEPT, reason="here everybody may take each port")
def test_a_port_that_needs_a_right_is_one_clear_error():
    pytest.importorskip("prometheus_client")
    code = (
        "import os, sys\n"
        "from paimon_stream import errors\n"
        "from paimon_stream.metrics.prometheus import PrometheusCollector\n"
        "import wsgiref.simple_server, encodings.idna\n"
        "collector = PrometheusCollector()\n"
        "os.geteuid() or os.setuid(65534)\n"
        "try:\n    collector.serve(81, '127.0.0.1')\n"
        "except errors.InvalidOption as refused:\n    print(refused)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=900, check=True
    )
    assert "127.0.0.1:81: Permission denied. Give another port, of 1024 to 65535" in done.stdout


def test_opentelemetry_gets_every_metric():
    sdk = pytest.importorskip("opentelemetry.sdk.metrics")
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    from paimon_stream.metrics.opentelemetry import observe_metrics

    reader, sink = InMemoryMetricReader(), Sink(name="late")
    observe_metrics(sink, Sink(), meter=sdk.MeterProvider([reader]).get_meter("test"))
    sink.counted.report(REPORT)
    found = {
        one.name: one
        for one in reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics
    }
    assert set(found) == {f"paimon_stream.{snake_case(name)}" for name in METRICS}
    points = {
        one.attributes["name"]: one
        for one in found["paimon_stream.last_commit_duration"].data.data_points
    }
    assert (points["late"].value, points[""].value) == (9, 0)
    assert points["late"].attributes["table"] == sink.location
    assert found["paimon_stream.last_commit_duration"].unit == "ms"
    assert all(found[f"paimon_stream.{snake_case(name)}"].data.is_monotonic for name in COUNTERS)


def test_opentelemetry_computes_the_metrics_of_a_sink_once_in_a_collection():
    sdk = pytest.importorskip("opentelemetry.sdk.metrics")
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    from paimon_stream.metrics.opentelemetry import observe_metrics

    class Counted(Sink):
        computed = 0

        def metrics(self):
            self.computed += 1
            return super().metrics()

    readers, sinks = (
        [InMemoryMetricReader(), InMemoryMetricReader()],
        [Counted(name="a"), Counted(name="b")],
    )
    observe_metrics(*sinks, meter=sdk.MeterProvider(readers).get_meter("test"))
    for number, reader in enumerate([*readers, *readers], 1):
        sinks[0].counted.report(REPORT)
        [found] = [
            one
            for one in reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics
            if one.name == "paimon_stream.lost_races"
        ]
        assert [point.value for point in found.data.data_points] == [number, 0]
        assert [sink.computed for sink in sinks] == [number, number]


def test_a_span_for_each_batch_with_its_phases():
    trace = pytest.importorskip("opentelemetry.sdk.trace")
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from paimon_stream.metrics.opentelemetry import BatchSpans

    provider, spans = trace.TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    BatchSpans(provider.get_tracer("test"))(REPORT)
    *phases, batch = spans.get_finished_spans()
    assert {one.name: (one.end_time - one.start_time) / 1e6 for one in phases} == pytest.approx(
        PHASES, abs=0.01
    )
    assert [one.name for one in phases] == list(PHASES)
    assert all(one.parent.span_id == batch.context.span_id for one in phases)
    assert phases[0].start_time == batch.start_time
    assert phases[-1].end_time == pytest.approx(batch.end_time, abs=1000)
    assert abs(batch.end_time / 1e6 - system().clock.now_millis()) < 60_000
    assert dict(batch.attributes) == {
        "paimon_stream.table": REPORT.location,
        "paimon_stream.user": "u",
        "paimon_stream.batch": 7,
        "paimon_stream.outcome": "committed",
        "paimon_stream.attempts": 2,
        "paimon_stream.rows": 10,
        "paimon_stream.files": 1,
        "paimon_stream.bytes": 100,
        "paimon_stream.rows_updated": 4,
        "paimon_stream.rows_deleted": 2,
        "paimon_stream.rows_inserted": 6,
        "paimon_stream.snapshot": 3,
    }


@pytest.mark.parametrize(
    "module", ["prometheus_client", "opentelemetry.trace", "opentelemetry.metrics"]
)
def test_a_missing_library_is_named(monkeypatch, module):
    from paimon_stream.metrics import opentelemetry, prometheus

    monkeypatch.setitem(__import__("sys").modules, module, None)
    extra = module.partition(".")[0].removesuffix("_client")
    made = {
        "prometheus_client": prometheus.PrometheusCollector,
        "opentelemetry.trace": opentelemetry.BatchSpans,
    }
    with pytest.raises(MissingExtra, match=f"extra '{extra}'"):
        made.get(module, opentelemetry.observe_metrics)()


def test_the_dashboard_and_the_alerts_name_metrics_that_exist(prometheus):
    yaml = pytest.importorskip("yaml")
    collector, registry, _ = prometheus
    collector.add(Sink())
    there = {sample.name for metric in registry.collect() for sample in metric.samples}
    dashboard = json.loads((EXAMPLES / "grafana.json").read_text())
    alerts = [
        one
        for group in yaml.safe_load((EXAMPLES / "alerts.yml").read_text())["groups"]
        for one in group["rules"]
    ]
    of_panels = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    asked = [
        *of_panels,
        dashboard["templating"]["list"][1]["query"]["query"],
        *(one["expr"] for one in alerts),
    ]
    for expression in asked:
        names = set(re.findall(r"paimon_stream_\w+", expression))
        assert names, expression
        assert names <= there, expression
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    assert len({one["alert"] for one in alerts}) == len(alerts)
    for one in alerts:
        assert {"summary", "description"} <= set(one["annotations"]), one["alert"]
