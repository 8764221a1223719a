"""Prometheus metrics of an app: requests by route and status, their durations, and gauges that are read when scraped."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.responses import Response

from kvfold.http.call import Call
from kvfold.http.routes import Answer, Route

__all__ = ["HttpMetrics", "metrics_route"]

_MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS_S: Final = (
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
)


class HttpMetrics:
    """The metrics of one app, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "kvfold_http_requests", "Requests answered", ("method", "route", "status"), registry=self.registry
        )
        self._seconds = Histogram(
            "kvfold_http_request_seconds",
            "Time from the request's head to the end of the answer",
            ("route",),
            buckets=_BUCKETS_S,
            registry=self.registry,
        )
        # Looking labels up costs as much as counting; there are few combinations.
        self._counters: dict[tuple[str, str, int], Callable[[], None]] = {}
        self._timers: dict[str, Callable[[float], None]] = {}

    def answered(self, *, method: str, route: str, status: int, seconds: float) -> None:
        """Counts a request; `route` is the template, never the path."""
        key = (method, route, status)
        count = self._counters.get(key)
        if count is None:
            count = self._counters[key] = self._requests.labels(method, route, str(status)).inc
        count()
        time = self._timers.get(route)
        if time is None:
            time = self._timers[route] = self._seconds.labels(route).observe
        time(seconds)

    def gauge(self, name: str, help_text: str, read: Callable[[], float]) -> None:
        """Adds a gauge whose value is read at each scrape."""
        self.registry.register(_Gauge(name, help_text, read))


class _Gauge(Collector):
    def __init__(self, name: str, help_text: str, read: Callable[[], float]) -> None:
        self._name, self._help_text, self._read = name, help_text, read

    def collect(self) -> Iterable[Metric]:
        yield GaugeMetricFamily(self._name, self._help_text, value=self._read())


def metrics_route(metrics: HttpMetrics) -> Route:
    """`GET /metrics`."""

    async def endpoint(_: Call) -> Response:
        return Response(generate_latest(metrics.registry), media_type=_MEDIA_TYPE)

    return Route(
        "GET",
        "/metrics",
        endpoint,
        "Metrics in Prometheus's text format",
        "operations",
        answers=(Answer(200, "The metrics", "text/plain"),),
    )
