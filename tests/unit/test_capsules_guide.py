"""The author's guide: every snippet of `docs/capsules.md` runs as it stands there, in order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kvfold.producers.capsule.host import CapsuleHost
from kvfold.producers.capsule.memory_store import MemoryKvStore
from kvfold.schemas.bodies import CapsuleBatch, parse_body
from kvfold.schemas.mutation import Mutation
from support.given import applied, given
from support.mutations import CAPSULE, capsule_set, mutation_id

__all__: list[str] = []

GUIDE = Path(__file__).parents[2] / "docs" / "capsules.md"
_BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


@pytest.mark.row("C12")
@pytest.mark.row("C16")
@pytest.mark.row("C17")
@pytest.mark.row("C18")
def test_the_snippets_of_a_capsules_code() -> None:
    text = GUIDE.read_text("utf-8")
    author, host = text.split("\n## For the host\n")
    blocks = _BLOCK.findall(author)
    assert len(blocks) >= 10 and len(_BLOCK.findall(host)) == 1, "what is for a host runs in tests/e2e"
    names: dict[str, object] = {"__name__": "capsule"}
    with CapsuleHost(MemoryKvStore(), capsule_id="guide").invocation("alice"):
        for block in blocks:
            exec(compile(block, str(GUIDE), "exec", dont_inherit=True), names)


def test_the_batch_that_it_shows_is_one() -> None:
    (shown,) = re.findall(r"```json\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    batch = parse_body("kvfold.capsule.batch.v1", shown.encode())
    assert isinstance(batch, CapsuleBatch)
    asked = Mutation("kvfold.capsule.batch.v1", CAPSULE, mutation_id(), body=shown.encode())
    scenario = given(capsule_set("todo", b"milk")).when(asked)
    scenario.then(applied(removed=1), capsule_entry=[{"key": "done", "value": b"milk"}])
