"""What workers tell of orchestrations: logs, metrics and traces; each thing once, and nothing during a replay."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

import pytest
import structlog
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import format_span_id, format_trace_id
from structlog.testing import capture_logs

from kvfold.producers.orchestration.context import OrchestrationContext
from kvfold.producers.orchestration.metrics import MetricsObserver
from kvfold.producers.orchestration.observing import LoggingObserver, Observers
from kvfold.producers.orchestration.registry import Registry
from kvfold.producers.orchestration.tracing import RecordTraces
from kvfold.producers.outcomes import Decided
from kvfold.producers.trace_context import traceparent_in
from kvfold.schemas.mutation import Mutation
from kvfold.schemas.names import orchestration_scope
from support.orchestration_world import World

__all__: list[str] = []

SECRET = "what-is-stored-is-not-told"
CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

registry = Registry()


@registry.orchestration
async def keeping(ctx: OrchestrationContext, rounds: int) -> Any:
    ctx.set_value("a", SECRET)
    ctx.set_value("b", "ä")
    ctx.get_value("a")
    ctx.get_value("absent")
    await ctx.schedule_activity("echo", SECRET)
    ctx.clear_value("a")
    ctx.log("halfway", rounds=rounds)
    await ctx.get_value_from_instance("other", "key")
    await ctx.get_values_from_instance("other", ["key"])
    ctx.clear_all_values()
    ctx.set_value("c", "1")
    if rounds > 1:
        ctx.continue_as_new(rounds - 1)
    return ctx.get_value("c")


@registry.orchestration
async def parent(ctx: OrchestrationContext, _: Any) -> Any:
    return await ctx.sub_orchestration("keeping", 1, instance_id="child")


@registry.orchestration
async def failing(ctx: OrchestrationContext, _: Any) -> Any:
    await ctx.schedule_activity("fail")


@registry.orchestration
async def hoarding(ctx: OrchestrationContext, _: Any) -> None:
    for number in range(11):
        ctx.set_value(f"k{number}", SECRET)


@registry.orchestration
async def bloated(ctx: OrchestrationContext, _: Any) -> None:
    ctx.set_value("small", SECRET)
    ctx.set_value("large", "ä" * 8_193)
    ctx.clear_value("large")


@registry.orchestration
async def hoarding_and_waiting(ctx: OrchestrationContext, _: Any) -> None:
    for number in range(11):
        ctx.set_value(f"k{number}", SECRET)
    await ctx.wait_for_event("never")


@registry.orchestration
async def naming(ctx: OrchestrationContext, _: Any) -> Any:
    ctx.log("named", instance_id="x", execution_id="x", target="x", other=1)
    await ctx.schedule_activity("echo")
    return "done"


@registry.activity
def echo(_: Any, input: Any) -> Any:
    return input


@registry.activity
def fail(_: Any, input: Any) -> Any:
    raise ValueError(SECRET)


class Told:
    """A world whose workers tell their metrics here."""

    def __init__(self, *, by_instance: bool = False) -> None:
        self.reader = InMemoryMetricReader()
        meter = MeterProvider([self.reader], shutdown_on_exit=False).get_meter("tests")
        observers = Observers([LoggingObserver(), MetricsObserver(meter, by_instance=by_instance)])
        self.world = World(registry, observer=observers)

    def metrics(self) -> dict[str, dict[tuple[tuple[str, Any], ...], float]]:
        """Every metric's values by their attributes; of a histogram the number of its observations."""
        data = self.reader.get_metrics_data()
        assert data is not None
        return {
            metric.name: {_attributes(point): _value(point) for point in metric.data.data_points}
            for metric in data.resource_metrics[0].scope_metrics[0].metrics
        }


def _attributes(point: Any) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted((point.attributes or {}).items()))


def _value(point: Any) -> float:
    return float(point.count if isinstance(point, HistogramDataPoint) else point.value)


@pytest.mark.row("O22")
@pytest.mark.row("O23")
@pytest.mark.parametrize("replay_always", [False, True])
def test_metrics_count_each_thing_once(replay_always: bool) -> None:
    told = Told()
    told.world.start("i", "keeping", 3)
    told.world.start("p", "parent")
    told.world.start("f", "failing")
    told.world.run(replay_always=replay_always)
    executions = 4
    found = told.metrics()
    plain: dict[str, int] = {
        "duroxide.kv.set": 3 * executions,
        "duroxide.kv.clear_value": executions,
        "duroxide.kv.clear_all": executions,
        "duroxide.kv.get": 2 * executions + 2,
        "duroxide.kv.get_remote": 2 * executions,
        "duroxide.kv.key_count": 1,
        "duroxide.kv.largest_value_bytes": 1,
    }
    assert {name: found[name] for name in plain} == {name: {(): count} for name, count in plain.items()}
    turns = found["kvfold.worker.turns"]
    assert turns == {
        (("orchestration", "keeping"), ("outcome", "applied")): 4 * executions,
        (("orchestration", "parent"), ("outcome", "applied")): 2,
        (("orchestration", "failing"), ("outcome", "applied")): 2,
    }
    activities = found["kvfold.worker.activities"]
    assert activities[("activity", "echo"), ("outcome", "completed")] == executions
    assert activities[("activity", "fail"), ("outcome", "failed")] == 1
    assert sum(activities.values()) == 3 * executions + 1
    assert sum(found["kvfold.worker.activity.duration"].values()) == 3 * executions + 1
    assert set(found["kvfold.worker.activities.running"].values()) == {0}
    assert found["kvfold.worker.messages"] == {(("kind", "start"),): 1, (("kind", "completed"),): 1}
    assert not any(name.startswith("duroxide.kv.limit_exceeded") for name in found)


@pytest.mark.row("O23")
def test_gauges_and_limits_name_their_instance_where_that_is_wanted() -> None:
    told = Told(by_instance=True)
    told.world.start("i", "keeping", 1)
    told.world.turns.step(1)
    told.world.start("h", "hoarding")
    told.world.start("b", "bloated")
    told.world.turns.step(10)
    found = told.metrics()
    assert found["duroxide.kv.key_count"] == {(("instance_id", "i"),): 2}
    assert found["duroxide.kv.largest_value_bytes"] == {(("instance_id", "i"),): len(SECRET)}
    assert found["duroxide.kv.limit_exceeded.key_count"] == {(("instance_id", "h"),): 1}
    assert found["duroxide.kv.limit_exceeded.value_size"] == {(("instance_id", "b"), ("key", "large")): 1}


@pytest.mark.row("O23")
def test_nothing_names_an_instance_where_that_is_not_wanted() -> None:
    told = Told()
    for name in ("keeping", "hoarding", "bloated"):
        told.world.start(name, name, 1)
    told.world.run()
    names = {name for points in told.metrics().values() for point in points for name, _ in point}
    assert names == {"orchestration", "outcome", "activity"}
    assert told.metrics()["duroxide.kv.limit_exceeded.value_size"] == {(): 1}


@pytest.mark.row("O21")
@pytest.mark.parametrize("replay_always", [False, True])
def test_logs_name_keys_and_never_values(replay_always: bool) -> None:
    told = Told()
    told.world.start("i", "keeping", 1)
    with capture_logs() as logs:
        told.world.run(replay_always=replay_always)
    kv = [entry for entry in logs if entry["event"].startswith("kv.")]
    i = {"instance_id": "i", "target": "duroxide::kv"}
    assert kv == [
        {"event": "kv.set", "log_level": "info", "key": "a", "value_len": len(SECRET), **i},
        {"event": "kv.set", "log_level": "info", "key": "b", "value_len": 2, **i},
        {"event": "kv.get", "log_level": "debug", "key": "a", "found": True, **i},
        {"event": "kv.get", "log_level": "debug", "key": "absent", "found": False, **i},
        {"event": "kv.clear_value", "log_level": "info", "key": "a", **i},
        {"event": "kv.get_remote", "log_level": "debug", **i},
        {"event": "kv.get_remote", "log_level": "debug", **i},
        {"event": "kv.clear", "log_level": "info", **i},
        {"event": "kv.set", "log_level": "info", "key": "c", "value_len": 1, **i},
        {"event": "kv.get", "log_level": "debug", "key": "c", "found": True, **i},
    ]
    halfway = [entry for entry in logs if entry["event"] == "halfway"]
    i["target"] = "duroxide::runtime"
    assert halfway == [{"event": "halfway", "log_level": "info", "execution_id": 1, "rounds": 1, **i}]
    assert SECRET not in json.dumps(logs)


@pytest.mark.row("O28")
def test_a_refused_turn_is_a_warning_and_an_error() -> None:
    told = Told()
    with capture_logs() as logs:
        for instance_id, name in (("h", "hoarding"), ("b", "bloated")):
            told.world.start(instance_id, name)
            told.world.run()
    keys: Mapping[str, Any] = {"instance_id": "h", "execution_id": 1, "key_count": 11, "max_keys": 10}
    value: Mapping[str, Any] = {
        "instance_id": "b",
        "execution_id": 1,
        "key": "large",
        "value_bytes": 16_386,
        "max_bytes": 16_384,
    }
    failing = ", failing orchestration"
    warning = {"log_level": "warning", "target": "duroxide::runtime"}
    error = {"log_level": "error", "target": "duroxide::runtime"}
    assert [entry for entry in logs if "limit" in entry["event"]] == [
        {"event": "KV key count exceeds limit", **warning, **keys},
        {"event": "KV key count exceeds limit" + failing, **error, **keys},
        {"event": "KV value exceeds size limit", **warning, **value},
        {"event": "KV value exceeds size limit" + failing, **error, **value},
    ]
    assert SECRET not in json.dumps(logs)


class Beaten(World):
    """A worker that another one is always quicker than: between its turn and its append the other does its own."""

    other: World

    def append(self, mutation: Mutation) -> Future[Decided]:
        """The other first."""
        self.other.turns.step(10)
        return super().append(mutation)


@pytest.mark.row("O28")
@pytest.mark.row("O23")
@pytest.mark.parametrize("name", ["hoarding", "bloated"])
def test_a_refused_turn_is_told_once_of_two_workers_that_ran_it(name: str) -> None:
    told = Told()
    beaten = Beaten(registry, observer=told.world.observer)
    beaten.other, beaten.projection, beaten.log = told.world, told.world.projection, told.world.log
    told.world.start("i", name)
    with capture_logs() as logs:
        assert beaten.turns.step(10) == 1
    outcomes = {
        dict(point)["outcome"]: count for point, count in told.metrics()["kvfold.worker.turns"].items()
    }
    assert sum(outcomes.values()) == 2 and outcomes["applied"] == 1, "both ran it, and one of them in vain"
    assert [entry["log_level"] for entry in logs if "exceeds" in entry["event"]] == ["warning", "error"]
    limits = [points for found, points in told.metrics().items() if "limit_exceeded" in found]
    assert limits == [{(): 1}]


@pytest.mark.row("O28")
def test_a_refused_turn_is_told_when_others_have_pushed_its_execution_out_of_memory() -> None:
    told = Told()
    told.world.live_max = 1
    told.world.restart()
    for number in range(3):
        told.world.start(f"h{number}", "hoarding")
    told.world.turns.step(10)
    assert told.metrics()["duroxide.kv.limit_exceeded.key_count"] == {(): 3}


def test_executions_in_memory_are_counted_and_leave_it_when_they_end() -> None:
    told = Told()
    told.world.start("i", "keeping", 1)
    told.world.start("f", "failing")
    told.world.start("h", "hoarding_and_waiting")
    told.world.turns.step(10)
    assert told.metrics()["kvfold.worker.executions.live"] == {(): 2}, (
        "a refused turn has ended its execution"
    )
    told.world.run()
    assert told.metrics()["kvfold.worker.executions.live"] == {(): 0}


@pytest.mark.row("O21")
@pytest.mark.parametrize("replay_always", [False, True])
def test_code_may_log_fields_that_are_named_like_ours(replay_always: bool) -> None:
    told = Told()
    told.world.start("i", "naming")
    with capture_logs() as logs:
        told.world.run(replay_always=replay_always)
    assert told.world.output("i") == "done"
    ours = {"instance_id": "i", "execution_id": 1, "target": "duroxide::runtime", "log_level": "info"}
    assert [entry for entry in logs if entry["event"] == "named"] == [{"event": "named", "other": 1, **ours}]


@pytest.mark.row("O28")
def test_the_target_stands_in_the_lines_that_a_worker_writes() -> None:
    found = io.StringIO()
    before = structlog.get_config()
    told = Told()
    told.world.start("h", "hoarding")
    try:
        structlog.configure(
            processors=[structlog.stdlib.add_log_level, structlog.processors.JSONRenderer()],
            wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
            logger_factory=structlog.PrintLoggerFactory(file=found),
            cache_logger_on_first_use=False,
        )
        told.world.run()
    finally:
        structlog.configure(**before)
    lines = [json.loads(line) for line in found.getvalue().splitlines()]
    assert [(line["level"], line["target"]) for line in lines] == [
        ("warning", "duroxide::runtime"),
        ("error", "duroxide::runtime"),
    ]


# --- traces ---


class WorldContexts:
    """The contexts that the world's records carry; nothing is remembered apart."""

    world: World

    def find(self, scope: str, offset: int) -> str | None:
        """Of the record at this offset."""
        return traceparent_in(self.world.log[offset])

    def remember(self, scope: str, offset: int, traceparent: str) -> None:
        """Nothing: it stands in the record."""
        assert traceparent_in(self.world.log[offset]) == traceparent


def traced_world() -> tuple[World, InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    contexts = WorldContexts()
    contexts.world = World(registry, traces=RecordTraces(provider.get_tracer("tests"), contexts))
    return contexts.world, exporter


def start_traced(world: World, instance_id: str, name: str, input: Any = None) -> None:
    body = json.dumps({"name": name, "input": input}).encode()
    scope = orchestration_scope(instance_id)
    world.fold(Mutation("kvfold.orchestration.started.v1", scope, "", body=body, traceparent=CALLER))


def by_id(spans: tuple[ReadableSpan, ...]) -> dict[int, ReadableSpan]:
    return {span.context.span_id: span for span in spans if span.context is not None}


@pytest.mark.row("O27")
def test_turns_and_activities_are_one_trace_with_what_started_them() -> None:
    world, exporter = traced_world()
    start_traced(world, "p", "parent")
    world.run(replay_always=True)
    spans = exporter.get_finished_spans()
    assert {format_trace_id(span.context.trace_id) for span in spans if span.context} == {
        CALLER.split("-")[1]
    }
    found = by_id(spans)

    def parent_of(span: ReadableSpan) -> str:
        assert span.parent is not None
        above = found.get(span.parent.span_id)
        return format_span_id(span.parent.span_id) if above is None else above.name

    first, *_ = [span for span in spans if span.name == "turn parent"]
    assert parent_of(first) == CALLER.split("-")[2]
    of_child = [span for span in spans if (span.attributes or {})["kvfold.instance_id"] == "child"]
    turns = [span for span in of_child if span.name == "turn keeping"]
    assert len(turns) == 4 and {parent_of(span) for span in turns} == {"turn parent"}
    activities = [span for span in of_child if span.name.startswith("activity ")]
    assert [span.name for span in activities] == [
        "activity echo",
        "activity __duroxide_syscall:get_kv_value",
        "activity __kvfold_syscall:get_kv_values",
    ]
    for turn, activity, following in zip(turns, activities, turns[1:], strict=False):
        assert activity.parent is not None and turn.context is not None and activity.context is not None
        assert activity.parent.span_id == turn.context.span_id
        assert [link.context.span_id for link in following.links] == [activity.context.span_id]


@pytest.mark.row("O27")
def test_spans_hold_ids_and_outcomes_and_no_data() -> None:
    world, exporter = traced_world()
    start_traced(world, "i", "keeping", 2)
    start_traced(world, "f", "failing")
    world.run()
    spans = exporter.get_finished_spans()
    assert not any(SECRET in span.to_json() for span in spans)
    (failed,) = [span for span in spans if span.name == "activity fail"]
    assert failed.attributes == {
        "kvfold.instance_id": "f",
        "kvfold.execution_id": 1,
        "kvfold.event_id": 1,
        "kvfold.attempt": 1,
        "kvfold.outcome": "failed",
    }
    assert not failed.status.is_ok
    turns = [span.attributes for span in spans if span.name == "turn keeping"]
    assert [(found or {})["kvfold.outcome"] for found in turns] == ["applied"] * 8


@pytest.mark.row("O27")
def test_what_nobody_traces_is_traced_from_its_first_turn() -> None:
    world, exporter = traced_world()
    world.start("f", "failing")
    world.run()
    first, activity, last = exporter.get_finished_spans()
    assert first.parent is None and last.parent is None
    assert activity.parent is not None and first.context is not None and activity.context is not None
    assert activity.parent.span_id == first.context.span_id
    assert [link.context.span_id for link in last.links] == [activity.context.span_id]


def test_a_malformed_context_in_a_record_is_no_context() -> None:
    world, exporter = traced_world()
    body = json.dumps({"name": "failing", "input": None}).encode()
    mutation = Mutation("kvfold.orchestration.started.v1", "o:f", "", body=body, traceparent="00-nonsense")
    world.fold(mutation)
    world.run()
    assert exporter.get_finished_spans()[0].parent is None
