"""`kvfold` as the release before: it knows what `KVFOLD_TEST_FORMAT_LEVEL` says, and no record type above that.

What a release knows is a few constants that everything else imports; they are lowered before anything else is loaded,
so that the process is otherwise the real one.
"""

from __future__ import annotations

import os

from kvfold.schemas import types

__all__ = ["lower_format_level"]


def lower_format_level(level: int) -> None:
    """Makes this process one that knows no more than this format level."""
    setattr(types, "FORMAT_LEVEL", level)  # noqa: B010 - a constant to mypy
    for name in [name for name, row in types.MUTATION_TYPES.items() if row.level > level]:
        del types.MUTATION_TYPES[name]


if __name__ == "__main__":
    lower_format_level(int(os.environ.pop("KVFOLD_TEST_FORMAT_LEVEL")))
    from kvfold.deploy.cli import main

    main()
