"""`kvfold projector`."""

from __future__ import annotations

import click

from kvfold.deploy.stopping import stop_signals

__all__ = ["projector"]


@click.command
def projector() -> None:
    """Fold the log into Postgres until it is stopped.

    Any number of these share the partitions; when one goes, the others take over. Needs KVFOLD_POSTGRES, and KVFOLD_KAFKA
    unless the log is the embedded one in that database. While log or Postgres is away it waits and tries again.
    Metrics and health are on KVFOLD_TELEMETRY_PORT (8082).

    \b
    Example:
      KVFOLD_POSTGRES=postgresql:///kvfold KVFOLD_KAFKA=127.0.0.1:9092 kvfold projector
    """
    with stop_signals() as stop:
        # Here, and not at the top: from the first moment on a signal means an orderly end.
        from kvfold.deploy.environment import started_process
        from kvfold.deploy.projector_process import run_projector

        run_projector(started_process(), stop)
