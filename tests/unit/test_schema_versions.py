"""What a release knows of schema versions, and how its reads are put to the tables of each."""

from __future__ import annotations

from kvfold.projector.generations import SCHEMA_VERSION, knows_schema
from kvfold.reads.statements import in_generation, statement

__all__: list[str] = []


def test_a_release_knows_its_own_tables_and_those_of_the_one_before() -> None:
    known = [version for version in range(-1, SCHEMA_VERSION + 3) if knows_schema(version)]
    assert known == [SCHEMA_VERSION - 1, SCHEMA_VERSION]


def test_a_column_of_a_later_version_is_worked_out_where_the_tables_lack_it() -> None:
    text = "SELECT {x.sha256} FROM {g}.deployment_entry x"
    assert in_generation(text, 3, 2) == "SELECT x.sha256 FROM kvfold_g3.deployment_entry x"
    assert in_generation(text, 3, 1) == "SELECT sha256(x.value) FROM kvfold_g3.deployment_entry x"


def test_nothing_is_left_open_in_a_listing() -> None:
    for version in (SCHEMA_VERSION - 1, SCHEMA_VERSION):
        for text in (statement("deployment_objects"), statement("deployment_objects_as_of")):
            assert "{" not in in_generation(text, 1, version)
