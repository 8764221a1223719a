"""What `kvfold worker` tells of itself: metrics to who scrapes them, traces and metrics to a collector."""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.trace import TracerProvider

from e2e.stack import DevProcess, worker_process
from kvfold.producers.client import Client
from support.kvfold_process import wait_until

__all__: list[str] = []

APPLICATION = """
from kvfold.producers.orchestration import Registry

orchestrations, activities = Registry(), Registry()

@orchestrations.orchestration
async def order(ctx, input):
    ctx.set_value("state", "charging")
    return await ctx.schedule_activity("charge", input)

@activities.activity
def charge(ctx, amount):
    return amount
"""


class Collector:
    """An OpenTelemetry collector over HTTP that keeps what it is sent."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.metrics: set[str] = set()
        self.bytes = b""

    def take(self, path: str, body: bytes) -> None:
        """One export."""
        self.bytes += body
        if path == "/v1/traces":
            traces = ExportTraceServiceRequest.FromString(body)
            self.spans += [
                span for found in traces.resource_spans for scope in found.scope_spans for span in scope.spans
            ]
        elif path == "/v1/metrics":
            sent = ExportMetricsServiceRequest.FromString(body)
            self.metrics |= {
                metric.name
                for found in sent.resource_metrics
                for scope in found.scope_metrics
                for metric in scope.metrics
            }


@contextmanager
def running(collector: Collector) -> Iterator[str]:
    """Its endpoint, while it runs."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            collector.take(self.path, self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.row("O22")
@pytest.mark.row("O27")
def test_metrics_are_scraped_and_traces_sent(dev: DevProcess, tmp_path: Path) -> None:
    """Turns and activities run in two processes, which know of each other's spans only what the records carry."""
    (tmp_path / "shop.py").write_text(APPLICATION)
    collector = Collector()
    settings = {"KVFOLD_POSTGRES": (dev.data / "dsn").read_text("utf-8")}
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("the caller")
    with running(collector) as endpoint, Client.from_env(settings, source="/tests") as kvfold:
        telemetry = {"KVFOLD_WORKER_TELEMETRY_PORT": "0", "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
        with (
            worker_process(dev, tmp_path, "shop:orchestrations", "turns", **telemetry) as turns,
            worker_process(dev, tmp_path, "shop:activities", "activities", **telemetry) as activities,
        ):
            with tracer.start_as_current_span("checkout") as caller:
                kvfold.orchestration().start("traced", "order", "what-it-costs")
            view = kvfold.orchestration().wait("traced", timeout_s=30)
            assert view is not None and view.status == "Completed"
            port = turns.wait_for_event("telemetry served")["port"]
            both = 'kvfold_worker_turns_total{orchestration="order",outcome="applied"} 2.0'
            wait_until(lambda: both in scraped(port), what=lambda: f"both turns in {scraped(port)}")
            text = scraped(port)
            assert turns.terminate() == 0 and activities.terminate() == 0
    assert "duroxide_kv_set_total 1.0" in text
    assert "instance_id" not in text
    assert {"duroxide.kv.set", "kvfold.worker.activities"} <= collector.metrics
    assert b"what-it-costs" not in collector.bytes and b"charging" not in collector.bytes

    first, last = sorted(
        (span for span in collector.spans if span.name == "turn order"),
        key=lambda span: span.start_time_unix_nano,
    )
    (activity,) = [span for span in collector.spans if span.name == "activity charge"]
    context = caller.get_span_context()
    for span in (first, activity, last):
        assert int.from_bytes(span.trace_id) == context.trace_id
    assert int.from_bytes(first.parent_span_id) == int.from_bytes(last.parent_span_id) == context.span_id
    assert activity.parent_span_id == first.span_id
    assert [link.span_id for link in last.links] == [activity.span_id]


def scraped(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return str(answer.read().decode())
