"""The command line: every command explains itself, and errors are one line and an exit code."""

from __future__ import annotations

import click
import pytest

from kvfold.deploy.cli.group import EXIT_REFUSED, EXIT_UNAVAILABLE, EXIT_USAGE, exit_code, kvfold
from kvfold.deploy.environment import PortTakenError
from kvfold.schemas.errors import (
    ConfigurationError,
    InvalidError,
    KvfoldError,
    LogDivergedError,
    LogMisconfiguredError,
    LogUnavailableError,
)
from support.cli import run_command

NOWHERE = "http://127.0.0.1:1"


def commands() -> dict[str, click.Command]:
    """Every command by what is typed for it, groups included."""
    found: dict[str, click.Command] = {}
    context = click.Context(kvfold, info_name="kvfold")
    for name in kvfold.list_commands(context):
        command = kvfold.get_command(context, name)
        assert command is not None
        found[name] = command
        if isinstance(command, click.Group):
            found |= {f"{name} {inner}": one for inner, one in command.commands.items()}
    return found


def test_the_commands_are_there() -> None:
    assert {
        "projector",
        "topic create",
        "topic check",
        "emit",
        "get",
        "put",
        "delete",
        "list",
        "log copy",
    } <= set(commands())


@pytest.mark.parametrize("name", sorted(commands()))
def test_help_has_an_example(name: str) -> None:
    result = run_command(*name.split(), "--help")
    assert result.exit_code == 0
    assert "Example:" in result.output
    assert f"kvfold {name.split()[0]}" in result.output.partition("Example:")[2]


def test_an_unknown_command_is_a_matter_of_usage() -> None:
    assert run_command("frobnicate").exit_code == EXIT_USAGE


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidError("x", code="invalid-key"), EXIT_REFUSED),
        (ConfigurationError("x"), EXIT_USAGE),
        (LogMisconfiguredError("x"), EXIT_REFUSED),
        (PortTakenError("x"), EXIT_REFUSED),
        (LogDivergedError("x"), EXIT_REFUSED),
        (LogUnavailableError("x"), EXIT_UNAVAILABLE),
    ],
)
def test_exit_codes(error: KvfoldError, code: int) -> None:
    assert exit_code(error) == code


def test_a_projector_without_postgres_says_what_it_needs() -> None:
    result = run_command("projector")
    assert result.exit_code == EXIT_USAGE
    assert "KVFOLD_POSTGRES is not set" in result.stderr
    assert "kvfold dev" in result.stderr


def test_a_wrong_connection_string_is_not_shown() -> None:
    result = run_command("projector", environment={"KVFOLD_POSTGRES": "host=h secret-word"})
    assert result.exit_code == EXIT_USAGE
    assert "KVFOLD_POSTGRES" in result.stderr
    assert "secret-word" not in result.output


def test_a_wrong_setting_names_the_variable() -> None:
    result = run_command("get", "d:x", "k", environment={"KVFOLD_PORTS": "1"})
    assert result.exit_code == EXIT_USAGE
    assert "KVFOLD_PORTS is no setting of kvfold" in result.stderr


@pytest.mark.parametrize("command", ["create", "check"])
def test_topic_commands_need_a_broker_to_talk_to(command: str) -> None:
    result = run_command("topic", command)
    assert result.exit_code == EXIT_USAGE
    assert "KVFOLD_KAFKA is not set" in result.stderr


def test_log_copy_needs_a_target_and_a_source() -> None:
    assert "KVFOLD_KAFKA is not set" in run_command("log", "copy").stderr
    result = run_command(
        "log", "copy", environment={"KVFOLD_KAFKA": "127.0.0.1:1", "KVFOLD_DATA": "no-such-folder"}
    )
    assert result.exit_code == EXIT_REFUSED
    assert "there is no embedded log in no-such-folder" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("get", "x:y", "key"),
        ("get", "c:alice:capsule:notes", "key", "--namespace", "user"),
        ("put", "o:instance", "key", "value"),
        ("put", "d:dep", "key", "value", "--file", "f"),
        ("put", "d:dep", "key", "value", "--expect", "version: 3"),
        ("put", "d:dep", "key", "--file", "no-such-file"),
        ("list", "d:dep", "--limit", "0"),
        ("emit", "no-such-file"),
    ],
)
def test_usage_is_refused_before_anything_is_sent(arguments: tuple[str, ...]) -> None:
    assert run_command(*arguments, environment={"KVFOLD_URL": NOWHERE}).exit_code == EXIT_USAGE


@pytest.mark.parametrize(
    "arguments", [("get", "d:dep", "key"), ("put", "d:dep", "key", "value"), ("list", "d:dep")]
)
def test_a_server_that_is_away_is_exit_code_3(arguments: tuple[str, ...]) -> None:
    result = run_command(*arguments, environment={"KVFOLD_URL": NOWHERE})
    assert result.exit_code == EXIT_UNAVAILABLE
    assert NOWHERE in result.stderr


def test_a_put_without_an_answer_says_how_to_repeat_it() -> None:
    result = run_command("put", "d:dep", "key", "value", environment={"KVFOLD_URL": NOWHERE})
    assert "repeat it with --id " in result.stderr
