"""What a worker tells: its log, Prometheus metrics on a port of its own, and a collector's traces and metrics.

The standard variables of OpenTelemetry (`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_SERVICE_NAME`, `OTEL_TRACES_SAMPLER`, …)
say where traces and metrics are sent. The packages for that are the extra `kvfold[otel]`, and are imported only here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

import structlog
from opentelemetry import metrics, trace

from kvfold.deploy.environment import PortTakenError
from kvfold.log.port import Log
from kvfold.log.settings import Settings
from kvfold.producers.orchestration.metrics import MetricsObserver
from kvfold.producers.orchestration.observing import LoggingObserver, Observer, Observers
from kvfold.producers.orchestration.tracing import LogContexts, RecordTraces, Traces
from kvfold.schemas.errors import ConfigurationError

__all__ = ["WorkerTelemetry", "worker_telemetry"]

_log: Final = structlog.get_logger(__name__)
_SCOPE: Final = "kvfold.producers.orchestration"
_ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"


@dataclass(frozen=True)
class WorkerTelemetry:
    """What a worker is given to tell with."""

    observer: Observer
    traces: Traces


@contextmanager
def worker_telemetry(
    settings: Settings, log: Log, *, environment: Mapping[str, str] = os.environ
) -> Iterator[WorkerTelemetry]:
    """Telemetry inside the `with`; at its end what was not sent yet is sent, for a few seconds at most.

    Raises:
        ConfigurationError: something is asked for that needs `kvfold[otel]`, which is not installed.
        PortTakenError: KVFOLD_WORKER_TELEMETRY_PORT.
    """
    with ExitStack() as parts:
        observers: list[Observer] = [LoggingObserver()]
        traces = Traces()
        if settings.worker_telemetry_port is not None:
            observers.append(_prometheus(settings, settings.worker_telemetry_port, parts))
        if _is_sent("METRICS", environment):
            _send_metrics(parts)
            by_instance = settings.metrics_instance_ids is not False
            observers.append(MetricsObserver(metrics.get_meter(_SCOPE), by_instance=by_instance))
        if _is_sent("TRACES", environment):
            _send_traces(parts)
            contexts = LogContexts(log)
            parts.callback(contexts.close)
            traces = RecordTraces(trace.get_tracer(_SCOPE), contexts)
        yield WorkerTelemetry(Observers(observers), traces)


def _is_sent(signal: str, environment: Mapping[str, str]) -> bool:
    return any(environment.get(name) for name in (_ENDPOINT, f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"))


def _prometheus(settings: Settings, port: int, parts: ExitStack) -> Observer:
    try:
        from opentelemetry.exporter.prometheus import PrometheusMetricReader
        from opentelemetry.sdk.metrics import MeterProvider
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError as error:
        raise _missing("KVFOLD_WORKER_TELEMETRY_PORT") from error
    registry = CollectorRegistry()
    reader = PrometheusMetricReader(disable_target_info=True, scope_info_enabled=False, registry=registry)
    provider = MeterProvider([reader])
    parts.callback(provider.shutdown)
    try:
        server, thread = start_http_server(port, settings.host, registry)
    except OSError as error:
        raise PortTakenError(
            f"cannot listen on {settings.host}:{port} ({error.strerror or error}): choose another with "
            "KVFOLD_WORKER_TELEMETRY_PORT"
        ) from error

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    parts.callback(stop)
    _log.info("telemetry served", host=settings.host, port=server.server_port)
    return MetricsObserver(provider.get_meter(_SCOPE), by_instance=settings.metrics_instance_ids is True)


def _send_metrics(parts: ExitStack) -> None:
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource
    except ImportError as error:
        raise _missing(_ENDPOINT) from error
    reader = PeriodicExportingMetricReader(OTLPMetricExporter())
    provider = MeterProvider([reader], resource=Resource.create({"service.name": "kvfold-worker"}))
    parts.callback(provider.shutdown)
    metrics.set_meter_provider(provider)


def _send_traces(parts: ExitStack) -> None:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise _missing(_ENDPOINT) from error
    provider = TracerProvider(resource=Resource.create({"service.name": "kvfold-worker"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    parts.callback(provider.shutdown)
    # The application's own spans, made in its activities, go the same way.
    trace.set_tracer_provider(provider)


def _missing(variable: str) -> ConfigurationError:
    return ConfigurationError(f"{variable} is set, and needs more packages: pip install 'kvfold[otel]'")
