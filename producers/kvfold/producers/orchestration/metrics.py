"""What workers count, by the OpenTelemetry API (rows O22, O23): names as the orchestration document has them.

```
MetricsObserver(opentelemetry.metrics.get_meter("my-workers"), by_instance=True)
```

`by_instance` gives the gauges of keys and the limit counters the attribute `instance_id` (and `key`), a series for
each instance: right for a back end that drops what is old, too many for Prometheus.
"""

from __future__ import annotations

from opentelemetry.metrics import Meter

from kvfold.producers.orchestration.context import OrchestrationContext
from kvfold.producers.orchestration.observing import ActivityOutcome, Observer
from kvfold.producers.orchestration.store import DueTask, OutgoingMessage, RunnableInstance
from kvfold.schemas.names import utf8_length
from kvfold.schemas.outcome import DecisionStatus
from kvfold.schemas.turn_limits import KeyCountExceeded, ValueTooLarge

__all__ = ["MetricsObserver"]


class MetricsObserver(Observer):
    """Counts what it is told, on instruments of one meter."""

    def __init__(self, meter: Meter, *, by_instance: bool) -> None:
        self._by_instance = by_instance
        self._set = meter.create_counter("duroxide.kv.set", description="Keys set")
        self._clear_value = meter.create_counter("duroxide.kv.clear_value", description="Keys removed")
        self._clear_all = meter.create_counter(
            "duroxide.kv.clear_all", description="Times all keys were removed"
        )
        self._get = meter.create_counter("duroxide.kv.get", description="Keys read")
        self._get_remote = meter.create_counter(
            "duroxide.kv.get_remote", description="Reads of other instances' keys that were asked for"
        )
        self._key_count = meter.create_gauge("duroxide.kv.key_count", description="Keys after a turn")
        self._largest_value = meter.create_gauge(
            "duroxide.kv.largest_value_bytes", unit="By", description="The largest value after a turn"
        )
        self._key_count_exceeded = meter.create_counter(
            "duroxide.kv.limit_exceeded.key_count", description="Turns refused for their number of keys"
        )
        self._value_size_exceeded = meter.create_counter(
            "duroxide.kv.limit_exceeded.value_size", description="Turns refused for the size of a value"
        )
        self._turns = meter.create_counter("kvfold.worker.turns", description="Turns, by what was decided")
        self._live = meter.create_gauge(
            "kvfold.worker.executions.live", description="Executions in memory between their turns"
        )
        self._activities = meter.create_counter(
            "kvfold.worker.activities", description="Attempts of activities, by how they ended"
        )
        self._activity_seconds = meter.create_histogram(
            "kvfold.worker.activity.duration", unit="s", description="How long an attempt took"
        )
        self._running = meter.create_up_down_counter(
            "kvfold.worker.activities.running", description="Attempts that run now"
        )
        self._timers = meter.create_counter("kvfold.worker.timers", description="Timers fired")
        self._messages = meter.create_counter(
            "kvfold.worker.messages", description="Messages delivered to other instances, by kind"
        )

    # --- by the code of an orchestration ---

    def value_set(self, context: OrchestrationContext, key: str, value: str) -> None:
        """`duroxide.kv.set`."""
        self._set.add(1)

    def value_read(self, context: OrchestrationContext, key: str, *, found: bool) -> None:
        """`duroxide.kv.get`."""
        self._get.add(1)

    def value_cleared(self, context: OrchestrationContext, key: str) -> None:
        """`duroxide.kv.clear_value`."""
        self._clear_value.add(1)

    def values_cleared(self, context: OrchestrationContext) -> None:
        """`duroxide.kv.clear_all`."""
        self._clear_all.add(1)

    def remote_read(self, context: OrchestrationContext) -> None:
        """`duroxide.kv.get_remote`."""
        self._get_remote.add(1)

    # --- by the worker ---

    def turn_ran(self, context: OrchestrationContext) -> None:
        """`duroxide.kv.key_count` and `duroxide.kv.largest_value_bytes`."""
        attributes = self._of_instance(context)
        self._key_count.set(len(context.values), attributes)
        largest = max(map(utf8_length, context.values.values()), default=0)
        self._largest_value.set(largest, attributes)

    def limit_exceeded(
        self, context: OrchestrationContext, violation: KeyCountExceeded | ValueTooLarge
    ) -> None:
        """`duroxide.kv.limit_exceeded.key_count` or `.value_size`."""
        attributes = self._of_instance(context)
        if isinstance(violation, KeyCountExceeded):
            self._key_count_exceeded.add(1, attributes)
        else:
            key = {"key": violation.key} if self._by_instance else {}
            self._value_size_exceeded.add(1, attributes | key)

    def turn_settled(self, instance: RunnableInstance, status: DecisionStatus | None) -> None:
        """`kvfold.worker.turns`."""
        outcome = "unknown" if status is None else status.value
        self._turns.add(1, {"orchestration": instance.name, "outcome": outcome})

    def live_counted(self, count: int) -> None:
        """`kvfold.worker.executions.live`."""
        self._live.set(count)

    def activity_began(self, task: DueTask) -> None:
        """`kvfold.worker.activities.running`."""
        self._running.add(1, {"activity": task.name})

    def activity_ended(self, task: DueTask, outcome: ActivityOutcome, seconds: float) -> None:
        """`kvfold.worker.activities`, its duration, and one that runs less."""
        self._running.add(-1, {"activity": task.name})
        self._activities.add(1, {"activity": task.name, "outcome": outcome})
        self._activity_seconds.record(seconds, {"activity": task.name})

    def timer_settled(self, task: DueTask) -> None:
        """`kvfold.worker.timers`."""
        self._timers.add(1)

    def message_delivered(self, message: OutgoingMessage) -> None:
        """`kvfold.worker.messages`."""
        self._messages.add(1, {"kind": message.kind})

    def _of_instance(self, context: OrchestrationContext) -> dict[str, str]:
        return {"instance_id": context.instance_id} if self._by_instance else {}
