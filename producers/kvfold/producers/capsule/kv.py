"""The SDK of capsule authors: plain functions on the keys of whoever is being served (002, "SDK API"; rows C12 to C18).

```
from kvfold.producers.capsule import kv

kv.set_bytes("my-key", b"raw value")
kv.get_bytes_opt("my-key")             # b"raw value"; None for a missing key
kv.cas("lock", None, b"owner-id")      # True: the key was missing, and is ours
```

`CapsuleKv` documents each; errors stand in `kvfold.producers.capsule.errors`. Outside an invocation every call raises
`Unbound`. A call takes as long as the log and the projection need: in a coroutine, put it into `asyncio.to_thread`.
"""

from __future__ import annotations

from typing import Final

from kvfold.producers.capsule.host import bound_store
from kvfold.producers.capsule.sdk import CAS_RETRY_LIMIT, CapsuleKv
from kvfold.producers.capsule.store import KeyPage
from kvfold.producers.capsule.versioned import Current, NeedsMigration, NotFound, Unversioned, Versioned

__all__ = [
    "CAS_RETRY_LIMIT",
    "Current",
    "KeyPage",
    "NeedsMigration",
    "NotFound",
    "Unversioned",
    "Versioned",
    "cas",
    "clear_prefix",
    "delete",
    "exists",
    "get_borsh",
    "get_borsh_opt",
    "get_bytes",
    "get_bytes_opt",
    "get_json",
    "get_json_opt",
    "get_versioned",
    "get_versioned_or_migrate",
    "list_keys",
    "list_keys_page",
    "set_borsh",
    "set_bytes",
    "set_json",
    "set_versioned",
    "update",
]

_bound: Final = CapsuleKv(bound_store)

set_bytes = _bound.set_bytes
get_bytes = _bound.get_bytes
get_bytes_opt = _bound.get_bytes_opt
delete = _bound.delete
exists = _bound.exists
list_keys = _bound.list_keys
list_keys_page = _bound.list_keys_page
clear_prefix = _bound.clear_prefix
cas = _bound.cas
update = _bound.update
set_json = _bound.set_json
get_json = _bound.get_json
get_json_opt = _bound.get_json_opt
set_borsh = _bound.set_borsh
get_borsh = _bound.get_borsh
get_borsh_opt = _bound.get_borsh_opt
set_versioned = _bound.set_versioned
get_versioned = _bound.get_versioned
get_versioned_or_migrate = _bound.get_versioned_or_migrate
