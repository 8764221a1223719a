"""`kvfold snapshot save|restore`: a scope to a file, and from there through the log of another installation."""

from __future__ import annotations

import json
from pathlib import Path

import click

from kvfold.deploy.cli.group import EXIT_REFUSED, fail
from kvfold.deploy.stopping import stop_signals
from kvfold.schemas.errors import InvalidError

__all__ = ["snapshot"]

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group
def snapshot() -> None:
    """Move a scope to another installation: save it to a file, restore it from there.

    \b
    Example:
      kvfold snapshot save d:dep-1 dep-1.ndjson
      KVFOLD_URL=http://elsewhere:8080 kvfold snapshot restore dep-1.ndjson
    """


@snapshot.command
@click.argument("scope")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--as-of", metavar="POSITION|TIME", help="As it was then; as it is now if not given.")
@_json
def save(scope: str, file: Path, as_of: str | None, as_json: bool) -> None:
    """Save a SCOPE, as of one position, into FILE, which must not be there yet.

    Secret values are saved as ciphertext: who restores them needs the same encryption key, and the same deployment id.

    \b
    Example:
      kvfold snapshot save d:dep-1 dep-1.ndjson
      kvfold snapshot save c:alice:capsule:notes notes.ndjson --as-of 2026-01-31T12:00:00Z
    """
    from kvfold.deploy.environment import started_process
    from kvfold.deploy.http_client import KvfoldClient
    from kvfold.deploy.progress import progress_of
    from kvfold.deploy.scopes import parse_scope
    from kvfold.deploy.snapshots import save as save_snapshot
    from kvfold.schemas.types import Family

    try:
        family = Family(parse_scope(scope).family)
    except InvalidError as error:
        raise click.BadParameter(str(error), param_hint="SCOPE") from error
    _refuse_instances(family)
    if file.exists():
        raise click.UsageError(f"{file} is there already: name another file")
    if not file.parent.is_dir():
        raise click.UsageError(f"{file.parent} is no folder")
    with (
        stop_signals() as stop,
        KvfoldClient(started_process().url) as client,
        progress_of("entries") as tell,
    ):
        saved = save_snapshot(client, scope, family, file, stop, tell, as_of=as_of)
    if saved is None:
        fail("stopped: nothing was saved", EXIT_REFUSED)
    facts = {"snapshot": saved.snapshot, "scope": scope, "position": saved.position, "entries": saved.entries}
    click.echo(json.dumps(facts) if as_json else f"saved {saved.entries} entries as of {saved.position}")


@snapshot.command
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--patience",
    "patience_s",
    default=60.0,
    show_default=True,
    type=click.FloatRange(min=0),
    help="Seconds to try again while kvfold is away.",
)
@_json
def restore(file: Path, patience_s: float, as_json: bool) -> None:
    """Bring the scope in FILE back, with its versions; it must be empty.

    After Ctrl-C, or when kvfold was away, the same command goes on where it was, as long as nothing else has written the
    scope. Exit code 1 if it was refused or stopped.

    \b
    Example:
      KVFOLD_URL=http://elsewhere:8080 kvfold snapshot restore dep-1.ndjson
    """
    from kvfold.deploy.environment import started_process
    from kvfold.deploy.http_client import KvfoldClient, ServerAwayError
    from kvfold.deploy.progress import progress_of
    from kvfold.deploy.snapshots import read_head
    from kvfold.deploy.snapshots import restore as restore_snapshot

    head = read_head(file)
    _refuse_instances(head.family)
    with (
        stop_signals() as stop,
        KvfoldClient(started_process().url) as client,
        progress_of("entries") as tell,
    ):
        try:
            restored = restore_snapshot(client, head, file, stop, tell, patience_s=patience_s)
        except ServerAwayError as away:
            away.add_note("The same command goes on where it was.")
            raise
    done = restored.applied + restored.present
    facts = {
        "scope": head.scope,
        "entries": head.entries,
        "restored": restored.applied,
        "present": restored.present,
    }
    if as_json:
        click.echo(json.dumps(facts))
    if done < head.entries:
        fail(f"stopped after {done} of {head.entries} entries: the same command goes on", EXIT_REFUSED)
    if not as_json:
        there = f", {restored.present} of them were there" if restored.present else ""
        click.echo(f"restored {done} entries of {head.scope}{there}")


def _refuse_instances(family: str) -> None:
    if family == "orchestration":
        fail(
            "an orchestration's state is its history, which a snapshot does not carry: instances cannot be moved in this "
            "release; deployments (d:…) and capsules (c:…) can",
            EXIT_REFUSED,
        )
