"""The comparison of decisions looks at all that a decision is; the fold's tables say what that is."""

from __future__ import annotations

import re

from kvfold.projector.statements import sql_file
from kvfold.projector.tables import DecisionRow


def test_every_column_of_a_decision_is_compared() -> None:
    statement = sql_file("rebuild/compare", 2)
    for side in "ab":
        named = set(re.findall(rf"\b{side}\.(\w+)", statement))
        assert named == set(DecisionRow._fields)
