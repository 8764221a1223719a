"""What the projector tells about itself: counters, lag, pauses, heartbeats; Prometheus and health over HTTP.

Lag is `end - max(next, log start)`, never negative, and absent while the log's end is unknown. Health looks at the loops
and not at the lag: a loop that has not turned is red, whatever the lag says.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from kvfold.log.port import Bounds

__all__ = ["GenerationTelemetry", "PartitionView", "Telemetry", "TelemetryServer", "VerifiedView"]

_LOOP_SILENCE_MAX_S: Final = 15.0


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition that this worker holds. `bounds` None = the log's end is unknown; `paused` None = it folds."""

    partition: int
    epoch: int
    offset_next: int
    bounds: Bounds | None = None
    paused: str | None = None
    oldest_waiting_ms: int | None = None

    @property
    def lag(self) -> int | None:
        """Records in the log that are not folded; None if unknown."""
        if self.bounds is None:
            return None
        return max(0, self.bounds.end - max(self.offset_next, self.bounds.start))

    @property
    def is_caught_up(self) -> bool:
        """True only if there is nothing more in the log, not even behind an open transaction."""
        return self.lag == 0


@dataclass(frozen=True, slots=True)
class VerifiedView:
    """A generation's last verification: when it ended, in seconds since 1970, and how many rows were different."""

    generation: int
    finished_s: float
    difference_count: int


@dataclass(eq=False)
class Telemetry(Collector):
    """Figures that the loops keep. Every method is safe from any thread."""

    clock: Any = time.monotonic
    serving: int = 1
    verified: tuple[VerifiedView, ...] = ()
    _lock: Lock = field(default_factory=Lock)
    _decisions: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    _beats: dict[str, tuple[float, float]] = field(default_factory=dict)
    _partitions: Mapping[int, PartitionView] = field(default_factory=dict)
    _beside: dict[int, Mapping[int, PartitionView]] = field(default_factory=dict)
    _open_transactions: tuple[tuple[int, int, int], ...] = ()
    _notification_queue: float | None = None
    _last_commit_s: float | None = None
    _faults: Counter[str] = field(default_factory=Counter)

    def beat(self, loop: str, *, allowance_s: float = 0.0) -> None:
        """A loop has turned; the next turn may take `allowance_s` longer than usual."""
        with self._lock:
            self._beats[loop] = (self.clock(), allowance_s)

    def decided(self, decisions: Iterable[tuple[str, str, str]]) -> None:
        """Counts decisions by (family, status, code)."""
        with self._lock:
            self._decisions.update(decisions)
            self._last_commit_s = self.clock()

    def failed(self, kind: str) -> None:
        """Counts a fault that was survived."""
        with self._lock:
            self._faults[kind] += 1

    def observed(
        self,
        partitions: Mapping[int, PartitionView],
        *,
        open_transactions: tuple[tuple[int, int, int], ...],
        notification_queue: float | None,
    ) -> None:
        """The state of the partitions held, as the control loop sees it."""
        with self._lock:
            self._partitions = partitions
            self._open_transactions = open_transactions
            self._notification_queue = notification_queue

    def observed_beside(self, generation: int, partitions: Mapping[int, PartitionView]) -> None:
        """As `observed`, of a generation that does not serve; an empty mapping when it is let go."""
        with self._lock:
            self._beside.pop(generation, None)
            if partitions:
                self._beside[generation] = partitions

    def ended(self, loops: str) -> None:
        """The loops whose names begin so have ended, and are not missed."""
        with self._lock:
            self._beats = {name: beat for name, beat in self._beats.items() if not name.startswith(loops)}

    def of(self, generation: int) -> GenerationTelemetry:
        """What the loops of one generation tell."""
        return GenerationTelemetry(self, generation)

    def silent_loops(self) -> list[str]:
        """Loops that have not turned for too long."""
        with self._lock:
            now = self.clock()
            return sorted(
                name
                for name, (beat, allowance) in self._beats.items()
                if now - beat > _LOOP_SILENCE_MAX_S + allowance
            )

    def partitions(self) -> Mapping[int, PartitionView]:
        """The partitions held, as last observed."""
        with self._lock:
            return self._partitions

    def collect(self) -> list[Metric]:
        """The figures as Prometheus metrics."""
        with self._lock:
            decisions = CounterMetricFamily(
                "kvfold_decisions", "Records folded, by outcome", labels=("family", "status", "code")
            )
            for labels, count in self._decisions.items():
                decisions.add_metric(labels, count)
            faults = CounterMetricFamily(
                "kvfold_projector_faults", "Faults survived, by kind", labels=("kind",)
            )
            for kind, count in self._faults.items():
                faults.add_metric((kind,), count)
            metrics: list[Metric] = [decisions, faults, *self._partition_metrics(), *self._verified()]
            if self._last_commit_s is not None:
                age = GaugeMetricFamily(
                    "kvfold_last_commit_age_seconds", "Seconds since this worker last committed"
                )
                age.add_metric((), self.clock() - self._last_commit_s)
                metrics.append(age)
            if self._notification_queue is not None:
                usage = GaugeMetricFamily(
                    "kvfold_notification_queue_usage", "Fill of Postgres's NOTIFY queue, 0 to 1"
                )
                usage.add_metric((), self._notification_queue)
                metrics.append(usage)
            return metrics

    def _verified(self) -> list[Metric]:
        at = GaugeMetricFamily(
            "kvfold_verified_timestamp_seconds",
            "When the generation was last compared with a fresh fold, since 1970",
            labels=("generation",),
        )
        differences = GaugeMetricFamily(
            "kvfold_verified_differences", "Rows that differed then", labels=("generation",)
        )
        for view in self.verified:
            at.add_metric((str(view.generation),), view.finished_s)
            differences.add_metric((str(view.generation),), view.difference_count)
        return [at, differences]

    def _partition_metrics(self) -> list[Metric]:
        lag = GaugeMetricFamily(
            "kvfold_lag_records", "Records not folded; absent when unknown", labels=("partition",)
        )
        offset = GaugeMetricFamily("kvfold_offset_next", "Next offset to fold", labels=("partition",))
        age = GaugeMetricFamily(
            "kvfold_oldest_unfolded_age_seconds",
            "Age of the oldest record read and not folded",
            labels=("partition",),
        )
        paused = GaugeMetricFamily(
            "kvfold_paused", "1 for a paused partition", labels=("partition", "reason")
        )
        for view in self._partitions.values():
            label = (str(view.partition),)
            offset.add_metric(label, view.offset_next)
            if view.lag is not None:
                lag.add_metric(label, view.lag)
            if view.oldest_waiting_ms is not None:
                age.add_metric(label, max(0.0, time.time() - view.oldest_waiting_ms / 1000))
            if view.paused is not None:
                paused.add_metric((*label, view.paused), 1)
        hanging = GaugeMetricFamily(
            "kvfold_open_transaction_offset",
            "First offset of a transaction left open in the log by a foreign producer",
            labels=("partition", "producer"),
        )
        for partition, first, producer in self._open_transactions:
            hanging.add_metric((str(partition), str(producer)), first)
        return [lag, offset, age, paused, hanging, *self._metrics_beside()]

    def _metrics_beside(self) -> list[Metric]:
        labels = ("generation", "partition")
        lag = GaugeMetricFamily(
            "kvfold_generation_lag_records",
            "Records not folded into a generation that does not serve; absent when unknown",
            labels=labels,
        )
        paused = GaugeMetricFamily(
            "kvfold_generation_paused",
            "1 for a paused partition of a generation that does not serve",
            labels=(*labels, "reason"),
        )
        for generation, views in self._beside.items():
            for view in views.values():
                label = (str(generation), str(view.partition))
                if view.lag is not None:
                    lag.add_metric(label, view.lag)
                if view.paused is not None:
                    paused.add_metric((*label, view.paused), 1)
        return [lag, paused]


class GenerationTelemetry:
    """What the loops of one generation tell: it counts as the projector's own only while the generation serves."""

    def __init__(self, whole: Telemetry, generation: int) -> None:
        self.generation = generation
        self._whole = whole
        self._prefix = f"g{generation} "

    @property
    def serves(self) -> bool:
        """Whether reads come from this generation, as the projector last saw it."""
        return self._whole.serving == self.generation

    def beat(self, loop: str, *, allowance_s: float = 0.0) -> None:
        """As `Telemetry.beat`."""
        self._whole.beat(self._prefix + loop, allowance_s=allowance_s)

    def decided(self, decisions: Iterable[tuple[str, str, str]]) -> None:
        """As `Telemetry.decided`: a record is counted once, however many generations it is folded into."""
        if self.serves:
            self._whole.decided(decisions)

    def failed(self, kind: str) -> None:
        """As `Telemetry.failed`."""
        self._whole.failed(kind)

    def observed(
        self,
        partitions: Mapping[int, PartitionView],
        *,
        open_transactions: tuple[tuple[int, int, int], ...],
        notification_queue: float | None,
    ) -> None:
        """As `Telemetry.observed`."""
        if self.serves:
            self._whole.observed_beside(self.generation, {})
            self._whole.observed(
                partitions, open_transactions=open_transactions, notification_queue=notification_queue
            )
        else:
            self._whole.observed_beside(self.generation, partitions)

    def ended(self) -> None:
        """The generation's loops have ended."""
        self._whole.ended(self._prefix)
        self._whole.observed_beside(self.generation, {})


class TelemetryServer:
    """`/healthz`, `/readyz` and `/metrics` of a projector, on an address of its own. `port` 0 takes any free one."""

    def __init__(self, telemetry: Telemetry, *, host: str, port: int) -> None:
        registry = CollectorRegistry()
        registry.register(telemetry)

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, content_type, body = _answer(self.path, telemetry, registry)
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Requests are not logged."""

        self._server = ThreadingHTTPServer((host, port), Handler)
        self.port = self._server.server_port
        self._thread = Thread(target=self._server.serve_forever, name="telemetry", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _answer(path: str, telemetry: Telemetry, registry: CollectorRegistry) -> tuple[int, str, bytes]:
    match path.partition("?")[0]:
        case "/metrics":
            return 200, CONTENT_TYPE_LATEST, generate_latest(registry)
        case "/healthz":
            silent = telemetry.silent_loops()
            return (503 if silent else 200), "application/json", json.dumps({"silent_loops": silent}).encode()
        case "/readyz":
            behind = [view.partition for view in telemetry.partitions().values() if not view.is_caught_up]
            return (503 if behind else 200), "application/json", json.dumps({"behind": behind}).encode()
        case _:
            return 404, "application/json", b'{"detail": "try /healthz, /readyz or /metrics"}'
