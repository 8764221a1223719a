"""HTTP as kvfold speaks it, shared by the query API and the gateway: routes over raw paths, problems, preconditions,
positions, bodies, and the ASGI app made of a list of routes."""

from __future__ import annotations

__all__: list[str] = []
