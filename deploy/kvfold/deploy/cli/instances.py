"""`kvfold instances …`: orchestration instances from the shell, over HTTP."""

from __future__ import annotations

import click

from kvfold.deploy.cli.instance_reads import get, kv, list_instances, show, wait
from kvfold.deploy.cli.instance_writes import cancel, delete, prune, raise_, start

__all__ = ["instances"]


@click.group
def instances() -> None:
    """Start orchestration instances, see how they are doing, and tell them what happened.

    \b
    Example:
      kvfold instances start order-17 order --input '{"amount": 5}'
      kvfold instances wait order-17
    """


for _command in (start, list_instances, show, wait, get, kv, raise_, cancel, prune, delete):
    instances.add_command(_command)
