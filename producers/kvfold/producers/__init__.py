"""Everything that writes the log: the producer, clients of the three families, and the HTTP gateway (`gateway`).

Without `gateway`, the base install is enough.
"""

from __future__ import annotations

__all__: list[str] = []
