"""The command `kvfold` itself: its subcommands, loaded when they are used, and the exit codes.

| code | meaning |
|---|---|
| 0 | done |
| 1 | refused, or different from what was expected |
| 2 | usage: an option, an argument or a setting is wrong |
| 3 | a server is away or late; the same command may succeed later |
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Final, Never

import click

from kvfold.schemas.errors import KvfoldError, UnavailableError

__all__ = [
    "EXIT_REFUSED",
    "EXIT_UNAVAILABLE",
    "EXIT_USAGE",
    "Commands",
    "exit_code",
    "fail",
    "kvfold",
    "main",
]

EXIT_REFUSED: Final = 1
EXIT_USAGE: Final = 2
EXIT_UNAVAILABLE: Final = 3

_COMMANDS: Final = {
    "bench": "kvfold.deploy.bench.command:bench",
    "capsule": "kvfold.deploy.cli.capsule:capsule",
    "checkpoint": "kvfold.deploy.cli.checkpoint:checkpoint",
    "delete": "kvfold.deploy.cli.entries:delete",
    "dev": "kvfold.deploy.cli.servers:dev",
    "drop": "kvfold.deploy.cli.generations:drop",
    "emit": "kvfold.deploy.cli.emit:emit",
    "format": "kvfold.deploy.cli.format:format_",
    "gateway": "kvfold.deploy.cli.servers:gateway",
    "generations": "kvfold.deploy.cli.generations:generations",
    "get": "kvfold.deploy.cli.entries:get",
    "history": "kvfold.deploy.cli.history:history",
    "instances": "kvfold.deploy.cli.instances:instances",
    "list": "kvfold.deploy.cli.entries:list_keys",
    "log": "kvfold.deploy.cli.log:log",
    "projector": "kvfold.deploy.cli.projector:projector",
    "put": "kvfold.deploy.cli.entries:put",
    "query-api": "kvfold.deploy.cli.servers:query_api",
    "rebuild": "kvfold.deploy.cli.generations:rebuild",
    "reencrypt": "kvfold.deploy.cli.reencrypt:reencrypt",
    "swap": "kvfold.deploy.cli.generations:swap",
    "standalone": "kvfold.deploy.cli.servers:standalone",
    "retention": "kvfold.deploy.cli.retention:retention",
    "snapshot": "kvfold.deploy.cli.snapshot:snapshot",
    "topic": "kvfold.deploy.cli.topic:topic",
    "watch": "kvfold.deploy.cli.watch:watch",
    "verify": "kvfold.deploy.cli.verify:verify",
    "worker": "kvfold.deploy.cli.worker:worker",
}
"""Where each command is found; a module that is not installed is left out of the list."""


class Commands(click.Group):
    """Subcommands by name, imported when they are needed: a client command does not wait for servers' imports."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands that this installation has."""
        return sorted(name for name in _COMMANDS if self._is_there(name))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported; None where there is none."""
        if cmd_name not in _COMMANDS or not self._is_there(cmd_name):
            return None
        module, _, attribute = _COMMANDS[cmd_name].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> object:
        """Runs the subcommand; its errors become one line on standard error and an exit code."""
        try:
            return super().invoke(ctx)
        except KvfoldError as error:
            fail("\n".join([str(error), *getattr(error, "__notes__", ())]), exit_code(error))

    @staticmethod
    def _is_there(name: str) -> bool:
        module = _COMMANDS[name].partition(":")[0]
        try:
            return importlib.util.find_spec(module) is not None
        except ModuleNotFoundError:
            return False


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="kvfold")
def kvfold() -> None:
    """An event-sourced key-value system: a log of mutations, folded into Postgres.

    Settings are environment variables that begin with KVFOLD_. Begin with `kvfold dev`.
    """


def main() -> None:
    """The entry point; ends the process with the command's exit code."""
    kvfold(prog_name="kvfold")


def exit_code(error: KvfoldError) -> int:
    """The exit code of an error."""
    if isinstance(error, UnavailableError):
        return EXIT_UNAVAILABLE
    # A setting that is wrong in itself is usage; one that meets a log or a machine where it cannot hold is refused.
    return EXIT_USAGE if error.code == "configuration" else EXIT_REFUSED


def fail(message: str, code: int) -> Never:
    """Says what is wrong on standard error and ends the command with the code."""
    click.echo(f"kvfold: {message}", err=True)
    raise click.exceptions.Exit(code)
