"""`kvfold` as an earlier release: `KVFOLD_TEST_RELEASE=FORMAT_LEVEL:SCHEMA_VERSION` says what it knows, and no more.

What a release knows is a few constants that everything else imports, and rows of tables; they are lowered before
anything else is loaded, so that the process is otherwise the real one.
"""

from __future__ import annotations

import os

from kvfold.projector import generations
from kvfold.reads import statements
from kvfold.schemas import types

__all__ = ["become_earlier_release"]


def become_earlier_release(*, format_level: int, schema_version: int) -> None:
    """Makes this process one that knows no more than this format level and this schema version."""
    setattr(types, "FORMAT_LEVEL", format_level)  # noqa: B010 - a constant to mypy
    for name in [name for name, row in types.MUTATION_TYPES.items() if row.level > format_level]:
        del types.MUTATION_TYPES[name]
    setattr(generations, "SCHEMA_VERSION", schema_version)  # noqa: B010
    # Its reads name no column that a later version added.
    setattr(statements, "_SINCE_2", {"{x.sha256}": ("NULL::bytea", "NULL::bytea")})  # noqa: B010


if __name__ == "__main__":
    known = os.environ.pop("KVFOLD_TEST_RELEASE").split(":")
    become_earlier_release(format_level=int(known[0]), schema_version=int(known[1]))
    from kvfold.deploy.cli import main

    main()
