"""Runs a command with `KVFOLD_KAFKA` naming a broker, which is found or started as for the tests.

```
.venv/bin/python tests/support/with_kafka.py .venv/bin/kvfold bench
```
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

__all__ = ["main"]


def main(command: list[str]) -> int:
    """The command's exit code."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from support.servers import shared_broker

    with tempfile.TemporaryDirectory() as folder, shared_broker(Path(folder) / "kafka") as broker:
        environment = {**os.environ, "KVFOLD_KAFKA": broker.bootstrap}
        return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
