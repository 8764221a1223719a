"""The query API: the reads of the contract as a list of routes, and the process that serves them.

`routes.read_routes(context)` is the list; the gateway and `kvfold dev` put it into an app with their own routes.
"""

from __future__ import annotations

__all__: list[str] = []
