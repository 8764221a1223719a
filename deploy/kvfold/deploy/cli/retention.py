"""`kvfold retention`: how long the past is kept."""

from __future__ import annotations

import json
from typing import Final

import click

__all__ = ["retention"]

_DAY_MS: Final = 24 * 60 * 60 * 1000
_FAMILIES: Final = ("capsule", "deployment", "orchestration")
_DAYS_MAX: Final = 36_500


@click.command
@click.argument("family", required=False, type=click.Choice(_FAMILIES))
@click.argument("days", required=False, metavar="[DAYS|forever]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def retention(family: str | None, days: str | None, as_json: bool) -> None:
    """Show how long the past of each FAMILY is kept, or set it in DAYS; without a setting it is kept for ever.

    Projectors trim what is older: replaced values, and, when every family has a retention, decisions. The log is not
    touched, and current values are never trimmed. Reads of what was trimmed answer `gone`. The database is the one in
    KVFOLD_POSTGRES, else that of the `kvfold dev` that runs on KVFOLD_DATA.

    \b
    Example:
      kvfold retention
      kvfold retention capsule 30
      kvfold retention capsule forever
    """
    from kvfold.deploy.environment import started_process
    from kvfold.deploy.operating import connected
    from kvfold.projector.retention import retention as kept
    from kvfold.projector.retention import set_retention
    from kvfold.schemas.types import Family

    if family is not None and days is None:
        raise click.UsageError("say for how many days, or forever")
    keep_ms = None if days is None else _milliseconds(days)
    with connected(started_process(level_unless_set="warning")) as connection:
        if family is not None and days is not None:
            set_retention(connection, Family(family), keep_ms)
        found = kept(connection)
    in_days = {str(name): None if ms is None else ms / _DAY_MS for name, ms in found.items()}
    if as_json:
        click.echo(json.dumps(in_days))
        return
    for name, number in sorted(in_days.items()):
        click.echo(f"{name:14} {'forever' if number is None else f'{number:g} days'}")


def _milliseconds(days: str) -> int | None:
    """A number of days, or `forever`, as None."""
    if days == "forever":
        return None
    try:
        number = float(days)
    except ValueError:
        number = -1.0
    if not 0 <= number <= _DAYS_MAX:
        accepted = f"forever, or a number of days from 0 to {_DAYS_MAX}"
        raise click.BadParameter(f"{days!r} is not {accepted}", param_hint="DAYS")
    return int(number * _DAY_MS)
