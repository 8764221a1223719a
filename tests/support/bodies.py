"""JSON bodies by mutation type that must be accepted and that must be refused: by the models and by the schemas."""

from __future__ import annotations

from typing import Final

__all__ = ["ACCEPTED", "REFUSED"]

_MAX: Final = 2**63 - 1
_PARENT: Final = '{"instance_id":"p","incarnation":0,"execution_id":1,"event_id":1}'


def _events(*events: str) -> str:
    return f'{{"execution_id":1,"events":[{",".join(events)}]}}'


def _batch(*operations: str, conditions: str = "[]") -> str:
    return f'{{"conditions":{conditions},"operations":[{",".join(operations)}]}}'


_DELETE: Final = '{"kind":"delete","key":"k"}'
_HASH: Final = "sha256:" + "0a" * 32
_RETRY: Final = '{"attempts_max":3,"delay_ms":10,"factor":2,"delay_ms_max":100,"total_ms":1000}'


def _turn(*events: str, consumed: str = "[]") -> str:
    fields = '"incarnation":0,"execution_id":1,"history_length":0,"worker":"w","seen":0'
    return f'{{{fields},"consumed":{consumed},"events":[{",".join(events)}]}}'


def _answer(more: str = "") -> str:
    return '{"incarnation":0,"execution_id":1,"event_id":1' + (f",{more}" if more else "") + "}"


ACCEPTED: Final[dict[str, list[str]]] = {
    "kvfold.capsule.batch.v1": [
        f'{{"operations":[{_DELETE}]}}',
        _batch(*(f'{{"kind":"set","key":"k","value":"{v}"}}' for v in ("", "AA==", "AAA=", "AAAA", "/w=="))),
        _batch('{"value":"+/8=","key":"","kind":"set"}', _DELETE, _DELETE),
        *(
            _batch(_DELETE, conditions=f'[{{"key":"k","expected":"{expected}"}}]')
            for expected in ("absent", "present", _HASH, "not:" + _HASH)
        ),
        _batch(
            *[_DELETE] * 1_024, conditions="[" + ",".join(['{"key":"k","expected":"absent"}'] * 1_024) + "]"
        ),
    ],
    "kvfold.capsule.quota-set.v1": ['{"bytes_max":0}', f'{{"bytes_max":{_MAX}}}'],
    "kvfold.system.format-raised.v1": ['{"level":1}', f'{{"level":{_MAX}}}'],
    "kvfold.orchestration.started.v1": [
        '{"name":"n"}',
        '{"name":"","input":null,"mode":"runtime","parent":null}',
        f'{{"name":"n","input":{{"a":[1,2.5,"x",null]}},"mode":"external","parent":{_PARENT}}}',
    ],
    "kvfold.orchestration.events.v1": [
        _events('{"kind":"KeyValueSet","key":"k","value":"v"}', '{"kind":"KeyValueCleared","key":""}'),
        _events('{"kind":"KeyValuesCleared"}', '{"kind":"CustomStatusUpdated","status":null}'),
        _events('{"kind":"CustomStatusUpdated","status":"s"}', '{"kind":"OrchestrationCompleted"}'),
        _events('{"kind":"OrchestrationCompleted","output":[1]}'),
        _events('{"kind":"OrchestrationFailed","error":"e"}'),
        _events('{"kind":"OrchestrationContinuedAsNew","input":{"a":1}}'),
        '{"execution_id":1,"incarnation":0,"events":[{"kind":"KeyValuesCleared"}]}',
        '{"execution_id":1,"incarnation":null,"events":[{"kind":"KeyValuesCleared"}]}',
        _events(*['{"kind":"KeyValuesCleared"}'] * 10_000),
    ],
    "kvfold.orchestration.executions-pruned.v1": [
        '{"execution_ids":[1]}',
        '{"execution_ids":[3,1,1],"keep_values":true}',
        f'{{"execution_ids":[{",".join(map(str, range(1, 10_001)))}]}}',
    ],
    "kvfold.orchestration.executions-pruned.v2": [
        '{"before":1}',
        '{"before":7,"execution_ids":[],"keep_values":true}',
        '{"before":1,"execution_ids":[3,1,1]}',
        f'{{"before":{_MAX},"execution_ids":[{",".join(map(str, range(1, 10_001)))}]}}',
    ],
    "kvfold.orchestration.instance-deleted.v1": [
        "{}",
        '{"incarnation":null}',
        '{"incarnation":0}',
        f'{{"parent":{_PARENT}}}',
    ],
    "kvfold.orchestration.turn.v1": [
        _turn(),
        _turn(consumed="[3,2]"),
        _turn('{"kind":"KeyValueSet","key":"k","value":"v"}', '{"kind":"OrchestrationCompleted","output":1}'),
        _turn('{"kind":"ActivityScheduled","name":"a"}', '{"kind":"TimerCreated","due_ms":0}'),
        _turn(f'{{"kind":"ActivityScheduled","name":"a","input":[1],"retry":{_RETRY},"attempt_ms":1}}'),
        _turn('{"kind":"ChildScheduled","instance_id":"c","name":"n","input":null}'),
        _turn('{"kind":"OrchestrationFailed","error":"e","reason":"cancelled"}'),
        _turn('{"kind":"OrchestrationContinuedAsNew"}'),
    ],
    "kvfold.orchestration.activity-completed.v1": [
        _answer('"attempt":1'),
        _answer('"attempt":2,"result":{}'),
    ],
    "kvfold.orchestration.activity-failed.v1": [_answer('"attempt":1,"error":"","retryable":false')],
    "kvfold.orchestration.timer-fired.v1": [_answer()],
    "kvfold.orchestration.child-completed.v1": [_answer(), _answer('"output":[null]')],
    "kvfold.orchestration.child-failed.v1": [_answer('"error":"e"')],
    "kvfold.orchestration.event-raised.v1": ['{"name":"n"}', '{"name":"n","data":{"a":1}}'],
    "kvfold.orchestration.cancel-requested.v1": [
        "{}",
        '{"incarnation":0,"execution_id":1,"reason":"r"}',
        '{"incarnation":null,"execution_id":null}',
    ],
    "kvfold.orchestration.delivered.v1": [
        _answer(f'"kind":"{kind}"') for kind in ("start", "completed", "failed", "delete")
    ],
}

REFUSED: Final[dict[str, list[str]]] = {
    "kvfold.capsule.batch.v1": [
        "{}",
        '{"operations":[]}',
        '{"conditions":[{"key":"k","expected":"absent"}]}',
        _batch(_DELETE, conditions="null"),
        _batch(_DELETE, conditions='{"key":"k","expected":"absent"}'),
        _batch(_DELETE, conditions='[{"key":"k"}]'),
        _batch(_DELETE, conditions='[{"expected":"absent"}]'),
        _batch(_DELETE, conditions='[{"key":"k","expected":null}]'),
        *(
            _batch(_DELETE, conditions=f'[{{"key":"k","expected":"{expected}"}}]')
            for expected in (
                "",
                "any",
                "version:1",
                "Absent",
                "absent ",
                "not:absent",
                _HASH + ",",
                _HASH[:-1],
            )
        ),
        _batch('{"kind":"delete"}'),
        _batch('{"kind":"delete","key":1}'),
        _batch('{"kind":"delete","key":"k","value":"AA=="}'),
        _batch('{"kind":"set","key":"k"}'),
        *(
            _batch(f'{{"kind":"set","key":"k","value":{value}}}')
            for value in (
                '"A"',
                '"AA"',
                '"AA="',
                '"AB=="',
                '"AAB="',
                '"AA==AA=="',
                '"AA-_"',
                '" AA=="',
                '"AAé="',
            )
        ),
        *(_batch(f'{{"kind":"set","key":"k","value":{value}}}') for value in ("null", "1", '["AA=="]')),
        _batch('{"key":"k"}'),
        _batch('"delete"'),
        f'{{"operations":[{_DELETE}],"more":1}}',
        f'{{"operations":{_DELETE}}}',
    ],
    "kvfold.capsule.quota-set.v1": [
        "{}",
        "[]",
        "null",
        '{"bytes_max":-1}',
        f'{{"bytes_max":{_MAX + 1}}}',
        '{"bytes_max":1.5}',
        '{"bytes_max":"1"}',
        '{"bytes_max":true}',
        '{"bytes_max":null}',
        '{"bytes_max":1,"more":1}',
        '{"BYTES_MAX":1}',
    ],
    "kvfold.system.format-raised.v1": ['{"level":0}', "{}", '{"level":"2"}', '{"level":2,"x":1}'],
    "kvfold.orchestration.started.v1": [
        "{}",
        '{"name":1}',
        '{"name":null}',
        '{"name":"n","mode":"Runtime"}',
        '{"name":"n","mode":null}',
        '{"name":"n","parent":{}}',
        '{"name":"n","parent":{"instance_id":"p","incarnation":-1,"execution_id":1,"event_id":1}}',
        '{"name":"n","parent":{"instance_id":"p","incarnation":0,"execution_id":0,"event_id":1}}',
        f'{{"name":"n","parent":{_PARENT[:-1]},"x":1}}}}',
        '{"name":"n","extra":1}',
    ],
    "kvfold.orchestration.events.v1": [
        "{}",
        '{"execution_id":1}',
        _events(),
        '{"execution_id":0,"events":[{"kind":"KeyValuesCleared"}]}',
        '{"execution_id":"1","events":[{"kind":"KeyValuesCleared"}]}',
        '{"execution_id":1,"events":{"kind":"KeyValuesCleared"}}',
        '{"execution_id":1,"events":"KeyValuesCleared"}',
        _events("{}"),
        _events("1"),
        _events('{"kind":1}'),
        _events('{"kind":"KeyValueSet","key":"k"}'),
        _events('{"kind":"KeyValueSet","key":"k","value":1}'),
        _events('{"kind":"KeyValueSet","key":"k","value":null}'),
        _events('{"kind":"KeyValueSet","key":"k","value":"v","x":1}'),
        _events('{"kind":"KeyValuesCleared","key":"k"}'),
        _events('{"kind":"CustomStatusUpdated"}'),
        _events('{"kind":"OrchestrationFailed"}'),
        _events('{"kind":"OrchestrationFailed","error":{}}'),
        '{"execution_id":1,"incarnation":-1,"events":[{"kind":"KeyValuesCleared"}]}',
        _events(*['{"kind":"KeyValuesCleared"}'] * 10_001),
    ],
    "kvfold.orchestration.executions-pruned.v1": [
        "{}",
        '{"execution_ids":[]}',
        '{"execution_ids":[0]}',
        '{"execution_ids":["1"]}',
        '{"execution_ids":[1.5]}',
        '{"execution_ids":[true]}',
        '{"execution_ids":1}',
        '{"execution_ids":{"1":1}}',
        '{"execution_ids":[1],"keep_values":"true"}',
        '{"execution_ids":[1],"keep_values":1}',
        '{"execution_ids":[1],"keep_values":null}',
        f'{{"execution_ids":[{",".join(["1"] * 10_001)}]}}',
    ],
    "kvfold.orchestration.executions-pruned.v2": [
        "{}",
        '{"execution_ids":[1]}',
        '{"before":0}',
        '{"before":null}',
        '{"before":"1"}',
        '{"before":1.5}',
        '{"before":1,"execution_ids":[0]}',
        '{"before":1,"execution_ids":null}',
        '{"before":1,"keep_values":1}',
        '{"before":1,"after":1}',
        f'{{"before":1,"execution_ids":[{",".join(["1"] * 10_001)}]}}',
    ],
    "kvfold.orchestration.turn.v1": [
        "{}",
        "[]",
        _turn().replace('"seen":0', '"seen":-1'),
        _turn().replace('"worker":"w"', '"worker":1'),
        _turn(consumed='["1"]'),
        _turn(consumed="[1.5]"),
        _turn('{"kind":"ActivityScheduled"}'),
        _turn('{"kind":"ActivityScheduled","name":"a","attempt_ms":0}'),
        _turn('{"kind":"ActivityScheduled","name":"a","retry":{"attempts_max":0}}'),
        _turn('{"kind":"TimerCreated","due_ms":-1}'),
        _turn('{"kind":"ChildScheduled","instance_id":"c"}'),
        _turn('{"kind":"OrchestrationFailed","error":"e","reason":"other"}'),
        _turn(*['{"kind":"KeyValuesCleared"}'] * 10_001),
    ],
    "kvfold.orchestration.activity-completed.v1": [_answer(), _answer('"attempt":0')],
    "kvfold.orchestration.activity-failed.v1": [_answer('"attempt":1'), _answer('"attempt":1,"error":1')],
    "kvfold.orchestration.timer-fired.v1": ["{}", _answer('"attempt":1'), _answer().replace(":1}", ":0}")],
    "kvfold.orchestration.child-completed.v1": ["{}", _answer('"result":1')],
    "kvfold.orchestration.child-failed.v1": [_answer(), _answer('"error":null')],
    "kvfold.orchestration.event-raised.v1": ["{}", '{"name":1}', '{"name":"n","value":1}'],
    "kvfold.orchestration.cancel-requested.v1": ['{"incarnation":-1}', '{"reason":null}'],
    "kvfold.orchestration.delivered.v1": [_answer(), _answer('"kind":"other"')],
    "kvfold.orchestration.instance-deleted.v1": [
        "[]",
        '{"incarnation":-1}',
        '{"incarnation":"0"}',
        '{"x":1}',
    ],
}
