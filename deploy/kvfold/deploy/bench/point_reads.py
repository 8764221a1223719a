"""Bench `point-reads`: GET requests a second of one query-API process, over 32 kept connections.

A topic is filled and folded first; then `kvfold query-api` serves the database, and the client asks for the capsules'
keys one after the other from a process of its own.

The floor: a bare Starlette route in a bare uvicorn with the same settings, which runs the same statement through the same
kind of pool.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Final

from kvfold.deploy.bench.projecting import fold_all
from kvfold.deploy.bench.result import Result, Round, Spec
from kvfold.deploy.bench.sizes import Sizes, Tell
from kvfold.deploy.bench.stage import Stage, free_port, kvfold_process, run_apart, running
from kvfold.deploy.bench.workload import VALUE_BYTES, fill, mutations, path_of
from kvfold.query_api.serve import POOL_SIZE
from kvfold.reads.capsule import capsule_value
from kvfold.schemas.errors import UnavailableError

__all__ = ["SPEC", "await_port", "get_load", "run"]

SPEC: Final = Spec("point-reads", "requests/s", target=0.8, more_is_better=True)

_CONNECTIONS: Final = 32
_START_TIMEOUT_S: Final = 60.0
_HOST: Final = "127.0.0.1"


def run(stage: Stage, sizes: Sizes, tell: Tell) -> Result:
    """Folds each key once, then asks both servers in turn."""
    keys = sizes.read_keys
    rounds = []
    with ExitStack() as stack:
        kafka, dsn = stack.enter_context(stage.topic()), stack.enter_context(stage.database())
        tell(f"writing and folding {keys:,} mutations")
        fill(kafka, keys)
        fold_all(kafka, dsn, keys)
        ours, bare = free_port(), free_port()
        processes = [
            stack.enter_context(
                kvfold_process("query-api", kafka=kafka, dsn=dsn, HOST=_HOST, PORT=str(ours))
            ),
            stack.enter_context(running(f"{__package__}.floors", job=_floor_job(dsn, bare))),
        ]
        for process, port in zip(processes, (ours, bare), strict=True):
            await_port(process, port)
        load = get_load([path_of(mutation) for mutation in mutations(keys)], sizes)
        for number in range(1, sizes.read_rounds + 1):
            figure = run_apart("http_load", {**load, "port": ours})["per_second"]
            floor = run_apart("http_load", {**load, "port": bare})["per_second"]
            rounds.append(Round(figure, floor))
            tell(f"round {number} of {sizes.read_rounds}: {figure:,.0f}/s, floor {floor:,.0f}/s")
    return Result.of(SPEC, rounds)


def _floor_job(dsn: str, port: int) -> dict[str, Any]:
    statement = capsule_value("", "", partition=0).statement.replace("{g}", "kvfold_g1")
    return {
        "floor": "serve",
        "dsn": dsn,
        "statement": statement,
        "pool_size": POOL_SIZE,
        "server": {
            "host": _HOST,
            "port": port,
            "http": "httptools",
            "ws": "none",
            "lifespan": "on",
            "access_log": False,
            "server_header": False,
            "proxy_headers": False,
            "log_level": "warning",
        },
    }


def get_load(paths: Sequence[str], sizes: Sizes, *, connections: int = _CONNECTIONS) -> dict[str, Any]:
    """A job of `http_load` but for its port: GET requests of these paths, each answered by a value of the workload."""
    return {
        "host": _HOST,
        "paths": list(paths),
        "connections": connections,
        "requests": sizes.reads,
        "body_bytes": VALUE_BYTES,
    }


def await_port(process: subprocess.Popen[bytes], port: int) -> None:
    """Waits until a server that was started takes connections.

    Raises:
        UnavailableError: it ended, or took too long.
    """
    deadline = time.monotonic() + _START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection((_HOST, port), timeout=1.0).close()
            return
        except OSError:
            time.sleep(0.05)
    raise UnavailableError("a server of the bench did not start", code="bench-failed")
