"""Style that a machine can check: sizes, names, docstrings, what is printed, logged and waited for, and SQL files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

FUNCTION_LINES_MAX = 70
MODULE_LINES_MAX = 500
BANNED_NAMES = {"common", "utils", "util", "helpers", "helper", "manager", "managers", "misc"}
LOG_METHODS = {"debug", "info", "warning", "error", "critical", "exception"}
# Made of parts, so that this file passes its own test.
ELSEWHERE = re.compile(
    "|".join(
        (
            r"(?<![\w.}])/(?:work|root|home|Users)/\w",  # somebody's folders
            r"\.\./" + "shared|shared/" + r"(?:design|requirements)",
            r"\b(?:pypi|npmjs|pythonhosted|crates|docker|quay|ghcr|gcr)\." + r"(?:org|com|io)\b",
            r"\brepo\d?\.maven\." + r"(?:org|apache)",
            r"\b(?:artifactory|nexus)\.\w+\." + r"\w+",
            r"(?:--|PIP_|UV_)(?:extra-)?index[-_]url[= ]" + r"\S",
        )
    )
)


@pytest.fixture(scope="session")
def sources(project: Path, tracked: tuple[Path, ...]) -> dict[Path, ast.Module]:
    """Every tracked Python file, parsed."""
    return {
        name: ast.parse((project / name).read_text("utf-8"), str(name))
        for name in tracked
        if name.suffix == ".py"
    }


def test_a_function_fits_a_screen(sources: dict[Path, ast.Module]) -> None:
    found = [
        f"{name}:{node.lineno} {node.name}: {lines} lines"
        for name, tree in sources.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES_MAX
    ]
    assert found == []


def test_a_module_has_one_subject(project: Path, modules: tuple[Path, ...]) -> None:
    lengths = {str(name): len((project / name).read_text("utf-8").splitlines()) for name in modules}
    assert {name: lines for name, lines in lengths.items() if lines > MODULE_LINES_MAX} == {}


def test_names_say_what_a_module_is_about(tracked: tuple[Path, ...]) -> None:
    named = (part.removesuffix(".py") for name in tracked for part in name.parts if name.suffix == ".py")
    assert BANNED_NAMES.isdisjoint(named)


def test_every_module_says_what_it_is_and_what_is_public(
    sources: dict[Path, ast.Module], modules: tuple[Path, ...]
) -> None:
    without_docstring = [str(name) for name in modules if not ast.get_docstring(sources[name])]
    without_all = [
        str(name)
        for name in modules
        if not _declares_all(sources[name])
        and any(not public.startswith("_") for public in _defined(sources[name]))
    ]
    assert (without_docstring, without_all) == ([], [])


def test_only_the_commands_print(sources: dict[Path, ast.Module], modules: tuple[Path, ...]) -> None:
    found = [
        f"{name}:{node.lineno}"
        for name in modules
        for node in ast.walk(sources[name])
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
        if name.parts[2:4] not in {("deploy", "cli"), ("deploy", "bench")}
    ]
    assert found == []


def test_events_are_constants(sources: dict[Path, ast.Module], modules: tuple[Path, ...]) -> None:
    found = [
        f"{name}:{node.lineno} {ast.unparse(node)}"
        for name in modules
        for node in ast.walk(sources[name])
        if isinstance(node, ast.Call) and _is_log_call(node) and not _is_constant(node.args[0])
    ]
    assert found == []


def test_tests_wait_for_signals(sources: dict[Path, ast.Module]) -> None:
    """A sleep stands in a loop that asks again, never alone; a test of idleness may look on for a while."""
    found = [
        f"{name}:{line}"
        for name, tree in sources.items()
        if name.parts[:2] in {("tests", "integration"), ("tests", "e2e"), ("tests", "conformance")}
        for line in _sleeps_outside_loops(tree)
    ]
    assert found == []


def test_nothing_of_this_machine_is_written_down(project: Path, tracked: tuple[Path, ...]) -> None:
    found = [
        f"{name}:{number} {line.strip()}"
        for name in tracked
        for number, line in enumerate((project / name).read_text("utf-8", errors="replace").splitlines(), 1)
        if ELSEWHERE.search(line)
    ]
    assert found == []


def test_a_sql_file_is_one_statement_or_object(project: Path, tracked: tuple[Path, ...]) -> None:
    found = [
        f"{name}: {problem}"
        for name in tracked
        if name.suffix == ".sql"
        for problem in _problems_of_sql(name, (project / name).read_text("utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("sql/two.sql", "SELECT 1; SELECT 2", "2 statements"),
        ("sql/none.sql", "-- nothing", "0 statements"),
        ("sql/fixed.sql", "SELECT 1 FROM kvfold_g1.claim", "a generation's schema is written {g}"),
        ("sql/other.sql", "SELECT 1 FROM {schema}.claim", "{g} and {o} alone are replaced"),
        ("sql/generation/010_a.sql", "CREATE TABLE {g}.b (c int)", "makes b"),
        (
            "sql/generation/010_a.sql",
            "CREATE TABLE {g}.a (c int); CREATE INDEX d ON {g}.e (c)",
            "2 statements",
        ),
    ],
)
def test_what_the_sql_check_finds(name: str, text: str, problem: str) -> None:
    assert list(_problems_of_sql(Path(name), text)) == [problem]


def test_what_the_sql_check_passes() -> None:
    text = """-- One; object
    CREATE FUNCTION {g}.a() RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM 1; PERFORM ';'; END $$;"""
    assert list(_problems_of_sql(Path("sql/generation/010_a.sql"), text)) == []
    text = "CREATE TABLE {g}.a (c text DEFAULT ';'); CREATE INDEX d ON {g}.a (c);"
    assert list(_problems_of_sql(Path("sql/generation/010_a.sql"), text)) == []


def _assigned(statement: ast.stmt) -> list[str]:
    match statement:
        case ast.Assign(targets=targets):
            return [target.id for target in targets if isinstance(target, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case _:
            return []


def _defined(tree: ast.Module) -> list[str]:
    return [name for statement in tree.body for name in _assigned(statement)]


def _declares_all(tree: ast.Module) -> bool:
    return "__all__" in _defined(tree)


def _is_log_call(call: ast.Call) -> bool:
    match call:
        case ast.Call(func=ast.Attribute(value=value, attr=method), args=[_, *_]):
            return method in LOG_METHODS and ast.unparse(value).rpartition(".")[2] in {
                "log",
                "_log",
                "logger",
                "_logger",
            }
        case _:
            return False


def _is_constant(event: ast.expr) -> bool:
    match event:
        case ast.Constant(value=str()):
            return True
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.isupper()
        case _:
            return False


def _sleeps_outside_loops(node: ast.AST) -> Iterator[int]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.While | ast.For | ast.AsyncFor):
            continue
        if isinstance(child, ast.FunctionDef) and "_idle_" in child.name:
            continue
        if isinstance(child, ast.Call) and ast.unparse(child.func) in {
            "time.sleep",
            "sleep",
            "asyncio.sleep",
        }:
            yield child.lineno
        yield from _sleeps_outside_loops(child)


_QUOTED = re.compile(r"--[^\n]*|\$\$.*?\$\$|'(?:[^']|'')*'", re.DOTALL)
_MADE = re.compile(r"CREATE (?:TABLE|FUNCTION|SCHEMA)(?: IF NOT EXISTS)? (?:\{g\}\.|kvfold\.)?(\w+)")
_PART_OF = re.compile(r"(?:CREATE (?:UNIQUE )?INDEX \w+ ON|ALTER TABLE)(?: ONLY)? (?:\{g\}\.|kvfold\.)?(\w+)")


def _problems_of_sql(name: Path, text: str) -> Iterator[str]:
    """Says what is wrong. A table's indexes belong to its file; a file that makes an object is named like it."""
    statements = [part.strip() for part in _QUOTED.sub("", text).split(";") if part.strip()]
    made = _MADE.match(statements[0]) if statements else None
    own = [
        made is not None and (part := _PART_OF.match(one)) and part[1] == made[1] for one in statements[1:]
    ]
    if not statements or not all(own):
        yield f"{len(statements)} statements"
    if re.search(r"\bkvfold_g\d", text):
        yield "a generation's schema is written {g}"
    if set(re.findall(r"\{\w*\}", text)) - {"{g}", "{o}"}:
        yield "{g} and {o} alone are replaced"
    if name.parent.name == "generation" and (made is None or made[1] != re.sub(r"^\d+_", "", name.stem)):
        yield f"makes {made[1] if made else 'nothing'}"
