"""The documents name every setting, metric and pause that there is."""

from __future__ import annotations

import re
from pathlib import Path

from kvfold.log.settings import Settings, variable_of

__all__: list[str] = []

_ROOT = Path(__file__).parents[2]


def _text(name: str) -> str:
    return (_ROOT / "docs" / name).read_text("utf-8")


def test_configuration_names_every_variable_and_no_other() -> None:
    table = _text("configuration.md").split("\n## ", 1)[0]
    cells = re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE)
    documented = {name for cell in cells for name in re.findall(r"`([A-Z_]+)`", cell)}
    assert documented == set(map(variable_of, Settings.model_fields))


def test_operating_names_every_metric_of_the_projector() -> None:
    source = (_ROOT / "projector/kvfold/projector/telemetry.py").read_text("utf-8")
    metrics = set(re.findall(r'"(kvfold_[a-z_]+)"', source))
    documented = set(re.findall(r"`(kvfold_[a-z_]+?)(?:_total)?[{`]", _text("operating.md")))
    assert metrics == documented - {"kvfold_g"}


def test_operating_names_every_reason_of_a_pause() -> None:
    sources = "".join(path.read_text("utf-8") for path in (_ROOT / "projector/kvfold/projector").glob("*.py"))
    reasons = {
        "log-diverged",
        "offset-out-of-range",
        "format-level-ahead",
        "internal-error",
        "decisions-differ",
    }
    assert all(f'"{reason}"' in sources for reason in reasons)
    section = _text("operating.md").split("## A paused partition", 1)[1].split("\n## ", 1)[0]
    assert set(re.findall(r"^\| `([a-z-]+)`", section, re.MULTILINE)) == reasons
