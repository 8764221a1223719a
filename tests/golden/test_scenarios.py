"""Stories of several steps, as text: command, `----`, what is expected.

Commands are words; `name=value` words are options. `show TABLE COLUMN…` prints rows, `time ±DAYSd[±MS]` moves the
broker's clock (back, too). Expectations are written by hand.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kvfold.schemas.mutation import Mutation
from support.given import START_MS, Scenario, given
from support.mutations import (
    capsule_cleared,
    capsule_deleted,
    capsule_quota,
    capsule_set,
    deployment_deleted,
    deployment_put,
    instance_deleted,
    instance_events,
    instance_pruned,
    instance_started,
    key_cleared,
    key_set,
    keys_cleared,
    mutation_id,
    namespace_cleared,
    undeployed,
)

__all__: list[str] = []

_FOLDER = Path(__file__).parent / "scenarios"
_DAY_MS = 86_400_000
Options = dict[str, str]


def _steps(text: str) -> Iterator[tuple[str, str]]:
    """The steps of a file: (command, expectation)."""
    for block in text.split("\n\n"):
        lines = [line for line in block.splitlines() if line and not line.startswith("#")]
        if lines:
            rule = lines.index("----")
            yield " ".join(lines[:rule]), "\n".join(lines[rule + 1 :])


def _event(word: str) -> dict[str, object]:
    """`a=1` sets, `-a` clears, `-*` clears all, `next`, `done`, `failed`, `status:TEXT`."""
    if word in ("next", "done", "failed"):
        ends: dict[str, dict[str, object]] = {
            "next": {"kind": "OrchestrationContinuedAsNew", "input": None},
            "done": {"kind": "OrchestrationCompleted", "output": None},
            "failed": {"kind": "OrchestrationFailed", "error": "failed"},
        }
        return ends[word]
    if word == "-*":
        return keys_cleared()
    if word.startswith("-"):
        return key_cleared(word[1:])
    if word.startswith("status:"):
        return {"kind": "CustomStatusUpdated", "status": word.removeprefix("status:")}
    key, _, value = word.partition("=")
    return key_set(key, value)


def _mutation(words: list[str], options: Options, id_: str | None) -> Mutation:
    expected = options.get("expected", "any")
    build: dict[str, Callable[..., Mutation]] = {
        "set": lambda key, value="": capsule_set(key, value.encode(), expected=expected, id_=id_),
        "delete": lambda key: capsule_deleted(key, expected=expected, id_=id_),
        "clear": lambda prefix=None: capsule_cleared(prefix, id_=id_),
        "clear-all": lambda: namespace_cleared(id_=id_),
        "quota": lambda number: capsule_quota(int(number), id_=id_),
        "put": lambda key, value="": deployment_put(
            key, value.encode(), namespace=options.get("in", "user"), expected=expected, id_=id_
        ),
        "remove": lambda key: deployment_deleted(
            key, namespace=options.get("in", "user"), expected=expected, id_=id_
        ),
        "undeploy": lambda: undeployed(id_=id_),
        "start": lambda: instance_started(mode=options.get("mode", "external"), id_=id_),
        "events": lambda *events: instance_events(
            *map(_event, events), execution=int(options.get("execution", "1")), id_=id_
        ),
        "prune": lambda *ids: instance_pruned(map(int, ids), keep_values="keep" in options or None, id_=id_),
        "delete-instance": lambda: instance_deleted(id_=id_),
    }
    return build[words[0]](*words[1:])


class _Story:
    """One file under way."""

    def __init__(self) -> None:
        self.scenario: Scenario = given()
        self.now_ms = START_MS

    def run(self, command: str) -> str:
        words = shlex.split(command)
        if words[0] == "show":
            return self._show(words[1], words[2:])
        if words[0] == "time":
            days, _, rest = words[1].partition("d")
            self.now_ms += int(days) * _DAY_MS + int(rest or "0")
            return ""
        names = ("expected=", "id=", "in=", "mode=", "execution=", "keep=")
        options = dict(word.split("=", 1) for word in words if word.startswith(names))
        words = [word for word in words if not word.startswith(names)]
        id_ = mutation_id(int(options["id"])) if "id" in options else None
        self.scenario.when(_mutation(words, options, id_), at_ms=self.now_ms)
        return self._decision()

    def _decision(self) -> str:
        row = self.scenario.last
        parts = [row.status] + [row.code] * (row.code is not None)
        parts += [f"version={row.version}"] * (row.version is not None)
        parts += [f"removed={row.removed}"] * (row.removed is not None)
        parts += [f"repeat-of={row.repeat_of}"] * (row.repeat_of is not None)
        text = " ".join(part for part in parts if part is not None)
        return text if row.detail is None else f"{text}\n{row.detail}"

    def _show(self, table: str, columns: list[str]) -> str:
        def text(value: object) -> str:
            return (
                value.decode()
                if isinstance(value, bytes)
                else json.dumps(value)
                if value is None
                else str(value)
            )

        rows = self.scenario.rows(table)
        return "\n".join(" ".join(f"{name}={text(row[name])}" for name in columns) for row in rows)


@pytest.mark.parametrize("path", sorted(_FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_a_story_goes_as_it_is_told(path: Path) -> None:
    story = _Story()
    for number, (command, expected) in enumerate(_steps(path.read_text("utf-8")), 1):
        assert story.run(command) == expected, f"step {number}: {command}"
