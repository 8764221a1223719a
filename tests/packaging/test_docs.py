"""Commands that documents, docstrings and messages name are there, with the options that they are shown with."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from kvfold.deploy.cli.group import kvfold

# In a code span, or where a line of a code block begins, perhaps after a prompt, a path and settings.
_COMMAND = re.compile(
    r"(?:`|^[ \t]*(?:\$ )?(?:[A-Z_]+=\S+ )*(?:\S*/)?)kvfold ([a-z][^`\n;&>#]*)", re.MULTILINE
)
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"(?<!`)`[^`\n]+`(?!`)")


def _code_of(text: str) -> str:
    """A Markdown text's code blocks and code spans, a line each."""
    blocks = _FENCE.findall(text)
    return "\n".join([*blocks, *_SPAN.findall(_FENCE.sub("", text))])


def _commands(text: str) -> list[str]:
    return [" ".join(found.partition(" |")[0].split()) for found in _COMMAND.findall(text)]


def _problems(shown: str) -> Iterator[str]:
    """What a shown command line (without `kvfold`) has that the command line has not; `create|check` is two commands."""
    command: click.Command = kvfold
    context = click.Context(command)
    words = shown.split()
    while words and isinstance(command, click.Group) and words[0].islower() and not words[0].startswith("-"):
        found = {name: command.get_command(context, name) for name in words.pop(0).split("|")}
        yield from (f"kvfold {shown}: there is no {name!r}" for name, one in found.items() if one is None)
        there = [one for one in found.values() if one is not None]
        if not there:
            return
        command, context = there[0], click.Context(there[0], parent=context)
    options = {
        name
        for parameter in command.get_params(context)
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
    for word in words:
        option = word.strip("[](),.…").partition("=")[0]
        if option.startswith("--") and option not in options:
            yield f"kvfold {shown}: there is no {option}"


def test_documents_name_commands_that_are_there(project: Path, tracked: tuple[Path, ...]) -> None:
    found = [
        f"{name}: {problem}"
        for name in tracked
        if name.suffix == ".md"
        for shown in _commands(_code_of((project / name).read_text("utf-8")))
        for problem in _problems(shown)
    ]
    assert found == []


def test_docstrings_and_messages_name_commands_that_are_there(
    project: Path, modules: tuple[Path, ...]
) -> None:
    found = [
        f"{name}: {problem}"
        for name in modules
        for shown in re.findall(r"`kvfold ([a-z][^`\n]*)`", (project / name).read_text("utf-8"))
        for problem in _problems(shown)
    ]
    assert found == []


def test_every_command_has_its_help() -> None:
    context = click.Context(kvfold)
    commands = [kvfold.get_command(context, name) for name in kvfold.list_commands(context)]
    assert [command for command in commands if command is None or not command.get_short_help_str()] == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("`kvfold topic create|check`", ["topic create|check"]),
        ("`kvfold get x --json`", ["get x --json"]),
        ("kvfold keeps what `kvfold` is told", []),
        (
            "```sh\n$ kvfold dev  # all of it\n.venv/bin/kvfold topic create | cat\n```",
            ["dev", "topic create"],
        ),
        ("```\nKVFOLD_LOG=memory kvfold dev\n# kvfold is told\n```", ["dev"]),
    ],
)
def test_what_is_read_from_a_document(text: str, shown: list[str]) -> None:
    assert _commands(_code_of(text)) == shown


@pytest.mark.parametrize(
    "shown", ["nothing-of-the-kind", "topic nothing", "topic check|nothing", "emit --nothing"]
)
def test_what_is_not_there_is_found(shown: str) -> None:
    assert len(list(_problems(shown))) == 1
