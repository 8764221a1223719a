"""`kvfold worker`."""

from __future__ import annotations

import click

from kvfold.deploy.stopping import stop_signals

__all__ = ["worker"]


@click.command
@click.option("--app", required=True, metavar="MODULE:REGISTRY", help="The application's registry.")
@click.option(
    "--activities",
    "activities_max",
    type=click.IntRange(1, 1_000),
    default=32,
    show_default=True,
    help="How many activities run at the same time.",
)
def worker(app: str, activities_max: int) -> None:
    """Run an application's orchestrations and activities until it is stopped.

    Any number of workers share the work, on any machines. Needs KVFOLD_POSTGRES, and KVFOLD_KAFKA unless the log is the
    embedded one in that database (`kvfold dev` writes its address to the file `dsn` in its data folder). On a stop it
    takes nothing new and ends what is under way.

    \b
    Example:
      KVFOLD_POSTGRES="$(cat kvfold-data/dsn)" kvfold worker --app orders:registry
    """
    with stop_signals() as stop:
        # Here, and not at the top: from the first moment on a signal means an orderly end.
        from kvfold.deploy.environment import started_process
        from kvfold.deploy.worker_process import load_registry, run_worker

        settings = started_process()
        run_worker(load_registry(app), settings, stop, activities_max=activities_max)
