"""Upcasting: the body of an older version of a type in the shape of the newest, with the meaning that it always had.

The fold has one rule for all versions of a type where the old ones are special cases of the newest. Where they are not,
an old version keeps a `decide` of its own, and nothing stands here. What a record means never changes: the golden records
of its version hold an upcast to that.
"""

from __future__ import annotations

from kvfold.schemas.body import Body
from kvfold.schemas.orchestration import ExecutionsPruned, ExecutionsPrunedV2

__all__ = ["upcast"]


def upcast(body: Body) -> Body:
    """The body in the newest shape of its type; one that is of that shape already is given back."""
    match body:
        case ExecutionsPruned(execution_ids=execution_ids, keep_values=keep_values):
            # Executions count from 1, so nothing is below the first: exactly those that are named.
            return ExecutionsPrunedV2(before=1, execution_ids=execution_ids, keep_values=keep_values)
        case _:
            return body
