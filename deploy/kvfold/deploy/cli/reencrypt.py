"""`kvfold reencrypt`."""

from __future__ import annotations

import json
from typing import Any, Final

import click

from kvfold.deploy.cli.group import EXIT_REFUSED, fail
from kvfold.deploy.stopping import stop_signals
from kvfold.schemas.errors import InvalidError

__all__ = ["reencrypt"]

_COUNTS: Final = ("checked", "reencrypted", "changed")


@click.command
@click.argument("scope")
@click.option("--json", "as_json", is_flag=True, help="Print what was done as a JSON object.")
def reencrypt(scope: str, as_json: bool) -> None:
    """Encrypt a deployment's secrets anew with the gateway's KV_ENCRYPTION_KEY, after a new key was brought in.

    SCOPE is d:DEPLOYMENT. Each secret that an older key encrypted gets a new version, so a writer that holds the old
    version has to read again; what the current key encrypted stays as it is. The gateway does the work: neither keys nor
    values come here. After Ctrl-C, start it again: it passes over what is done. Exit code 1 if a secret could not be
    decrypted, since its key is not among KV_ENCRYPTION_KEYS_OLD.

    \b
    Example:
      kvfold reencrypt d:dep-1
    """
    with stop_signals() as stop:
        from urllib.parse import quote

        from kvfold.deploy.environment import started_process
        from kvfold.deploy.http_client import KvfoldClient
        from kvfold.deploy.progress import progress_of
        from kvfold.deploy.scopes import DeploymentScope, parse_scope

        try:
            place = parse_scope(scope)
        except InvalidError as error:
            raise click.BadParameter(str(error), param_hint="SCOPE") from error
        if not isinstance(place, DeploymentScope):
            raise click.BadParameter("only deployments (d:…) have secrets", param_hint="SCOPE")
        done: dict[str, Any] = {**dict.fromkeys(_COUNTS, 0), "unopened": []}
        cursor: str | None = None
        is_finished = False
        with KvfoldClient(started_process().url) as client, progress_of("secrets") as progress:
            while not stop.is_set():
                query = "" if cursor is None else f"?cursor={quote(cursor, safe='')}"
                page = client.post(f"{place.base}/reencrypt{query}").json()
                for name in (*_COUNTS, "unopened"):
                    done[name] += page[name]
                progress("checked", done["checked"], None)
                cursor = page["next_cursor"]
                if cursor is None:
                    is_finished = True
                    break
        _conclude(done, is_finished=is_finished, as_json=as_json)


def _conclude(done: dict[str, Any], *, is_finished: bool, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({**done, "finished": is_finished}, ensure_ascii=False))
    else:
        click.echo(", ".join(f"{done[name]} {name}" for name in _COUNTS))
        for secret in done["unopened"]:
            click.echo(f"not decrypted: {secret['namespace']}/{secret['key']}, {secret['code']}", err=True)
    if not is_finished:
        fail("stopped; starting it again goes on with what is left", EXIT_REFUSED)
    if done["unopened"]:
        raise click.exceptions.Exit(EXIT_REFUSED)
