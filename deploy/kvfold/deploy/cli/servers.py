"""`kvfold dev|standalone|gateway|query-api`: the commands that serve HTTP."""

from __future__ import annotations

import click

from kvfold.deploy.stopping import stop_signals

__all__ = ["dev", "gateway", "query_api", "standalone"]


@click.command
@click.option(
    "--app", metavar="MODULE:REGISTRY", help="Also run the orchestrations and activities of this registry."
)
def dev(app: str | None) -> None:
    """Run everything on this machine: log, projector, gateway and query API in one process.

    Data is kept in KVFOLD_DATA (./kvfold-data), in an embedded PostgreSQL, unless KVFOLD_POSTGRES names a server. The log
    is embedded too, unless KVFOLD_KAFKA names brokers. Listens on 127.0.0.1:8080 (KVFOLD_HOST, KVFOLD_PORT). The log
    shows warnings only, unless KVFOLD_LOG_LEVEL says otherwise.

    With --app a worker runs in it, too, as `kvfold worker --app` is one for a process of its own. Changed code counts from
    the next start on.

    \b
    Example:
      kvfold dev
      kvfold dev --app orders:registry
      curl -X PUT --data-binary hello http://127.0.0.1:8080/deployments/demo/kv/user/greeting
    """
    # From here on a signal means an orderly end, also while imports and servers still start.
    with stop_signals() as stop:
        from kvfold.deploy.dev import run_dev
        from kvfold.deploy.environment import started_process
        from kvfold.deploy.worker_process import load_registry

        # What it has to say it says itself; the log then shows what is wrong.
        settings = started_process(level_unless_set="warning")
        registry = None if app is None else load_registry(app)
        run_dev(settings, stop, say=click.echo, registry=registry)


@click.command
@click.option(
    "--storage-dir",
    metavar="DIR",
    help="Where persistent namespaces are kept; OCTO_STORAGE_DIR, else ./octo-store, if not given. Empty: in memory only.",
)
def standalone(storage_dir: str | None) -> None:
    """Serve a deployment's store from a directory: no Postgres, no Kafka, no Redis.

    The routes under /deployments/ are the gateway's. Each persistent namespace is a file in the directory, written
    shortly after a change and at the end; secret and volatile namespaces are in memory only. One process at a time has
    a directory. Listens on 127.0.0.1:8080 (KVFOLD_HOST, KVFOLD_PORT).

    \b
    Example:
      kvfold standalone --storage-dir ./octo-store
      curl -X PUT --data-binary hello http://127.0.0.1:8080/deployments/demo/kv/user/greeting
    """
    with stop_signals() as stop:
        import os

        from kvfold.deploy.environment import started_process
        from kvfold.deploy.standalone_process import run_standalone
        from kvfold.producers.deployment.runtime import storage_dir as directory_of

        settings = started_process(level_unless_set="warning")
        text = os.environ.get("OCTO_STORAGE_DIR") if storage_dir is None else storage_dir
        run_standalone(settings, directory_of(text), stop, say=click.echo)


@click.command
def gateway() -> None:
    """Serve writes and reads over HTTP: append mutations to the log, answer with their outcomes.

    Needs KVFOLD_POSTGRES, and KVFOLD_KAFKA unless the log is the embedded one in that database. Outcomes come from a
    projector, which runs elsewhere. Listens on 127.0.0.1:8081 (KVFOLD_HOST, KVFOLD_PORT).

    \b
    Example:
      KVFOLD_POSTGRES=postgresql:///kvfold KVFOLD_KAFKA=127.0.0.1:9092 kvfold gateway
    """
    with stop_signals() as stop:
        from kvfold.deploy.environment import started_process
        from kvfold.deploy.http_processes import run_gateway

        run_gateway(started_process(), stop)


@click.command("query-api")
def query_api() -> None:
    """Serve reads over HTTP from Postgres; the log is never touched.

    Needs KVFOLD_POSTGRES. Listens on 127.0.0.1:8080 (KVFOLD_HOST, KVFOLD_PORT).

    \b
    Example:
      KVFOLD_POSTGRES=postgresql:///kvfold kvfold query-api
    """
    with stop_signals() as stop:
        from kvfold.deploy.environment import started_process
        from kvfold.deploy.http_processes import run_query_api

        run_query_api(started_process(), stop)
