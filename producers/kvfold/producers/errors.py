"""What can go wrong between a mutation and its acknowledgement: the log's error, with what a repeat needs."""

from __future__ import annotations

from kvfold.schemas.errors import LogUnavailableError

__all__ = ["AppendUnacknowledgedError"]


class AppendUnacknowledgedError(LogUnavailableError):
    """The log did not acknowledge the append: the record may or may not be in it.

    `mutation_id` and `scope` are the mutation's: repeating it with the same id is safe, whichever it was.
    """

    def __init__(self, message: str, *, mutation_id: str, scope: str) -> None:
        super().__init__(message)
        self.mutation_id = mutation_id
        self.scope = scope
