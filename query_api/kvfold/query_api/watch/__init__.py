"""`GET /v1/watch`: every change of a scope, a family or everything, as server-sent events (row X10).

```
LISTEN ──► Hub ──hint──► Tail, one a partition: reads each change once ──► Subscription ──► stream, one a client
                                                                                ▲
                            a subscription that is behind reads pages of its own until it has caught up
```

What waits for a client is bounded: a client that does not keep up is taken off the tail, and goes on from the projection
at its own pace. So slowness costs neither memory nor events.
"""

from __future__ import annotations

__all__: list[str] = []
