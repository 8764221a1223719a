"""Read models over the projection, the statements behind them, and waiting for the projection to come up.

A read never touches the log. It is one statement that also tells which generation serves and how far the partition is
folded, so an answer and its position belong together. What is read is in `capsule`, `deployment`, `orchestration`,
`decisions` and `operations`; `executor` runs it; `waiting` tells when it is worth reading.
"""

from __future__ import annotations

__all__: list[str] = []
